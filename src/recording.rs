//! From a look at the stack to bytes in the ring.
//!
//! Knows: which version the stream has, and of version 3 which samples are owed
//! to it. Must not know: signals, where the bytes go.
//!
//! What is called while a session runs runs in the signal handler.

use crate::native::modules::Module;
use crate::stack::{Found, RawFrame};
use crate::stream::intern::{self, Context, Interner};
use crate::stream::ring::Producer;
use crate::stream::version2::Version2;
use crate::stream::writer::Signals;
use ljp::encode::{Cursor, MAX_SAMPLE};
use ljp::{Reason, VmState};
use std::sync::Arc;

/// The stream of a session, as the handler writes it.
#[allow(clippy::large_enum_variant)] // There is one of them, and it stays where it is.
pub enum Recording {
    /// Ours: every frame and stack once.
    Version3(Version3),
    /// Tarantool's: every sample with its stacks.
    Version2(Version2),
}

impl Recording {
    /// Records a sample of `weight` intervals at monotonic time `now`.
    /// Returns what became of its stack.
    pub fn record(
        &mut self,
        context: &Context,
        found: Found,
        frames: &[RawFrame],
        weight: u64,
        now: u64,
    ) -> Result<(), Reason> {
        match self {
            Recording::Version3(stream) => stream.record(context, found, frames, weight, now),
            Recording::Version2(stream) => stream.record(context, found, frames, weight),
        }
    }

    /// Takes note of modules that were loaded since the start. Returns false,
    /// and is to be called again, if there is no room.
    pub fn modules(&mut self, added: &[Module]) -> bool {
        match self {
            Recording::Version3(stream) => stream.modules(added),
            // It has addresses in memory, and the symbols come by another way.
            Recording::Version2(_) => true,
        }
    }

    /// The last bytes of the stream, with what it still owes. For a host's
    /// writer, they are given to it instead. Not for the handler.
    pub fn finish(&mut self, counters: &ljp::Counters) -> Vec<u8> {
        match self {
            Recording::Version3(stream) => stream.finish(counters),
            Recording::Version2(stream) => stream.finish(),
        }
    }

    /// The errno that a writer of the host's has failed with.
    pub fn failure(&self) -> Option<i32> {
        match self {
            Recording::Version3(_) => None,
            Recording::Version2(stream) => stream.failure(),
        }
    }
}

/// A stream of version 3.
pub struct Version3 {
    interner: Interner,
    out: Producer,
    writer: Arc<Signals>,
    /// Microseconds of monotonic time up to which steps were written.
    written_until: u64,
    /// Samples by state that there was no room for: they are written, without
    /// a stack, as soon as there is.
    owed: [u64; VmState::COUNT],
}

impl Version3 {
    /// A recording into `out`, emptied by the thread behind `writer`; `start`
    /// is the monotonic time in nanoseconds that time steps count from.
    pub fn new(interner: Interner, out: Producer, writer: Arc<Signals>, start: u64) -> Version3 {
        Version3 {
            interner,
            out,
            writer,
            written_until: start / 1000,
            owed: [0; VmState::COUNT],
        }
    }

    fn record(
        &mut self,
        context: &Context,
        found: Found,
        frames: &[RawFrame],
        weight: u64,
        now: u64,
    ) -> Result<(), Reason> {
        if self.writer.failure().is_some() {
            // The stream has ended; the counters go on.
            return Err(Reason::Full);
        }
        self.settle_debts(now);
        let stack = match found.stack {
            Err(reason) => Err(reason),
            // No code at all: nothing runs without a frame, but a leaf of
            // nothing is a stack of nothing.
            Ok(()) if frames.is_empty() => Err(Reason::Inconsistent),
            Ok(()) => {
                (self.interner.stack(context, frames, &mut self.out)).map_err(|_| Reason::Full)
            }
        };
        if !self.put_sample(found.state, stack, weight, now) {
            self.owed[found.state as usize] += weight;
            self.out.retract();
            return Err(Reason::Full);
        }
        self.out.publish();
        if self.out.room() < self.out.capacity() / 2 {
            self.writer.wake();
        }
        stack.map(|_| ())
    }

    /// Tells the reader of modules that were loaded since the start. Addresses
    /// that were defined before may be in a module now, or in another one.
    /// Returns false, and is to be called again, if there is no room.
    fn modules(&mut self, added: &[Module]) -> bool {
        let told = intern::write_modules(added, &mut self.out);
        if told {
            self.interner.new_epoch(&mut self.out);
        }
        told
    }

    fn put_sample(
        &mut self,
        state: VmState,
        stack: Result<u32, Reason>,
        weight: u64,
        now: u64,
    ) -> bool {
        let mut bytes = [0; MAX_SAMPLE];
        let mut record = Cursor::new(&mut bytes);
        let step = (now / 1000).saturating_sub(self.written_until);
        record.sample(state, stack, weight, step);
        let fits = self.out.put(record.written());
        if fits {
            self.written_until += step;
        }
        fits
    }

    fn settle_debts(&mut self, now: u64) {
        for state in VmState::ALL {
            let owed = self.owed[state as usize];
            if owed != 0 && self.put_sample(state, Err(Reason::Full), owed, now) {
                self.owed[state as usize] = 0;
            }
        }
    }

    /// The samples that are still owed, and the end record.
    fn finish(&self, counters: &ljp::Counters) -> Vec<u8> {
        let mut bytes = [0; 1024];
        let mut last = Cursor::new(&mut bytes);
        for state in VmState::ALL {
            let owed = self.owed[state as usize];
            if owed != 0 {
                last.sample(state, Err(Reason::Full), owed, 0);
            }
        }
        last.end(counters);
        last.written().to_vec()
    }
}

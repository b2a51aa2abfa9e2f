//! From a look at the stack to bytes in the ring.
//!
//! Knows: which samples are owed to the stream. Must not know: signals, where
//! the bytes go.
//!
//! Runs in the signal handler.

use crate::native::modules::Module;
use crate::stack::{Found, RawFrame};
use crate::stream::intern::{self, Context, Interner};
use crate::stream::ring::Producer;
use crate::stream::writer::Signals;
use ljp::encode::{Cursor, MAX_SAMPLE};
use ljp::{Reason, VmState};
use std::sync::Arc;

/// The stream of a session, as the handler writes it.
pub struct Recording {
    interner: Interner,
    out: Producer,
    writer: Arc<Signals>,
    /// Microseconds of monotonic time up to which steps were written.
    written_until: u64,
    /// Samples by state that there was no room for: they are written, without
    /// a stack, as soon as there is.
    owed: [u64; VmState::COUNT],
}

impl Recording {
    /// A recording into `out`, emptied by the thread behind `writer`; `start`
    /// is the monotonic time in nanoseconds that time steps count from.
    pub fn new(interner: Interner, out: Producer, writer: Arc<Signals>, start: u64) -> Recording {
        Recording {
            interner,
            out,
            writer,
            written_until: start / 1000,
            owed: [0; VmState::COUNT],
        }
    }

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
    pub fn modules(&mut self, added: &[Module]) -> bool {
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

    /// Adds the samples that are still owed to `record`, at the end.
    pub fn owed_to(&self, record: &mut Cursor) {
        for state in VmState::ALL {
            let owed = self.owed[state as usize];
            if owed != 0 {
                record.sample(state, Err(Reason::Full), owed, 0);
            }
        }
    }
}

//! A whole profile in memory, added up, from a stream of any version.
//!
//! Knows what was recorded: which stacks how often, and what the ids in them
//! stand for. Does not know how any of it is named or shown. Its size depends
//! on how many different stacks there were, not on how many samples.

mod build;
mod join;
mod stacks;
mod tarantool;

use std::collections::BTreeMap;
use std::io::Read;

pub use stacks::{Node, Stacks, Weights};

use crate::decode::{
    self, Abort, AnyReader, Error, Func, Module, Proto, REASON_LIMIT, TarantoolEvent,
};
use crate::{Counters, FrameDef, TraceDef, VmState};
use indexmap::{IndexMap, IndexSet};

/// What a stream says, added up.
///
/// Ids in frames, functions and traces are indices into the lists here, across
/// all epochs of the stream.
#[derive(Debug, Default)]
pub struct Profile {
    /// Version of the stream, 1 to 3.
    pub version: u8,
    /// What the recorder says of the recording, by key. Bytes that are no UTF-8
    /// are replaced.
    pub meta: BTreeMap<String, String>,
    /// The modules.
    pub modules: Vec<Module>,
    /// The Lua functions.
    pub protos: IndexSet<Proto>,
    /// The C functions and built-ins.
    pub funcs: IndexSet<Func>,
    /// The traces.
    pub traces: IndexSet<TraceDef>,
    /// The frames.
    pub frames: IndexSet<FrameDef>,
    /// The stacks, and how many samples fell on each.
    pub stacks: Stacks,
    /// Names of native code that the stream itself brings, by the address where
    /// it begins. They belong to frames without a module.
    pub symbols: BTreeMap<u64, Vec<u8>>,
    /// What LuaJIT began to record and gave up, and how often.
    pub aborts: IndexMap<Abort, u64>,
    /// Samples by VM state, by weight.
    pub by_state: [u64; VmState::COUNT],
    /// Samples without a stack by the number of the reason, by weight.
    pub by_reason: BTreeMap<u8, u64>,
    /// Samples without a stack by VM state, by weight.
    pub stackless: Weights,
    /// Sample records, each of which may stand for several ticks.
    pub records: u64,
    /// Microseconds from the start to the last sample, 0 where the version
    /// keeps no time.
    pub sampled_us: u64,
    /// The counters of the end record, `None` if it is missing or the version
    /// has none.
    pub end: Option<Counters>,
}

/// What came of reading a stream.
#[derive(Debug)]
pub struct Reading {
    /// What was read, as far as it was good.
    pub profile: Profile,
    /// Why it was not read to a good end.
    pub fault: Option<Error>,
}

impl Profile {
    /// Reads a stream of any version and adds it up.
    ///
    /// # Errors
    ///
    /// Those of [`decode::open`], when there is nothing to show at all. What
    /// goes wrong later is in [`Reading::fault`], next to what was read before.
    pub fn read(source: impl Read) -> Result<Reading, Error> {
        match decode::open(source)? {
            AnyReader::V3(mut reader) => {
                let mut builder = build::Builder::default();
                let fault = loop {
                    match reader.next_event() {
                        Ok(Some(event)) => builder.add(event),
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                };
                let profile = builder.finish();
                let fault = fault.or_else(|| {
                    let what = profile.contradiction()?;
                    let offset = reader.offset();
                    Some(Error::Damaged { offset, what })
                });
                Ok(Reading { profile, fault })
            }
            AnyReader::Tarantool(mut reader) => {
                let mut builder = tarantool::Builder::default();
                let mut version = 0;
                let fault = loop {
                    let event = reader.next_event();
                    version = reader.version().unwrap_or(version);
                    match event {
                        Ok(Some(TarantoolEvent::Symbol(symbol))) => builder.symbol(symbol),
                        Ok(Some(TarantoolEvent::Sample(sample))) => builder.sample(&sample),
                        Ok(None) => break None,
                        Err(error) => break Some(error),
                    }
                };
                let profile = builder.finish(version);
                Ok(Reading { profile, fault })
            }
        }
    }

    /// Samples by weight: every tick of the clock counts as one.
    pub fn samples(&self) -> u64 {
        sum(&self.by_state)
    }

    /// Microseconds that the recording took: what the end record says, or else
    /// the time of the last sample. 0 where the version keeps no time.
    pub fn duration_us(&self) -> u64 {
        self.end.map_or(self.sampled_us, |end| end.duration_us)
    }

    /// Where code is that was met at `address` of a module, which the recorder may
    /// not have known yet: the profile may have defined it since.
    pub fn settled(&self, module: Option<u32>, address: u64) -> (Option<u32>, u64) {
        let holds = |module: &Module| (module.low..module.end).contains(&address);
        let late = module
            .is_none()
            .then(|| self.modules.iter().position(holds));
        match late.flatten() {
            Some(late) => {
                let address = address.wrapping_sub(self.modules[late].bias);
                (Some(late as u32), address)
            }
            None => (module, address),
        }
    }

    /// The name of a function, empty if there is none. Of a library that was
    /// loaded later it may have come at the end, with another definition.
    pub fn name_of<'a>(&'a self, func: &'a Func) -> &'a [u8] {
        // Functions whose code is not known have nothing in common.
        if !func.name.is_empty() || func.address == 0 {
            return &func.name;
        }
        let place = |func: &Func| (func.kind, self.settled(func.module, func.address));
        let here = place(func);
        let same = |other: &&Func| !other.name.is_empty() && place(other) == here;
        self.funcs
            .iter()
            .find(same)
            .map_or(&[], |other| &other.name)
    }

    /// What the end record says otherwise than the samples before it.
    fn contradiction(&self) -> Option<String> {
        let end = self.end?;
        if end.by_state != self.by_state || end.samples != self.samples() {
            return Some(format!(
                "the end record counts {} samples, the stream has {}",
                end.samples,
                self.samples()
            ));
        }
        let without: u64 = sum(&end.by_reason);
        let read = (0..end.by_reason.len() as u8)
            .filter_map(|reason| self.by_reason.get(&reason))
            .fold(0u64, |sum, n| sum.saturating_add(*n));
        (without != read).then(|| {
            format!(
                "the end record counts {without} samples without a stack, the stream has {read}"
            )
        })
    }

    /// Adds a sample's weight where it belongs. `stack` is an index into
    /// [`Profile::stacks`].
    fn count(&mut self, state: VmState, stack: Result<u32, u8>, weight: u64) {
        let of_state = &mut self.by_state[state as usize];
        *of_state = of_state.saturating_add(weight);
        self.records = self.records.saturating_add(1);
        match stack {
            Ok(stack) => self.stacks.add(stack, state, weight),
            Err(reason) => {
                debug_assert!(usize::from(reason) < REASON_LIMIT);
                let of_reason = self.by_reason.entry(reason).or_default();
                *of_reason = of_reason.saturating_add(weight);
                let of_state = &mut self.stackless[state as usize];
                *of_state = of_state.saturating_add(weight);
            }
        }
    }
}

/// Adds up without overflow: a hostile stream may claim any weight.
fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// The place of a value in a set, which gets it if it is new.
fn intern<T: std::hash::Hash + Eq>(set: &mut IndexSet<T>, value: T) -> u32 {
    // A set that is full doubles by itself. Most of what a large profile takes is
    // in these sets: a quarter at a time leaves less of it unused.
    if set.len() == set.capacity() {
        set.reserve_exact(set.len() / 4 + 64);
    }
    // Ids of a stream have 32 bits, and each value came with one.
    set.insert_full(value).0 as u32
}

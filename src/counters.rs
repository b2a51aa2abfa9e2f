//! What is counted while a session runs.
//!
//! Knows: how to count in a signal handler so that others can read along. Must
//! not know: why something is counted.

use ljp::{Reason, VmState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that only the handler writes and anybody reads.
#[derive(Default)]
pub struct Counters {
    samples: AtomicU64,
    overruns: AtomicU64,
    by_state: [AtomicU64; VmState::COUNT],
    by_reason: [AtomicU64; Reason::COUNT],
    steps: AtomicU64,
}

impl Counters {
    /// A sample of `weight` intervals.
    pub fn sample(&self, state: VmState, stack: Result<(), Reason>, weight: u64) {
        add(&self.samples, weight);
        add(&self.overruns, weight - 1);
        add(&self.by_state[state as usize], weight);
        if let Err(reason) = stack {
            add(&self.by_reason[reason as usize], weight);
        }
    }

    /// An instruction that the program was let go on by before its sample.
    pub fn step(&self) {
        add(&self.steps, 1);
    }

    /// The counts so far.
    pub fn read(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            samples: get(&self.samples),
            overruns: get(&self.overruns),
            by_state: std::array::from_fn(|state| get(&self.by_state[state])),
            by_reason: std::array::from_fn(|reason| get(&self.by_reason[reason])),
            steps: get(&self.steps),
        }
    }
}

/// One writer: no need for a locked instruction.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Counts at one moment. Weights are added up, so they count intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All samples.
    pub samples: u64,
    /// Those of them that had no signal of their own.
    pub overruns: u64,
    /// By VM state.
    pub by_state: [u64; VmState::COUNT],
    /// Samples without a stack, by reason.
    pub by_reason: [u64; Reason::COUNT],
    /// Instructions that were stepped over before samples could be taken.
    pub steps: u64,
}

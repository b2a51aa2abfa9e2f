//! What a session counted, as the END record carries it.
//!
//! Uses `core` only.

use crate::{Reason, VmState};

/// The counters of a whole session.
///
/// `samples`, the sum of `by_state`, and the sum of the weights of all sample
/// records of the stream are equal in a whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Monotonic time from start to stop, in microseconds.
    pub duration_us: u64,
    /// Samples, by weight: every tick of the clock counts as one.
    pub samples: u64,
    /// Ticks of the clock that did not get a signal of their own. They are part
    /// of `samples`, as the weight of the sample that followed.
    pub overruns: u64,
    /// Samples by VM state, at the index of the state's number.
    pub by_state: [u64; VmState::COUNT],
    /// Samples without a stack, at the index of the reason's number.
    pub by_reason: [u64; Reason::COUNT],
    /// The `errno` that ended the recording early, or 0.
    pub errno: u32,
}

impl Counters {
    /// How many samples carry no stack, whatever the reason.
    pub fn without_stack(&self) -> u64 {
        self.by_reason
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }
}

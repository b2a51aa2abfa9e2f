//! What compiled code did, by the line that the stack says it is in: a program
//! whose lines do known amounts of work can be held to these.
//!
//! Knows: frames. Must not know: what a program's lines do.

use crate::truth::{Call, Truth};
use std::ffi::CStr;

/// How many lines are told apart; the rest is not counted.
const LINES: usize = 256;

/// Counts by line. All memory is laid out before: the handler may interrupt the
/// allocator.
pub struct Tally {
    lines: Vec<(Call, Counts)>,
    /// Which one was counted last.
    last: usize,
    /// Whether machine code of a trace ran at the last look.
    in_code: bool,
}

/// What one line did.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Calls of native code from machine code of traces.
    calls: u64,
    /// Instructions of traces' machine code, in their loops.
    in_loops: u64,
}

/// What ran at a look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The machine code of a trace; in its loop or not.
    Code { in_loop: bool },
    /// Native code, called by a trace.
    Native,
    /// Anything else.
    Other,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            lines: Vec::with_capacity(LINES),
            last: 0,
            in_code: false,
        }
    }
}

impl Tally {
    /// Begins again.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Counts an instruction. `line` finds the innermost call that is known to be
    /// the innermost one; nothing if it is an ancestor only.
    pub fn count(&mut self, runs: Runs, line: impl FnOnce() -> Option<Call>) {
        let was_in_code = std::mem::replace(&mut self.in_code, matches!(runs, Runs::Code { .. }));
        let called = was_in_code && runs == Runs::Native;
        let in_loop = runs == Runs::Code { in_loop: true };
        if (called || in_loop)
            && let Some(line) = line()
            && let Some(counts) = self.of(line)
        {
            counts.calls += u64::from(called);
            counts.in_loops += u64::from(in_loop);
        }
    }

    fn of(&mut self, line: Call) -> Option<&mut Counts> {
        let known = |(of, _): &(Call, Counts)| *of == line;
        if !self.lines.get(self.last).is_some_and(known) {
            self.last = match self.lines.iter().position(known) {
                Some(index) => index,
                None if self.lines.len() < self.lines.capacity() => {
                    self.lines.push((line, Counts::default()));
                    self.lines.len() - 1
                }
                None => return None,
            };
        }
        self.lines.get_mut(self.last).map(|(_, counts)| counts)
    }

    /// The counts by what was counted and by `file:line`.
    pub fn by_line<'t>(
        &'t self,
        truth: &'t Truth,
    ) -> impl Iterator<Item = (&'static CStr, String, u64)> + 't {
        self.lines.iter().flat_map(|(line, counts)| {
            let place = format!("{}:{}", truth.file(line.key), line.line);
            [
                (c"calls", place.clone(), counts.calls),
                (c"in_loops", place, counts.in_loops),
            ]
        })
    }
}

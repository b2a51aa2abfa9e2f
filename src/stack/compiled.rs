//! The stretch of a trace that runs, or is being left.
//!
//! Knows: which trace it is and where in it (`jit`, `vm/trace`). Must not know:
//! how the interpreter's own calls are found.

use super::doing::Doing;
use super::stretch::Entry;
use super::walk::{Stop, Walk};
use crate::jit::lines::Lines;
use crate::memory;
use crate::native::unwind::NativeFrame;
use crate::vm::objects::CFrame;
use crate::vm::place::Top;
use crate::vm::trace::Trace;
use ljp::{Reason, VmState};

impl<'w> Walk<'w> {
    /// The stretch of the VM that a trace runs on top of, `at` being in its code
    /// or in a part of the VM that it has called.
    pub(super) fn trace(&mut self, doing: Doing, at: NativeFrame) -> Result<CFrame, Stop> {
        let cframe = self.running_cframe().ok_or(Stop::Moving)?;
        let thread = cframe
            .thread(self.layout)
            .ok_or(Stop::Failed(Reason::Inconsistent))?;
        let base = match self.jit_base() {
            None => return Err(Stop::Failed(Reason::Unreadable)),
            Some(0) => return Err(Stop::Moving),
            Some(base) => base,
        };
        let stack = (thread.stack(self.layout)).ok_or(Stop::Failed(Reason::Unreadable))?;
        let running = self.running_trace(doing, cframe, at);
        let compiled = (running.lines).and_then(|(lines, at)| Some((lines, lines.at(at)?)));
        let known = running.trace.and_then(|trace| self.tables?.of(trace));
        let top = Top {
            cframe,
            thread,
            stack,
            base,
            pc: 0,
        };
        let entry = Entry {
            trace: running.trace,
            in_loop: running.in_loop,
            ancestor: compiled.is_none_or(|(_, calls)| calls.ancestor),
            compiled,
            base_gone: compiled.is_none() && known.is_some_and(Lines::replaces_base),
            ..Entry::default()
        };
        self.walk(top, entry)
    }

    /// Whether a trace is being left, on top of all stretches.
    pub(super) fn leaving(&self, doing: Doing) -> bool {
        self.top.is_none() && doing == Doing::Other(VmState::Exit)
    }

    /// The trace that is being left. Its number is there before any C function is
    /// called for that.
    pub(super) fn left(&mut self, doing: Doing) -> Option<Trace> {
        let known = self.leaving(doing) && self.native_frames > 0;
        let number = self.tables.filter(|_| known)?.left()?;
        self.traces.get(self.layout, number)
    }

    /// The trace that runs, and where in it.
    fn running_trace(&mut self, doing: Doing, cframe: CFrame, at: NativeFrame) -> Running<'w> {
        let (layout, tables) = (self.layout, self.tables);
        let numbered = match doing {
            Doing::Trace(number) => self.traces.get(layout, number),
            _ => None,
        };
        let address = if layout.interpreter.contains(&at.ip) {
            // A part of the VM that it has called, or its exit.
            numbered
                .and_then(|trace| trace.stack_adjustment(layout))
                .and_then(|adjustment| called_from_trace(cframe, adjustment, at.sp))
        } else {
            Some(at.lookup_address())
        };
        let in_table = |address| {
            let tables = tables?;
            // A trace says its number only some instructions after its start.
            let lines = match numbered {
                Some(trace) => tables.get(trace.number(), address),
                None => None,
            };
            let lines = lines.or_else(|| tables.covering(address))?;
            Some((lines, address))
        };
        let lines = address.and_then(in_table);
        let trace = match (lines, address) {
            (Some((lines, _)), _) => Some(lines.trace()),
            (None, Some(address)) => self.traces.covering(layout, address).or(numbered),
            (None, None) => numbered,
        };
        let in_loop = trace.zip(address).is_some_and(|(trace, address)| {
            let start = trace.loop_start(layout).unwrap_or(0) as usize;
            let code = trace.code(layout).unwrap_or(0..0);
            start > 0 && code.contains(&address) && address >= code.start + start
        });
        Running {
            trace,
            lines,
            in_loop,
        }
    }
}

/// What runs in compiled code.
struct Running<'t> {
    trace: Option<Trace>,
    /// Its table, and the address to look up there.
    lines: Option<(&'t Lines, usize)>,
    /// Whether that is in its loop.
    in_loop: bool,
}

/// The address of a call from a trace that moves the stack pointer by
/// `adjustment` below `cframe`, to code that has the stack pointer `sp`.
fn called_from_trace(cframe: CFrame, adjustment: usize, sp: usize) -> Option<usize> {
    let slot = cframe.0.checked_sub(adjustment + 8)?;
    if sp > slot {
        return None;
    }
    memory::read::<u64>(slot).map(|returns_to| (returns_to as usize).wrapping_sub(1))
}

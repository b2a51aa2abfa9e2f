//! One stack out of the two: who lies between whom.
//!
//! Knows: that the native stack and the Lua stacks alternate. Native frames lead
//! to a C frame of the VM, which owns one stretch of one Lua stack; below that
//! stretch its own return address leads on to native frames, and so on down to
//! the program's start. Must not know: clocks, files, how a stack is stored.
//!
//! Runs in the signal handler, on memory that was laid out before.

mod compiled;
mod descent;
mod doing;
mod frame;
mod stretch;
mod walk;

pub use frame::{Extent, Frames, RawFrame};

use crate::jit::tables::Tables;
use crate::native::unwind::Unwinder;
use crate::registers::Registers;
use crate::vm::known::Known;
use crate::vm::layout::Layout;
use crate::vm::trace::Traces;
use doing::Doing;
use ljp::{Reason, VmState};
use std::sync::Arc;
use walk::{Stop, Walk};

/// What was found at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What the VM was doing.
    pub state: VmState,
    /// Whether the frames are a stack.
    pub stack: Result<(), Reason>,
}

/// The outcome of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A sample.
    Found(Found),
    /// The VM is between two frames: the program should go on by an instruction.
    Moving,
}

/// Looks at the stacks of one VM and the thread that runs it.
pub struct Walker {
    layout: Layout,
    traces: Traces,
    tables: Option<Arc<Tables>>,
    known: Known,
    unwinder: Unwinder,
    extent: Extent,
    frames: Frames,
    unknown_code: bool,
}

impl Walker {
    /// A walker for the VM that `layout` describes, through the code that
    /// `unwinder` knows.
    pub fn new(layout: Layout, unwinder: Unwinder, extent: Extent) -> Walker {
        let limit = match extent {
            Extent::State => 0,
            Extent::Leaf => 1,
            Extent::Full(depth) => depth,
        };
        Walker {
            layout,
            traces: Traces::default(),
            tables: None,
            known: Known::default(),
            unwinder,
            extent,
            frames: Frames::new(limit),
            unknown_code: false,
        }
    }

    /// The same, with line tables for compiled code.
    pub fn with_tables(self, tables: Option<Arc<Tables>>) -> Walker {
        Walker { tables, ..self }
    }

    /// The frames of the last look.
    pub fn frames(&self) -> &[RawFrame] {
        self.frames.as_slice()
    }

    /// The VM's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the last look has met code that no module has.
    pub fn met_unknown_code(&mut self) -> bool {
        std::mem::take(&mut self.unknown_code)
    }

    /// Puts tables of other modules in the place of those that were there, which
    /// are put in theirs.
    pub fn replace_unwinder(&mut self, unwinder: &mut Unwinder) {
        std::mem::swap(&mut self.unwinder, unwinder);
    }

    /// The line tables of compiled code.
    pub fn tables(&self) -> Option<&Tables> {
        self.tables.as_deref()
    }

    /// The unwinder, to be asked about addresses.
    pub fn unwinder(&self) -> &Unwinder {
        &self.unwinder
    }

    fn is_vm_module(&self, address: usize) -> bool {
        let module = self.unwinder.module_of(self.layout.interpreter.start);
        module.is_some() && self.unwinder.module_of(address) == module
    }

    /// Looks at the stack of the thread that was interrupted at `registers`.
    pub fn look(&mut self, registers: &Registers) -> Look {
        self.frames.clear();
        self.known.begin();
        let Some(doing) = Doing::read(&self.layout) else {
            return Look::Found(Found {
                state: VmState::Interp,
                stack: Err(Reason::Inconsistent),
            });
        };
        let mut walk = Walk {
            layout: &self.layout,
            traces: &mut self.traces,
            tables: self.tables.as_deref(),
            known: &mut self.known,
            unwinder: &mut self.unwinder,
            extent: self.extent,
            frames: &mut self.frames,
            unknown_code: &mut self.unknown_code,
            top: None,
            carried: None,
            missing: None,
            native_frames: 0,
            in_trace: false,
            last_cframe: None,
            first_caller: 0,
        };
        let ran = walk.run(doing, registers);
        let (top, caller) = (walk.top, walk.first_caller);
        let recording = self.tables.as_deref().is_some_and(Tables::recording);
        let in_vm = || self.is_vm_module(registers.rip) || self.is_vm_module(caller);
        let stack = match ran {
            Ok(()) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Moving) => return Look::Moving,
            // The VM's own C code may be in the middle of moving a stack or
            // making a frame, by itself or with the C library's help: it gets
            // there soon, and blocks no signals.
            Err(Stop::Failed(_)) if in_vm() => return Look::Moving,
            Err(Stop::Failed(reason)) => Err(reason),
        };
        let stack = match self.extent {
            Extent::State => stack.and(Err(Reason::Mode)),
            Extent::Leaf | Extent::Full(_) => stack,
        };
        Look::Found(Found {
            state: doing.state(top, recording),
            stack,
        })
    }
}

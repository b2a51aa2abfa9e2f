//! What the VM says that it is doing.
//!
//! Knows: `vmstate` in `global_State`, and how LuaJIT and Tarantool's fork number
//! it (`lj_obj.h`). Must not know: stacks.

use crate::memory;
use crate::vm::layout::{Layout, StateNumbering};
use crate::vm::objects::Kind;
use ljp::VmState;

/// What the VM says that it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Interpreting, or running a C function: the function on top tells which.
    Running {
        in_c: bool,
    },
    Trace(u32),
    Other(VmState),
}

impl Doing {
    pub(super) fn read(layout: &Layout) -> Option<Doing> {
        let raw = memory::read::<u32>(layout.vmstate)? as i32;
        if raw >= 0 {
            return Some(Doing::Trace(raw as u32));
        }
        let number = match (layout.states, !raw) {
            (StateNumbering::Stock, 0) => return Some(Doing::Running { in_c: false }),
            (StateNumbering::Stock, 1) => return Some(Doing::Running { in_c: true }),
            (StateNumbering::Stock, number) => number,
            (StateNumbering::Tarantool, 0..=2) => return Some(Doing::Running { in_c: false }),
            (StateNumbering::Tarantool, 3) => return Some(Doing::Running { in_c: true }),
            (StateNumbering::Tarantool, number) => number - 2,
        };
        Some(Doing::Other(match number {
            2 => VmState::Gc,
            3 => VmState::Exit,
            4 => VmState::Record,
            5 => VmState::Opt,
            6 => VmState::Asm,
            _ => return None,
        }))
    }

    /// The state of a sample whose innermost frame known to Lua is `top`, while a
    /// trace may be `recording`.
    pub(super) fn state(self, top: Option<Kind>, recording: bool) -> VmState {
        match (self, top) {
            // Our callback leaves this behind when it returns to the recorder,
            // which runs on top of the bytecode's function.
            (Doing::Running { in_c: true }, Some(Kind::Lua(_))) if recording => VmState::Record,
            (Doing::Trace(_), _) => VmState::Trace,
            (Doing::Other(state), _) => state,
            (Doing::Running { .. }, Some(Kind::Builtin(_))) => VmState::Ffunc,
            (Doing::Running { .. }, Some(Kind::C)) | (Doing::Running { in_c: true }, _) => {
                VmState::Cfunc
            }
            (Doing::Running { in_c: false }, Some(Kind::Lua(_))) => VmState::Lfunc,
            (Doing::Running { in_c: false }, None) => VmState::Interp,
        }
    }
}

//! Where the fields of LuaJIT's structures are.
//!
//! Knows: offsets. Must not know: how they were found (`probe`), or how they
//! are used.
//!
//! `lua_State`, functions, prototypes, traces and snapshots have kept their
//! layout since 2.1.0-beta3, in two families that differ in the size of a
//! reference (`lj_obj.h`, `lj_jit.h`). Everything in `global_State` and
//! `jit_State` has moved at some time, so it is found anew in each process.

use crate::memory;
use std::ops::Range;

/// Which size the VM's references to its own objects have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 64-bit references; a frame takes two slots (`LJ_GC64`).
    Gc64,
    /// 32-bit references; a frame takes one slot.
    Gc32,
}

/// Type numbers of collectable objects (`~LJ_T*` in `lj_obj.h`).
pub mod gct {
    /// String.
    pub const STRING: u8 = 4;
    /// Coroutine, or the main thread.
    pub const THREAD: u8 = 6;
    /// Prototype.
    pub const PROTO: u8 = 7;
    /// Function.
    pub const FUNCTION: u8 = 8;
    /// Trace.
    pub const TRACE: u8 = 9;
}

/// Offsets, in bytes, that hold for all LuaJITs of a family.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named after the fields in lj_obj.h and lj_jit.h"
)]
pub struct Offsets {
    pub gct: usize,
    pub state_glref: usize,
    pub state_base: usize,
    pub state_maxstack: usize,
    pub state_stack: usize,
    pub state_cframe: usize,
    pub func_ffid: usize,
    pub func_pc: usize,
    pub func_c: usize,
    pub proto_sizebc: usize,
    pub proto_k: usize,
    pub proto_sizeuv: usize,
    pub proto_chunkname: usize,
    pub proto_firstline: usize,
    pub proto_numline: usize,
    pub proto_lineinfo: usize,
    pub proto_uvinfo: usize,
    pub proto_varinfo: usize,
    pub proto_size: usize,
    pub trace_nsnap: usize,
    pub trace_nins: usize,
    pub trace_ir: usize,
    pub trace_nk: usize,
    pub trace_nsnapmap: usize,
    pub trace_snap: usize,
    pub trace_snapmap: usize,
    pub trace_startpt: usize,
    pub trace_startpc: usize,
    pub trace_szmcode: usize,
    pub trace_mcode: usize,
    pub trace_mcloop: usize,
    pub trace_spadjust: usize,
    pub trace_number: usize,
    pub trace_link: usize,
    pub trace_root: usize,
    /// C frame of the VM: fields above its stack pointer (`lj_frame.h`).
    pub cframe_pc: usize,
    pub cframe_l: usize,
    pub cframe_nres: usize,
    pub cframe_prev: usize,
    /// Slots that a frame takes.
    pub frame_slots: usize,
}

static GC64: Offsets = Offsets {
    gct: 9,
    state_glref: 16,
    state_base: 32,
    state_maxstack: 48,
    state_stack: 56,
    state_cframe: 80,
    func_ffid: 10,
    func_pc: 32,
    func_c: 40,
    proto_sizebc: 12,
    proto_k: 32,
    proto_sizeuv: 60,
    proto_chunkname: 64,
    proto_firstline: 72,
    proto_numline: 76,
    proto_lineinfo: 80,
    proto_uvinfo: 88,
    proto_varinfo: 96,
    proto_size: 104,
    trace_nsnap: 10,
    trace_nins: 12,
    trace_ir: 32,
    trace_nk: 40,
    trace_nsnapmap: 44,
    trace_snap: 48,
    trace_snapmap: 56,
    trace_startpt: 64,
    trace_startpc: 72,
    trace_szmcode: 84,
    trace_mcode: 88,
    trace_mcloop: 96,
    trace_spadjust: 102,
    trace_number: 104,
    trace_link: 106,
    trace_root: 108,
    cframe_pc: 24,
    cframe_l: 16,
    cframe_nres: 8,
    cframe_prev: 32,
    frame_slots: 2,
};

static GC32: Offsets = Offsets {
    gct: 5,
    state_glref: 8,
    state_base: 16,
    state_maxstack: 32,
    state_stack: 36,
    state_cframe: 48,
    func_ffid: 6,
    func_pc: 16,
    func_c: 24,
    proto_sizebc: 8,
    proto_k: 16,
    proto_sizeuv: 36,
    proto_chunkname: 40,
    proto_firstline: 44,
    proto_numline: 48,
    proto_lineinfo: 52,
    proto_uvinfo: 56,
    proto_varinfo: 60,
    proto_size: 64,
    trace_nsnap: 6,
    trace_nins: 8,
    trace_ir: 16,
    trace_nk: 24,
    trace_nsnapmap: 28,
    trace_snap: 32,
    trace_snapmap: 40,
    trace_startpt: 48,
    trace_startpc: 52,
    trace_szmcode: 60,
    trace_mcode: 64,
    trace_mcloop: 72,
    trace_spadjust: 78,
    trace_number: 80,
    trace_link: 82,
    trace_root: 84,
    cframe_pc: 28,
    cframe_l: 24,
    cframe_nres: 16,
    cframe_prev: 32,
    frame_slots: 1,
};

impl Family {
    /// The offsets that hold for this family.
    pub fn offsets(self) -> &'static Offsets {
        match self {
            Family::Gc64 => &GC64,
            Family::Gc32 => &GC32,
        }
    }

    /// Bytes of a reference to an object.
    pub fn reference_size(self) -> usize {
        match self {
            Family::Gc64 => 8,
            Family::Gc32 => 4,
        }
    }

    /// Reads a reference (`GCRef`, `MRef`).
    #[inline]
    pub fn reference(self, address: usize) -> Option<usize> {
        match self {
            Family::Gc64 => memory::read::<u64>(address).map(|r| r as usize),
            Family::Gc32 => memory::read::<u32>(address).map(|r| r as usize),
        }
    }

    /// Address of the `global_State` that `state` belongs to.
    pub fn global_of(self, state: usize) -> Option<usize> {
        self.reference(state + self.offsets().state_glref)
    }

    /// Tells the family of the LuaJIT that `state` belongs to by the object
    /// header of the state itself: type number 6, then the fake function id 1.
    pub fn of(state: usize) -> Option<Family> {
        let byte = |at: usize| memory::read::<u8>(state + at);
        let header = |at: usize| byte(at) == Some(gct::THREAD) && byte(at + 1) == Some(1);
        match (header(9), header(5)) {
            (true, false) => Some(Family::Gc64),
            (false, true) => Some(Family::Gc32),
            _ => None,
        }
    }
}

/// How the VM says what it is doing (`vmstate` in `global_State`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateNumbering {
    /// INTERP, C, GC, EXIT, RECORD, OPT, ASM, from 0, complemented.
    Stock,
    /// INTERP, LFUNC, FFUNC, CFUNC, GC, EXIT, RECORD, OPT, ASM, complemented.
    Tarantool,
}

impl StateNumbering {
    /// The number of C functions.
    fn c(self) -> u32 {
        match self {
            StateNumbering::Stock => 1,
            StateNumbering::Tarantool => 3,
        }
    }

    /// The numbering in which the word `raw` says that a C function runs.
    pub fn of_c(raw: u32) -> Option<StateNumbering> {
        [StateNumbering::Stock, StateNumbering::Tarantool]
            .into_iter()
            .find(|states| !raw == states.c())
    }

    /// Whether the word `raw` says that bytecode is interpreted.
    pub fn is_interpreting(self, raw: u32) -> bool {
        !raw < self.c()
    }
}

/// Where the text of a string is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringLayout {
    /// Offset of the 32-bit length.
    pub len: usize,
    /// Offset of the first byte.
    pub text: usize,
}

/// Numbers of opcodes (`BC_*` in `lj_bc.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opcodes {
    /// A slot from another slot.
    pub mov: u8,
    /// A slot from an upvalue.
    pub uget: u8,
    /// A slot from a global variable.
    pub gget: u8,
    /// A slot from a field with a constant name.
    pub tgets: u8,
    /// A jump.
    pub jmp: u8,
    /// A jump that closes upvalues.
    pub uclo: u8,
}

/// One LuaJIT, in one process: all that is needed to read its state.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Size of references.
    pub family: Family,
    /// Offsets of that family.
    pub at: &'static Offsets,
    /// Address of the `global_State`.
    pub global: usize,
    /// Address of the field that holds the running `lua_State`.
    pub cur_l: usize,
    /// Address of the field that holds the base of the running trace.
    pub jit_base: usize,
    /// Address of the field that holds the VM state.
    pub vmstate: usize,
    /// What its values mean.
    pub states: StateNumbering,
    /// Address of the dispatch table, which the interpreter keeps in r14.
    pub dispatch: usize,
    /// The interpreter's machine code.
    pub interpreter: Range<usize>,
    /// Where the code of each bytecode and of each built-in starts, ascending.
    pub handlers: Vec<usize>,
    /// Where the code of each opcode starts, by opcode; those past the bytecodes
    /// are the built-ins that have machine code of their own.
    pub entries: Vec<usize>,
    /// Bytes of the VM's C frame, its return address included.
    pub cframe_size: usize,
    /// Where strings keep their text.
    pub string: StringLayout,
    /// Numbers of opcodes.
    pub opcodes: Opcodes,
}

impl Layout {
    /// A layout of which nothing but the family is known yet.
    pub fn unknown(family: Family) -> Layout {
        Layout {
            family,
            at: family.offsets(),
            global: 0,
            cur_l: 0,
            jit_base: 0,
            vmstate: 0,
            states: StateNumbering::Stock,
            dispatch: 0,
            interpreter: 0..0,
            handlers: Vec::new(),
            entries: Vec::new(),
            cframe_size: 0,
            string: StringLayout { len: 0, text: 0 },
            opcodes: Opcodes::default(),
        }
    }

    /// Bytes of a reference to an object.
    pub fn reference_size(&self) -> usize {
        self.family.reference_size()
    }

    /// Reads a reference (`GCRef`, `MRef`).
    #[inline]
    pub fn reference(&self, address: usize) -> Option<usize> {
        self.family.reference(address)
    }

    /// The start of the bytecode's or built-in's code that `address` lies in.
    #[inline]
    pub fn handler_of(&self, address: usize) -> Option<usize> {
        let after = self.handlers.partition_point(|&start| start <= address);
        after.checked_sub(1).map(|index| self.handlers[index])
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_header_of_a_thread_tells_a_family() {
        let of = |bytes: &[(usize, u8)]| {
            let mut state = [0u8; 16];
            for &(at, byte) in bytes {
                state[at] = byte;
            }
            Family::of(state.as_ptr() as usize)
        };
        assert_eq!(of(&[(9, 6), (10, 1)]), Some(Family::Gc64));
        assert_eq!(of(&[(5, 6), (6, 1)]), Some(Family::Gc32));
        // Lua 5.1's own state, a string, and bytes that would do for both.
        assert_eq!(of(&[(8, 8), (9, 1)]), None);
        assert_eq!(of(&[(9, 4), (10, 1)]), None);
        assert_eq!(of(&[(5, 6), (6, 1), (9, 6), (10, 1)]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_vm_state_says_c_in_one_numbering_only() {
        assert_eq!(StateNumbering::of_c(!1), Some(StateNumbering::Stock));
        assert_eq!(StateNumbering::of_c(!3), Some(StateNumbering::Tarantool));
        // INTERP in both; GC, or FFUNC; a trace's number; and C uncomplemented.
        for other in [!0, !2, !4, 1, 3, 0] {
            assert_eq!(StateNumbering::of_c(other), None);
        }
        // What a hook may see: INTERP, and Tarantool's LFUNC and FFUNC.
        let interpreting = |states: StateNumbering| {
            let numbers = 0..16u32;
            let seen = numbers.filter(|number| states.is_interpreting(!number));
            seen.collect::<Vec<_>>()
        };
        assert_eq!(interpreting(StateNumbering::Stock), [0]);
        assert_eq!(interpreting(StateNumbering::Tarantool), [0, 1, 2]);
        assert!(!StateNumbering::Tarantool.is_interpreting(7), "a trace");
    }

    #[test]
    fn an_address_belongs_to_the_handler_that_starts_before_it() {
        let mut layout = Layout::unknown(Family::Gc64);
        layout.handlers = vec![100, 200, 300];
        assert_eq!(layout.handler_of(99), None);
        assert_eq!(layout.handler_of(100), Some(100));
        assert_eq!(layout.handler_of(299), Some(200));
        assert_eq!(layout.handler_of(5000), Some(300));
    }
}

//! Writing version 2, the one that Tarantool's tools read: a symbol table
//! (`ljs` version 3) and then events (`ljp` version 2), each piece as one call
//! on a [`Cursor`].
//!
//! Nothing here keeps order: the symbol table comes first and is closed by
//! [`Cursor::v2_final`], the events follow and are closed by it as well. A
//! sample is its head, its Lua frames and their end where the state has them,
//! its native frames and their end.

use super::Cursor;
use crate::VmState;
use crate::wire::{self, ULEB_MAX, v2};

/// The most bytes that a symbol takes besides its text.
pub const MAX_V2_SYMBOL: usize = 1 + 3 * ULEB_MAX;
/// The most bytes that one frame takes, or the head of a sample.
pub const MAX_V2_PIECE: usize = 1 + 3 * ULEB_MAX;

/// Whether samples of this state carry a Lua stack in version 2. Those of a
/// trace carry the trace alone, all others a native stack only.
pub fn v2_has_lua_stack(state: VmState) -> bool {
    matches!(state, VmState::Lfunc | VmState::Ffunc | VmState::Cfunc)
}

/// Where in a stream a symbol stands: its tag depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// In the table at the start.
    Table,
    /// Among the events.
    Events,
}

impl Cursor<'_> {
    /// What the symbol table begins with.
    pub fn v2_symbols(&mut self) {
        self.whole(|out| {
            out.bytes(&v2::SYMBOLS_MAGIC);
            out.u8(v2::SYMBOLS_VERSION);
            out.bytes(&[0; wire::RESERVED]);
        });
    }

    /// What the events begin with.
    pub fn v2_events(&mut self) {
        self.whole(|out| {
            out.bytes(&wire::MAGIC);
            out.u8(v2::EVENTS_VERSION);
            out.bytes(&[0; wire::RESERVED]);
        });
    }

    /// The end of the symbol table, or of the events.
    pub fn v2_final(&mut self) {
        self.u8(v2::FINAL);
    }

    /// A Lua function: address of its prototype, chunk name as Lua has it, the
    /// line where it begins.
    pub fn v2_lua_symbol(&mut self, part: Part, proto: u64, chunk: &[u8], line: u64) {
        self.whole(|out| {
            out.u8(match part {
                Part::Table => v2::SYMBOL_LUA,
                Part::Events => v2::EVENT_LUA,
            });
            out.uleb(proto);
            out.str(chunk);
            out.uleb(line);
        });
    }

    /// A native function: where it begins in memory, and its name.
    pub fn v2_c_symbol(&mut self, part: Part, address: u64, name: &[u8]) {
        self.whole(|out| {
            out.u8(match part {
                Part::Table => v2::SYMBOL_C,
                Part::Events => v2::EVENT_C,
            });
            out.uleb(address);
            out.str(name);
        });
    }

    /// A trace: its number, address of the prototype and the line where it
    /// starts.
    pub fn v2_trace_symbol(&mut self, part: Part, number: u64, proto: u64, line: u64) {
        self.whole(|out| {
            out.u8(match part {
                Part::Table => v2::SYMBOL_TRACE,
                Part::Events => v2::EVENT_TRACE,
            });
            out.uleb(number);
            out.uleb(proto);
            out.uleb(line);
        });
    }

    /// The head of a sample of any state but TRACE. A Lua stack follows if
    /// [`v2_has_lua_stack`] says so, and then a native one.
    pub fn v2_sample(&mut self, state: VmState) {
        self.u8(state.number());
    }

    /// A whole sample in a trace: its number, address of the prototype where it
    /// starts and the line where that begins.
    pub fn v2_trace_sample(&mut self, number: u64, proto: u64, line: u64) {
        self.whole(|out| {
            out.u8(VmState::Trace.number());
            out.uleb(number);
            out.uleb(proto);
            out.uleb(line);
        });
    }

    /// A Lua function on a Lua stack: as its symbol has it.
    pub fn v2_lua_frame(&mut self, proto: u64, line: u64) {
        self.whole(|out| {
            out.u8(v2::FRAME_LUA);
            out.uleb(proto);
            out.uleb(line);
        });
    }

    /// A C function on a Lua stack, by where it begins in memory.
    pub fn v2_c_frame(&mut self, address: u64) {
        self.whole(|out| {
            out.u8(v2::FRAME_C);
            out.uleb(address);
        });
    }

    /// A built-in on a Lua stack, by the number that its LuaJIT gave it.
    pub fn v2_builtin_frame(&mut self, number: u64) {
        self.whole(|out| {
            out.u8(v2::FRAME_BUILTIN);
            out.uleb(number);
        });
    }

    /// The end of a Lua stack.
    pub fn v2_lua_end(&mut self) {
        self.u8(v2::FINAL);
    }

    /// An address on a native stack. 0 would end the stack, and is left out.
    pub fn v2_native_frame(&mut self, address: u64) {
        if address != 0 {
            self.uleb(address);
        }
    }

    /// The end of a native stack.
    pub fn v2_native_end(&mut self) {
        self.uleb(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_hold_for_the_largest_numbers() {
        let mut buf = [0; 128];
        let mut out = Cursor::new(&mut buf);
        out.v2_trace_symbol(Part::Events, u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(out.len(), MAX_V2_SYMBOL);
        let mut out = Cursor::new(&mut buf);
        out.v2_trace_sample(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(out.len(), MAX_V2_PIECE);
        let mut out = Cursor::new(&mut buf);
        out.v2_lua_symbol(Part::Table, u64::MAX, &[7; 80], u64::MAX);
        assert!(out.len() <= MAX_V2_SYMBOL + 80);
    }

    #[test]
    fn a_null_address_does_not_end_a_native_stack() {
        let mut buf = [0; 8];
        let mut out = Cursor::new(&mut buf);
        out.v2_native_frame(0);
        out.v2_native_frame(5);
        out.v2_native_end();
        assert_eq!(out.written(), &[5, 0]);
    }
}

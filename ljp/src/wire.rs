//! The numbers that lay out versions 2 and 3, shared by the two sides of this
//! crate.
//! Some of them matter to one side only.
#![cfg_attr(not(feature = "read"), allow(dead_code))]

/// The first bytes of an event stream.
pub(crate) const MAGIC: [u8; 3] = *b"ljp";
/// The version that this crate writes.
pub(crate) const VERSION: u8 = 3;
/// Reserved bytes after the version.
pub(crate) const RESERVED: usize = 3;

/// The longest LEB128 form of a 64-bit number.
pub(crate) const ULEB_MAX: usize = 10;

/// Set in the first byte of a sample, clear in that of every other record.
pub(crate) const SAMPLE: u8 = 0x80;
/// A reason stands in place of the stack.
pub(crate) const SAMPLE_NO_STACK: u8 = 0x20;
/// A weight follows.
pub(crate) const SAMPLE_WEIGHT: u8 = 0x10;

/// Reserved, 0.
pub(crate) const SAMPLE_RESERVED: u8 = 0x40;
/// The bits of the VM state.
pub(crate) const SAMPLE_STATE: u8 = 0x0f;

pub(crate) const META: u8 = 0x01;
pub(crate) const MODULE: u8 = 0x02;
pub(crate) const PROTO: u8 = 0x03;
pub(crate) const FUNC: u8 = 0x04;
pub(crate) const TRACE: u8 = 0x05;
pub(crate) const FRAME: u8 = 0x06;
pub(crate) const STACK: u8 = 0x07;
pub(crate) const EPOCH: u8 = 0x08;
pub(crate) const ABORT: u8 = 0x09;
pub(crate) const SYMBOL: u8 = 0x0e;
pub(crate) const END: u8 = 0x0f;

pub(crate) const FRAME_LUA: u8 = 0;
pub(crate) const FRAME_FUNC: u8 = 1;
pub(crate) const FRAME_NATIVE: u8 = 2;
pub(crate) const FRAME_TRACE: u8 = 3;
pub(crate) const FRAME_MARK: u8 = 4;

/// The frame ran as machine code of a trace.
pub(crate) const FLAG_COMPILED: u64 = 1;
/// The frame is only known as an ancestor.
pub(crate) const FLAG_ANCESTOR: u64 = 2;
/// The trace was in its loop.
pub(crate) const FLAG_LOOP: u64 = 4;

/// Version 2, and what version 1 shares with it.
pub(crate) mod v2 {
    /// What the symbol table begins with.
    pub(crate) const SYMBOLS_MAGIC: [u8; 3] = *b"ljs";
    /// The version of the symbol table that is written.
    pub(crate) const SYMBOLS_VERSION: u8 = 3;
    /// The version of the events that is written.
    pub(crate) const EVENTS_VERSION: u8 = 2;

    /// The end of the symbol table, of the events, and of a Lua stack.
    pub(crate) const FINAL: u8 = 0x80;

    pub(crate) const SYMBOL_LUA: u8 = 0;
    pub(crate) const SYMBOL_C: u8 = 1;
    pub(crate) const SYMBOL_TRACE: u8 = 2;
    /// Symbol types have two bits.
    pub(crate) const SYMBOL_TYPE: u8 = 0x03;

    pub(crate) const EVENT_LUA: u8 = 10;
    pub(crate) const EVENT_C: u8 = 11;
    pub(crate) const EVENT_TRACE: u8 = 12;

    pub(crate) const FRAME_LUA: u8 = 1;
    pub(crate) const FRAME_C: u8 = 2;
    pub(crate) const FRAME_BUILTIN: u8 = 3;
}

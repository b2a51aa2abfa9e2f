//! The native stack: which code is loaded where, and who called whom.
//!
//! Knows: ELF modules and unwind tables. Must not know: LuaJIT. Code that no
//! table describes (JIT-compiled code among it) ends a native stretch.

pub mod frame_pointer;
pub mod modules;
pub mod rules;
pub mod sections;
pub mod symbols;
pub mod tables;
pub mod unwind;
pub mod watch;

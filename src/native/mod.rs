//! The native stack: which code is loaded where, and who called whom.
//!
//! Knows: ELF modules, unwind tables, and what code itself tells where there are
//! none. Must not know: LuaJIT. Code that leads nowhere (JIT-compiled code among
//! it) ends a native stretch.

pub mod frame_pointer;
pub mod modules;
pub mod rules;
pub mod sections;
pub mod straight;
pub mod symbols;
pub mod tables;
pub mod unwind;
pub mod watch;

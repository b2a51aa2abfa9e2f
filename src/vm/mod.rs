//! LuaJIT seen from outside: its data structures, read where they lie.
//!
//! Knows: how a LuaJIT lays out its state on x86-64, found by its behaviour at
//! `start`. Must not know: signals, files, what becomes of a stack.
//!
//! The layout of objects (`layout`) comes in two families; what differs between
//! releases within a family is found by `probe`. `objects` are typed views,
//! `opcodes` the few that matter, `frames` walks one Lua stack (`known` saves it
//! work), `place` finds its innermost frame at any instruction. Of JIT-compiled
//! code there are `trace`, `ir` and `snapshot`. `heap` lists what there is before
//! a session begins.

pub mod frames;
pub mod heap;
pub mod ir;
pub mod known;
pub mod layout;
pub mod lines;
pub mod names;
pub mod objects;
pub mod opcodes;
pub mod place;
pub mod probe;
pub mod snapshot;
pub mod trace;

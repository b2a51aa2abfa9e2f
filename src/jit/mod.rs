//! What the machine code of a trace stands for: from an address in it to the
//! calls that were compiled into it, as if they were interpreted.
//!
//! LuaJIT keeps no such table. While it compiles it says which bytecode it
//! records (`events`); that makes a `path` of calls, along which the intermediate
//! representation was made; `code` is the machine code taken apart, `align` finds
//! which instruction of it belongs to which one of the representation. What
//! comes out are the `lines` of a trace. They are made once, when LuaJIT has
//! finished it, and kept in `tables`, where the signal handler looks them up.
//! `exits` knows which trace is being left, `aborts` what came to nothing.
//!
//! Nothing of this changes what LuaJIT compiles, or how.

pub mod aborts;
pub mod align;
pub mod code;
pub mod events;
pub mod exits;
pub mod lines;
pub mod path;
pub mod tables;

//! The recorder: a sampling profiler that loads into an unpatched LuaJIT.
//!
//! The way of the data, which is the order to read the modules in:
//!
//! - a `clock` sends a signal, and `sampler`'s handler runs, with the
//!   interrupted `registers`;
//! - `stack` puts one stack together from the frames of the `vm` and those of
//!   the `native` code, reading the host's memory through `memory` and `fault`;
//! - `recording` has it numbered and encoded by `stream`, whose writer puts it
//!   into a file;
//! - `session` builds all that up from `options` and takes it down again, and
//!   `lua_api` shows it to Lua, with what functions are called in `libraries`,
//!   `c_api` to C.
//!
//! `vm` knows nothing of signals or files, `native` nothing of LuaJIT, `stream`
//! nothing of signals. What runs in the handler says so in its first lines.

pub mod altstack;
pub mod c_api;
pub mod clock;
pub mod counters;
pub mod fault;
pub mod jit;
pub mod libraries;
pub mod lua_api;
pub mod memory;
pub mod native;
pub mod options;
pub mod recording;
pub mod registers;
pub mod room;
pub mod sampler;
pub mod session;
pub mod signal;
pub mod stack;
pub mod stream;
pub mod vm;

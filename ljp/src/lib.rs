//! The `ljp` profile format: encode without allocating, decode without trusting.
//!
//! This crate knows bytes and what they stand for. It knows nothing of LuaJIT,
//! of signals, or of how a profile is shown. The format itself is described in
//! `docs/format.md`.
//!
//! [`encode`] uses `core` only, never allocates and never panics, so that a
//! signal handler can call it.

pub mod encode;

mod counters;
mod vocabulary;
mod wire;

pub use counters::Counters;
pub use vocabulary::{FuncKind, Mark, NameKind, Reason, VmState};

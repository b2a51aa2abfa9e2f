//! The `ljp` profile format: encode without allocating, decode without trusting.
//!
//! This crate knows bytes and what they stand for. It knows nothing of LuaJIT,
//! of signals, or of how a profile is shown. The format itself is described in
//! `docs/format.md`.
//!
//! * [`encode`] writes versions 2 and 3. It uses `core` only, never allocates and never
//!   panics, so that a signal handler can call it.
//! * [`decode`] reads versions 1 to 3, event by event, in bounded memory.
//! * [`profile`] adds the events of any version up to one [`profile::Profile`],
//!   whose size depends on how many different stacks there were and not on how
//!   many samples.
//!
//! The last two need the feature `read`, which is on by default. Without it the
//! crate is `no_std`.

#![cfg_attr(not(feature = "read"), no_std)]

#[cfg(feature = "read")]
pub mod decode;
pub mod encode;
#[cfg(feature = "read")]
pub mod profile;

mod counters;
mod definitions;
mod vocabulary;
mod wire;

pub use counters::Counters;
pub use definitions::{Frame, FrameDef, TraceDef};
pub use vocabulary::{FuncKind, Mark, NameKind, Reason, VmState};

//! Writing versions 2 and 3, record by record, into memory that the caller gives.
//!
//! Knows the layout of each record. Does not know where the bytes go, what was
//! defined before, or which ids are taken: that is the caller's.
//!
//! Everything here is free of allocation, locks and panics and may be called in
//! a signal handler.
//!
//! ```
//! use ljp::encode::Cursor;
//! use ljp::{Reason, VmState};
//!
//! let mut buf = [0; 64];
//! let mut out = Cursor::new(&mut buf);
//! out.prologue();
//! out.sample(VmState::Gc, Err(Reason::Mode), 1, 10_000);
//! assert!(!out.overflowed());
//! assert_eq!(out.written(), b"ljp\x03\0\0\0\xa4\0\x90\x4e");
//! ```

mod cursor;
mod records;
mod version2;

pub use cursor::Cursor;
pub use records::{MAX_FRAME, MAX_SAMPLE, MAX_STACK};
pub use version2::{MAX_V2_PIECE, MAX_V2_SYMBOL, Part, v2_has_lua_stack};

pub use crate::definitions::{Frame, FrameDef, TraceDef};

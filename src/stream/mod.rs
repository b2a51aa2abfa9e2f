//! The way of a stack into a file.
//!
//! Knows: bytes, a ring to put them in, a file to put the ring in, and which
//! definitions the reader has already. Must not know: signals, how a stack was
//! found.
//!
//! The handler is the only one that puts bytes into the ring, whole records at a
//! time; a thread of ours is the only one that takes them out. Neither waits for
//! the other. A host that writes by itself gets its bytes from the handler.

pub mod callback;
pub mod intern;
pub mod ring;
pub mod table;
pub mod version2;
pub mod writer;

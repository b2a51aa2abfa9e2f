//! Reading a stream of any version, event by event, without trusting it.
//!
//! Knows the layout of what is read and checks all of it: lengths against what
//! is there, ids against what was defined, numbers against their range. Memory
//! does not grow with the stream. Nothing here adds samples up: that is
//! [`crate::profile`].

mod error;
mod event;
mod input;
mod payload;
mod tarantool;
mod v3;

use std::io::Read;

pub use error::Error;
pub use event::{Abort, Event, Func, Module, Proto, REASON_LIMIT, Sample};
pub use tarantool::{LuaFrame, TarantoolEvent, TarantoolReader, TarantoolSample, TarantoolSymbol};
pub use v3::Reader;

use crate::wire;
use input::Input;

/// A reader of the version that a stream turned out to have.
#[derive(Debug)]
pub enum AnyReader<R> {
    /// Version 3.
    V3(Reader<R>),
    /// Versions 1 and 2, Tarantool's.
    Tarantool(TarantoolReader<R>),
}

/// Reads the first bytes of a stream and gives the reader for the rest.
///
/// # Errors
///
/// [`Error::Empty`], [`Error::Foreign`] or [`Error::Version`] if this is no
/// profile that can be read, [`Error::Truncated`] if it is cut before its first
/// record, [`Error::Io`] if reading fails.
pub fn open<R: Read>(source: R) -> Result<AnyReader<R>, Error> {
    let mut input = Input::new(source);
    let start = input.peek(wire::MAGIC.len() + 1 + wire::RESERVED)?;
    if start.is_empty() {
        return Err(Error::Empty);
    }
    let magic = &start[..start.len().min(wire::MAGIC.len())];
    let symbols_first = wire::v2::SYMBOLS_MAGIC.starts_with(magic);
    if !symbols_first && !wire::MAGIC.starts_with(magic) {
        return Err(Error::Foreign {
            start: start.to_vec(),
        });
    }
    let Some(&version) = start.get(wire::MAGIC.len()) else {
        return Err(Error::Truncated { good: 0 });
    };
    if !symbols_first && version == wire::VERSION {
        return Reader::new(input).map(AnyReader::V3);
    }
    TarantoolReader::new(input).map(AnyReader::Tarantool)
}

//! How reading a stream can end early.

use std::{fmt, io};

/// Why a stream could not be read, or not to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The source gave an error.
    Io(io::Error),
    /// There is not a single byte.
    Empty,
    /// It does not begin as a profile does.
    Foreign {
        /// What it begins with, at most 7 bytes.
        start: Vec<u8>,
    },
    /// It is a profile, of a version that this crate does not know.
    Version {
        /// `ljp` or `ljs`: which part of the stream.
        part: &'static str,
        /// The version that it has.
        found: u8,
    },
    /// It ends before its end was written; all before was good.
    Truncated {
        /// How many bytes from the start are whole records.
        good: u64,
    },
    /// Something in it cannot be right; all before was good.
    Damaged {
        /// Where, in bytes from the start.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

impl Error {
    pub(super) fn damaged(offset: u64, what: impl Into<String>) -> Self {
        Error::Damaged {
            offset,
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::Empty => f.write_str("the file is empty"),
            Error::Foreign { start } => {
                write!(
                    f,
                    "not a profile: it begins with \"{}\"",
                    start.escape_ascii()
                )
            }
            Error::Version { part, found } => {
                write!(f, "a profile of an unknown version: {part} {found}")
            }
            Error::Truncated { good } => {
                write!(
                    f,
                    "cut off: its end is missing, the first {good} bytes are whole"
                )
            }
            Error::Damaged { offset, what } => write!(f, "damaged at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

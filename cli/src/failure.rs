//! How the command ends: what it tells the user and its exit code.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// Exit code: a file could not be read or written, or is damaged.
pub const UNREADABLE: u8 = 1;

/// How a sub-command ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Whole,
    /// Of a damaged profile, what was readable was shown.
    Damaged,
    /// A program was run to its end and ended with this exit code.
    Child(u8),
}

/// Why a sub-command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Something to tell the user.
    Message {
        /// What happened, to what, and what to do, separated by `; `.
        text: String,
        /// The exit code.
        code: u8,
    },
    /// Whoever read the output has seen enough. No failure at all.
    ReaderLeft,
}

/// Tells the user something on the standard error. Nothing can be done, and
/// nothing is lost, if nobody listens there.
pub fn say(what: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "sysprof: {what}");
}

impl Failure {
    /// `what` happened to `file`.
    pub fn of_file(file: &Path, what: impl fmt::Display) -> Self {
        Failure::Message {
            text: format!("{}: {what}", file.display()),
            code: UNREADABLE,
        }
    }

    /// The standard output could not be written.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ReaderLeft;
        }
        Failure::Message {
            text: format!("standard output: {error}"),
            code: UNREADABLE,
        }
    }
}

impl From<io::Error> for Failure {
    /// For what is written to the standard output, which is where nearly all
    /// such errors come from; others name their file.
    fn from(error: io::Error) -> Self {
        Failure::output(&error)
    }
}

//! The `sysprof` command: records a program under LuaJIT and shows what was
//! recorded.
//!
//! This file knows the sub-commands and what their results mean to a script.
//! It knows nothing of profiles.

mod args;
mod collapse;
mod convert;
mod diff;
mod failure;
mod flamegraph;
mod info;
mod label;
mod load;
mod number;
mod record;
mod report;
mod symbols;
mod table;
mod tally;
mod traces;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Args, Command};
use clap::Parser;
use failure::{Failure, Outcome};

fn main() -> ExitCode {
    let args = Args::parse();
    // What is printed goes through one buffer, so that a reader who leaves early
    // is noticed in one place.
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = match args.command {
        Command::Report(args) => report::run(&args, &mut out),
        Command::Collapse(args) => collapse::run(&args, &mut out),
        Command::Flamegraph(args) => flamegraph::run(&args),
        Command::Info(args) => info::run(&args, &mut out),
        Command::Diff(args) => diff::run(&args, &mut out),
        Command::Convert(args) => convert::run(&args),
        Command::Record(args) => record::run(&args),
    };
    let flushed = out.flush().map_err(|error| Failure::output(&error));
    match outcome.and_then(|outcome| flushed.map(|()| outcome)) {
        Ok(Outcome::Whole) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(failure::UNREADABLE),
        Ok(Outcome::Child(code)) => ExitCode::from(code),
        Err(Failure::Message { text, code }) => {
            failure::say(text);
            ExitCode::from(code)
        }
    }
}

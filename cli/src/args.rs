//! The command line: what can be asked for and how that is explained.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// A sampling profiler for programs under LuaJIT.
#[derive(Debug, Parser)]
#[command(
    name = "sysprof",
    version,
    after_help = "\
Example: record a program, read where its time went, draw it:
  sysprof record -- luajit app.lua
  sysprof report sysprof.bin
  sysprof flamegraph sysprof.bin -o flamegraph.svg"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Record(Record),
    Report(Report),
    Flamegraph(Flamegraph),
    Collapse(Collapse),
    Info(Info),
    Diff(Diff),
    Convert(Convert),
}

/// Run a program and record where its time goes.
///
/// The program needs no change. Its input, output, exit code and the signals
/// that are sent to it are its own. It must be run by a stand-alone luajit that
/// finds the module "sysprof". The first luajit that the command starts is
/// recorded, not the programs that this one starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: record app.lua at 1 ms:
  sysprof record -o app.bin --interval 1 -- luajit app.lua input.txt

Exit code: that of the program, 128 + N if signal N ended it. 125 if it could
not be recorded, 126 if it could not be started, 127 if it was not found.")]
pub struct Record {
    /// Where the profile goes.
    #[arg(short, long, value_name = "FILE", default_value = "sysprof.bin")]
    pub output: PathBuf,
    /// What is recorded: D counts VM states, L adds the innermost frame, C the
    /// whole stack.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Mode::C)]
    pub mode: Mode,
    /// Milliseconds between samples, fractions allowed.
    #[arg(long, value_name = "MS", value_parser = interval, default_value = "10")]
    pub interval: f64,
    /// What makes the ticks [default: the best that works].
    #[arg(long, value_enum)]
    pub clock: Option<Clock>,
    /// How many frames a stack may have; of deeper ones the innermost are kept
    /// [default: 512].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What is recorded of each sample.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Mode {
    /// VM states only.
    D,
    /// The innermost frame.
    L,
    /// The whole stack.
    C,
}

/// What makes the ticks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Clock {
    /// A perf event, CPU time.
    Perf,
    /// The CPU timer of the thread.
    Thread,
    /// The CPU timer of the process.
    Itimer,
    /// Wall-clock time.
    Wall,
}

/// Print the hottest functions and lines.
///
/// "self" is the share of samples in which a function was running itself,
/// "total" the share in which it was running or waiting for what it had called.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: the 40 functions in which most time was spent:
  sysprof report --by function --limit 40 sysprof.bin")]
pub struct Report {
    /// The profile.
    pub file: PathBuf,
    /// Print one table only.
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// How many rows a table may have.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Show the insides of LuaJIT and lines of native code as well. Otherwise
    /// LuaJIT's own samples count to the function that it works for.
    #[arg(long)]
    pub native: bool,
}

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Functions.
    Function,
    /// Source lines.
    Line,
    /// States of the VM.
    State,
    /// Traces of the JIT compiler.
    Trace,
}

/// Print every stack and its samples on a line, as flame graph tools read them.
///
/// The outermost frame comes first, frames are separated by ";".
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: the ten stacks with the most samples:
  sysprof collapse sysprof.bin | sort -t' ' -rnk2 | head")]
pub struct Collapse {
    /// The profile.
    pub file: PathBuf,
    /// Show the insides of LuaJIT as well.
    #[arg(long)]
    pub native: bool,
}

/// Draw an interactive flame graph.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: draw it and look at it in a browser:
  sysprof flamegraph sysprof.bin -o flamegraph.svg")]
pub struct Flamegraph {
    /// The profile.
    pub file: PathBuf,
    /// Where the picture goes.
    #[arg(short, long, value_name = "SVG", default_value = "flamegraph.svg")]
    pub output: PathBuf,
    /// Written above the picture [default: the program and its profile].
    #[arg(long)]
    pub title: Option<String>,
    /// Show the insides of LuaJIT as well.
    #[arg(long)]
    pub native: bool,
}

/// Say what was recorded, how, and whether the file is whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: which clock ran, and how many samples have no stack:
  sysprof info sysprof.bin")]
pub struct Info {
    /// The profile.
    pub file: PathBuf,
}

/// Compare two profiles function by function.
///
/// The rows are ordered by how much the function's own share has changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: what a change has made faster and slower:
  sysprof diff before.bin after.bin")]
pub struct Diff {
    /// The profile to compare with.
    pub before: PathBuf,
    /// The profile that is compared.
    pub after: PathBuf,
    /// How many rows the table may have.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Show the insides of LuaJIT as well.
    #[arg(long)]
    pub native: bool,
}

/// Write a profile in another version of the format.
///
/// Version 3 is sysprof's own, version 2 the one that Tarantool's tools read.
/// Version 2 has no place for lines within functions, names of Lua functions,
/// stacks of compiled code, and times; they are left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: a profile for Tarantool's own tools:
  sysprof convert --to 2 sysprof.bin -o tarantool.bin")]
pub struct Convert {
    /// The profile.
    pub file: PathBuf,
    /// The version that is written.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub to: Version,
    /// Where the other profile goes.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// A version that profiles are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// Tarantool's.
    #[value(name = "2")]
    Two,
    /// Ours.
    #[value(name = "3")]
    Three,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms.is_finite() && ms > 0.0 => Ok(ms),
        _ => Err("not a number of milliseconds above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}

//! `sysprof record`: runs a program with the recorder started in it.
//!
//! Knows how to get a few lines of Lua to run before the program and how to
//! stay out of its way. What these lines do is in `init.lua`; signals are
//! [`signals`]'s.

mod signals;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitStatus};

use clap::ValueEnum;

use crate::args::Record;
use crate::failure::{self, Failure, Outcome};

/// The stand-alone luajit runs what this variable contains.
const LUA_INIT: &str = "LUA_INIT";
/// What was in it before.
const USER_INIT: &str = "SYSPROF_LUA_INIT";
/// The options of the recorder, `key=value` a line, the path last.
const OPTIONS: &str = "SYSPROF_RECORD";

/// The lines that start the recorder.
const INIT: &str = include_str!("init.lua");

/// Exit code: the program was run, but could not be recorded.
const NOT_RECORDED: i32 = 125;
/// Exit code: the program could not be started.
const NOT_STARTED: u8 = 126;
/// Exit code: the program was not found.
const NOT_FOUND: u8 = 127;

/// Runs the program to its end and says where the profile is.
///
/// # Errors
///
/// If it cannot be started.
pub fn run(args: &Record) -> Result<Outcome, Failure> {
    // The program may change its folder before the recorder opens the file.
    let path = absolute(&args.output).map_err(|error| Failure::of_file(&args.output, error))?;
    let before = Stamp::of(&path);
    let (program, arguments) = split(&args.command);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(LUA_INIT, INIT)
        .env(OPTIONS, options(args, &path));
    match env::var_os(LUA_INIT) {
        Some(user) => command.env(USER_INIT, user),
        None => command.env_remove(USER_INIT),
    };
    let status = signals::run(&mut command).map_err(|error| not_started(program, &error))?;

    if Stamp::of(&path) != before {
        let file = args.output.display();
        failure::say(format_args!(
            "the profile is in {file}; read it with: sysprof report {file}"
        ));
    } else if status.code() != Some(NOT_RECORDED) {
        // With that code the reason was printed from inside.
        failure::say(format_args!(
            "{}: no profile was written; is {} a stand-alone luajit, run without -E?",
            args.output.display(),
            program.display()
        ));
    }
    Ok(Outcome::Child(exit_code(status)))
}

/// The program and its arguments; the command line has at least the program.
fn split(command: &[OsString]) -> (&OsStr, &[OsString]) {
    match command.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => (OsStr::new(""), &[]),
    }
}

/// The options of the recorder as `init.lua` reads them.
fn options(args: &Record, path: &Path) -> OsString {
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let mut options = format!(
        "mode={}\ninterval={}\n",
        name(args.mode.to_possible_value()),
        args.interval
    );
    if let Some(clock) = args.clock {
        options += &format!("clock={}\n", name(clock.to_possible_value()));
    }
    if let Some(depth) = args.depth {
        options += &format!("depth={depth}\n");
    }
    let mut options = OsString::from(options + "path=");
    options.push(path);
    options
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let (code, what) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "not found; is it in PATH?".to_owned()),
        _ => (NOT_STARTED, format!("could not be started: {error}")),
    };
    Failure::Message {
        text: format!("{}: {what}", PathBuf::from(program).display()),
        code,
    }
}

/// What the program ended with, as a shell has it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// What tells a file that was written from one that was not.
#[derive(PartialEq, Eq)]
struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    fn of(path: &Path) -> Self {
        let metadata = path.metadata().ok();
        Stamp(metadata.map(|m| (m.ino(), m.len(), m.mtime(), m.mtime_nsec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Clock, Mode};

    #[test]
    fn the_options_are_lines_with_the_path_last() {
        let mut args = Record {
            output: PathBuf::new(),
            mode: Mode::C,
            interval: 0.5,
            clock: None,
            depth: None,
            command: Vec::new(),
        };
        let path = Path::new("/a b/c=d\n");
        assert_eq!(
            options(&args, path),
            "mode=C\ninterval=0.5\npath=/a b/c=d\n"
        );
        args.mode = Mode::L;
        args.clock = Some(Clock::Itimer);
        args.depth = Some(7);
        assert_eq!(
            options(&args, path),
            "mode=L\ninterval=0.5\nclock=itimer\ndepth=7\npath=/a b/c=d\n"
        );
    }
}

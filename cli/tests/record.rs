//! What `sysprof record` does around a program: a shell stands in for luajit.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use common::{folder, ran, run, sysprof};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn output_and_exit_code_are_the_programs() {
    let folder = folder();
    let script = "echo out; echo err >&2; exit 7";
    let ran = run(folder.path(), &["record", "--", "sh", "-c", script]);
    assert_eq!(ran.code, Some(7));
    assert_eq!(ran.out, "out\n");
    assert!(ran.err.starts_with("err\n"), "{}", ran.err);
    let expected = "sysprof: sysprof.bin: no profile was written; ";
    assert!(ran.err.contains(expected), "{}", ran.err);
}

#[test]
fn a_program_that_a_signal_ends_gives_its_number() {
    let folder = folder();
    let ran = run(folder.path(), &["record", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(ran.code, Some(128 + 11));
}

#[test]
fn what_cannot_be_started_is_told_apart() {
    let folder = folder();
    let ran = run(folder.path(), &["record", "--", "no-such-program"]);
    assert_eq!(ran.code, Some(127));
    let expected = "sysprof: no-such-program: not found; is it in PATH?\n";
    assert_eq!(ran.err, expected);
    common::write(folder.path(), "text", b"not a program");
    let ran = run(folder.path(), &["record", "--", "./text"]);
    assert_eq!(ran.code, Some(126));
    assert!(ran.err.starts_with("sysprof: ./text: could not be started"));
}

#[test]
fn standard_input_is_the_programs() {
    let folder = folder();
    let mut child = sysprof()
        .args(["record", "--", "cat"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"to the program").unwrap();
    drop(stdin);
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "to the program"));
}

#[test]
fn the_environment_starts_the_recorder() {
    let folder = folder();
    let show = r#"printf '%s\n' "$SYSPROF_RECORD"; printf '%s\n' "$SYSPROF_LUA_INIT"
        case $LUA_INIT in *'require, "sysprof"'*) echo init;; esac; echo "$KEPT""#;
    let output = sysprof()
        .args([
            "record",
            "-o",
            "a b.bin",
            "--mode",
            "l",
            "--interval",
            "0.5",
        ])
        .args(["--clock", "thread", "--depth", "64", "--", "sh", "-c", show])
        .current_dir(folder.path())
        .env("LUA_INIT", "@user.lua")
        .env("KEPT", "kept")
        .output()
        .unwrap();
    let ran = ran(output);
    let path = folder.path().join("a b.bin");
    let expected = format!(
        "mode=L\ninterval=0.5\nclock=thread\ndepth=64\npath={}\n@user.lua\ninit\nkept\n",
        path.display()
    );
    assert_eq!(ran.out, expected);
}

#[test]
fn where_the_profile_is_and_how_to_read_it_is_said() {
    let folder = folder();
    let script = "cd / && printf x > \"${SYSPROF_RECORD##*path=}\"";
    let ran = run(
        folder.path(),
        &["record", "-o", "p.bin", "--", "sh", "-c", script],
    );
    assert_eq!(ran.code, Some(0));
    let expected = "sysprof: the profile is in p.bin; read it with: sysprof report p.bin\n";
    assert_eq!(ran.err, expected);
    // A file that was there before is not taken for a new profile.
    let ran = run(folder.path(), &["record", "-o", "p.bin", "--", "true"]);
    assert!(ran.err.contains("no profile was written"), "{}", ran.err);
    // Nor is a reason given twice: with 125 it was printed from inside.
    let ran = run(folder.path(), &["record", "sh", "-c", "exit 125"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(125), ""));
}

/// Starts a shell under the command that says when it is ready, and gives what
/// it does after the signal was sent to the command.
fn after_signal(signal: Signal, script: &str) -> common::Ran {
    let folder = folder();
    let mut child = sysprof()
        .args(["record", "--", "sh", "-c", script])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let mut rest = String::new();
    while out.read_line(&mut rest).unwrap() > 0 {}
    let mut ran = ran(child.wait_with_output().unwrap());
    ran.out = rest;
    ran
}

#[test]
fn signals_reach_the_program() {
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
    ] {
        // The shell runs a trap once what it waits for has ended, and only its own
        // `wait` is ended by a signal.
        let script = format!(
            "trap 'echo got {name}; kill $!; exit 3' {name}; sleep 600 >/dev/null 2>&1 & echo ready; wait"
        );
        let ran = after_signal(signal, &script);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.err);
        assert_eq!(ran.out, format!("got {name}\n"));
    }
}

#[test]
fn a_signal_that_the_program_does_not_handle_ends_both() {
    let ran = after_signal(Signal::SIGTERM, "echo ready; exec cat >/dev/null");
    assert_eq!(ran.code, Some(128 + 15));
}

#[test]
fn ignored_signals_stay_ignored() {
    let folder = folder();
    let script = format!(
        "trap '' HUP; exec '{}' record -- sh -c 'kill -HUP $$; echo alive'",
        env!("CARGO_BIN_EXE_sysprof")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let ran = ran(output);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "alive\n"));
}

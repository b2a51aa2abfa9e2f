//! What a host written in C can do to a session: threads, forks, signals,
//! stacks that are full, clocks that are put back.
//!
//! Knows: what each case of `host.c` must print, how it must end, and what its
//! profile must hold. What a program written in Lua can do by itself is in the
//! specs (`spec/failures_spec.lua` and others).

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use ljp::decode::Error;
use ljp::profile::{Profile, Reading};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The LuaJIT that is linked into the host.
const BUILD: &str = "210.7.4-gc64";

fn luajit() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("build/luajit")
        .join(BUILD);
    assert!(
        path.is_dir(),
        "{}: not there; `make luajit` builds it",
        path.display()
    );
    path
}

/// Compiles the host into `folder`.
fn host(folder: &Path) -> PathBuf {
    let program = folder.join("host");
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            "-Wl,-E",
        ])
        .arg("-I")
        .arg(luajit().join("include"))
        .arg("-o")
        .arg(&program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/failures/host.c"
        ))
        .arg(luajit().join("lib/libluajit.a"))
        .args(["-lm", "-ldl", "-lpthread"])
        .output()
        .expect("a C compiler: cc");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// A case that was run.
struct Ran {
    output: Output,
    profile: PathBuf,
}

impl Ran {
    /// Asserts that it ended by itself and printed these lines.
    #[track_caller]
    fn prints(&self, lines: &[&str]) {
        assert_eq!(self.output.status.code(), Some(0), "{:?}", self.output);
        self.printed(lines);
    }

    #[track_caller]
    fn printed(&self, lines: &[&str]) {
        let out = String::from_utf8_lossy(&self.output.stdout);
        assert_eq!(
            out.lines().collect::<Vec<_>>(),
            lines,
            "{:?}",
            String::from_utf8_lossy(&self.output.stderr)
        );
    }

    /// Asserts that it ended by itself and returns the number that it printed
    /// behind `name`.
    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        let out = String::from_utf8_lossy(&self.output.stdout);
        let number = out
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {name}: {:?}", self.output))
    }

    /// The samples of its profile, which must be whole.
    #[track_caller]
    fn whole(&self) -> u64 {
        let Reading { profile, fault } = self.read();
        assert!(fault.is_none(), "{fault:?}");
        profile.samples()
    }

    fn read(&self) -> Reading {
        let file = std::fs::File::open(&self.profile).expect("a profile");
        Profile::read(file).expect("a profile")
    }
}

/// Runs cases of one host.
struct Host {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        Host {
            program: host(folder.path()),
            folder,
        }
    }

    fn run(&self, case: &str) -> Ran {
        let profile = self.folder.path().join("profile");
        let test = std::env::current_exe().expect("a test has a program");
        let recorder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua/?.lua");
        let lua_path = format!("{recorder};{}/share/lua/5.1/?.lua", luajit().display());
        let output = Command::new(&self.program)
            .arg(case)
            .arg(&profile)
            .env("SYSPROF_RECORDER", test.with_file_name("libsysprof.so"))
            .env("LUA_PATH", lua_path)
            .output()
            .expect("the host starts");
        Ran { output, profile }
    }
}

fn run(case: &str) -> (Ran, Host) {
    let host = Host::new();
    (host.run(case), host)
}

#[test]
fn a_host_that_has_sigprof_keeps_it() {
    let (ran, _host) = run("signal_taken_before");
    ran.prints(&["start true", "stop true", "host called 1", "SIGPROF host's"]);
    assert!(ran.whole() >= 50);
}

#[test]
fn a_host_that_ignores_sigprof_goes_on_ignoring_it() {
    let (ran, _host) = run("signal_ignored");
    ran.prints(&["start true", "stop true", "SIGPROF ignored"]);
    assert!(ran.whole() >= 50);
}

#[test]
fn a_host_that_takes_sigprof_while_a_session_runs_has_it_from_then_on() {
    let (ran, _host) = run("signal_taken_during");
    ran.prints(&[
        "stop true",
        "SIGPROF host's",
        "again true",
        "stop true",
        "SIGPROF default",
    ]);
    assert!(ran.whole() >= 20);
}

#[test]
fn a_host_that_blocks_sigprof_is_sampled_by_another_signal() {
    let (ran, _host) = run("signal_blocked_before");
    ran.prints(&[
        "start true",
        "stop true",
        "all blocked nil no signal is free for the profiler's clock: \
         the program uses or blocks all of them 16",
    ]);
}

#[test]
fn time_with_sigprof_blocked_is_made_up_for() {
    let (ran, _host) = run("signal_blocked_during");
    ran.prints(&[
        "while blocked 0",
        "made up for true",
        "stop true",
        "SIGPROF default",
    ]);
    assert!(ran.whole() >= 110);
}

#[test]
fn a_host_that_takes_sigsegv_while_a_session_runs_never_sees_a_fault_of_ours() {
    let (ran, _host) = run("segv_taken_during");
    ran.prints(&[
        "host called 1",
        "unreadable true",
        "host called 1",
        "host called 2",
        "stop true",
        "SIGSEGV host's",
        "host called 3",
        "host called 4",
        "stop true",
        "SIGSEGV host's",
    ]);
}

#[test]
fn children_by_vfork_and_posix_spawn_run_as_ever() {
    let (ran, _host) = run("children");
    assert_eq!(ran.number("failed"), 0);
    assert_eq!(ran.whole(), ran.number("samples"));
}

#[test]
fn a_child_that_the_c_library_does_not_know_of_has_no_session() {
    let (ran, _host) = run("raw_fork");
    let samples = format!("samples {}", ran.number("samples"));
    ran.prints(&[
        "child 5",
        "child that exits at once 6",
        "stop true",
        &samples,
    ]);
    assert_eq!(ran.whole(), ran.number("samples"));
}

#[test]
fn of_many_threads_only_one_is_sampled() {
    let (ran, _host) = run("many_threads");
    ran.prints(&[
        "auto: no more than its time",
        "thread: no more than its time",
        "itimer: no more than its time",
    ]);
}

#[test]
fn a_signal_that_another_thread_gets_is_no_sample() {
    let (ran, _host) = run("stray_signals");
    ran.prints(&["of another thread 0", "of this one 1"]);
    assert_eq!(ran.whole(), 1);
}

#[test]
fn a_session_outlives_its_thread() {
    let (ran, _host) = run("thread_ends");
    let samples = format!("samples {}", ran.number("samples"));
    ran.prints(&[&samples, "SIGPROF default"]);
    assert_eq!(ran.whole(), ran.number("samples"));
}

#[test]
fn a_session_can_be_stopped_by_another_thread() {
    let (ran, _host) = run("stop_elsewhere");
    ran.prints(&[
        "stop true",
        "running false",
        "SIGPROF default",
        "SIGTRAP default",
    ]);
    assert!(ran.whole() >= 50);
}

#[test]
fn a_process_that_another_thread_ends_ends_in_order() {
    let host = Host::new();
    // What can go wrong takes a signal at the wrong moment.
    for _ in 0..60 {
        let ran = host.run("exit_elsewhere");
        assert_eq!(ran.output.status.code(), Some(7), "{:?}", ran.output);
        assert!(ran.whole() > 0);
    }
}

#[test]
fn a_fork_by_another_thread_does_not_wait_for_a_handler_that_is_not_there() {
    let (ran, _host) = run("fork_elsewhere");
    ran.prints(&["failed 0", "stop true"]);
    assert!(ran.whole() > 0);
}

#[test]
fn of_two_starts_at_once_one_is_refused() {
    let (ran, _host) = run("start_at_once");
    ran.prints(&["sessions 300", "host called 300", "SIGSEGV host's"]);
}

#[test]
fn closing_the_vm_ends_the_session_and_the_library_can_be_loaded_again() {
    let (ran, _host) = run("close_without_stop");
    let samples = format!("samples {}", ran.number("samples"));
    ran.prints(&[
        &samples,
        "SIGPROF default",
        "SIGSEGV default",
        "SIGTRAP default",
        "running false",
        "start true",
        "stop true",
    ]);
    assert!(ran.whole() >= ran.number("samples"));
}

#[test]
fn a_stack_that_is_nearly_full_has_room_enough() {
    let (ran, _host) = run("stack_nearly_full");
    ran.prints(&["samples true", "stop true", "stack for signals none"]);
    assert!(ran.whole() >= 50);
}

#[test]
fn samples_that_take_longer_than_the_interval_leave_the_program_time() {
    // A host that gets nowhere is ended by its alarm.
    let (ran, _host) = run("interval_too_short");
    let samples = format!("samples {}", ran.number("samples"));
    ran.prints(&["stop true", &samples]);
    assert_eq!(ran.whole(), ran.number("samples"));
}

#[test]
fn a_clock_that_is_put_back_does_not_hold_the_stream_up() {
    let (ran, _host) = run("clock_stepped");
    assert_eq!(ran.output.status.signal(), Some(libc::SIGKILL));
    let Reading { profile, fault } = ran.read();
    assert!(matches!(fault, Some(Error::Truncated { .. })), "{fault:?}");
    // At 1 ms a second is 1000 samples.
    assert!(profile.samples() + 1000 >= ran.number("samples"));
}

#[test]
fn ten_thousand_sessions_leave_nothing_behind() {
    let (ran, _host) = run("cycles");
    ran.prints(&[
        "descriptors +0",
        "threads +0",
        "timers +0",
        "mappings +0",
        "memory level",
    ]);
}

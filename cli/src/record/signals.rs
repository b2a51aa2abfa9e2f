//! Running a program so that signals which are sent to this process reach it.
//!
//! Knows processes and signals, nothing of profiles.

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// Those that would end this process and leave the program behind.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Runs the program to its end. Signals that are sent to this process are sent
/// on to it.
///
/// # Errors
///
/// If the program cannot be started or waited for.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    // A signal that is ignored here is to be ignored by the program as well, as
    // nohup wants it: so it must not be caught.
    let ignored = ignored();
    let caught = PASSED_ON
        .into_iter()
        .map(|signal| signal as i32)
        .filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
    let mut child = command.spawn()?;
    let pid = Pid::from_raw(child.id() as i32);
    // Nobody else gets this process id until the child was waited for, and
    // afterwards nothing may be sent to it.
    let target = Mutex::new(Some(pid));
    let handle = signals.handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            for origin in signals.forever() {
                // What the terminal sends, it sends to the program as well.
                if origin.cause == Cause::Kernel {
                    continue;
                }
                let signal = Signal::try_from(origin.signal).ok();
                let target = lock(&target);
                if let Some((pid, signal)) = target.zip(signal) {
                    // It may have ended by itself meanwhile.
                    let _ = kill(pid, signal);
                }
            }
        });
        let ended = wait(pid);
        *lock(&target) = None;
        handle.close();
        ended?;
        child.wait()
    })
}

/// Waits until the program has ended, and leaves it to be waited for.
fn wait(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn lock(target: &Mutex<Option<Pid>>) -> std::sync::MutexGuard<'_, Option<Pid>> {
    target
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The signals that this process ignores, bit 0 for signal 1. The kernel's own
/// account of it can be read without asking for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

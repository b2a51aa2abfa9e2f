//! The perf event clock: the task clock of one thread, with a signal an
//! overflow (`perf_event_open(2)`).
//!
//! Only time in user mode makes signals, so none ever arrives inside a system
//! call. Intervals that end in the kernel make none: they are made up for by
//! weight, from the event's own count, whenever a signal comes late.

use super::Ledger;
use crate::signal::errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
/// `fcntl(2)` commands that the libc crate does not have for this target.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const ATTR_DISABLED: u64 = 1;
const ATTR_EXCLUDE_KERNEL: u64 = 1 << 5;
const ATTR_EXCLUDE_HV: u64 = 1 << 6;

/// `struct perf_event_attr`, its first version (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// `struct f_owner_ex` of `fcntl(2)`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// An open perf event of the thread that made it.
pub struct PerfEvent {
    event: OwnedFd,
    ledger: Ledger,
    /// Monotonic time of the signal before.
    last: u64,
}

impl PerfEvent {
    /// `signal` must be none of the real-time signals: each of those is queued,
    /// and when the user's limit of queued signals (`RLIMIT_SIGPENDING`) is
    /// reached, the kernel sends SIGIO in its place, which kills.
    ///
    /// # Errors
    /// The errno of `perf_event_open(2)` or `fcntl(2)`, or `EINVAL` for such a
    /// signal.
    pub fn new(interval: Duration, signal: i32) -> Result<PerfEvent, i32> {
        if signal >= libc::SIGRTMIN() {
            return Err(libc::EINVAL);
        }
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_TASK_CLOCK,
            sample_period: interval.as_nanos() as u64,
            flags: ATTR_DISABLED | ATTR_EXCLUDE_KERNEL | ATTR_EXCLUDE_HV,
            wakeup_events: 1,
            ..Attributes::default()
        };
        // SAFETY: `attributes` says its own size; 0 is this thread, -1 any CPU.
        let event = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if event < 0 {
            return Err(errno());
        }
        // SAFETY: a new descriptor that nobody else has.
        let event = unsafe { OwnedFd::from_raw_fd(event as i32) };
        const F_OWNER_TID: i32 = 0;
        let owner = Owner {
            kind: F_OWNER_TID,
            // SAFETY: no arguments, cannot fail.
            id: unsafe { libc::gettid() },
        };
        let fd = event.as_raw_fd();
        // SAFETY: each takes the descriptor and what fcntl(2) says.
        let results = unsafe {
            [
                libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
                libc::fcntl(fd, F_SETSIG, signal),
                libc::fcntl(fd, F_SETOWN_EX, &raw const owner),
            ]
        };
        if results.contains(&-1) {
            return Err(errno());
        }
        Ok(PerfEvent {
            event,
            ledger: Ledger::new(interval),
            last: 0,
        })
    }

    /// # Errors
    /// The errno of `ioctl(2)`.
    pub fn start(&mut self) -> Result<(), i32> {
        self.last = super::monotonic();
        // SAFETY: an ioctl of perf events without argument.
        match unsafe { libc::ioctl(self.event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) } {
            -1 => Err(errno()),
            _ => Ok(()),
        }
    }

    /// Stops counting.
    pub fn stop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::ioctl(self.event.as_raw_fd(), PERF_EVENT_IOC_DISABLE, 0) };
    }

    /// CPU time goes no faster than time: a signal that came in time stands for
    /// one interval, and only a late one is worth asking the kernel about.
    pub fn weigh(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.last);
        self.last = now;
        if passed < self.ledger.interval * 3 / 2 {
            return self.ledger.one();
        }
        match self.count() {
            Some(count) => self.ledger.until(count),
            None => self.ledger.one(),
        }
    }

    /// The thread's CPU time since the start in nanoseconds (`read(2)` is
    /// async-signal-safe).
    fn count(&self) -> Option<u64> {
        let mut count = 0u64;
        // SAFETY: reads into a number of ours.
        let read = unsafe {
            libc::read(
                self.event.as_raw_fd(),
                (&raw mut count).cast(),
                size_of::<u64>(),
            )
        };
        (read == 8).then_some(count)
    }
}

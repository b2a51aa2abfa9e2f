//! POSIX timers with a signal to one thread (`timer_create(2)`): the thread's
//! CPU clock, and the monotonic clock.
//!
//! The kernel counts the expirations that made no signal of their own
//! (overruns), and the signal says how many there were.

use nix::errno::Errno;
use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use std::time::Duration;

/// A timer of the thread that made it.
pub struct PosixTimer {
    timer: Timer,
    interval: Duration,
}

impl PosixTimer {
    /// CPU time of the calling thread.
    ///
    /// # Errors
    /// The errno of `timer_create(2)`.
    pub fn thread_cpu(interval: Duration, signal: i32) -> Result<PosixTimer, i32> {
        PosixTimer::new(ClockId::CLOCK_THREAD_CPUTIME_ID, interval, signal)
    }

    /// Time that passes.
    ///
    /// # Errors
    /// The errno of `timer_create(2)`.
    pub fn monotonic(interval: Duration, signal: i32) -> Result<PosixTimer, i32> {
        PosixTimer::new(ClockId::CLOCK_MONOTONIC, interval, signal)
    }

    fn new(clock: ClockId, interval: Duration, signal: i32) -> Result<PosixTimer, i32> {
        let mut event = SigEvent::new(SigevNotify::SigevNone).sigevent();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // SAFETY: no arguments, cannot fail.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let timer = Timer::new(clock, SigEvent::from(&event)).map_err(number)?;
        Ok(PosixTimer { timer, interval })
    }

    /// # Errors
    /// The errno of `timer_settime(2)`.
    pub fn start(&mut self) -> Result<(), i32> {
        let each = Expiration::Interval(self.interval.into());
        (self.timer.set(each, TimerSetTimeFlags::empty())).map_err(number)
    }

    /// Disarms the timer.
    pub fn stop(&mut self) {
        let never = Expiration::OneShot(Duration::ZERO.into());
        // Disarming a timer that exists cannot fail.
        let _ = self.timer.set(never, TimerSetTimeFlags::empty());
    }
}

fn number(error: Errno) -> i32 {
    error as i32
}

/// The expirations that a timer's signal stands for.
pub fn weigh(info: &libc::siginfo_t) -> u64 {
    /// The part of `siginfo_t` that a timer fills in.
    #[repr(C)]
    struct TimerInfo {
        _head: [i32; 4],
        _timer: i32,
        overrun: i32,
    }
    if info.si_code != libc::SI_TIMER {
        return 1;
    }
    // SAFETY: with SI_TIMER the kernel filled in these fields; siginfo_t is
    // larger than the part.
    let timer = unsafe { &*(&raw const *info).cast::<TimerInfo>() };
    1 + timer.overrun.max(0) as u64
}

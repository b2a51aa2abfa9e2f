//! The interval timer of the process (`setitimer(2)`, `ITIMER_PROF`): the last
//! resort. Its signal goes to the process, can't be chosen, and does not say how
//! many expirations it stands for: the thread's CPU time does.

use super::Ledger;
use crate::signal::errno;
use std::time::Duration;

/// The one interval timer that a process has.
pub struct IntervalTimer {
    interval: Duration,
    ledger: Ledger,
    /// The thread's CPU time at the start.
    origin: u64,
    running: bool,
}

impl IntervalTimer {
    /// A timer that is not yet set.
    pub fn new(interval: Duration) -> IntervalTimer {
        IntervalTimer {
            interval,
            ledger: Ledger::new(interval),
            origin: 0,
            running: false,
        }
    }

    /// # Errors
    /// The errno of `setitimer(2)`.
    pub fn start(&mut self) -> Result<(), i32> {
        self.origin = thread_time();
        self.set(self.interval)?;
        self.running = true;
        Ok(())
    }

    /// Disarms the timer.
    pub fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            // Disarming cannot fail.
            let _ = self.set(Duration::ZERO);
        }
    }

    /// Intervals of the thread's CPU time since the signal before.
    pub fn weigh(&mut self) -> u64 {
        self.ledger.until(thread_time().saturating_sub(self.origin))
    }

    fn set(&self, interval: Duration) -> Result<(), i32> {
        let time = libc::timeval {
            tv_sec: interval.as_secs() as i64,
            tv_usec: i64::from(interval.subsec_micros()),
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: a valid value, and nowhere to put the old one.
        match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }
}

impl Drop for IntervalTimer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread_time() -> u64 {
    super::read(libc::CLOCK_THREAD_CPUTIME_ID)
}

//! What makes the signal: four clocks with one face.
//!
//! Knows: how often a signal comes, and how many intervals each one stands for.
//! Must not know: what is sampled.
//!
//! Each clock sends its signal to the calling thread only, except the interval
//! timer, which sends it to the process. The weight of a signal is the number of
//! intervals that passed since the one before, so that the weights add up to the
//! time that passed even where the kernel cannot keep the pace.

mod interval_timer;
mod perf_event;
mod posix_timer;

use std::fmt;
use std::time::Duration;

/// The shortest interval that a clock is asked for: the kernel's own limit for
/// perf events on a software clock (`perf_swevent_start_hrtimer`).
pub const MIN_INTERVAL: Duration = Duration::from_micros(10);
/// The longest interval.
pub const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// The kinds of clocks, as users name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CPU time of the thread, by a perf event: no tick limits it, and it never
    /// interrupts a system call.
    Perf,
    /// CPU time of the thread, by a POSIX timer: no finer than the kernel's
    /// tick, coarser intervals are made up for by weight.
    Thread,
    /// CPU time of the process, by `setitimer`.
    Interval,
    /// Time that passes, whether the thread runs or waits.
    Wall,
    /// No clock: signals come from outside.
    Manual,
}

impl Kind {
    /// The name in options and in the stream.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Perf => "perf",
            Kind::Thread => "thread",
            Kind::Interval => "itimer",
            Kind::Wall => "wall",
            Kind::Manual => "manual",
        }
    }
}

/// A clock that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Which one.
    pub kind: Kind,
    /// What was asked of the kernel.
    pub call: &'static str,
    /// What it answered.
    pub errno: i32,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the clock '{}' is not available here: {}: {}",
            self.kind.name(),
            self.call,
            std::io::Error::from_raw_os_error(self.errno)
        )
    }
}

/// A clock that ticks. Dropping it stops it.
pub struct Clock {
    kind: Kind,
    source: Source,
}

enum Source {
    Perf(perf_event::PerfEvent),
    Posix(posix_timer::PosixTimer),
    Interval(interval_timer::IntervalTimer),
    Manual,
}

impl Clock {
    /// Makes a clock of `kind` that will send `signal` to the calling thread
    /// each `interval`. It does not tick until [`Clock::start`].
    ///
    /// # Errors
    /// Where the kernel does not give it.
    pub fn new(kind: Kind, interval: Duration, signal: i32) -> Result<Clock, Unavailable> {
        let failed = |call: &'static str| move |errno| Unavailable { kind, call, errno };
        let source = match kind {
            Kind::Perf => Source::Perf(
                perf_event::PerfEvent::new(interval, signal).map_err(failed("perf_event_open"))?,
            ),
            Kind::Thread => Source::Posix(
                posix_timer::PosixTimer::thread_cpu(interval, signal)
                    .map_err(failed("timer_create"))?,
            ),
            Kind::Wall => Source::Posix(
                posix_timer::PosixTimer::monotonic(interval, signal)
                    .map_err(failed("timer_create"))?,
            ),
            Kind::Interval => {
                if signal != libc::SIGPROF {
                    // setitimer's signal can't be chosen.
                    return Err(failed("setitimer")(libc::EBUSY));
                }
                Source::Interval(interval_timer::IntervalTimer::new(interval))
            }
            Kind::Manual => Source::Manual,
        };
        Ok(Clock { kind, source })
    }

    /// Makes the best clock of CPU time that can be had: perf event, thread
    /// timer, interval timer, in this order.
    ///
    /// # Errors
    /// What the last one said.
    pub fn best(interval: Duration, signal: i32) -> Result<Clock, Unavailable> {
        Clock::new(Kind::Perf, interval, signal)
            .or_else(|_| Clock::new(Kind::Thread, interval, signal))
            .or_else(|_| Clock::new(Kind::Interval, interval, signal))
    }

    /// Which one it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Lets it tick.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn start(&mut self) -> Result<(), Unavailable> {
        let kind = self.kind;
        let failed = |call: &'static str| move |errno| Unavailable { kind, call, errno };
        match &mut self.source {
            Source::Perf(event) => event.start().map_err(failed("ioctl")),
            Source::Posix(timer) => timer.start().map_err(failed("timer_settime")),
            Source::Interval(timer) => timer.start().map_err(failed("setitimer")),
            Source::Manual => Ok(()),
        }
    }

    /// Stops it: no signal is sent any more. One may still be on its way.
    pub fn stop(&mut self) {
        match &mut self.source {
            Source::Perf(event) => event.stop(),
            Source::Posix(timer) => timer.stop(),
            Source::Interval(timer) => timer.stop(),
            Source::Manual => {}
        }
    }

    /// In the child of a fork: lets go of it without stopping anything. A perf
    /// event is one and the same in both processes, and goes on in the parent;
    /// timers are not inherited, and deleting one that is not there is an error.
    pub fn abandon(self) {
        match self.source {
            Source::Perf(event) => drop(event),
            Source::Posix(timer) => std::mem::forget(timer),
            Source::Interval(timer) => std::mem::forget(timer),
            Source::Manual => {}
        }
    }

    /// How many intervals a signal stands for; at least 1. Called once for each
    /// signal, in its handler; `now` is the monotonic time in nanoseconds.
    pub fn weigh(&mut self, info: &libc::siginfo_t, now: u64) -> u64 {
        match &mut self.source {
            Source::Perf(event) => event.weigh(now),
            Source::Posix(_) => posix_timer::weigh(info),
            Source::Interval(timer) => timer.weigh(),
            Source::Manual => 1,
        }
    }
}

/// Monotonic time in nanoseconds (`clock_gettime(2)`, async-signal-safe).
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Intervals that have not been accounted for yet: what a clock whose signals
/// do not count themselves makes weights from.
struct Ledger {
    interval: u64,
    accounted: u64,
}

impl Ledger {
    fn new(interval: Duration) -> Ledger {
        Ledger {
            interval: interval.as_nanos() as u64,
            accounted: 0,
        }
    }

    /// A signal that came in time: one interval.
    fn one(&mut self) -> u64 {
        self.accounted += self.interval;
        1
    }

    /// The intervals up to `time`, to the nearest one.
    fn until(&mut self, time: u64) -> u64 {
        let behind = time.saturating_sub(self.accounted);
        let weight = ((behind + self.interval / 2) / self.interval).max(1);
        self.accounted += weight * self.interval;
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_makes_weights_add_up_to_the_time() {
        let mut ledger = Ledger::new(Duration::from_millis(1));
        let times = [1.0, 2.1, 5.9, 7.0, 7.1, 9.0_f64];
        let weights: Vec<u64> = (times.iter())
            .map(|ms| ledger.until((ms * 1e6) as u64))
            .collect();
        assert_eq!(weights, [1, 1, 4, 1, 1, 1]);
        assert_eq!(weights.iter().sum::<u64>(), 9);
    }

    #[test]
    fn a_clock_that_is_not_there_says_so() {
        let refused = Clock::new(Kind::Interval, Duration::from_millis(1), libc::SIGUSR1);
        let text = refused
            .err()
            .expect("setitimer's signal is fixed")
            .to_string();
        assert!(
            text.contains("'itimer'") && text.contains("setitimer"),
            "{text}"
        );
    }
}

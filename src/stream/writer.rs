//! The thread that takes bytes out of the ring and puts them into the file.
//!
//! Knows: the file. Must not know: what the bytes are.
//!
//! It wakes ten times a second, so that a process that is killed leaves all but
//! its last moments, and when the ring fills up. It has all signals blocked: the
//! host's handlers never run on it.

use super::ring::Consumer;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem, thread};

/// How long bytes wait in the ring at most.
const PERIOD: Duration = Duration::from_millis(100);

/// What the thread and the others share.
pub struct Signals {
    wake: Semaphore,
    done: AtomicBool,
    /// The errno that writing failed with, 0 while it did not.
    failed: AtomicI32,
}

impl Signals {
    /// Asks for the ring to be emptied; may be called in a signal handler.
    pub fn wake(&self) {
        self.wake.post();
    }

    /// The errno that writing failed with; nothing is written any more then.
    pub fn failure(&self) -> Option<i32> {
        match self.failed.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }
}

/// The running thread.
pub struct Writer {
    signals: Arc<Signals>,
    /// Gone once the thread has ended, or where it never was.
    thread: Option<JoinHandle<File>>,
    descriptor: RawFd,
}

/// Opens `path` for a profile. A pipe that nobody reads is refused instead of
/// waited for.
///
/// # Errors
/// What `open(2)` said.
pub fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    // SAFETY: clears the status flags of a descriptor of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(file),
    }
}

impl Writer {
    /// Starts the thread; it does `chore`, too, each time that it wakes.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(
        file: File,
        consumer: Consumer,
        chore: impl FnMut() + Send + 'static,
    ) -> io::Result<Writer> {
        let signals = Arc::new(Signals {
            wake: Semaphore::new(),
            done: AtomicBool::new(false),
            failed: AtomicI32::new(0),
        });
        let theirs = signals.clone();
        let descriptor = file.as_raw_fd();
        let thread = with_signals_blocked(|| {
            thread::Builder::new()
                .name("sysprof".to_owned())
                .stack_size(128 * 1024)
                .spawn(move || run(file, consumer, &theirs, chore))
        })?;
        Ok(Writer {
            signals,
            thread: Some(thread),
            descriptor,
        })
    }

    /// What the thread is told by, and tells by.
    pub fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    /// Lets go of it in a process that has no such thread: a fork's child. The
    /// child's copy of the descriptor is closed, what else the thread owned
    /// stays allocated.
    pub fn abandon(mut self) {
        // SAFETY: the thread that owns the descriptor does not exist here.
        unsafe { libc::close(self.descriptor) };
        mem::forget(self.thread.take());
    }

    /// Writes what is left in the ring, then `last`, and ends the thread.
    ///
    /// # Errors
    /// What writing failed with, now or earlier.
    pub fn finish(mut self, last: &[u8]) -> Result<(), i32> {
        let file = self.end();
        if let Some(errno) = self.signals.failure() {
            return Err(errno);
        }
        let mut file = file.ok_or(libc::EIO)?;
        file.write_all(last).map_err(errno_of)
    }

    fn end(&mut self) -> Option<File> {
        self.signals.done.store(true, Ordering::Release);
        self.signals.wake();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(mut file: File, mut consumer: Consumer, signals: &Signals, mut chore: impl FnMut()) -> File {
    loop {
        chore();
        // Read before the ring: what was put in before `done` is written.
        let done = signals.done.load(Ordering::Acquire);
        loop {
            let bytes = consumer.published();
            let count = bytes.len();
            if count == 0 {
                break;
            }
            if signals.failure().is_none()
                && let Err(error) = file.write_all(bytes)
            {
                signals.failed.store(errno_of(error), Ordering::Relaxed);
            }
            consumer.take(count);
        }
        if done {
            return file;
        }
        signals.wake.wait(PERIOD);
    }
}

fn errno_of(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Runs `f` with all signals blocked in this thread: threads made by it have
/// them blocked from their first instruction.
fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: masks of ours; the old one is put back.
    unsafe {
        let mut all = mem::zeroed();
        let mut before = mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// A semaphore: posting to it is async-signal-safe, unlike anything in std.
struct Semaphore(Box<std::cell::UnsafeCell<libc::sem_t>>);

// SAFETY: semaphores are made to be shared between threads.
unsafe impl Send for Semaphore {}
// SAFETY: as above.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    fn new() -> Semaphore {
        // SAFETY: zeroes are as good as anything before sem_init.
        let semaphore: Semaphore = Semaphore(Box::new(unsafe { mem::zeroed() }));
        // SAFETY: at its final address; for the threads of one process.
        unsafe { libc::sem_init(semaphore.0.get(), 0, 0) };
        semaphore
    }

    fn post(&self) {
        // SAFETY: initialised above. A count that would overflow is no loss.
        unsafe { libc::sem_post(self.0.get()) };
    }

    /// Waits for a post, but not longer than `limit`.
    fn wait(&self, limit: Duration) {
        // SAFETY: initialised above; the time is ours.
        unsafe {
            let mut until = mem::zeroed::<libc::timespec>();
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            let nanoseconds = until.tv_nsec as u64 + u64::from(limit.subsec_nanos());
            until.tv_sec += (limit.as_secs() + nanoseconds / 1_000_000_000) as i64;
            until.tv_nsec = (nanoseconds % 1_000_000_000) as i64;
            libc::sem_timedwait(self.0.get(), &until);
            while libc::sem_trywait(self.0.get()) == 0 {}
        }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: nobody waits any more.
        unsafe { libc::sem_destroy(self.0.get()) };
    }
}

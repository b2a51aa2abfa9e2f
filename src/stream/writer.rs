//! The thread that takes bytes out of the ring and puts them into the file.
//!
//! Knows: the file. Must not know: what the bytes are.
//!
//! It wakes ten times a second, so that a process that is killed leaves all but
//! its last moments, and when the ring fills up. It has all signals blocked: the
//! host's handlers never run on it, and a write that raises a signal (SIGPIPE,
//! SIGXFSZ) fails and does no more. That is why nobody else writes.

use super::ring::Consumer;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem, thread};

/// How long bytes wait in the ring at most.
const PERIOD: Duration = Duration::from_millis(100);

/// How many periods the end of a session waits for the reader of a pipe that
/// takes nothing.
const PATIENCE: u32 = 20;

/// Bytes that the end of a stream has room in.
pub const LAST: usize = 1024;

/// What the thread and the others share.
pub struct Signals {
    bell: Bell,
    done: AtomicBool,
    /// What is written behind all the rest, once done.
    last: Mutex<Vec<u8>>,
    /// The errno that writing failed with, 0 while it did not.
    failed: AtomicI32,
}

impl Signals {
    /// Asks for the ring to be emptied; may be called in a signal handler.
    pub fn wake(&self) {
        self.bell.ring();
    }

    fn last(&self) -> MutexGuard<'_, Vec<u8>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
/// waited for. Writing does not block either: see [`write_all`].
///
/// # Errors
/// What `open(2)` said.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

impl Writer {
    /// Starts the thread; it does `chore`, too, each time that it wakes, and
    /// writes what that gives, between two of the handler's records. The chore is
    /// told whether this is the last time.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(
        file: File,
        consumer: Consumer,
        chore: impl FnMut(bool) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Writer> {
        let signals = Arc::new(Signals {
            bell: Bell::default(),
            done: AtomicBool::new(false),
            // Laid out now: there may be no memory left at the end.
            last: Mutex::new(Vec::with_capacity(LAST)),
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
    /// What writing failed with, now or earlier, or `ENOENT` if there is no file
    /// any more: it was removed.
    pub fn finish(mut self, last: &[u8]) -> Result<(), i32> {
        self.signals.last().extend_from_slice(last);
        let file = self.end().ok_or(libc::EIO)?;
        if let Some(errno) = self.signals.failure() {
            return Err(errno);
        }
        let metadata = file.metadata().map_err(errno_of)?;
        match metadata.is_file() && metadata.nlink() == 0 {
            true => Err(libc::ENOENT),
            false => Ok(()),
        }
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

fn run(
    file: File,
    mut consumer: Consumer,
    signals: &Signals,
    mut chore: impl FnMut(bool) -> Vec<u8>,
) -> File {
    let put = |bytes: &[u8]| {
        if signals.failure().is_none()
            && let Err(errno) = write_all(&file, bytes, signals)
        {
            signals.failed.store(errno, Ordering::Relaxed);
        }
    };
    loop {
        // Read before the ring: what was put in before `done` is written.
        let done = signals.done.load(Ordering::Acquire);
        let more = chore(done);
        put(&more);
        loop {
            let bytes = consumer.published();
            let count = bytes.len();
            if count == 0 {
                break;
            }
            put(bytes);
            consumer.take(count);
        }
        if done {
            put(&signals.last());
            return file;
        }
        signals.bell.wait(PERIOD);
    }
}

/// Writes `bytes`. A pipe whose reader is slow is waited for as long as the
/// session runs; once it is done, no longer than [`PATIENCE`] for each piece.
fn write_all(mut file: &File, mut bytes: &[u8], signals: &Signals) -> Result<(), i32> {
    let mut waited = 0;
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(libc::EIO),
            Ok(count) => {
                bytes = &bytes[count..];
                waited = 0;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && waited < PATIENCE => {
                let mut room = libc::pollfd {
                    fd: file.as_raw_fd(),
                    events: libc::POLLOUT,
                    revents: 0,
                };
                // SAFETY: one descriptor of ours. Whatever it says, writing is
                // tried again.
                unsafe { libc::poll(&mut room, 1, PERIOD.as_millis() as i32) };
                waited += u32::from(signals.done.load(Ordering::Relaxed));
            }
            Err(error) => return Err(errno_of(error)),
        }
    }
    Ok(())
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

/// What the thread sleeps by. Ringing it is async-signal-safe, unlike anything in
/// std; and a wait has a length, where one with a semaphore ends at a time of day,
/// which may be put back.
#[derive(Default)]
struct Bell(AtomicU32);

impl Bell {
    fn ring(&self) {
        self.0.store(1, Ordering::Release);
        // SAFETY: futex(2) on a word that is there; nobody may be waiting.
        unsafe { libc::syscall(libc::SYS_futex, &raw const self.0, libc::FUTEX_WAKE, 1) };
    }

    /// Waits until it rings, or has rung since the last wait, but not longer than
    /// `limit`.
    fn wait(&self, limit: Duration) {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: as above; it sleeps only while the word is 0.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const self.0,
                libc::FUTEX_WAIT,
                0,
                &raw const limit,
            )
        };
        // A ring that is swallowed here came after what it was rung for.
        self.0.swap(0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::ring;
    use std::io::{Read, Seek};

    #[test]
    fn nothing_is_written_after_a_failure_whatever_becomes_of_it() {
        // SAFETY: makes a file that has no name.
        let fd = unsafe { libc::memfd_create(c"profile".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: new, and nobody else's.
        let mut content = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        let read_only = File::open(format!("/proc/self/fd/{fd}")).expect("it is there");
        let descriptor = read_only.as_raw_fd();
        let (mut producer, consumer) = ring::ring(4096);
        let writer = Writer::start(read_only, consumer, |_| Vec::new()).expect("a thread");
        producer.put(b"lost");
        producer.publish();
        writer.signals().wake();
        while writer.signals().failure().is_none() {
            std::thread::yield_now();
        }
        // From now on it could be written.
        // SAFETY: both are open, and the writer's stays so.
        assert_eq!(unsafe { libc::dup2(fd, descriptor) }, descriptor);
        producer.put(b"later");
        producer.publish();
        assert_eq!(writer.finish(b"last"), Err(libc::EBADF));
        let mut bytes = Vec::new();
        content.rewind().expect("a file");
        content.read_to_end(&mut bytes).expect("a file");
        assert_eq!(bytes, b"");
    }
}

//! A stream that goes to a writer of the host's, in C.
//!
//! Knows: the host's buffer and how its writer answers. Must not know: what the
//! bytes are.
//!
//! Runs in the signal handler. Bytes are collected in the host's buffer; when it
//! is full its writer is called with all of it. What it does not take at once is
//! given to it again. An error, or its wish to end, is kept, and nothing is
//! written any more.

use std::ffi::c_void;

/// The host's writer: takes `len` bytes at `*data` and says how many it has
/// taken, 0 for an error. It ends the profile by setting `*data` to null.
pub type WriterFn =
    unsafe extern "C" fn(data: *mut *const c_void, len: usize, ctx: *mut c_void) -> usize;

/// How often a writer that was interrupted is tried again before that is taken
/// for an error: a handler must come to an end.
const MAX_INTERRUPTIONS: u32 = 1000;

/// A buffer of the host's and what empties it.
pub struct Callback {
    buffer: *mut u8,
    len: usize,
    used: usize,
    writer: WriterFn,
    context: *mut c_void,
    failure: Option<i32>,
}

// SAFETY: the host gives buffer and context for the session, whose handler and
// stop are never at work at the same time.
unsafe impl Send for Callback {}

impl Callback {
    /// Collects in the `len` bytes at `buffer`.
    ///
    /// # Safety
    /// The buffer belongs to this value while it exists, and `writer` may be
    /// called with `context` in a signal handler.
    pub unsafe fn new(
        buffer: *mut u8,
        len: usize,
        writer: WriterFn,
        context: *mut c_void,
    ) -> Callback {
        Callback {
            buffer,
            len,
            used: 0,
            writer,
            context,
            failure: None,
        }
    }

    /// The errno that the writer failed with or ended the profile with.
    pub fn failure(&self) -> Option<i32> {
        self.failure
    }

    /// Adds bytes, and writes when the buffer is full.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.failure.is_none() {
            let count = bytes.len().min(self.len - self.used);
            let (now, later) = bytes.split_at(count);
            // SAFETY: `count` bytes are free in the host's buffer.
            unsafe {
                std::ptr::copy_nonoverlapping(now.as_ptr(), self.buffer.add(self.used), count);
            }
            self.used += count;
            bytes = later;
            if self.used == self.len {
                self.flush();
            }
        }
    }

    /// Writes what is in the buffer.
    pub fn flush(&mut self) {
        let mut done = 0;
        let mut interruptions = 0;
        while done < self.used && self.failure.is_none() {
            // SAFETY: within the host's buffer.
            let mut data: *const c_void = unsafe { self.buffer.add(done) }.cast();
            set_errno(0);
            // SAFETY: the promise of `new`.
            let taken = unsafe { (self.writer)(&mut data, self.used - done, self.context) };
            let errno = errno();
            match taken {
                _ if data.is_null() => self.fail(errno, libc::ECANCELED),
                0 if errno == libc::EINTR && interruptions < MAX_INTERRUPTIONS => {
                    interruptions += 1;
                }
                0 => self.fail(errno, libc::EIO),
                // Writers that always say their whole buffer are taken at that.
                taken => done += taken.min(self.used - done),
            }
        }
        self.used = 0;
    }

    fn fail(&mut self, errno: i32, otherwise: i32) {
        self.failure = Some(if errno == 0 { otherwise } else { errno });
    }
}

fn errno() -> i32 {
    // SAFETY: the C library's errno of this thread; async-signal-safe.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a writer is told to do, and what it has got.
    #[derive(Default)]
    struct Host {
        /// Most bytes that it takes at once, by call; then all.
        takes: Vec<usize>,
        /// What errno it sets when it takes none.
        errno: i32,
        /// Whether it ends the profile.
        ends: bool,
        got: Vec<u8>,
        calls: usize,
    }

    unsafe extern "C" fn writer(
        data: *mut *const c_void,
        len: usize,
        context: *mut c_void,
    ) -> usize {
        // SAFETY: the tests give a Host, and `data` is as promised.
        let (host, bytes) = unsafe {
            let bytes = std::slice::from_raw_parts((*data).cast::<u8>(), len);
            (&mut *context.cast::<Host>(), bytes)
        };
        let most = host.takes.get(host.calls).copied().unwrap_or(usize::MAX);
        host.calls += 1;
        let taken = most.min(len);
        host.got.extend(&bytes[..taken]);
        if taken == 0 {
            set_errno(host.errno);
        }
        if host.ends {
            // SAFETY: as above.
            unsafe { *data = std::ptr::null() };
        }
        taken
    }

    fn with(host: &mut Host, put: impl FnOnce(&mut Callback)) -> Option<i32> {
        let mut buffer = [0; 4];
        let context = (&raw mut *host).cast();
        // SAFETY: both outlive the value, which is used here only.
        let mut callback = unsafe { Callback::new(buffer.as_mut_ptr(), 4, writer, context) };
        put(&mut callback);
        callback.flush();
        callback.failure()
    }

    #[test]
    fn a_full_buffer_is_written_and_short_writes_go_on() {
        let mut host = Host {
            takes: vec![1, 2],
            ..Host::default()
        };
        assert_eq!(with(&mut host, |out| out.put(b"abcdefghi")), None);
        assert_eq!(host.got, b"abcdefghi");
        // 4 bytes in three pieces, 4, and 1 at the end.
        assert_eq!(host.calls, 5);
    }

    #[test]
    fn an_interruption_is_tried_again_but_not_for_ever() {
        let mut host = Host {
            takes: vec![0, 0],
            errno: libc::EINTR,
            ..Host::default()
        };
        assert_eq!(with(&mut host, |out| out.put(b"abcd")), None);
        assert_eq!((&host.got[..], host.calls), (&b"abcd"[..], 3));
        let mut host = Host {
            takes: vec![0; 10_000],
            errno: libc::EINTR,
            ..Host::default()
        };
        assert_eq!(with(&mut host, |out| out.put(b"abcd")), Some(libc::EINTR));
    }

    #[test]
    fn an_error_and_an_end_are_the_last_call() {
        let mut host = Host {
            takes: vec![0],
            errno: libc::ENOSPC,
            ..Host::default()
        };
        assert_eq!(with(&mut host, |out| out.put(&[1; 20])), Some(libc::ENOSPC));
        assert_eq!(host.calls, 1);
        let mut host = Host {
            ends: true,
            ..Host::default()
        };
        let ended = with(&mut host, |out| out.put(&[1; 20]));
        assert_eq!((ended, host.calls), (Some(libc::ECANCELED), 1));
    }
}

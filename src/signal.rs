//! Signal dispositions as values: take one over, put it back, hand a signal on.
//!
//! Knows: `sigaction(2)`. Must not know: what the signals are used for.

use std::mem;

/// A three-argument signal handler (`SA_SIGINFO`).
pub type Action = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// What a process does about a signal.
#[derive(Clone, Copy)]
pub struct Disposition(libc::sigaction);

impl Default for Disposition {
    /// The kernel's default action.
    fn default() -> Disposition {
        // SAFETY: all zeroes is a valid `sigaction`: SIG_DFL, no flags.
        Disposition(unsafe { mem::zeroed() })
    }
}

impl Disposition {
    /// The disposition of `signal` now.
    ///
    /// # Errors
    /// The errno of `sigaction(2)`.
    pub fn current(signal: i32) -> Result<Disposition, i32> {
        let mut now = Disposition::default();
        // SAFETY: no new disposition, and room for the old one.
        match unsafe { libc::sigaction(signal, std::ptr::null(), &mut now.0) } {
            0 => Ok(now),
            _ => Err(errno()),
        }
    }

    /// The `SA_*` flags.
    pub fn flags(&self) -> i32 {
        self.0.sa_flags
    }

    /// Whether nobody has asked for the signal.
    pub fn is_default(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_DFL
    }

    /// Whether nobody has asked for the signal but an earlier session, whose
    /// `action` somebody put back after it had ended.
    pub fn is_free_for(&self, action: Action) -> bool {
        self.is_default() || self.is(action)
    }

    /// Whether this is `action`.
    pub fn is(&self, action: Action) -> bool {
        self.0.sa_sigaction == action as usize
    }

    /// Does with a fault what the kernel would have done had this disposition been
    /// in place. A signal that somebody has sent is no fault: see
    /// [`Disposition::deliver_once`].
    ///
    /// # Safety
    /// The arguments are those that a handler for `signal` was called with, and
    /// the caller returns from that handler next.
    pub unsafe fn deliver(
        &self,
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        match self.0.sa_sigaction {
            // A fault can't be ignored: the kernel kills for it, too. On return
            // the instruction faults again, in front of the default action.
            libc::SIG_DFL | libc::SIG_IGN => {
                let default = Disposition::default();
                // SAFETY: a valid disposition, and nowhere to put the old one.
                unsafe { libc::sigaction(signal, &default.0, std::ptr::null_mut()) };
            }
            handler => {
                let mut mask = self.0.sa_mask;
                // SAFETY: `mask` is ours; both calls are async-signal-safe.
                unsafe {
                    if self.flags() & libc::SA_NODEFER == 0 {
                        libc::sigaddset(&mut mask, signal);
                    }
                    let mut unblock: libc::sigset_t = mem::zeroed();
                    libc::sigemptyset(&mut unblock);
                    libc::sigaddset(&mut unblock, signal);
                    if self.flags() & libc::SA_NODEFER != 0 {
                        libc::pthread_sigmask(libc::SIG_UNBLOCK, &unblock, std::ptr::null_mut());
                    }
                    libc::pthread_sigmask(libc::SIG_BLOCK, &mask, std::ptr::null_mut());
                }
                // SAFETY: the host registered `handler` with this signature.
                unsafe {
                    if self.flags() & libc::SA_SIGINFO != 0 {
                        mem::transmute::<usize, Action>(handler)(signal, info, context);
                    } else {
                        mem::transmute::<usize, extern "C" fn(i32)>(handler)(signal);
                    }
                }
            }
        }
    }
}

impl Disposition {
    /// As [`Disposition::deliver`], for a signal that does not come again by itself
    /// when its handler returns, as that of a trap or one that was sent: it may be
    /// ignored, and the default action must be brought about.
    ///
    /// # Safety
    /// As for [`Disposition::deliver`].
    pub unsafe fn deliver_once(
        &self,
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        match self.0.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                let default = Disposition::default();
                // SAFETY: a valid disposition; the signal is blocked until the
                // handler returns, and kills the process then.
                unsafe {
                    libc::sigaction(signal, &default.0, std::ptr::null_mut());
                    libc::raise(signal);
                }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.deliver(signal, info, context) },
        }
    }
}

/// A handler of ours, in place until dropped.
///
/// On drop the disposition that was there before is put back, unless somebody
/// has taken the signal over in the meantime: theirs stays.
pub struct Handler {
    signal: i32,
    action: Action,
    before: Disposition,
}

impl Handler {
    /// Installs `action` for `signal` with `flags` besides `SA_SIGINFO` and
    /// `SA_RESTART`; `blocked` are the signals that wait while it runs.
    ///
    /// # Errors
    /// The errno of `sigaction(2)`.
    pub fn install(
        signal: i32,
        action: Action,
        flags: i32,
        blocked: &[i32],
    ) -> Result<Handler, i32> {
        let mut ours = Disposition::default();
        for &other in blocked {
            // SAFETY: a mask of ours.
            unsafe { libc::sigaddset(&mut ours.0.sa_mask, other) };
        }
        ours.0.sa_sigaction = action as usize;
        ours.0.sa_flags = flags | libc::SA_SIGINFO | libc::SA_RESTART;
        let mut before = Disposition::default();
        // SAFETY: both point to valid dispositions.
        match unsafe { libc::sigaction(signal, &ours.0, &mut before.0) } {
            0 => Ok(Handler {
                signal,
                action,
                // Ours was left there by somebody who had it put back.
                before: match before.is(action) {
                    true => Disposition::default(),
                    false => before,
                },
            }),
            _ => Err(errno()),
        }
    }

    /// The same handler, with another disposition to be put back.
    pub fn over(mut self, before: Disposition) -> Handler {
        self.before = before;
        self
    }
}

impl Handler {
    /// The disposition that was there before.
    pub fn before(&self) -> Disposition {
        self.before
    }

    /// Has another disposition put back on drop.
    pub fn set_before(&mut self, before: Disposition) {
        self.before = before;
    }

    /// Throws away signals that are on their way, so that none meets the
    /// disposition that was there before: its default may be to kill.
    pub fn discard_pending(&self) {
        if Disposition::current(self.signal).is_ok_and(|now| now.is(self.action)) {
            let mut ignore = Disposition::default();
            ignore.0.sa_sigaction = libc::SIG_IGN;
            let mut ours = Disposition::default();
            // SAFETY: valid dispositions.
            unsafe {
                libc::sigaction(self.signal, &ignore.0, &mut ours.0);
                libc::sigaction(self.signal, &ours.0, std::ptr::null_mut());
            }
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        if Disposition::current(self.signal).is_ok_and(|now| now.is(self.action)) {
            // SAFETY: `before` came from sigaction(2).
            unsafe { libc::sigaction(self.signal, &self.before.0, std::ptr::null_mut()) };
        }
    }
}

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: glibc's errno location is valid on every thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Keeps `errno` over a signal handler's work.
pub struct KeepErrno(i32);

impl KeepErrno {
    /// Notes the errno that the interrupted code may be about to read.
    pub fn new() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Default for KeepErrno {
    fn default() -> KeepErrno {
        KeepErrno::new()
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

//! A stack for the signal handlers of the thread that is sampled.
//!
//! Knows: `sigaltstack(2)`. Must not know: what the handlers do.
//!
//! The kernel kills a process whose thread has no room on its stack for a
//! signal's frame. Without a profiler there is no signal, so a thread that is
//! deep in its own stack must not need room for one. A thread that has a stack
//! for signals keeps it.

use crate::signal::errno;
use std::sync::Mutex;
use std::{mem, ptr};

/// Room for three signals' frames, the handlers' own 16 KiB, and a handler of
/// the host's that asks for this stack.
const SIZE: usize = 128 * 1024;
/// What a handler that needs more runs into.
const GUARD: usize = 4096;

/// A stack that was made for a thread, until dropped.
pub struct SignalStack(Mapping);

#[derive(Clone, Copy)]
struct Mapping {
    address: usize,
    thread: libc::pid_t,
}

/// Stacks of threads that went on when another thread ended their session.
static LEFT: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

impl SignalStack {
    /// Gives the calling thread a stack, unless it has one.
    ///
    /// # Errors
    /// The errno of `mmap(2)` or `sigaltstack(2)`.
    pub fn install() -> Result<Option<SignalStack>, i32> {
        if let Ok(mut left) = LEFT.try_lock() {
            left.retain(|mapping| !mapping.give_back());
        }
        if current().ss_flags & libc::SS_DISABLE == 0 {
            return Ok(None);
        }
        let stack = SignalStack(Mapping::new()?);
        let ours = libc::stack_t {
            ss_sp: stack.0.bottom() as *mut _,
            ss_flags: 0,
            ss_size: SIZE,
        };
        // SAFETY: the stack stays mapped for as long as the thread has it.
        match unsafe { libc::sigaltstack(&ours, ptr::null_mut()) } {
            0 => Ok(Some(stack)),
            _ => Err(errno()),
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // Where the list is being used, a stack too many stays mapped.
        if !self.0.give_back()
            && let Ok(mut left) = LEFT.try_lock()
        {
            left.push(self.0);
        }
    }
}

impl Mapping {
    fn new() -> Result<Mapping, i32> {
        // SAFETY: a new mapping, whose first page is made a guard.
        let address = unsafe {
            let address = libc::mmap(
                ptr::null_mut(),
                GUARD + SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            );
            if address == libc::MAP_FAILED {
                return Err(errno());
            }
            libc::mprotect(address, GUARD, libc::PROT_NONE);
            address as usize
        };
        Ok(Mapping {
            address,
            // SAFETY: no arguments, cannot fail.
            thread: unsafe { libc::gettid() },
        })
    }

    fn bottom(&self) -> usize {
        self.address + GUARD
    }

    /// Unmaps it, unless its thread goes on with it; the calling thread has it
    /// taken away. Returns whether it is gone.
    fn give_back(&self) -> bool {
        let now = current();
        // Not by the thread's number: that is another one in a fork's child.
        let is_mine = now.ss_sp as usize == self.bottom() && now.ss_flags & libc::SS_DISABLE == 0;
        let none = libc::stack_t {
            ss_sp: ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        // SAFETY: takes a stack away that is not being run on (the kernel would
        // refuse), asks whether a thread exists, and unmaps what nobody has.
        unsafe {
            let is_used = match is_mine {
                true => libc::sigaltstack(&none, ptr::null_mut()) != 0,
                false => {
                    self.thread != libc::gettid()
                        && libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, 0) == 0
                }
            };
            if !is_used {
                libc::munmap(self.address as *mut _, GUARD + SIZE);
            }
            !is_used
        }
    }
}

/// The calling thread's stack for signals.
fn current() -> libc::stack_t {
    // SAFETY: all zeroes is a valid value; it is filled in.
    unsafe {
        let mut now = mem::zeroed();
        libc::sigaltstack(ptr::null(), &mut now);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, that has no such stack yet: the test's may.
    fn in_a_new_thread(f: impl FnOnce() + Send + 'static) {
        let without = move || {
            let none = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            // SAFETY: std's own stack for this thread stays mapped.
            unsafe { libc::sigaltstack(&none, ptr::null_mut()) };
            f();
        };
        std::thread::spawn(without).join().expect("no panic");
    }

    fn is_mapped(mapping: Mapping) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        maps.contains(&format!("{:x}-", mapping.bottom()))
    }

    #[test]
    fn a_thread_has_one_for_as_long_as_it_is_sampled() {
        in_a_new_thread(|| {
            let stack = SignalStack::install().expect("memory").expect("none yet");
            let mapping = stack.0;
            assert_eq!(current().ss_sp as usize, mapping.bottom());
            assert!(is_mapped(mapping));
            assert!(SignalStack::install().expect("nothing to do").is_none());
            drop(stack);
            assert_ne!(current().ss_flags & libc::SS_DISABLE, 0);
            assert!(!is_mapped(mapping));
        });
    }

    #[test]
    fn a_thread_that_goes_on_keeps_it_and_one_that_has_ended_does_not() {
        let (give, given) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            in_a_new_thread(move || {
                let stack = SignalStack::install().expect("memory").expect("none yet");
                give.send(stack).expect("the test waits");
                gone.recv().expect("the test goes on");
                assert_eq!(current().ss_flags & libc::SS_DISABLE, 0);
            });
        });
        let stack = given.recv().expect("a stack");
        let mapping = stack.0;
        drop(stack);
        assert!(is_mapped(mapping));
        go.send(()).expect("the thread waits");
        thread.join().expect("no panic");
        drop(SignalStack::install());
        assert!(!is_mapped(mapping));
    }
}

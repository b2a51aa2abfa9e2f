//! The SIGSEGV and SIGBUS handlers that let `memory` fail a load instead of
//! the process.
//!
//! Knows: signal dispositions. Must not know: what is being read, or why.
//!
//! They are installed for the length of a session. A fault that is not ours is
//! handed to the disposition that was there before, as the kernel would have:
//! with its mask and its arguments, or by letting the default action kill the
//! process at the faulting instruction.

use crate::memory;
use crate::signal::{Disposition, Handler};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was there before us, for the handler to read.
struct Before {
    set: AtomicBool,
    disposition: UnsafeCell<MaybeUninit<Disposition>>,
}

// SAFETY: written only by `install`, before `set` is stored with release
// order, and while no session runs; read only after `set` was seen.
unsafe impl Sync for Before {}

impl Before {
    const fn new() -> Before {
        Before {
            set: AtomicBool::new(false),
            disposition: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    fn get(&self) -> Option<Disposition> {
        // SAFETY: see `Sync` above.
        (self.set.load(Ordering::Acquire))
            .then(|| unsafe { (*self.disposition.get()).assume_init() })
    }
}

static BEFORE_SEGV: Before = Before::new();
static BEFORE_BUS: Before = Before::new();

/// Both handlers, installed until dropped.
pub struct FaultHandlers {
    _segv: Handler,
    _bus: Handler,
}

impl FaultHandlers {
    /// Puts the handlers in front of those that are there.
    ///
    /// # Errors
    /// What `sigaction(2)` says.
    pub fn install() -> Result<FaultHandlers, i32> {
        Ok(FaultHandlers {
            _segv: install_one(libc::SIGSEGV, &BEFORE_SEGV)?,
            _bus: install_one(libc::SIGBUS, &BEFORE_BUS)?,
        })
    }
}

fn install_one(signal: i32, before: &'static Before) -> Result<Handler, i32> {
    let disposition = Disposition::current(signal)?;
    // SAFETY: no session runs, so that nobody reads the cell.
    unsafe { (*before.disposition.get()).write(disposition) };
    before.set.store(true, Ordering::Release);
    // The host's choice of stack is kept: its own handler runs inside ours.
    let flags = disposition.flags() & libc::SA_ONSTACK;
    Handler::install(signal, on_fault, flags, &[])
}

/// Runs on a fault anywhere in the process: ours is absorbed, any other goes on.
///
/// # Safety
/// Called by the kernel, as a handler with `SA_SIGINFO`.
unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: these are the arguments of a SIGSEGV or SIGBUS handler.
    if unsafe { memory::absorb_fault(context.cast()) } {
        return;
    }
    let before = match signal {
        libc::SIGSEGV => BEFORE_SEGV.get(),
        _ => BEFORE_BUS.get(),
    };
    let before = before.unwrap_or_default();
    // SAFETY: the arguments that the kernel gave for this very signal.
    unsafe { before.deliver(signal, info, context) };
}

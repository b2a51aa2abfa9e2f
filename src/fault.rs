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

/// Whether a read that faults would still come to us. A host that has installed
/// a handler of its own since would get it, and not know what to do. SIGBUS comes
/// of files that are cut short only, which nothing that is read lies in.
pub fn in_place() -> bool {
    Disposition::current(libc::SIGSEGV).is_ok_and(|now| now.is(on_fault))
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

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, PoisonError};
    use std::{fs, mem, ptr};

    /// Dispositions are the process's: one test at a time.
    static DISPOSITIONS: Mutex<()> = Mutex::new(());

    const PAGE: usize = 4096;

    /// A page of zeroes with this protection, and what maps it.
    fn map(protection: i32, descriptor: i32) -> usize {
        let flags = match descriptor {
            -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            _ => libc::MAP_SHARED,
        };
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, descriptor, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page as usize
    }

    #[test]
    fn what_is_not_there_reads_as_nothing() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _handlers = FaultHandlers::install().expect("handlers");
        let before = memory::faults();

        let page = map(libc::PROT_READ, -1);
        assert_eq!(memory::read::<u64>(page + PAGE - 8), Some(0));
        // SAFETY: a page of ours, that nobody uses.
        unsafe { libc::mprotect(page as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(memory::read::<u8>(page), None, "protected");
        assert!(!memory::copy(&mut [0; 16], page + 8), "protected");
        // SAFETY: as above.
        unsafe { libc::munmap(page as *mut _, PAGE) };
        assert_eq!(memory::read::<u16>(page), None, "unmapped");
        assert_eq!(memory::read::<u64>(8), None, "never mapped");
        assert_eq!(memory::read::<u32>(1 << 62), None, "no address at all");
        assert_eq!(memory::faults() - before, 5);
    }

    #[test]
    fn a_file_that_was_cut_short_reads_as_nothing() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _handlers = FaultHandlers::install().expect("handlers");
        let path = std::env::temp_dir().join(format!("sysprof-fault-{}", std::process::id()));
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = file.expect("a file");
        fs::remove_file(&path).expect("its name is not needed");
        file.set_len(PAGE as u64).expect("a page");
        use std::os::fd::AsRawFd;
        let page = map(libc::PROT_READ, file.as_raw_fd());
        assert_eq!(memory::read::<u64>(page), Some(0));
        file.set_len(0).expect("nothing");
        assert_eq!(memory::read::<u64>(page), None);
    }

    static HOST_SAW: AtomicUsize = AtomicUsize::new(0);

    /// A host's handler that looks at memory of its own that faults, and then
    /// lets the access that it was called for succeed.
    unsafe extern "C" fn host_handler(
        signal: i32,
        info: *mut libc::siginfo_t,
        _context: *mut libc::c_void,
    ) {
        assert_eq!(signal, libc::SIGSEGV);
        // SAFETY: the kernel's argument, and a page of the test's.
        unsafe {
            let address = (*info).si_addr() as usize;
            HOST_SAW.store(address, Ordering::SeqCst);
            libc::mprotect((address & !(PAGE - 1)) as *mut _, PAGE, libc::PROT_READ);
        }
    }

    #[test]
    fn a_fault_of_the_hosts_reaches_the_host() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _host = Handler::install(libc::SIGSEGV, host_handler, 0, &[]).expect("a handler");
        let handlers = FaultHandlers::install().expect("handlers");
        let page = map(libc::PROT_NONE, -1);
        // SAFETY: the host's handler makes the page readable.
        let value = unsafe { ptr::read_volatile((page + 24) as *const u32) };
        assert_eq!(value, 0);
        assert_eq!(HOST_SAW.load(Ordering::SeqCst), page + 24);
        // A load of ours does not: it fails, and the host hears nothing.
        let other = map(libc::PROT_NONE, -1);
        assert_eq!(memory::read::<u64>(other), None);
        assert_eq!(HOST_SAW.load(Ordering::SeqCst), page + 24);
        // A handler that the host installs later is noticed.
        assert!(in_place());
        let later = Handler::install(libc::SIGSEGV, host_handler, 0, &[]).expect("a handler");
        assert!(!in_place());
        drop(later);
        assert!(in_place());
        drop(handlers);
        let now = Disposition::current(libc::SIGSEGV).expect("a disposition");
        assert!(now.is(host_handler), "the host has its handler back");
    }

    #[test]
    fn a_fault_that_nobody_wants_kills() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the child calls nothing but system calls before it dies.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let default = mem::zeroed();
                libc::sigaction(libc::SIGSEGV, &default, ptr::null_mut());
                let limit = mem::zeroed();
                libc::setrlimit(libc::RLIMIT_CORE, &limit);
                mem::forget(FaultHandlers::install());
                ptr::read_volatile(8 as *const u32);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
    }
}

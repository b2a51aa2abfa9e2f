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

    /// The one to deliver a fault to: a handler that wants to be called once only
    /// is gone after that (`SA_RESETHAND`).
    fn take(&self) -> Disposition {
        let disposition = self.get().unwrap_or_default();
        if disposition.flags() & libc::SA_RESETHAND != 0 {
            self.set.store(false, Ordering::Release);
        }
        disposition
    }
}

static BEFORE_SEGV: Before = Before::new();
static BEFORE_BUS: Before = Before::new();

/// Both handlers, installed until dropped.
pub struct FaultHandlers {
    segv: Handler,
    bus: Handler,
}

impl Drop for FaultHandlers {
    fn drop(&mut self) {
        // Without a handler that is used up.
        for (handler, before) in [(&mut self.segv, &BEFORE_SEGV), (&mut self.bus, &BEFORE_BUS)] {
            handler.set_before(before.get().unwrap_or_default());
        }
    }
}

impl FaultHandlers {
    /// Puts the handlers in front of those that are there.
    ///
    /// # Errors
    /// What `sigaction(2)` says.
    pub fn install() -> Result<FaultHandlers, i32> {
        Ok(FaultHandlers {
            segv: install_one(libc::SIGSEGV, &BEFORE_SEGV)?,
            bus: install_one(libc::SIGBUS, &BEFORE_BUS)?,
        })
    }
}

/// Whether a read that faults would still come to us. A host that has installed
/// a handler of its own since would get it, and not know what to do. SIGBUS comes
/// of files that are cut short only, which nothing that is read lies in.
pub fn in_place() -> bool {
    Disposition::current(libc::SIGSEGV).is_ok_and(|now| now.is(on_fault))
}

/// The calling thread can read what may not be there: it does not block the faults
/// of that, which would then kill the process, until this is dropped.
pub struct Unblocked {
    before: libc::sigset_t,
}

/// Lets faults through to our handlers. Not for the handler of the profiling
/// signal, which has the choice not to read.
pub fn unblock() -> Unblocked {
    // SAFETY: sets of ours, filled in before they are used.
    unsafe {
        let mut faults = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigemptyset(&mut faults);
        libc::sigaddset(&mut faults, libc::SIGSEGV);
        libc::sigaddset(&mut faults, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &faults, &mut before);
        Unblocked { before }
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        // SAFETY: the set that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

fn install_one(signal: i32, before: &'static Before) -> Result<Handler, i32> {
    let now = Disposition::current(signal)?;
    // Ours may still be there: a host that took the signal during an earlier
    // session has put back what it found. What was before that is before us.
    let host = match before.get() {
        Some(before) if now.is(on_fault) => before,
        _ => now,
    };
    // SAFETY: no session runs, so that the cell is written by this thread only;
    // a fault that reads it meanwhile reads the same from it.
    unsafe { (*before.disposition.get()).write(host) };
    before.set.store(true, Ordering::Release);
    // The host's choice of stack is kept: its own handler runs inside ours.
    let flags = host.flags() & libc::SA_ONSTACK;
    Ok(Handler::install(signal, on_fault, flags, &[])?.over(host))
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
        libc::SIGSEGV => BEFORE_SEGV.take(),
        _ => BEFORE_BUS.take(),
    };
    // SAFETY: the arguments that the kernel gave for this very signal.
    unsafe {
        // What a process sends has no code above 0, what the kernel finds has.
        if (*info).si_code > 0 {
            before.deliver(signal, info, context);
        } else {
            before.deliver_once(signal, info, context);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, PoisonError};
    use std::{fs, mem, ptr};

    /// Dispositions are the process's: one test at a time.
    pub(crate) static DISPOSITIONS: Mutex<()> = Mutex::new(());

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
        assert!(memory::copy(&mut [1; 16], page + PAGE - 16));
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
    fn what_is_there_in_part_reads_as_nothing() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _handlers = FaultHandlers::install().expect("handlers");
        // SAFETY: new pages, the second of which is taken away.
        let end = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(ptr::null_mut(), 2 * PAGE, libc::PROT_READ, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            libc::munmap(pages.add(PAGE), PAGE);
            pages as usize + PAGE
        };
        assert_eq!(memory::read::<u64>(end - 8), Some(0));
        assert_eq!(memory::read::<u64>(end - 7), None);
        assert_eq!(memory::read::<u32>(end - 3), None);
        assert_eq!(memory::read::<u16>(end - 1), None);
        assert_eq!(memory::read::<u8>(end - 1), Some(0));
        assert!(memory::copy(&mut [1; 64], end - 64));
        assert!(!memory::copy(&mut [1; 64], end - 63));
    }

    #[test]
    fn a_handler_that_wants_one_fault_gets_one() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let host = Handler::install(libc::SIGSEGV, host_handler, libc::SA_RESETHAND, &[]);
        let _host = host.expect("a handler");
        let handlers = FaultHandlers::install().expect("handlers");
        let page = map(libc::PROT_NONE, -1);
        // SAFETY: the host's handler makes the page readable.
        unsafe { ptr::read_volatile((page + 40) as *const u32) };
        assert_eq!(HOST_SAW.load(Ordering::SeqCst), page + 40);
        drop(handlers);
        let now = Disposition::current(libc::SIGSEGV).expect("a disposition");
        assert!(now.is_default(), "its handler is used up");
    }

    static INNER: Mutex<Vec<Option<u64>>> = Mutex::new(Vec::new());
    static PAGES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    /// A signal's handler that reads what is not there, and what is.
    unsafe extern "C" fn reads(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let page = |index: usize| PAGES[index].load(Ordering::SeqCst);
        let seen = [memory::read(page(0)), memory::read(page(1))];
        INNER.lock().expect("one thread").extend(seen);
    }

    /// A host's handler in which a signal comes, and then a fault of its own.
    unsafe extern "C" fn interrupted(
        signal: i32,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel's argument; a signal that has a handler; a page that
        // `host_handler` makes readable.
        unsafe {
            let faulted = (*info).si_addr() as usize;
            libc::raise(libc::SIGUSR1);
            let own = PAGES[0].load(Ordering::SeqCst);
            if faulted & !(PAGE - 1) != own {
                ptr::read_volatile(own as *const u32);
            }
            host_handler(signal, info, context);
            // What was interrupted is what it was.
            assert_eq!((*info).si_addr() as usize, faulted);
        }
    }

    #[test]
    fn a_fault_in_a_signal_in_a_handler_of_a_fault() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || map(libc::PROT_NONE, -1);
        let (outer, own, good) = (none(), none(), map(libc::PROT_READ, -1));
        PAGES[0].store(own, Ordering::SeqCst);
        PAGES[1].store(good, Ordering::SeqCst);
        let before = memory::faults();

        let host = Handler::install(libc::SIGSEGV, interrupted, libc::SA_NODEFER, &[]);
        let _host = host.expect("a handler");
        let _signal = Handler::install(libc::SIGUSR1, reads, 0, &[]).expect("a handler");
        let _handlers = FaultHandlers::install().expect("handlers");
        // SAFETY: the host's handler makes the page readable.
        let value = unsafe { ptr::read_volatile((outer + 16) as *const u32) };
        assert_eq!(value, 0);
        // In the handler of the outer fault, and in that of the fault in it.
        let seen = mem::take(&mut *INNER.lock().expect("one thread"));
        assert_eq!(seen, [None, Some(0), None, Some(0)]);
        assert_eq!(memory::faults() - before, 2);
        assert_eq!(memory::read::<u64>(own), Some(0), "the inner fault is over");
    }

    #[test]
    fn what_others_take_away_meanwhile_reads_as_it_was_or_as_nothing() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _handlers = FaultHandlers::install().expect("handlers");
        let page = map(libc::PROT_READ, -1);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let protections = [libc::PROT_NONE, libc::PROT_READ];
                for protection in protections.into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // SAFETY: a page of the test's.
                    unsafe { libc::mprotect(page as *mut _, PAGE, protection) };
                }
            });
            let (mut there, mut gone) = (0, 0);
            while there < 100 || gone < 100 {
                match memory::read::<u64>(page) {
                    Some(value) => {
                        assert_eq!(value, 0);
                        there += 1;
                    }
                    None => gone += 1,
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// How a child ends that faults, or is sent a signal, under a disposition of
    /// its own: its wait status. It calls nothing but system calls.
    fn status(with_us: bool, signal: i32, disposition: usize, flags: i32, act: fn()) -> i32 {
        // SAFETY: dispositions that are valid, in a process of their own.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let limit = mem::zeroed();
                libc::setrlimit(libc::RLIMIT_CORE, &limit);
                // One that never ends, ends otherwise.
                libc::alarm(20);
                let mut host: libc::sigaction = mem::zeroed();
                host.sa_sigaction = disposition;
                host.sa_flags = flags;
                libc::sigaction(signal, &host, ptr::null_mut());
                if with_us {
                    mem::forget(FaultHandlers::install());
                }
                act();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        }
    }

    extern "C" fn exits(_signal: i32) {
        // SAFETY: ends the child.
        unsafe { libc::_exit(42) };
    }

    extern "C" fn returns(_signal: i32) {}

    fn reads_null() {
        // SAFETY: it is what the child is to die of.
        unsafe { ptr::read_volatile(8 as *const u32) };
    }

    fn reads_past_a_files_end() {
        // SAFETY: a file of no length, mapped: the page has nothing in it.
        unsafe {
            let file = libc::memfd_create(c"short".as_ptr(), 0);
            let flags = libc::MAP_SHARED;
            let page = libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ, flags, file, 0);
            ptr::read_volatile(page.cast::<u32>());
        }
    }

    fn is_sent<const SIGNAL: i32>() {
        // SAFETY: to itself.
        unsafe { libc::kill(libc::getpid(), SIGNAL) };
    }

    #[test]
    fn processes_end_as_without_us() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let (segv, bus) = (libc::SIGSEGV, libc::SIGBUS);
        let killed_by = |signal: i32| {
            move |status| libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signal
        };
        let exited =
            |code: i32| move |status| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == code;
        let acts: [(i32, fn(), bool); 4] = [
            (segv, reads_null, true),
            (bus, reads_past_a_files_end, true),
            (segv, is_sent::<{ libc::SIGSEGV }>, false),
            (bus, is_sent::<{ libc::SIGBUS }>, false),
        ];
        for (signal, act, is_fault) in acts {
            let ends = |disposition, flags, as_it_should: &dyn Fn(i32) -> bool| {
                let alone = status(false, signal, disposition, flags, act);
                assert!(as_it_should(alone), "{signal}: {alone:#x} by itself");
                let with_us = status(true, signal, disposition, flags, act);
                assert_eq!(
                    with_us, alone,
                    "{signal}, fault {is_fault}, {disposition:#x}"
                );
            };
            ends(libc::SIG_DFL, 0, &killed_by(signal));
            ends(exits as *const () as usize, 0, &exited(42));
            if is_fault {
                ends(libc::SIG_IGN, 0, &killed_by(signal));
                // Called once; the fault that comes again finds the default.
                let once = libc::SA_RESETHAND;
                ends(returns as *const () as usize, once, &killed_by(signal));
            } else {
                ends(libc::SIG_IGN, 0, &exited(0));
                ends(returns as *const () as usize, 0, &exited(0));
            }
        }
    }
}

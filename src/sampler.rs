//! The signal handlers: registers in, one sample out.
//!
//! Knows: signals, and when to look. Must not know: how a stack is found
//! (`stack`), what becomes of it (`recording`).
//!
//! Everything that is called from here obeys the rules of a signal handler: no
//! allocation, no lock, no panic, no thread-local that is made on first use,
//! errno kept, bounded work, and every read of the host's memory through
//! `memory`.
//!
//! Where a sample falls between two frames (a call being made), its taking is
//! put off: the handler sets the trap flag in the interrupted context, and the
//! trap after each instruction looks again until there is a frame to see.

use crate::clock::{self, Clock};
use crate::counters::Counters;
use crate::fault;
use crate::jit::aborts::Abort;
use crate::native::watch::Watch;
use crate::recording::Recording;
use crate::registers::Registers;
use crate::signal::KeepErrno;
use crate::stack::{Found, Look, Walker};
use crate::stream::intern::{self, Context, FunctionNames};
use crate::stream::writer::Signals;
use ljp::{Reason, VmState};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// The most instructions that a sample waits for.
const MAX_STEPS: u32 = 2000;

/// Nanoseconds between two looks at the modules that the handler asks for.
const REFRESH_PERIOD: u64 = 5_000_000;

/// The trap flag of x86-64.
const TRAP_FLAG: i64 = 0x100;

/// `si_code` of a trap after a single instruction (`TRAP_TRACE`), and the one
/// that virtual machines report instead.
const SINGLE_STEP_CODES: [i32; 2] = [2, 1];

/// All that the handlers work with.
pub struct Sampler {
    /// The thread that is sampled, by its thread pointer.
    thread: usize,
    /// What the host did about SIGTRAP before us.
    trap: Option<crate::signal::Disposition>,
    counters: Counters,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is touched by the handlers on the sampled thread, one at a
// time, and by whoever holds the sampler after `detach`; the rest is shared and
// made for it.
unsafe impl Sync for Sampler {}

/// What is needed to define frames.
pub struct Definitions {
    /// Who keeps the modules up to date, and who is to be woken for it.
    pub modules: Option<(Arc<Watch>, Arc<Signals>)>,
    /// What is known of functions beforehand.
    pub functions: FunctionNames,
}

/// What is known when a session ends.
pub struct Late {
    /// What functions are called by now.
    pub names: FunctionNames,
    /// What was recorded and came to nothing.
    pub aborts: Vec<Abort>,
}

struct Inner {
    clock: Clock,
    walker: Walker,
    definitions: Definitions,
    recording: Option<Recording>,
    waiting: Option<Waiting>,
    /// What the last sample found. Its frames are the walker's until the next look.
    last: Found,
    /// When the modules were asked for last.
    asked: u64,
    rest: Rest,
}

/// What keeps samples that take longer than an interval from taking all the time
/// there is: the program gets as much as the last one took before the next one.
#[derive(Default)]
struct Rest {
    /// The time, in monotonic nanoseconds, that belongs to the program.
    until: u64,
    /// Intervals that passed meanwhile. The next sample stands for them.
    owed: u64,
}

impl Rest {
    /// The weight of a sample at `now`, `None` if none is to be taken.
    fn admit(&mut self, weight: u64, now: u64) -> Option<u64> {
        let weight = weight + self.owed;
        let rests = now < self.until;
        self.owed = if rests { weight } else { 0 };
        (!rests).then_some(weight)
    }

    /// A sample that was begun at `began` has been dealt with.
    fn after(&mut self, began: u64, now: u64) {
        self.until = now + now.saturating_sub(began);
    }
}

/// A sample that waits for the VM to reach a frame.
struct Waiting {
    weight: u64,
    now: u64,
    steps: u32,
}

/// The sampler that signals go to, null while there is none.
static CURRENT: AtomicPtr<Sampler> = AtomicPtr::new(std::ptr::null_mut());
/// Handlers that may hold a reference to it.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The thread that runs under the trap flag for us, by its thread pointer, or 0.
/// It may outlast its sampler, when another thread ends that.
static STEPPED: AtomicUsize = AtomicUsize::new(0);

impl Sampler {
    /// A sampler of the calling thread. `trap` is what the host does about
    /// SIGTRAP, or `None` where the trap flag may not be used.
    pub fn new(
        clock: Clock,
        walker: Walker,
        definitions: Definitions,
        recording: Option<Recording>,
        trap: Option<crate::signal::Disposition>,
    ) -> Sampler {
        Sampler {
            thread: thread_pointer(),
            trap,
            counters: Counters::default(),
            inner: UnsafeCell::new(Inner {
                clock,
                walker,
                definitions,
                recording,
                waiting: None,
                last: UNSETTLED,
                asked: 0,
                rest: Rest::default(),
            }),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Gives signals to this sampler and lets its clock tick.
    ///
    /// # Errors
    /// What the clock says; the sampler is gone then.
    pub fn attach(self: Box<Sampler>) -> Result<Attached, clock::Unavailable> {
        let sampler = Box::into_raw(self);
        CURRENT.store(sampler, Ordering::SeqCst);
        // SAFETY: no signal is on its way before the clock starts; one that
        // somebody else sends meets a sampler that is complete.
        let started = unsafe { (*(*sampler).inner.get()).clock.start() };
        let attached = Attached(sampler);
        match started {
            Ok(()) => Ok(attached),
            Err(unavailable) => {
                drop(attached.detach());
                Err(unavailable)
            }
        }
    }
}

/// A sampler that signals go to.
pub struct Attached(*mut Sampler);

// SAFETY: the pointer is that of a box that nobody else frees, and a sampler may
// be shared.
unsafe impl Send for Attached {}

impl Attached {
    /// The sampler.
    pub fn sampler(&self) -> &Sampler {
        // SAFETY: it lives until `detach`, which takes `self`.
        unsafe { &*self.0 }
    }

    /// Stops the clock and waits for a handler that may be at work.
    pub fn detach(self) -> Box<Sampler> {
        // SAFETY: stopping a clock is a system call; a handler that runs
        // meanwhile only asks it for weights.
        unsafe { (*(*self.0).inner.get()).clock.stop() };
        self.release()
    }

    /// In the child of a fork: ends the sampler, whose clock is the parent's.
    pub fn abandon_in_child(self) {
        // Of the parent's threads only this one is here.
        if STEPPED.load(Ordering::Relaxed) != thread_pointer() {
            STEPPED.store(0, Ordering::Relaxed);
        }
        // A handler that another thread is in has no thread here to end it.
        if INSIDE.swap(0, Ordering::SeqCst) == 0 {
            let sampler = *self.release();
            sampler.inner.into_inner().clock.abandon();
            return;
        }
        CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: nobody else is there. All but the clock may be half changed: it
        // stays as it is, allocated.
        unsafe { std::ptr::read(&(*(*self.0).inner.get()).clock) }.abandon();
    }

    fn release(self) -> Box<Sampler> {
        CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
        while INSIDE.load(Ordering::SeqCst) != 0 {
            std::hint::spin_loop();
        }
        // SAFETY: made by Box::into_raw, and no handler can find it any more.
        unsafe { Box::from_raw(self.0) }
    }
}

impl Sampler {
    /// The counters and the recording, once no handler is at work, and the records
    /// that tell of what is known by now only.
    pub fn into_recording(
        self: Box<Sampler>,
        late: Option<&Late>,
    ) -> (Counters, Option<Recording>, Vec<u8>) {
        let sampler = *self;
        let mut inner = sampler.inner.into_inner();
        if let Some(waiting) = inner.waiting.take() {
            // Its program was stopped before it reached a frame.
            finish(&mut inner, &sampler.counters, UNSETTLED, &waiting);
        }
        if inner.rest.owed > 0 {
            // No sample came after these that could have stood for them: they came
            // right after the last one.
            let (last, waiting) = (
                inner.last,
                Waiting {
                    weight: inner.rest.owed,
                    now: clock::monotonic(),
                    steps: 0,
                },
            );
            finish(&mut inner, &sampler.counters, last, &waiting);
        }
        // Only this version has definitions that can be made again.
        let late = late.filter(|_| matches!(inner.recording, Some(Recording::Version3(_))));
        let told = late.map_or_else(Vec::new, |late| {
            let before = &inner.definitions.functions;
            let mut told = late.names.since(before, inner.walker.unwinder());
            (late.aborts.iter()).for_each(|abort| intern::append_abort(abort, &mut told));
            told
        });
        (sampler.counters, inner.recording, told)
    }
}

const UNSETTLED: Found = Found {
    state: VmState::Interp,
    stack: Err(Reason::Unsettled),
};

/// Looks for the sampler that a signal on this thread is for.
fn with_current(f: impl FnOnce(&Sampler, &mut Inner) -> bool) -> bool {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `detach` waits for INSIDE before it frees the sampler.
    let sampler = unsafe { CURRENT.load(Ordering::SeqCst).as_ref() };
    let handled = match sampler {
        Some(sampler) if sampler.thread == thread_pointer() => {
            // SAFETY: both handlers block each other's signal, so only one is
            // at work on this thread.
            f(sampler, unsafe { &mut *sampler.inner.get() })
        }
        _ => false,
    };
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    handled
}

/// The handler of the profiling signal.
///
/// # Safety
/// Called by the kernel, as a handler with `SA_SIGINFO`.
pub unsafe extern "C" fn on_signal(
    _signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let _errno = KeepErrno::new();
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    with_current(|sampler, inner| {
        let now = clock::monotonic();
        let mut weight = inner.clock.weigh(info, now);
        if let Some(waiting) = &mut inner.waiting {
            if trap_flag(context) {
                waiting.weight += weight;
                return true;
            }
            // The context that was being stepped was left by a jump.
            STEPPED.store(0, Ordering::Relaxed);
            let lost = inner.waiting.take();
            if let Some(lost) = lost {
                finish(inner, &sampler.counters, UNSETTLED, &lost);
            }
        }
        // Whoever sends signals by hand wants a sample for each.
        let by_hand = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
        if !by_hand {
            match inner.rest.admit(weight, now) {
                Some(admitted) => weight = admitted,
                None => return true,
            }
        }
        let waiting = Waiting {
            weight,
            now,
            steps: 0,
        };
        look(sampler, inner, context, waiting);
        inner.rest.after(now, clock::monotonic());
        true
    });
}

/// The handler of the trap after an instruction.
///
/// # Safety
/// Called by the kernel, as a handler with `SA_SIGINFO`.
pub unsafe extern "C" fn on_trap(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno = KeepErrno::new();
    // SAFETY: as in `on_signal`.
    let (details, registers) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let mut before = None;
    let single_step = SINGLE_STEP_CODES.contains(&details.si_code);
    let ours = with_current(|sampler, inner| {
        before = sampler.trap;
        match inner.waiting.take() {
            Some(waiting) if single_step => {
                sampler.counters.step();
                look(sampler, inner, registers, waiting);
                true
            }
            waiting => {
                inner.waiting = waiting;
                false
            }
        }
    });
    drop(errno);
    if !ours && single_step && STEPPED.load(Ordering::Relaxed) == thread_pointer() {
        // The session has ended while this thread was let go on.
        let_go_on(registers, false);
        return;
    }
    if !ours && let Some(before) = before {
        // SAFETY: the kernel's own arguments.
        unsafe { before.deliver_once(signal, info, context) };
    }
}

/// Takes the sample that `waiting` stands for, or puts it off.
fn look(
    sampler: &Sampler,
    inner: &mut Inner,
    context: &mut libc::ucontext_t,
    mut waiting: Waiting,
) {
    let found = if faults_blocked(context) || !fault::in_place() {
        // A read that faults would kill the process instead of failing, or
        // reach a handler of the host's.
        Found {
            state: VmState::Interp,
            stack: Err(Reason::Unreadable),
        }
    } else {
        refresh(inner, waiting.now);
        match inner.walker.look(&Registers::of(context)) {
            Look::Found(found) => found,
            Look::Moving if waiting.steps < MAX_STEPS && may_step(sampler, context) => {
                waiting.steps += 1;
                let_go_on(context, true);
                inner.waiting = Some(waiting);
                return;
            }
            Look::Moving => UNSETTLED,
        }
    };
    if waiting.steps > 0 {
        let_go_on(context, false);
    }
    finish(inner, &sampler.counters, found, &waiting);
}

fn finish(inner: &mut Inner, counters: &Counters, found: Found, waiting: &Waiting) {
    inner.last = found;
    let stack = match &mut inner.recording {
        None => found.stack,
        Some(recording) => {
            let context = Context {
                layout: inner.walker.layout(),
                unwinder: inner.walker.unwinder(),
                tables: inner.walker.tables(),
                functions: &inner.definitions.functions,
            };
            recording.record(
                &context,
                found,
                inner.walker.frames(),
                waiting.weight,
                waiting.now,
            )
        }
    };
    counters.sample(found.state, stack, waiting.weight);
}

/// Takes new modules over, and asks for a look at them after code was met that
/// none of them has.
fn refresh(inner: &mut Inner, now: u64) {
    let (Some((watch, writer)), Some(recording)) =
        (&inner.definitions.modules, &mut inner.recording)
    else {
        return;
    };
    // There may be code that no module will ever have: one look in a while.
    if inner.walker.met_unknown_code() && now.saturating_sub(inner.asked) > REFRESH_PERIOD {
        inner.asked = now;
        watch.ask();
        writer.wake();
    }
    let Some(mut news) = watch.take() else {
        return;
    };
    if recording.modules(&news.added) {
        inner.walker.replace_unwinder(&mut news.unwinder);
        watch.give_back(news);
    } else {
        watch.put_back(news);
    }
}

/// Whether a trap would come back to us: a blocked one kills the process.
fn may_step(sampler: &Sampler, context: &libc::ucontext_t) -> bool {
    sampler.trap.is_some()
        && !is_blocked(context, libc::SIGTRAP)
        && crate::signal::Disposition::current(libc::SIGTRAP).is_ok_and(|now| now.is(on_trap))
}

/// Has the interrupted code come back to us after an instruction, or no more.
fn let_go_on(context: &mut libc::ucontext_t, by_an_instruction: bool) {
    let stepped = if by_an_instruction {
        thread_pointer()
    } else {
        0
    };
    STEPPED.store(stepped, Ordering::Relaxed);
    set_trap_flag(context, by_an_instruction);
}

/// Waits for a thread that was under the trap flag when its sampler went; false
/// if it does not get anywhere. Not for the handler.
pub fn left_alone() -> bool {
    for _ in 0..100 {
        let stepped = STEPPED.load(Ordering::Relaxed);
        if stepped == thread_pointer() {
            // We are here, and not there any more.
            STEPPED.store(0, Ordering::Relaxed);
        } else if stepped != 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        return true;
    }
    false
}

fn faults_blocked(context: &libc::ucontext_t) -> bool {
    is_blocked(context, libc::SIGSEGV) || is_blocked(context, libc::SIGBUS)
}

/// Whether the interrupted code had `signal` blocked.
fn is_blocked(context: &libc::ucontext_t, signal: i32) -> bool {
    // SAFETY: the kernel filled the mask in.
    unsafe { libc::sigismember(&context.uc_sigmask, signal) == 1 }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    use super::TRAP_FLAG;

    /// The flags register of the interrupted code.
    fn flags(context: &mut libc::ucontext_t) -> &mut i64 {
        &mut context.uc_mcontext.gregs[libc::REG_EFL as usize]
    }

    pub fn trap_flag(context: &mut libc::ucontext_t) -> bool {
        *flags(context) & TRAP_FLAG != 0
    }

    pub fn set_trap_flag(context: &mut libc::ucontext_t, on: bool) {
        if on {
            *flags(context) |= TRAP_FLAG;
        } else {
            *flags(context) &= !TRAP_FLAG;
        }
    }

    /// What tells this thread from others without a call: where its own data
    /// lies (the x86-64 ABI keeps the address at offset 0 of it).
    pub fn thread_pointer() -> usize {
        let pointer;
        // SAFETY: reads a word that every thread has.
        unsafe {
            std::arch::asm!(
                "mov {}, fs:0",
                out(reg) pointer,
                options(nostack, readonly, preserves_flags)
            );
        }
        pointer
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod machine {
    pub fn trap_flag(_: &mut libc::ucontext_t) -> bool {
        false
    }

    pub fn set_trap_flag(_: &mut libc::ucontext_t, _: bool) {}

    pub fn thread_pointer() -> usize {
        0
    }
}

use machine::{set_trap_flag, thread_pointer, trap_flag};

#[cfg(test)]
mod tests {
    use super::Rest;

    #[test]
    fn the_program_gets_as_much_time_as_a_sample_took() {
        let mut rest = Rest::default();
        assert_eq!(rest.admit(1, 100), Some(1));
        rest.after(100, 130);
        assert_eq!(rest.admit(2, 131), None);
        assert_eq!(rest.admit(1, 159), None);
        assert_eq!(rest.admit(1, 160), Some(4), "for those before it as well");
        rest.after(160, 161);
        assert_eq!(rest.admit(1, 162), Some(1));
        assert_eq!(rest.owed, 0);
    }
}

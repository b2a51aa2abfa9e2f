//! Runs a function one machine instruction at a time and looks at each.
//!
//! Knows: the trap flag. Must not know: what a right stack is (`follow`).

use crate::follow::{Claim, Follower};
use crate::native::Native;
use crate::tally::{Runs, Tally};
use crate::truth::{self, Call, Clock, Truth};
use ljp::{Reason, VmState};
use mlua::ffi;
use std::ffi::CStr;
use sysprof::fault::FaultHandlers;
use sysprof::memory;
use sysprof::registers::Registers;
use sysprof::signal::Handler;
use sysprof::stack::{Found, Look, RawFrame, Walker};
use sysprof::vm::layout::{Family, Layout};
use sysprof::vm::lines;
use sysprof::vm::names;
use sysprof::vm::trace::Trace;

/// What stepping came to.
#[derive(Default)]
pub struct Outcome {
    instructions: u64,
    /// Instructions at which the VM was between two frames.
    moving: u64,
    /// The longest run of those.
    longest: u64,
    run: u64,
    wrong_count: u64,
    without_stack: u64,
    ancestors: u64,
    in_traces: u64,
    /// Instructions at which a trace was being left, and those where the stack did
    /// not say which.
    exits: u64,
    nameless_exits: u64,
    /// Those where it said another one.
    wrong_exits: u64,
    faults: u64,
    unfinished: u64,
    /// Stacks in which the native part is not where it belongs.
    unjoined: u64,
    /// Stacks whose native part is not the one that the module has.
    wrong_native: u64,
    /// What compiled code did, by line.
    pub tally: Tally,
    /// What was wrong, in words.
    pub wrong: Vec<String>,
}

impl Outcome {
    /// The counts by name.
    pub fn counts(&self) -> [(&'static CStr, u64); 14] {
        [
            (c"instructions", self.instructions),
            (c"moving", self.moving),
            (c"longest", self.longest),
            (c"wrong", self.wrong_count),
            (c"without_stack", self.without_stack),
            (c"ancestors", self.ancestors),
            (c"in_traces", self.in_traces),
            (c"exits", self.exits),
            (c"nameless_exits", self.nameless_exits),
            (c"wrong_exits", self.wrong_exits),
            (c"faults", self.faults),
            (c"unfinished", self.unfinished),
            (c"unjoined", self.unjoined),
            (c"wrong_native", self.wrong_native),
        ]
    }
}

/// All memory is laid out before: the handler may interrupt the allocator.
struct Stepping<'t> {
    walker: Walker,
    follower: Follower<'t>,
    native: Option<Native>,
    /// Whether code may be compiled, so that the truth is followed loosely.
    compiled: bool,
    clock: Option<Clock>,
    /// The trace that ran at the last look.
    trace: Option<Trace>,
    /// The number of the last one that ran.
    ran: Option<u32>,
    /// The key of the recorder's callbacks.
    callback: u64,
    seen: Vec<Call>,
    last: Vec<RawFrame>,
    outcome: Outcome,
    /// The first wrong stacks.
    wrong: Vec<Wrong>,
    /// The first stacks whose native part was wrong, and where.
    wrong_native: Vec<(usize, Vec<RawFrame>)>,
    /// Where there was no stack, why, and how often.
    places: Vec<(usize, Reason, u64)>,
}

/// A stack that should not have been seen.
struct Wrong {
    rip: usize,
    state: VmState,
    /// The true stack that was reached before.
    at: usize,
    seen: Vec<Call>,
}

static mut CURRENT: *mut Stepping<'static> = std::ptr::null_mut();

/// How many wrong stacks are described.
const DESCRIBED: usize = 12;
/// Room for the deepest stack of a program.
const DEPTH: usize = 2048;

/// Runs the function at the top of the stack step by step.
///
/// # Safety
/// `state` is a live state with a function at its top; the truth was recorded
/// for it just before.
pub unsafe fn run(
    state: *mut ffi::lua_State,
    walker: Walker,
    truth: &Truth,
    compiled: bool,
    clock: Option<Clock>,
) -> Outcome {
    // SAFETY: the caller's promise.
    let native = unsafe { Native::of(state, walker.layout().interpreter.clone()) };
    let mut stepping = Stepping {
        walker,
        native,
        follower: Follower::new(truth),
        compiled,
        clock,
        trace: None,
        ran: None,
        callback: crate::pause::key(),
        seen: Vec::with_capacity(DEPTH),
        last: Vec::with_capacity(DEPTH),
        outcome: Outcome::default(),
        wrong: Vec::with_capacity(DESCRIBED),
        wrong_native: (0..DESCRIBED)
            .map(|_| (0, Vec::with_capacity(DEPTH)))
            .collect(),
        places: Vec::with_capacity(DESCRIBED),
    };
    // Each wrong stack gets a buffer beforehand.
    let mut spare: Vec<Vec<Call>> = (0..DESCRIBED).map(|_| Vec::with_capacity(DEPTH)).collect();
    stepping.wrong.extend(spare.drain(..).map(|seen| Wrong {
        rip: 0,
        state: VmState::Interp,
        at: 0,
        seen,
    }));
    let faults_before = memory::faults();
    let faults = FaultHandlers::install().expect("handlers for faults");
    let trap = Handler::install(libc::SIGTRAP, on_trap, 0, &[]).expect("a handler for traps");
    // SAFETY: the handler runs between the two asm statements only, on this
    // thread; the pointer is to a local that outlives them.
    unsafe {
        if let Some(clock) = clock {
            clock.reset();
        }
        CURRENT = (&raw mut stepping).cast();
        ffi::lua_pushvalue(state, -1);
        std::arch::asm!(
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "or qword ptr [rsp], 0x100",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
        );
        ffi::lua_pcall(state, 0, 0, 0);
        std::arch::asm!(
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "and qword ptr [rsp], ~0x100",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
        );
        CURRENT = std::ptr::null_mut();
    }
    drop((trap, faults));
    let mut outcome = stepping.outcome;
    outcome.faults = memory::faults() - faults_before;
    if !compiled && !stepping.follower.at_end() {
        outcome.unfinished = 1;
        outcome.wrong.push(format!(
            "stopped at stack {} of {}",
            stepping.follower.position(),
            truth.len()
        ));
    }
    for wrong in stepping.wrong.iter().filter(|wrong| wrong.rip != 0) {
        let describe = |index| (truth.get(index)).map(|stack| truth.describe(stack));
        outcome.wrong.push(format!(
            "at {} in {}:\n  seen   {}\n  after  {} {}\n  before {} {}",
            symbol(wrong.rip),
            wrong.state.name(),
            truth.describe(&wrong.seen),
            wrong.at,
            describe(wrong.at).unwrap_or_default(),
            wrong.at + 1,
            describe(wrong.at + 1).unwrap_or_default(),
        ));
    }
    for (rip, frames) in stepping.wrong_native.iter().filter(|wrong| wrong.0 != 0) {
        let frames: Vec<String> = frames.iter().map(describe).collect();
        outcome.wrong.push(format!(
            "at {}, not the module's own:\n  {}",
            symbol(*rip),
            frames.join("\n  ")
        ));
    }
    for (rip, reason, count) in &stepping.places {
        let (reason, place) = (reason.name(), symbol(*rip));
        outcome
            .wrong
            .push(format!("no stack ({reason}) {count} times at {place}"));
    }
    outcome
}

/// Stops stepping, if anything is stepped.
pub fn pause() {
    // SAFETY: the flag alone is changed.
    unsafe {
        std::arch::asm!(
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "and qword ptr [rsp], ~0x100",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
        );
    }
}

/// Goes on with what [`pause`] has stopped.
pub fn resume() {
    // SAFETY: set while stepping only; the flag alone is changed.
    unsafe {
        if !CURRENT.is_null() {
            std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        }
    }
}

/// Forgets what compiled code has done by line so far.
pub fn forget_lines() {
    // SAFETY: set while stepping only; no trap comes in between that would look.
    unsafe {
        pause();
        if let Some(stepping) = CURRENT.as_mut() {
            stepping.outcome.tally.clear();
        }
        resume();
    }
}

unsafe extern "C" fn on_trap(
    _signal: i32,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: set while stepping; the kernel's argument.
    let (stepping, context) = unsafe { (CURRENT.as_mut(), &*context.cast::<libc::ucontext_t>()) };
    if let Some(stepping) = stepping {
        stepping.instruction(&Registers::of(context));
    }
}

impl Stepping<'_> {
    fn instruction(&mut self, registers: &Registers) {
        self.outcome.instructions += 1;
        let found = match self.walker.look(registers) {
            Look::Moving => {
                self.outcome.moving += 1;
                self.outcome.run += 1;
                self.outcome.longest = self.outcome.longest.max(self.outcome.run);
                return;
            }
            Look::Found(found) => found,
        };
        self.outcome.run = 0;
        if let Err(reason) = found.stack {
            self.without_stack(registers, reason);
            return;
        }
        let frames = self.walker.frames();
        let lua = frames
            .iter()
            .find(|frame| matches!(frame, RawFrame::Lua { .. }));
        let compiled = lua.and_then(trace_of).map(Trace::number);
        match found.state {
            VmState::Trace => {
                self.outcome.in_traces += 1;
                self.outcome.ancestors += u64::from(lua.is_some_and(is_ancestor));
                self.ran = compiled.or(self.ran);
            }
            VmState::Exit => {
                self.outcome.exits += 1;
                match compiled {
                    None => self.outcome.nameless_exits += 1,
                    Some(_) => {
                        self.outcome.wrong_exits += u64::from(compiled != self.ran);
                    }
                }
            }
            _ => {}
        }
        let layout = self.walker.layout();
        let innermost = lua.filter(|_| found.state == VmState::Trace);
        let runs = match (innermost, frames.first()) {
            (None, _) => Runs::Other,
            (_, Some(RawFrame::Native { .. })) => Runs::Native,
            (Some(frame), _) => Runs::Code {
                in_loop: is_in_loop(frame),
            },
        };
        self.outcome.tally.count(runs, || {
            innermost
                .filter(|frame| !is_ancestor(frame))
                .map(|frame| call(layout, frame))
        });
        if !joined(frames) {
            self.outcome.unjoined += 1;
        }
        if let Some(native) = &mut self.native
            && !native.agrees(frames)
        {
            let index = self.outcome.wrong_native as usize;
            self.outcome.wrong_native += 1;
            if let Some((rip, wrong)) = self.wrong_native.get_mut(index) {
                *rip = registers.rip;
                wrong.clear();
                wrong.extend_from_slice(frames);
            }
        }
        let lua_frames = || {
            (frames.iter())
                .filter(|frame| matches!(frame, RawFrame::Lua { .. } | RawFrame::Function { .. }))
        };
        if self.last.iter().eq(lua_frames()) {
            return;
        }
        self.last.clear();
        self.last.extend(lua_frames());
        self.seen.clear();
        let layout = self.walker.layout();
        self.seen
            .extend(self.last.iter().rev().map(|frame| call(layout, frame)));
        // The recorder's own callback is not part of the program.
        let program = (self.seen.iter())
            .position(|call| call.key == self.callback)
            .unwrap_or(self.seen.len());
        let own = self.seen.len() - program;
        self.seen.truncate(program);
        let innermost =
            (self.last.iter().skip(own)).find(|frame| matches!(frame, RawFrame::Lua { .. }));
        let claim = match innermost.is_some_and(is_ancestor) {
            true => Claim::Ancestor,
            false => Claim::Exact,
        };
        // Before the function runs, and after it has returned, there is nothing
        // to compare with.
        let outside = self.seen.len() < self.follower.lowest();
        if outside {
            return;
        }
        let in_c = matches!(self.walker.frames().first(), Some(RawFrame::Native { .. }));
        let in_trace = found.state == VmState::Trace;
        let right = match self.clock {
            Some(clock) if self.compiled => {
                let tick = clock.read();
                let trace = self.last.iter().find_map(trace_of);
                // One that is being left does not go on.
                let trace = trace.filter(|_| found.state != VmState::Exit);
                if self.trace.is_some() && self.trace != trace {
                    self.follower.left_trace(tick);
                }
                self.trace = trace;
                if in_trace {
                    self.follower.see_compiled(&self.seen, claim, tick)
                } else {
                    self.follower.see(&self.seen, claim, in_c)
                        || self.follower.see_compiled(&self.seen, claim, tick)
                }
            }
            _ => {
                self.follower.see(&self.seen, claim, in_c)
                    || (self.compiled && self.follower.catch_up(&self.seen))
            }
        } || self.follower.in_finalizer(&self.seen);
        if !right {
            self.wrong(registers, found);
        }
    }

    fn without_stack(&mut self, registers: &Registers, reason: Reason) {
        self.outcome.without_stack += 1;
        let same = |place: &&mut (usize, Reason, u64)| place.0 == registers.rip;
        if let Some(place) = self.places.iter_mut().find(same) {
            place.2 += 1;
        } else if self.places.len() < DESCRIBED {
            self.places.push((registers.rip, reason, 1));
        }
    }

    fn wrong(&mut self, registers: &Registers, found: Found) {
        let index = self.outcome.wrong_count as usize;
        self.outcome.wrong_count += 1;
        if let Some(wrong) = self.wrong.get_mut(index) {
            wrong.rip = registers.rip;
            wrong.state = found.state;
            wrong.at = self.follower.position();
            wrong.seen.clear();
            wrong.seen.extend_from_slice(&self.seen);
            if let Some((rip, frames)) = self.wrong_native.get_mut(index) {
                *rip = registers.rip;
                frames.clear();
                frames.extend_from_slice(self.walker.frames());
            }
        }
        // One mistake is enough: go on from where the stack is right again.
        self.follower.catch_up(&self.seen);
    }
}

/// The trace that a frame ran in, or has just left.
fn trace_of(frame: &RawFrame) -> Option<Trace> {
    match *frame {
        RawFrame::Lua { compiled, .. } => compiled,
        _ => None,
    }
}

/// Whether a frame is in a trace's loop.
fn is_in_loop(frame: &RawFrame) -> bool {
    matches!(frame, RawFrame::Lua { in_loop: true, .. })
}

/// Whether calls that were inlined into a frame may be missing.
fn is_ancestor(frame: &RawFrame) -> bool {
    matches!(frame, RawFrame::Lua { ancestor: true, .. })
}

/// Whether native code lies between each registered C function and what it has
/// called: it can call Lua no other way.
fn joined(frames: &[RawFrame]) -> bool {
    let c_function = |frame: &RawFrame| matches!(frame, RawFrame::Function { ffid: 1, .. });
    let native = |frame: &RawFrame| matches!(frame, RawFrame::Native { .. } | RawFrame::Mark(_));
    (frames.windows(2)).all(|pair| !c_function(&pair[1]) || native(&pair[0]))
}

fn call(layout: &Layout, frame: &RawFrame) -> Call {
    match *frame {
        RawFrame::Lua { proto, pc, .. } => {
            let mut chunk = [0; 256];
            let chunk = names::chunk(layout, proto, &mut chunk);
            Call {
                key: truth::lua_key(chunk, proto.first_line(layout).unwrap_or(0)),
                line: lines::line_before(layout, proto, pc),
                lua: true,
            }
        }
        RawFrame::Function { code, ffid } => Call {
            key: truth::c_key(code, ffid),
            line: 0,
            lua: false,
        },
        _ => unreachable!("filtered out"),
    }
}

/// Code address and number of the C function at `function`, read directly.
pub fn code_of(function: usize) -> (usize, u8) {
    let family = if memory::read::<u8>(function + 9) == Some(8) {
        Family::Gc64
    } else {
        Family::Gc32
    };
    let at = family.offsets();
    (
        memory::read::<u64>(function + at.func_c).unwrap_or(0) as usize,
        memory::read::<u8>(function + at.func_ffid).unwrap_or(0),
    )
}

/// A frame in words.
fn describe(frame: &RawFrame) -> String {
    match *frame {
        RawFrame::Native { address } => symbol(address),
        RawFrame::Function { code, ffid } => format!("[C {ffid}] {}", symbol(code)),
        ref frame => format!("{frame:?}"),
    }
}

/// An address as gdb would take it: module and offset, or the nearest symbol.
fn symbol(address: usize) -> String {
    // SAFETY: dladdr fills in the record.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const _, &mut info) == 0 {
            return format!("{address:#x}");
        }
        let module = CStr::from_ptr(info.dli_fname).to_string_lossy();
        let module = module.rsplit('/').next().unwrap_or_default();
        format!("{module}+{:#x}", address - info.dli_fbase as usize)
    }
}

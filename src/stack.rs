//! One stack out of the two: who lies between whom.
//!
//! Knows: that the native stack and the Lua stacks alternate. Native frames lead
//! to a C frame of the VM, which owns one stretch of one Lua stack; below that
//! stretch its own return address leads on to native frames, and so on down to
//! the program's start. Must not know: clocks, files, how a stack is stored.
//!
//! Runs in the signal handler, on memory that was laid out before.

use crate::jit::lines::{Calls, Lines};
use crate::jit::path::Code;
use crate::jit::tables::Tables;
use crate::memory;
use crate::native::unwind::{NativeFrame, Step, Unwinder};
use crate::registers::Registers;
use crate::vm::frames::{self, Broken, End, Frame};
use crate::vm::known::Known;
use crate::vm::layout::{Layout, StateNumbering};
use crate::vm::objects::{CFrame, Identity, Kind, Proto, Thread};
use crate::vm::place::{self, Entry as VmEntry, Place, Top};
use crate::vm::trace::{Trace, Traces};
use ljp::{Mark, Reason, VmState};
use std::sync::Arc;

/// A frame as it was found, by addresses; what they mean is looked up when a
/// frame is met for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RawFrame {
    /// A Lua function at a bytecode position.
    Lua {
        /// Its prototype.
        proto: Proto,
        /// What tells the prototype from another one at the same address.
        identity: Identity,
        /// The next instruction, 0 if unknown.
        pc: usize,
        /// The trace that it ran in, or has just left.
        compiled: Option<Trace>,
        /// Whether it is at its innermost call in the trace's loop.
        in_loop: bool,
        /// Whether calls that were inlined into it may be missing.
        ancestor: bool,
    },
    /// A C function or built-in.
    Function {
        /// Its machine code.
        code: usize,
        /// Its number among the built-ins, 1 for other C functions.
        ffid: u8,
    },
    /// Native code.
    Native {
        /// An address inside the instruction that it is at.
        address: usize,
    },
    /// Something that is no call.
    Mark(Mark),
}

/// What was found at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What the VM was doing.
    pub state: VmState,
    /// Whether the frames are a stack.
    pub stack: Result<(), Reason>,
}

/// The outcome of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A sample.
    Found(Found),
    /// The VM is between two frames: the program should go on by an instruction.
    Moving,
}

/// What of a stack is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Only the VM state.
    State,
    /// The innermost frame that Lua knows, or else the innermost native one.
    Leaf,
    /// All of it, up to a depth.
    Full(usize),
}

/// Frames of one stack, innermost first.
pub struct Frames {
    frames: Box<[RawFrame]>,
    len: usize,
    limit: usize,
}

impl Frames {
    /// Room for `limit` frames and the mark that says that there were more.
    pub fn new(limit: usize) -> Frames {
        Frames {
            frames: vec![RawFrame::Mark(Mark::Cut); limit + 1].into(),
            len: 0,
            limit,
        }
    }

    /// The frames, innermost first.
    pub fn as_slice(&self) -> &[RawFrame] {
        &self.frames[..self.len]
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a frame; false if no more are wanted.
    #[inline(always)]
    fn push(&mut self, frame: RawFrame) -> bool {
        let wanted = self.len < self.limit;
        if let Some(place) = self.frames.get_mut(self.len) {
            *place = if wanted {
                frame
            } else {
                RawFrame::Mark(Mark::Cut)
            };
            self.len += 1;
        }
        wanted
    }
}

/// What the VM says that it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Interpreting, or running a C function: the function on top tells which.
    Running {
        in_c: bool,
    },
    Trace(u32),
    Other(VmState),
}

impl Doing {
    fn read(layout: &Layout) -> Option<Doing> {
        let raw = memory::read::<u32>(layout.vmstate)? as i32;
        if raw >= 0 {
            return Some(Doing::Trace(raw as u32));
        }
        let number = match (layout.states, !raw) {
            (StateNumbering::Stock, 0) => return Some(Doing::Running { in_c: false }),
            (StateNumbering::Stock, 1) => return Some(Doing::Running { in_c: true }),
            (StateNumbering::Stock, number) => number,
            (StateNumbering::Tarantool, 0..=2) => return Some(Doing::Running { in_c: false }),
            (StateNumbering::Tarantool, 3) => return Some(Doing::Running { in_c: true }),
            (StateNumbering::Tarantool, number) => number - 2,
        };
        Some(Doing::Other(match number {
            2 => VmState::Gc,
            3 => VmState::Exit,
            4 => VmState::Record,
            5 => VmState::Opt,
            6 => VmState::Asm,
            _ => return None,
        }))
    }

    /// The state of a sample whose innermost frame known to Lua is `top`, while a
    /// trace may be `recording`.
    fn state(self, top: Option<Kind>, recording: bool) -> VmState {
        match (self, top) {
            // Our callback leaves this behind when it returns to the recorder,
            // which runs on top of the bytecode's function.
            (Doing::Running { in_c: true }, Some(Kind::Lua(_))) if recording => VmState::Record,
            (Doing::Trace(_), _) => VmState::Trace,
            (Doing::Other(state), _) => state,
            (Doing::Running { .. }, Some(Kind::Builtin(_))) => VmState::Ffunc,
            (Doing::Running { .. }, Some(Kind::C)) | (Doing::Running { in_c: true }, _) => {
                VmState::Cfunc
            }
            (Doing::Running { in_c: false }, Some(Kind::Lua(_))) => VmState::Lfunc,
            (Doing::Running { in_c: false }, None) => VmState::Interp,
        }
    }
}

/// Looks at the stacks of one VM and the thread that runs it.
pub struct Walker {
    layout: Layout,
    traces: Traces,
    tables: Option<Arc<Tables>>,
    known: Known,
    unwinder: Unwinder,
    extent: Extent,
    frames: Frames,
    unknown_code: bool,
}

/// Why a walk ended early.
enum Stop {
    /// Nothing more is wanted.
    Enough,
    /// The program must go on first.
    Moving,
    /// What was found is no stack.
    Failed(Reason),
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Failed(match broken {
            Broken::Unreadable => Reason::Unreadable,
            Broken::Inconsistent => Reason::Inconsistent,
        })
    }
}

/// The state of one walk.
struct Walk<'w> {
    layout: &'w Layout,
    traces: &'w mut Traces,
    tables: Option<&'w Tables>,
    known: &'w mut Known,
    unwinder: &'w mut Unwinder,
    extent: Extent,
    frames: &'w mut Frames,
    unknown_code: &'w mut bool,
    /// The innermost function that Lua knows.
    top: Option<Kind>,
    /// Where the stretch below goes on: the thread, and the base in it.
    carried: Option<(Thread, usize)>,
    native_frames: usize,
    /// Whether compiled code runs, or has called what runs.
    in_trace: bool,
    last_cframe: Option<CFrame>,
    /// Where the innermost native frame returns to.
    first_caller: usize,
}

impl Walker {
    /// A walker for the VM that `layout` describes, through the code that
    /// `unwinder` knows.
    pub fn new(layout: Layout, unwinder: Unwinder, extent: Extent) -> Walker {
        let limit = match extent {
            Extent::State => 0,
            Extent::Leaf => 1,
            Extent::Full(depth) => depth,
        };
        Walker {
            layout,
            traces: Traces::default(),
            tables: None,
            known: Known::default(),
            unwinder,
            extent,
            frames: Frames::new(limit),
            unknown_code: false,
        }
    }

    /// The same, with line tables for compiled code.
    pub fn with_tables(self, tables: Option<Arc<Tables>>) -> Walker {
        Walker { tables, ..self }
    }

    /// The frames of the last look.
    pub fn frames(&self) -> &[RawFrame] {
        self.frames.as_slice()
    }

    /// The VM's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the last look has met code that no module has.
    pub fn met_unknown_code(&mut self) -> bool {
        std::mem::take(&mut self.unknown_code)
    }

    /// Puts tables of other modules in the place of those that were there, which
    /// are put in theirs.
    pub fn replace_unwinder(&mut self, unwinder: &mut Unwinder) {
        std::mem::swap(&mut self.unwinder, unwinder);
    }

    /// The line tables of compiled code.
    pub fn tables(&self) -> Option<&Tables> {
        self.tables.as_deref()
    }

    /// The unwinder, to be asked about addresses.
    pub fn unwinder(&self) -> &Unwinder {
        &self.unwinder
    }

    fn is_vm_module(&self, address: usize) -> bool {
        let module = self.unwinder.module_of(self.layout.interpreter.start);
        module.is_some() && self.unwinder.module_of(address) == module
    }

    /// Looks at the stack of the thread that was interrupted at `registers`.
    pub fn look(&mut self, registers: &Registers) -> Look {
        self.frames.clear();
        self.known.begin();
        let Some(doing) = Doing::read(&self.layout) else {
            return Look::Found(Found {
                state: VmState::Interp,
                stack: Err(Reason::Inconsistent),
            });
        };
        let mut walk = Walk {
            layout: &self.layout,
            traces: &mut self.traces,
            tables: self.tables.as_deref(),
            known: &mut self.known,
            unwinder: &mut self.unwinder,
            extent: self.extent,
            frames: &mut self.frames,
            unknown_code: &mut self.unknown_code,
            top: None,
            carried: None,
            native_frames: 0,
            in_trace: false,
            last_cframe: None,
            first_caller: 0,
        };
        let ran = walk.run(doing, registers);
        let (top, caller) = (walk.top, walk.first_caller);
        let recording = self.tables.as_deref().is_some_and(Tables::recording);
        let in_vm = || self.is_vm_module(registers.rip) || self.is_vm_module(caller);
        let stack = match ran {
            Ok(()) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Moving) => return Look::Moving,
            // The VM's own C code may be in the middle of moving a stack or
            // making a frame, by itself or with the C library's help: it gets
            // there soon, and blocks no signals.
            Err(Stop::Failed(_)) if in_vm() => return Look::Moving,
            Err(Stop::Failed(reason)) => Err(reason),
        };
        let stack = match self.extent {
            Extent::State => stack.and(Err(Reason::Mode)),
            Extent::Leaf | Extent::Full(_) => stack,
        };
        Look::Found(Found {
            state: doing.state(top, recording),
            stack,
        })
    }
}

impl<'w> Walk<'w> {
    fn run(&mut self, doing: Doing, registers: &Registers) -> Result<(), Stop> {
        let mut at = NativeFrame::interrupted(registers);
        self.in_trace = self.jit_base().is_some_and(|base| base != 0);
        let interpreter = self.layout.interpreter.clone();
        if interpreter.contains(&at.ip) {
            let cframe = match doing {
                Doing::Trace(_) => self.trace(doing, at)?,
                Doing::Other(VmState::Exit) if self.jit_base() != Some(0) => {
                    self.trace(doing, at)?
                }
                _ => match place::interpreter(self.layout, registers) {
                    Place::At(top) => match self.stretch(top, doing) {
                        // What looked like a frame led nowhere: it was none.
                        Err(Stop::Failed(_)) => return Err(Stop::Moving),
                        shown => shown?,
                    },
                    Place::Moving => return Err(Stop::Moving),
                },
            };
            at = self.below(cframe)?;
        }
        // Compiled code says that it runs a few instructions after it has begun.
        if at.is_interrupted()
            && !matches!(doing, Doing::Trace(_))
            && self.may_be_trace()
            && self.unwinder.module_of(at.ip).is_none()
        {
            return Err(Stop::Moving);
        }
        loop {
            at = self.native(at)?;
            let cframe = if interpreter.contains(&at.ip) {
                self.vm_frame(doing, at)?
            } else {
                self.trace(doing, at)?
            };
            at = self.below(cframe)?;
        }
    }

    /// Follows native frames to the VM's code, or to compiled code.
    fn native(&mut self, mut at: NativeFrame) -> Result<NativeFrame, Stop> {
        loop {
            if self.layout.interpreter.contains(&at.ip) {
                return Ok(at);
            }
            if self.may_be_trace() && self.unwinder.module_of(at.ip).is_none() {
                return Ok(at);
            }
            self.push_native(RawFrame::Native {
                address: at.lookup_address(),
            })?;
            self.native_frames += 1;
            let caller = match self.unwinder.step(at) {
                Step::To(caller) => caller,
                Step::Between => return Err(Stop::Moving),
                Step::UnknownCode if place::is_callback(self.layout, at.ip) => {
                    return Err(Stop::Moving);
                }
                end => return self.native_end(at, end),
            };
            if self.native_frames == 1 {
                self.first_caller = caller.ip;
            }
            at = caller;
        }
    }

    /// No caller of `at` is known. If Lua is below, it is where the VM's own
    /// chain of C frames says.
    fn native_end(&mut self, at: NativeFrame, step: Step) -> Result<NativeFrame, Stop> {
        let outer = match self.last_cframe {
            Some(inner) => inner.previous(self.layout).map(CFrame),
            // The running thread of Lua may have been left for another stack.
            None if step == Step::Root => None,
            None => (self.running_cframe()).filter(|cframe| same_stack(at.sp, cframe.0)),
        };
        let outer = outer.filter(|cframe| cframe.0 != 0);
        let mark = match step {
            Step::To(_) | Step::Between => return Err(Stop::Moving),
            Step::Root if outer.is_none() => return Err(Stop::Enough),
            Step::Root => Mark::OwnStack,
            Step::NoTable => Mark::NoTable,
            Step::Broken => Mark::Broken,
            Step::UnknownCode => {
                *self.unknown_code = true;
                Mark::UnknownCode
            }
        };
        self.push_native(RawFrame::Mark(mark))?;
        let cframe = outer.ok_or(Stop::Enough)?;
        let vm = self.layout.interpreter.start;
        Ok(NativeFrame::caller_of_other(vm, cframe.0, 0))
    }

    /// Whether native code above is at unwinding an error.
    fn unwinds(&self) -> bool {
        /// LuaJIT's part in it, and that of the C++ runtime.
        const MOST: usize = 6;
        (self.frames.as_slice().iter().take(MOST)).any(|frame| match frame {
            RawFrame::Native { address } => self.unwinder.is_exceptions(*address),
            _ => false,
        })
    }

    fn running_cframe(&self) -> Option<CFrame> {
        let thread = Thread::at(self.layout, self.layout.reference(self.layout.cur_l)?)?;
        let cframe = thread.cframe(self.layout)?;
        (cframe != 0).then_some(CFrame(cframe))
    }

    /// Whether its thread has no newer C frame.
    fn is_newest(&self, cframe: CFrame) -> bool {
        (cframe.thread(self.layout)).and_then(|thread| thread.cframe(self.layout)) == Some(cframe.0)
    }

    fn jit_base(&self) -> Option<usize> {
        self.layout.reference(self.layout.jit_base)
    }

    /// Compiled code can only lie above the first stretch.
    fn may_be_trace(&self) -> bool {
        self.in_trace && self.top.is_none() && self.carried.is_none()
    }

    /// The native frames above have led to a return address in the VM's code.
    fn vm_frame(&mut self, doing: Doing, at: NativeFrame) -> Result<CFrame, Stop> {
        let first = self.top.is_none() && self.carried.is_none();
        let mut cframe = CFrame(at.sp);
        // An error is about to go on in the VM: the unwinder has changed where
        // its outer function returns to, but not yet the stack pointer.
        if first && self.native_frames <= 2 && !self.may_be_trace() && !self.is_newest(cframe) {
            return Err(Stop::Moving);
        }
        let Some(thread) = cframe.thread(self.layout) else {
            // Not a C frame: a part of the VM that compiled code has called.
            if self.may_be_trace() {
                return self.trace(doing, at);
            }
            // Or the exit from a trace, which has registers to save: the C frame
            // is further out.
            let inconsistent = || Stop::Failed(Reason::Inconsistent);
            let outer = match self.last_cframe {
                Some(inner) => inner.previous(self.layout).map(CFrame),
                None => self.running_cframe(),
            };
            cframe = outer
                .filter(|cframe| cframe.0 != 0)
                .ok_or_else(inconsistent)?;
            let top = match self.carried {
                Some((thread, base)) => place::below_boundary(self.layout, cframe, thread, base),
                None => place::called_from(self.layout, cframe, 0, 0, || None),
            };
            // Where the frames are made that the interpreter goes on with, and the
            // position is theirs already.
            let entry = Entry {
                ancestor: true,
                left: self.left(doing),
                ..Entry::default()
            };
            return self.walk(top.ok_or_else(inconsistent)?, entry);
        };
        let top = match self.carried {
            Some((carried, base)) if carried == thread => {
                place::below_boundary(self.layout, cframe, thread, base)
            }
            _ if first => place::called_from(self.layout, cframe, at.ip, at.bp, || at.rbx()),
            _ => (thread.base(self.layout))
                .and_then(|base| place::below_boundary(self.layout, cframe, thread, base)),
        };
        let top = top.ok_or(Stop::Failed(Reason::Unreadable))?;
        // Where the native stack was lost, so was rbx.
        let entry = if !first || at.callees == u32::MAX {
            VmEntry::Made
        } else if self.is_newest(cframe) && !(self.unwinds() && place::is_left(self.layout, top)) {
            place::entry(self.layout, top, at.ip, at.rbx().unwrap_or(0))
        } else {
            // An error is unwinding the stack: its frames are gone already.
            VmEntry::Pending
        };
        if entry == VmEntry::Callback
            && doing == (Doing::Running { in_c: false })
            && place::is_stale(self.layout, top)
        {
            return Err(Stop::Moving);
        }
        let owns = entry != VmEntry::Pending
            && place::owns_frames(self.layout, cframe, top.stack, top.base)
                .ok_or(Stop::Failed(Reason::Unreadable))?;
        if owns {
            return self.stretch(top, doing);
        }
        self.carried = Some((thread, top.base));
        self.last_cframe = Some(cframe);
        Ok(cframe)
    }

    /// Shows the calls of the stretch that begins at `top`.
    fn stretch(&mut self, top: Top, doing: Doing) -> Result<CFrame, Stop> {
        // While a trace is left its innermost frames are put back one by one.
        let entry = Entry {
            ancestor: self.leaving(doing),
            left: self.left(doing),
            ..Entry::default()
        };
        self.walk(top, entry)
    }

    /// The stretch of the VM that a trace runs on top of, `at` being in its code
    /// or in a part of the VM that it has called.
    fn trace(&mut self, doing: Doing, at: NativeFrame) -> Result<CFrame, Stop> {
        let cframe = self.running_cframe().ok_or(Stop::Moving)?;
        let thread = cframe
            .thread(self.layout)
            .ok_or(Stop::Failed(Reason::Inconsistent))?;
        let base = match self.jit_base() {
            None => return Err(Stop::Failed(Reason::Unreadable)),
            Some(0) => return Err(Stop::Moving),
            Some(base) => base,
        };
        let stack = (thread.stack(self.layout)).ok_or(Stop::Failed(Reason::Unreadable))?;
        let running = self.running_trace(doing, cframe, at);
        let compiled = (running.lines).and_then(|(lines, at)| Some((lines, lines.at(at)?)));
        let known = running.trace.and_then(|trace| self.tables?.of(trace));
        let top = Top {
            cframe,
            thread,
            stack,
            base,
            pc: 0,
        };
        let entry = Entry {
            trace: running.trace,
            in_loop: running.in_loop,
            ancestor: compiled.is_none_or(|(_, calls)| calls.ancestor),
            compiled,
            base_gone: compiled.is_none() && known.is_some_and(Lines::replaces_base),
            ..Entry::default()
        };
        self.walk(top, entry)
    }

    /// Whether a trace is being left, on top of all stretches.
    fn leaving(&self, doing: Doing) -> bool {
        self.top.is_none() && doing == Doing::Other(VmState::Exit)
    }

    /// The trace that is being left. Its number is there before any C function is
    /// called for that.
    fn left(&mut self, doing: Doing) -> Option<Trace> {
        let known = self.leaving(doing) && self.native_frames > 0;
        let number = self.tables.filter(|_| known)?.left()?;
        self.traces.get(self.layout, number)
    }

    /// The trace that runs, and where in it.
    fn running_trace(&mut self, doing: Doing, cframe: CFrame, at: NativeFrame) -> Running<'w> {
        let (layout, tables) = (self.layout, self.tables);
        let numbered = match doing {
            Doing::Trace(number) => self.traces.get(layout, number),
            _ => None,
        };
        let address = if layout.interpreter.contains(&at.ip) {
            // A part of the VM that it has called, or its exit.
            numbered
                .and_then(|trace| trace.stack_adjustment(layout))
                .and_then(|adjustment| called_from_trace(cframe, adjustment, at.sp))
        } else {
            Some(at.lookup_address())
        };
        let in_table = |address| {
            let tables = tables?;
            // A trace says its number only some instructions after its start.
            let lines = match numbered {
                Some(trace) => tables.get(trace.number(), address),
                None => None,
            };
            let lines = lines.or_else(|| tables.covering(address))?;
            Some((lines, address))
        };
        let lines = address.and_then(in_table);
        let trace = match (lines, address) {
            (Some((lines, _)), _) => Some(lines.trace()),
            (None, Some(address)) => self.traces.covering(layout, address).or(numbered),
            (None, None) => numbered,
        };
        let in_loop = trace.zip(address).is_some_and(|(trace, address)| {
            let start = trace.loop_start(layout).unwrap_or(0) as usize;
            let code = trace.code(layout).unwrap_or(0..0);
            start > 0 && code.contains(&address) && address >= code.start + start
        });
        Running {
            trace,
            lines,
            in_loop,
        }
    }

    /// Shows the calls of a stretch, the innermost of which runs as `entry` says.
    fn walk(&mut self, top: Top, entry: Entry) -> Result<CFrame, Stop> {
        let layout = self.layout;
        let (extent, frames, innermost) = (self.extent, &mut *self.frames, &mut self.top);
        let mut show = |kind: Kind, raw: Option<RawFrame>| {
            if innermost.is_none() {
                *innermost = Some(kind);
            }
            match extent {
                Extent::State => false,
                Extent::Leaf => {
                    if let Some(raw) = raw {
                        frames.clear();
                        frames.push(raw);
                    }
                    false
                }
                Extent::Full(_) => raw.is_some_and(|raw| frames.push(raw)),
            }
        };
        self.last_cframe = Some(top.cframe);
        let Entry {
            mut ancestor,
            mut in_loop,
            ..
        } = entry;
        let mut at_base = entry.base_gone.then_some(BaseCall::Shown);
        for code in entry.calls() {
            let (kind, raw) = match code {
                // Its closure is on the stack, where the walk begins.
                Code::Base(pc) => {
                    at_base = Some(BaseCall::At(pc));
                    break;
                }
                Code::Lua(proto, identity, pc) => {
                    let raw = RawFrame::Lua {
                        proto,
                        identity,
                        pc,
                        compiled: entry.trace,
                        in_loop: std::mem::take(&mut in_loop),
                        ancestor: std::mem::take(&mut ancestor),
                    };
                    (Kind::Lua(proto), raw)
                }
                Code::Function(code, 1) => (Kind::C, RawFrame::Function { code, ffid: 1 }),
                Code::Function(code, ffid) => {
                    (Kind::Builtin(ffid), RawFrame::Function { code, ffid })
                }
            };
            if !show(kind, Some(raw)) {
                return Err(Stop::Enough);
            }
            at_base = Some(BaseCall::Shown);
        }
        let mut first = true;
        let visit = |frame: Frame| {
            if !std::mem::take(&mut first) {
                // If none of the trace's calls was, this one is their ancestor.
                let ancestor = std::mem::take(&mut ancestor) && entry.base_gone;
                let below = Entry {
                    trace: entry.trace.filter(|_| ancestor),
                    ancestor,
                    ..Entry::default()
                };
                return show(frame.body.kind, raw(layout, frame, below));
            }
            match at_base {
                Some(BaseCall::Shown) => true,
                Some(BaseCall::At(pc)) => {
                    let entry = Entry {
                        ancestor,
                        in_loop,
                        ..entry
                    };
                    show(frame.body.kind, raw(layout, Frame { pc, ..frame }, entry))
                }
                None => {
                    let pc = entry.start(layout, frame);
                    show(frame.body.kind, raw(layout, Frame { pc, ..frame }, entry))
                }
            }
        };
        match frames::walk(layout, self.known, top.stack, top.base, top.pc, visit)? {
            End::Enough => return Err(Stop::Enough),
            End::Boundary { base } => self.carried = Some((top.thread, base)),
            End::Bottom => self.carried = Some((top.thread, top.stack.bottom(layout))),
        }
        Ok(top.cframe)
    }

    /// The caller of the VM.
    fn below(&mut self, cframe: CFrame) -> Result<NativeFrame, Stop> {
        if matches!(self.extent, Extent::State | Extent::Leaf) && self.top.is_some() {
            return Err(Stop::Enough);
        }
        let unreadable = || Stop::Failed(Reason::Unreadable);
        Ok(NativeFrame::caller_of_other(
            cframe.return_address(self.layout).ok_or_else(unreadable)?,
            cframe.end(self.layout),
            cframe.saved_rbp(self.layout).ok_or_else(unreadable)?,
        ))
    }

    fn push_native(&mut self, frame: RawFrame) -> Result<(), Stop> {
        let wanted = match self.extent {
            Extent::State => true,
            // Kept until a frame that Lua knows takes its place.
            Extent::Leaf => {
                self.frames.push(frame);
                true
            }
            Extent::Full(_) => self.frames.push(frame),
        };
        if wanted { Ok(()) } else { Err(Stop::Enough) }
    }
}

/// What runs in compiled code.
struct Running<'t> {
    trace: Option<Trace>,
    /// Its table, and the address to look up there.
    lines: Option<(&'t Lines, usize)>,
    /// Whether that is in its loop.
    in_loop: bool,
}

/// Whether `inner` and `outer` are places on one native stack, as far as the
/// memory tells: it is there all the way.
fn same_stack(inner: usize, outer: usize) -> bool {
    const PAGE: usize = 4096;
    const MOST: usize = 512 * PAGE;
    inner < outer
        && outer - inner <= MOST
        && (inner..outer)
            .step_by(PAGE)
            .all(|address| memory::read::<u8>(address).is_some())
}

/// How the innermost frame of a stretch is run.
#[derive(Clone, Copy, Default)]
struct Entry<'t> {
    /// The trace that was entered in it.
    trace: Option<Trace>,
    /// Whether it has come to its loop.
    in_loop: bool,
    /// The trace that is being left.
    left: Option<Trace>,
    /// Whether calls may be missing above it, or above those that are known.
    ancestor: bool,
    /// The calls in the trace, where its table has them.
    compiled: Option<(&'t Lines, Calls)>,
    /// What the stack has for the function at the base may not be it any more.
    base_gone: bool,
}

/// What is known of the call at the base of a trace.
#[derive(Clone, Copy)]
enum BaseCall {
    /// It is among those that were shown.
    Shown,
    /// Its next instruction.
    At(usize),
}

impl<'t> Entry<'t> {
    /// The calls that were compiled in, innermost first.
    fn calls(&self) -> impl Iterator<Item = Code> + use<'t> {
        self.compiled
            .into_iter()
            .flat_map(|(lines, calls)| lines.calls(calls))
    }

    /// The position of `frame`, which is the innermost one: of a trace's it is
    /// known where the trace begins.
    fn start(&self, layout: &Layout, frame: Frame) -> usize {
        let start = self.trace.and_then(|trace| trace.start(layout));
        match start {
            Some((entered, pc)) if frame.body.kind == Kind::Lua(entered) => pc,
            Some(_) => 0,
            None if self.ancestor => 0,
            None => frame.pc,
        }
    }
}

/// The address of a call from a trace that moves the stack pointer by
/// `adjustment` below `cframe`, to code that has the stack pointer `sp`.
fn called_from_trace(cframe: CFrame, adjustment: usize, sp: usize) -> Option<usize> {
    let slot = cframe.0.checked_sub(adjustment + 8)?;
    if sp > slot {
        return None;
    }
    memory::read::<u64>(slot).map(|returns_to| (returns_to as usize).wrapping_sub(1))
}

/// The raw form of a frame of Lua's; `None` if it could not be read.
#[inline(always)]
fn raw(layout: &Layout, frame: Frame, entry: Entry) -> Option<RawFrame> {
    Some(match frame.body.kind {
        Kind::Lua(proto) => RawFrame::Lua {
            proto,
            identity: frame.body.identity,
            pc: frame.pc,
            compiled: entry.trace.or(entry.left),
            in_loop: entry.in_loop,
            ancestor: entry.ancestor,
        },
        Kind::C => RawFrame::Function {
            code: frame.function.code(layout)?,
            ffid: 1,
        },
        Kind::Builtin(ffid) => RawFrame::Function {
            code: frame.function.code(layout)?,
            ffid,
        },
    })
}

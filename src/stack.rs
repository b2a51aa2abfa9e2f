//! One stack out of the two: who lies between whom.
//!
//! Knows: that the native stack and the Lua stacks alternate. Native frames lead
//! to a C frame of the VM, which owns one stretch of one Lua stack; below that
//! stretch its own return address leads on to native frames, and so on down to
//! the program's start. Must not know: clocks, files, how a stack is stored.
//!
//! Runs in the signal handler, on memory that was laid out before.

use crate::memory;
use crate::native::unwind::{NativeFrame, Step, Unwinder};
use crate::registers::Registers;
use crate::vm::frames::{self, Broken, End, Frame};
use crate::vm::layout::{Layout, StateNumbering};
use crate::vm::objects::{CFrame, Identity, Kind, Proto, Thread};
use crate::vm::place::{self, Place, Top};
use crate::vm::trace::{Trace, Traces};
use ljp::{Mark, Reason, VmState};

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
        /// The trace that it ran in.
        compiled: Option<Trace>,
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
    frames: Vec<RawFrame>,
    limit: usize,
    cut: bool,
}

impl Frames {
    /// Room for `limit` frames and the mark that says that there were more.
    pub fn new(limit: usize) -> Frames {
        Frames {
            frames: Vec::with_capacity(limit + 1),
            limit,
            cut: false,
        }
    }

    /// The frames, innermost first.
    pub fn as_slice(&self) -> &[RawFrame] {
        &self.frames
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.cut = false;
    }

    /// Adds a frame; false if no more are wanted. Never allocates: the limit is
    /// below the capacity.
    fn push(&mut self, frame: RawFrame) -> bool {
        if self.frames.len() < self.limit {
            self.frames.push(frame);
            return true;
        }
        if !self.cut {
            self.cut = true;
            self.frames.push(RawFrame::Mark(Mark::Cut));
        }
        false
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

    /// The state of a sample whose innermost frame known to Lua is `top`.
    fn state(self, top: Option<Kind>) -> VmState {
        match (self, top) {
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
    unwinder: Unwinder,
    extent: Extent,
    frames: Frames,
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
    unwinder: &'w mut Unwinder,
    extent: Extent,
    frames: &'w mut Frames,
    /// The innermost function that Lua knows.
    top: Option<Kind>,
    /// Where the stretch below goes on: the thread, and the base in it.
    carried: Option<(Thread, usize)>,
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
            unwinder,
            extent,
            frames: Frames::new(limit),
        }
    }

    /// The frames of the last look.
    pub fn frames(&self) -> &[RawFrame] {
        self.frames.as_slice()
    }

    /// The VM's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The unwinder, to be asked about addresses.
    pub fn unwinder(&self) -> &Unwinder {
        &self.unwinder
    }

    /// Looks at the stack of the thread that was interrupted at `registers`.
    pub fn look(&mut self, registers: &Registers) -> Look {
        self.frames.clear();
        let Some(doing) = Doing::read(&self.layout) else {
            return Look::Found(Found {
                state: VmState::Interp,
                stack: Err(Reason::Inconsistent),
            });
        };
        let mut walk = Walk {
            layout: &self.layout,
            traces: &mut self.traces,
            unwinder: &mut self.unwinder,
            extent: self.extent,
            frames: &mut self.frames,
            top: None,
            carried: None,
        };
        let stack = match walk.run(doing, registers) {
            Ok(()) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Moving) => return Look::Moving,
            Err(Stop::Failed(reason)) => Err(reason),
        };
        Look::Found(Found {
            state: doing.state(walk.top),
            stack,
        })
    }
}

impl Walk<'_> {
    fn run(&mut self, doing: Doing, registers: &Registers) -> Result<(), Stop> {
        let mut at = NativeFrame {
            ip: registers.rip,
            sp: registers.rsp,
            bp: registers.rbp,
            innermost: true,
        };
        let interpreter = self.layout.interpreter.clone();
        if interpreter.contains(&at.ip) {
            let cframe = match doing {
                Doing::Trace(_) => self.trace(doing, at.ip)?,
                Doing::Other(VmState::Exit) if self.jit_base() != Some(0) => {
                    self.trace(doing, at.ip)?
                }
                _ => match place::interpreter(self.layout, registers) {
                    Place::At(top) => match self.stretch(top) {
                        // What looked like a frame led nowhere: it was none.
                        Err(Stop::Failed(_)) => return Err(Stop::Moving),
                        shown => shown?,
                    },
                    Place::Moving => return Err(Stop::Moving),
                },
            };
            at = self.below(cframe)?;
        }
        loop {
            at = self.native(at)?;
            let cframe = if interpreter.contains(&at.ip) {
                self.vm_frame(doing, at)?
            } else {
                self.trace(doing, at.ip)?
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
            if self.unwinder.module_of(at.ip).is_none() && self.may_be_trace() {
                return Ok(at);
            }
            self.push_native(RawFrame::Native {
                address: at.lookup_address(),
            })?;
            match self.unwinder.step(at) {
                Step::To(caller) => at = caller,
                Step::Root => return Err(Stop::Enough),
                Step::Lost => {
                    self.push_native(RawFrame::Mark(Mark::NativeEnd))?;
                    return self.resume_at_cframe();
                }
            }
        }
    }

    /// Where the native stack is lost above the first C frame of the VM, the
    /// running thread tells where that is.
    fn resume_at_cframe(&mut self) -> Result<NativeFrame, Stop> {
        if self.top.is_some() || self.carried.is_some() {
            return Err(Stop::Enough);
        }
        let cframe = self.running_cframe().ok_or(Stop::Enough)?;
        Ok(NativeFrame {
            ip: self.layout.interpreter.start,
            sp: cframe.0,
            bp: 0,
            innermost: false,
        })
    }

    fn running_cframe(&self) -> Option<CFrame> {
        let thread = Thread::at(self.layout, self.layout.reference(self.layout.cur_l)?)?;
        let cframe = thread.cframe(self.layout)?;
        (cframe != 0).then_some(CFrame(cframe))
    }

    fn jit_base(&self) -> Option<usize> {
        self.layout.reference(self.layout.jit_base)
    }

    /// Compiled code can only lie above the first stretch.
    fn may_be_trace(&self) -> bool {
        self.top.is_none() && self.carried.is_none() && self.jit_base().is_some_and(|b| b != 0)
    }

    /// The native frames above have led to a return address in the VM's code.
    fn vm_frame(&mut self, doing: Doing, at: NativeFrame) -> Result<CFrame, Stop> {
        let first = self.top.is_none() && self.carried.is_none();
        let mut cframe = CFrame(at.sp);
        let Some(thread) = cframe.thread(self.layout) else {
            // Not a C frame: a part of the VM that compiled code has called, or
            // the exit from a trace, which has registers to save.
            if self.may_be_trace() {
                return self.trace(doing, at.ip);
            }
            cframe = (first.then(|| self.running_cframe()).flatten())
                .ok_or(Stop::Failed(Reason::Inconsistent))?;
            let top = place::called_from(self.layout, cframe, 0, None)
                .ok_or(Stop::Failed(Reason::Inconsistent))?;
            return self.stretch(Top { pc: 0, ..top });
        };
        let top = match self.carried {
            Some((carried, base)) if carried == thread => {
                place::below_boundary(self.layout, cframe, thread, base)
            }
            _ if first => place::called_from(self.layout, cframe, at.bp, None),
            _ => (thread.base(self.layout))
                .and_then(|base| place::below_boundary(self.layout, cframe, thread, base)),
        };
        let top = top.ok_or(Stop::Failed(Reason::Unreadable))?;
        let owns = place::owns_frames(self.layout, cframe, top.stack, top.base)
            .ok_or(Stop::Failed(Reason::Unreadable))?;
        if owns {
            return self.stretch(top);
        }
        self.carried = Some((thread, top.base));
        Ok(cframe)
    }

    /// Shows the calls of the stretch that begins at `top`.
    fn stretch(&mut self, top: Top) -> Result<CFrame, Stop> {
        self.walk(top, None)
    }

    /// The stretch of the VM that a trace runs on top of, `ip` being in its code.
    fn trace(&mut self, doing: Doing, ip: usize) -> Result<CFrame, Stop> {
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
        let trace = match doing {
            Doing::Trace(number) => self.traces.get(self.layout, number),
            _ => self.traces.covering(self.layout, ip),
        };
        let top = Top {
            cframe,
            thread,
            stack,
            base,
            pc: 0,
        };
        self.walk(top, trace)
    }

    fn walk(&mut self, top: Top, trace: Option<Trace>) -> Result<CFrame, Stop> {
        let layout = self.layout;
        // The innermost frame is the one that the trace was entered in.
        let entered = trace.and_then(|trace| trace.start(layout));
        let mut first = true;
        let (extent, frames, innermost) = (self.extent, &mut *self.frames, &mut self.top);
        let mut visit = |frame: Frame| {
            if innermost.is_none() {
                *innermost = Some(frame.kind);
            }
            let compiled = if std::mem::take(&mut first) {
                trace
            } else {
                None
            };
            match extent {
                Extent::State => false,
                Extent::Leaf => {
                    if let Some(raw) = raw(layout, frame, compiled, entered) {
                        frames.clear();
                        frames.push(raw);
                    }
                    false
                }
                Extent::Full(_) => {
                    raw(layout, frame, compiled, entered).is_some_and(|raw| frames.push(raw))
                }
            }
        };
        match frames::walk(layout, top.stack, top.base, top.pc, &mut visit)? {
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
        let unreadable = Stop::Failed(Reason::Unreadable);
        Ok(NativeFrame {
            ip: cframe.return_address(self.layout).ok_or(unreadable)?,
            sp: cframe.end(self.layout),
            bp: (cframe.saved_rbp(self.layout)).ok_or(Stop::Failed(Reason::Unreadable))?,
            innermost: false,
        })
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

/// The raw form of a frame of Lua's; `None` if it could not be read.
fn raw(
    layout: &Layout,
    frame: Frame,
    compiled: Option<Trace>,
    entered: Option<(Proto, usize)>,
) -> Option<RawFrame> {
    Some(match frame.kind {
        Kind::Lua(proto) => {
            let pc = match (compiled, entered) {
                (Some(_), Some((start, pc))) if start == proto => pc,
                _ => frame.pc,
            };
            RawFrame::Lua {
                proto,
                identity: proto.identity(layout)?,
                pc,
                compiled,
                ancestor: compiled.is_some(),
            }
        }
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

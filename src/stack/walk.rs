//! One walk over a stack, as far as it has come.
//!
//! Knows: what it works with, and what the VM says of the thread that runs. Must
//! not know: the way (`descent`).

use super::frame::{Extent, Frames, RawFrame};
use crate::jit::tables::Tables;
use crate::native::unwind::Unwinder;
use crate::vm::frames::Broken;
use crate::vm::known::Known;
use crate::vm::layout::Layout;
use crate::vm::objects::{CFrame, Kind, Thread};
use crate::vm::trace::{Trace, Traces};
use ljp::Reason;

/// Why a walk ended early.
pub(super) enum Stop {
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
pub(super) struct Walk<'w> {
    pub(super) layout: &'w Layout,
    pub(super) traces: &'w mut Traces,
    pub(super) tables: Option<&'w Tables>,
    pub(super) known: &'w mut Known,
    pub(super) unwinder: &'w mut Unwinder,
    pub(super) extent: Extent,
    pub(super) frames: &'w mut Frames,
    pub(super) unknown_code: &'w mut bool,
    /// The innermost function that Lua knows.
    pub(super) top: Option<Kind>,
    /// Where the stretch below goes on: the thread, and the base in it.
    pub(super) carried: Option<(Thread, usize)>,
    pub(super) native_frames: usize,
    /// The trace of which calls are missing above the next Lua function.
    pub(super) missing: Option<Trace>,
    /// Whether compiled code runs, or has called what runs.
    pub(super) in_trace: bool,
    pub(super) last_cframe: Option<CFrame>,
    /// Where the innermost native frame returns to.
    pub(super) first_caller: usize,
}

impl<'w> Walk<'w> {
    /// The newest C frame of the Lua thread that runs.
    pub(super) fn running_cframe(&self) -> Option<CFrame> {
        let thread = Thread::at(self.layout, self.layout.reference(self.layout.cur_l)?)?;
        let cframe = thread.cframe(self.layout)?;
        (cframe != 0).then_some(CFrame(cframe))
    }

    /// Whether its thread has no newer C frame.
    pub(super) fn is_newest(&self, cframe: CFrame) -> bool {
        (cframe.thread(self.layout)).and_then(|thread| thread.cframe(self.layout)) == Some(cframe.0)
    }

    /// The base that compiled code runs on, 0 if none does (`lj_obj.h`, `jit_base`).
    pub(super) fn jit_base(&self) -> Option<usize> {
        self.layout.reference(self.layout.jit_base)
    }

    /// Compiled code can only lie above the first stretch.
    pub(super) fn may_be_trace(&self) -> bool {
        self.in_trace && self.top.is_none() && self.carried.is_none()
    }

    /// Shows a frame that Lua does not know.
    pub(super) fn push_native(&mut self, frame: RawFrame) -> Result<(), Stop> {
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

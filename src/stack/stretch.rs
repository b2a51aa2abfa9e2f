//! The calls of one stretch: from the frame that runs, or has called native code,
//! down to the one that was called from C.
//!
//! Knows: frames of Lua's (`vm/frames`), and the calls that a trace has instead of
//! them. Must not know: the native stack.

use super::frame::{Extent, RawFrame};
use super::walk::{Stop, Walk};
use crate::jit::lines::{Calls, Lines};
use crate::jit::path::Code;
use crate::vm::frames::{self, End, Frame};
use crate::vm::layout::Layout;
use crate::vm::objects::{CFrame, Kind};
use crate::vm::place::Top;
use crate::vm::trace::Trace;

impl<'w> Walk<'w> {
    /// Shows the calls of a stretch, the innermost of which runs as `entry` says.
    pub(super) fn walk(&mut self, top: Top, entry: Entry) -> Result<CFrame, Stop> {
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
        if entry.base_gone {
            self.missing = entry.trace;
        }
        let (mut first, missing) = (true, &mut self.missing);
        let visit = |frame: Frame| {
            let is_first = std::mem::take(&mut first);
            let mut entry = if is_first {
                Entry {
                    ancestor,
                    in_loop,
                    ..entry
                }
            } else {
                Entry::default()
            };
            let pc = match at_base.filter(|_| is_first) {
                Some(BaseCall::Shown) => return true,
                Some(BaseCall::At(pc)) => pc,
                None => entry.start(layout, frame),
            };
            if matches!(frame.body.kind, Kind::Lua(_))
                && let Some(trace) = missing.take()
            {
                (entry.trace, entry.ancestor) = (Some(trace), true);
            }
            show(frame.body.kind, raw(layout, Frame { pc, ..frame }, entry))
        };
        match frames::walk(layout, self.known, top.stack, top.base, top.pc, visit)? {
            End::Enough => return Err(Stop::Enough),
            End::Boundary { base } => self.carried = Some((top.thread, base)),
            End::Bottom => self.carried = Some((top.thread, top.stack.bottom(layout))),
        }
        Ok(top.cframe)
    }
}

/// How the innermost frame of a stretch is run.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry<'t> {
    /// The trace that was entered in it.
    pub(super) trace: Option<Trace>,
    /// Whether it has come to its loop.
    pub(super) in_loop: bool,
    /// The trace that is being left.
    pub(super) left: Option<Trace>,
    /// Whether calls may be missing above it, or above those that are known.
    pub(super) ancestor: bool,
    /// The calls in the trace, where its table has them.
    pub(super) compiled: Option<(&'t Lines, Calls)>,
    /// What the stack has for the function at the base may not be it any more.
    pub(super) base_gone: bool,
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

//! The frames of one stack, as they are found.
//!
//! Knows: room for them, laid out before. Must not know: where they come from,
//! what their addresses mean.

use crate::vm::objects::{Identity, Proto};
use crate::vm::trace::Trace;
use ljp::Mark;

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

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a frame; false if no more are wanted.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: RawFrame) -> bool {
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

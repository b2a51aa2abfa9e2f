//! Traces and frames as the two sides of the crate share them.
//!
//! The numbers in them are ids of earlier definitions, in the order in which
//! those were made. Uses `core` only.

use crate::Mark;

/// A trace, as the TRACE record carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TraceDef {
    /// The VM's number of the trace, from 1.
    pub number: u32,
    /// Number of the trace from whose exit it starts, 0 for a root trace.
    pub parent: u32,
    /// The exit of the parent.
    pub exit: u32,
    /// Number of the root trace of its tree, 0 if it is one itself.
    pub root: u32,
    /// Number of the trace that it jumps to at its end, or 0.
    pub link: u32,
    /// Size of its machine code in bytes.
    pub mcode_size: u64,
    /// Id of the prototype where it starts.
    pub proto: Option<u32>,
    /// Line where it starts, 0 if unknown.
    pub line: u32,
}

/// What a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A Lua function at a line.
    Lua {
        /// Id of the prototype.
        proto: u32,
        /// The line it is at, 0 if unknown.
        line: u32,
    },
    /// A C function or built-in, as Lua sees it.
    Func {
        /// Id of the function.
        func: u32,
    },
    /// Native code.
    Native {
        /// Id of the module, `None` if the address lies in no known one.
        module: Option<u32>,
        /// Address in the numbering of the module's file, absolute without a
        /// module. Of a caller it lies inside the call instruction.
        address: u64,
    },
    /// A trace, where it starts.
    Trace {
        /// Id of the trace's definition (not the VM's number).
        trace: u32,
    },
    /// No function, but something to know about the stack.
    Mark(Mark),
}

/// A frame with its flags, as the FRAME record carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameDef {
    /// What it stands for.
    pub frame: Frame,
    /// Id of the trace's definition as whose machine code the frame ran, or which
    /// was being left (EXIT).
    pub compiled: Option<u32>,
    /// The innermost frame of a trace that was in its loop.
    pub in_loop: bool,
    /// The frame is only known as an ancestor: functions that were inlined into
    /// it, or called by the C functions right above it, may be missing.
    pub ancestor: bool,
}

impl From<Frame> for FrameDef {
    fn from(frame: Frame) -> Self {
        FrameDef {
            frame,
            compiled: None,
            in_loop: false,
            ancestor: false,
        }
    }
}

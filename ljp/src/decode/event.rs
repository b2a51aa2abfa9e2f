//! What a stream of version 3 consists of.

use crate::{Counters, FrameDef, FuncKind, NameKind, TraceDef, VmState};

/// Numbers of reasons are below this; a greater one is taken for damage.
pub const REASON_LIMIT: usize = 64;

/// One record of a stream. Ids in it are checked: they name something that an
/// earlier event of the same epoch defined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Something to know about the recording.
    Meta {
        /// What it is.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A file that was mapped with its code.
    Module(Module),
    /// A Lua function.
    Proto(Proto),
    /// A C function or a built-in.
    Func(Func),
    /// A trace.
    Trace(TraceDef),
    /// A frame.
    Frame(FrameDef),
    /// A stack: a frame and the stack that it was called from.
    Stack {
        /// Id of the stack below, `None` if the frame is the outermost.
        parent: Option<u32>,
        /// Id of the frame.
        frame: u32,
    },
    /// Recordings of traces that LuaJIT gave up.
    Abort {
        /// How many.
        times: u64,
        /// Where and why.
        abort: Abort,
    },
    /// The name of native code that lies in no module.
    Symbol {
        /// Where it begins, absolute.
        address: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// Ids of all definitions but modules begin again at 0.
    Epoch,
    /// A sample.
    Sample(Sample),
    /// The recording was stopped.
    End(Counters),
}

/// A file that was mapped with its code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path where the profile was recorded.
    pub path: Vec<u8>,
    /// Its build id, may be empty.
    pub build_id: Vec<u8>,
    /// What was added to the addresses in the file.
    pub bias: u64,
    /// Its lowest address in memory.
    pub low: u64,
    /// The address after its last one.
    pub end: u64,
}

/// A Lua function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proto {
    /// Chunk name as Lua has it: `@file`, `=name`, or source text, perhaps cut.
    pub chunk: Vec<u8>,
    /// The line where it begins, 0 of a main chunk, `u32::MAX` of a function of
    /// LuaJIT's own that is written in Lua.
    pub first_line: u32,
    /// How many lines it has.
    pub num_lines: u32,
    /// Its name, may be empty.
    pub name: Vec<u8>,
    /// Where the name comes from.
    pub name_kind: NameKind,
}

/// A C function or a built-in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Func {
    /// Which of the two.
    pub kind: FuncKind,
    /// Its name, may be empty.
    pub name: Vec<u8>,
    /// Id of the module that it lies in.
    pub module: Option<u32>,
    /// Where it begins, in the numbering of the module's file; absolute without
    /// a module.
    pub address: u64,
}

/// Where LuaJIT gave up a recording, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Abort {
    /// Name of its chunk as Lua has it.
    pub chunk: Vec<u8>,
    /// The line, 0 if unknown.
    pub line: u32,
    /// LuaJIT's reason.
    pub reason: Vec<u8>,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// What the VM was doing.
    pub state: VmState,
    /// Id of the stack, or the number of the reason why there is none: a
    /// [`crate::Reason`], or one that this crate does not know yet, below
    /// [`REASON_LIMIT`].
    pub stack: Result<u32, u8>,
    /// How many ticks of the clock it stands for.
    pub weight: u64,
    /// Microseconds since the sample before.
    pub step_us: u64,
}

//! Reading versions 1 and 2, as Tarantool's LuaJIT writes them: a symbol table
//! (`ljs`, versions 1 to 3) and then events (`ljp`).
//!
//! Knows both layouts. Keeps no symbols: they are events like samples.
//!
//! A file that begins with its events at once is read as well; it has no
//! symbols.

use std::io::Read;

use super::{Error, Input};
use crate::wire::v2::{
    EVENT_C, EVENT_LUA, EVENT_TRACE, FINAL, FRAME_BUILTIN, FRAME_C, FRAME_LUA, SYMBOL_C,
    SYMBOL_LUA, SYMBOL_TRACE, SYMBOL_TYPE, SYMBOLS_MAGIC,
};
use crate::{VmState, wire};

/// The longest name that is believed, in bytes.
const NAME_LIMIT: u64 = 1 << 20;
/// The deepest stack that is believed, in frames.
const DEPTH_LIMIT: usize = 1 << 16;

/// Gives the symbols and samples of a stream of version 1 or 2 one by one.
///
/// After an error and after the end of the stream it gives nothing more.
#[derive(Debug)]
pub struct TarantoolReader<R> {
    input: Input<R>,
    part: Part,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Symbols { version: u8 },
    Events { version: u8 },
    Finished,
}

/// One event of such a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TarantoolEvent {
    /// A symbol of the table at the start, or of one that was made later.
    Symbol(TarantoolSymbol),
    /// A sample.
    Sample(TarantoolSample),
}

/// What an address or a trace number stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarantoolSymbol {
    /// A Lua function.
    Lua {
        /// Address of its prototype.
        address: u64,
        /// Name of its chunk as Lua has it.
        chunk: Vec<u8>,
        /// The line where it begins; of a built-in that is Lua code, a number
        /// beyond any line.
        line: u64,
    },
    /// A function of a native library.
    C {
        /// Where it begins in memory.
        address: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// A trace.
    Trace {
        /// Its number.
        number: u64,
        /// Address of the prototype where it starts.
        proto: u64,
        /// The line where it starts.
        line: u64,
    },
}

/// One sample, innermost frames first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarantoolSample {
    /// What the VM was doing.
    pub state: VmState,
    /// The Lua stack.
    pub lua: Vec<LuaFrame>,
    /// The native stack, as addresses in memory.
    pub native: Vec<u64>,
    /// Of a sample in a trace: its number, the address of the prototype where
    /// it starts, and the line where that begins.
    pub trace: Option<(u64, u64, u64)>,
}

/// A frame of the Lua stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LuaFrame {
    /// A Lua function.
    Lua {
        /// Address of its prototype.
        proto: u64,
        /// The line where it begins.
        line: u64,
    },
    /// A C function, by its address.
    C(u64),
    /// A built-in, by the number that its LuaJIT gave it.
    Builtin(u64),
}

impl<R: Read> TarantoolReader<R> {
    pub(super) fn new(input: Input<R>) -> Result<Self, Error> {
        let mut reader = TarantoolReader {
            input,
            part: Part::Finished,
        };
        let (magic, version) = reader.prologue()?;
        reader.part = if magic == SYMBOLS_MAGIC {
            symbols_part(version)?
        } else {
            events_part(version)?
        };
        Ok(reader)
    }

    /// Where in the stream the reader is, in bytes.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The version of the events, `None` while the symbol table is being read.
    pub fn version(&self) -> Option<u8> {
        match self.part {
            Part::Events { version } => Some(version),
            _ => None,
        }
    }

    /// The next event, `None` once the end was read.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the stream ends without its last byte,
    /// [`Error::Damaged`] if it cannot be right, [`Error::Version`] if the
    /// events are of an unknown version, [`Error::Io`] if reading fails.
    pub fn next_event(&mut self) -> Result<Option<TarantoolEvent>, Error> {
        let event = self.read_event();
        match &event {
            Ok(Some(_)) => self.input.mark_good(),
            Ok(None) | Err(_) => self.part = Part::Finished,
        }
        event
    }

    fn read_event(&mut self) -> Result<Option<TarantoolEvent>, Error> {
        if let Part::Symbols { version } = self.part {
            let start = self.input.offset();
            let head = self.input.u8()?;
            if head & FINAL == 0 {
                return self.symbol(start, head, version).map(Some);
            }
            let start = self.input.offset();
            let (magic, version) = self.prologue()?;
            if magic != wire::MAGIC {
                return Err(Error::damaged(start, "no events after the symbol table"));
            }
            self.part = events_part(version)?;
        }
        let Part::Events { version } = self.part else {
            return Ok(None);
        };
        let start = self.input.offset();
        let head = self.input.u8()?;
        if head & FINAL != 0 {
            let end = self.input.offset();
            return match self.input.next()? {
                None => Ok(None),
                Some(_) => Err(Error::damaged(end, "data after the end of the events")),
            };
        }
        // Version 1 has one kind of symbol among its events, with the number
        // that version 2 uses for another.
        let symbol = match (version, head) {
            (1, EVENT_LUA) | (2, EVENT_C) => self.c_symbol()?,
            (2, EVENT_LUA) => self.lua_symbol()?,
            (2, EVENT_TRACE) => self.trace_symbol()?,
            _ => return self.sample(start, head).map(Some),
        };
        Ok(Some(TarantoolEvent::Symbol(symbol)))
    }

    fn prologue(&mut self) -> Result<([u8; 3], u8), Error> {
        let mut magic = [0; 3];
        for byte in &mut magic {
            *byte = self.input.u8()?;
        }
        let version = self.input.u8()?;
        self.input.skip(wire::RESERVED as u64)?;
        self.input.mark_good();
        Ok((magic, version))
    }

    fn symbol(&mut self, start: u64, head: u8, version: u8) -> Result<TarantoolEvent, Error> {
        let symbol = match (version, head & SYMBOL_TYPE) {
            (_, SYMBOL_LUA) => self.lua_symbol()?,
            // Version 2 had traces only, with the address of the trace.
            (2, 1) => {
                let number = self.input.uleb()?;
                self.input.uleb()?;
                TarantoolSymbol::Trace {
                    number,
                    proto: self.input.uleb()?,
                    line: self.input.uleb()?,
                }
            }
            (3, SYMBOL_C) => self.c_symbol()?,
            (3, SYMBOL_TRACE) => self.trace_symbol()?,
            (_, kind) => {
                return Err(Error::damaged(start, format!("a symbol of type {kind}")));
            }
        };
        Ok(TarantoolEvent::Symbol(symbol))
    }

    fn lua_symbol(&mut self) -> Result<TarantoolSymbol, Error> {
        Ok(TarantoolSymbol::Lua {
            address: self.input.uleb()?,
            chunk: self.input.str(NAME_LIMIT)?,
            line: self.input.uleb()?,
        })
    }

    fn c_symbol(&mut self) -> Result<TarantoolSymbol, Error> {
        Ok(TarantoolSymbol::C {
            address: self.input.uleb()?,
            name: self.input.str(NAME_LIMIT)?,
        })
    }

    fn trace_symbol(&mut self) -> Result<TarantoolSymbol, Error> {
        Ok(TarantoolSymbol::Trace {
            number: self.input.uleb()?,
            proto: self.input.uleb()?,
            line: self.input.uleb()?,
        })
    }

    fn sample(&mut self, start: u64, head: u8) -> Result<TarantoolEvent, Error> {
        let state = VmState::from_number(head.into())
            .ok_or_else(|| Error::damaged(start, format!("an event of kind {head:#x}")))?;
        let mut sample = TarantoolSample {
            state,
            lua: Vec::new(),
            native: Vec::new(),
            trace: None,
        };
        if state == VmState::Trace {
            sample.trace = Some((self.input.uleb()?, self.input.uleb()?, self.input.uleb()?));
            return Ok(TarantoolEvent::Sample(sample));
        }
        if matches!(state, VmState::Lfunc | VmState::Ffunc | VmState::Cfunc) {
            while let Some(frame) = self.lua_frame()? {
                push(&mut sample.lua, frame, start)?;
            }
        }
        loop {
            match self.input.uleb()? {
                0 => return Ok(TarantoolEvent::Sample(sample)),
                address => push(&mut sample.native, address, start)?,
            }
        }
    }

    fn lua_frame(&mut self) -> Result<Option<LuaFrame>, Error> {
        let start = self.input.offset();
        let head = self.input.u8()?;
        Ok(Some(match head {
            _ if head & FINAL != 0 => return Ok(None),
            FRAME_LUA => LuaFrame::Lua {
                proto: self.input.uleb()?,
                line: self.input.uleb()?,
            },
            FRAME_C => LuaFrame::C(self.input.uleb()?),
            FRAME_BUILTIN => LuaFrame::Builtin(self.input.uleb()?),
            _ => return Err(Error::damaged(start, format!("a frame of kind {head}"))),
        }))
    }
}

fn push<T>(stack: &mut Vec<T>, frame: T, start: u64) -> Result<(), Error> {
    if stack.len() >= DEPTH_LIMIT {
        return Err(Error::damaged(start, "a stack without an end"));
    }
    stack.push(frame);
    Ok(())
}

fn symbols_part(version: u8) -> Result<Part, Error> {
    match version {
        1..=3 => Ok(Part::Symbols { version }),
        found => Err(Error::Version { part: "ljs", found }),
    }
}

fn events_part(version: u8) -> Result<Part, Error> {
    match version {
        1 | 2 => Ok(Part::Events { version }),
        found => Err(Error::Version { part: "ljp", found }),
    }
}

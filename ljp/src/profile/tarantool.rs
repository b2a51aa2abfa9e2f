//! A profile out of the events of versions 1 and 2.
//!
//! Knows which symbol an address stands for at each point of the stream. How a
//! native and a Lua stack become one is [`super::join`]'s.

use std::collections::HashMap;

use super::{Node, Profile, intern, join};
use crate::decode::{Func, LuaFrame, Proto, TarantoolSample, TarantoolSymbol};
use crate::{Frame, FrameDef, FuncKind, NameKind, TraceDef};

/// How far behind the start of the symbol before it an address may lie to count
/// as part of it. The streams carry no sizes; without a limit, code that has no
/// symbol would be taken for the last function of some library.
const REACH: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Builder {
    profile: Profile,
    /// Chunk names of prototypes by their address. An address can be used
    /// again, so this is what it stands for now.
    chunks: HashMap<u64, Vec<u8>>,
    /// Prototype's address and line where a trace starts, by its number.
    traces: HashMap<u64, (u64, u64)>,
}

impl Builder {
    pub(super) fn symbol(&mut self, symbol: TarantoolSymbol) {
        match symbol {
            TarantoolSymbol::Lua { address, chunk, .. } => {
                self.chunks.insert(address, chunk);
            }
            TarantoolSymbol::C { address, name } => {
                self.profile.symbols.insert(address, name);
            }
            TarantoolSymbol::Trace {
                number,
                proto,
                line,
            } => {
                self.traces.insert(number, (proto, line));
            }
        }
    }

    pub(super) fn sample(&mut self, sample: &TarantoolSample) {
        let mut frames = Vec::new();
        // Our recorder writes a trace that it could not find as number 0, which
        // no trace has.
        let trace = sample.trace.filter(|trace| *trace != (0, 0, 0));
        if let Some((number, proto, line)) = trace {
            frames.push(self.trace(number, proto, line));
        }
        let lua = sample.lua.iter().map(|frame| self.lua(*frame));
        let lua: Vec<Frame> = lua.collect();
        let native: Vec<Frame> = sample.native.iter().map(|at| self.native(*at)).collect();
        let Profile { symbols, funcs, .. } = &self.profile;
        let enters = |frame: &Frame| match frame {
            Frame::Native { address, .. } => symbols
                .get(address)
                .is_some_and(|name| join::is_entry(name)),
            _ => false,
        };
        let mut innermost = HashMap::new();
        let mut builtins = HashMap::new();
        for (at, frame) in native.iter().enumerate() {
            innermost.entry(*frame).or_insert(at);
            if let Frame::Native { address, .. } = frame
                && let Some(name) = symbols.get(address)
                && let Some(builtin) = join::builtin_of(name)
            {
                builtins.entry(builtin).or_insert(at);
            }
        }
        let inside = |frame: &Frame| match frame {
            Frame::Func { func } => {
                let func = &funcs[*func as usize];
                let start = Frame::Native {
                    module: None,
                    address: func.address,
                };
                let at_its_code = innermost.get(&start).filter(|_| func.address != 0);
                // Conversion from version 3 makes C functions of built-ins.
                let named = || builtins.get(&join::builtin(&func.name)[..]);
                at_its_code.or_else(named).copied()
            }
            _ => None,
        };
        join::outermost_first(&lua, &native, enters, inside, &mut frames);

        let mut stack = None;
        for frame in frames {
            let frame = intern(&mut self.profile.frames, FrameDef::from(frame));
            stack = Some(self.profile.stacks.intern(Node {
                parent: stack,
                frame,
            }));
        }
        // A stream of these versions says no reason; an empty stack is one that
        // could not be followed.
        let stack = stack.ok_or(crate::Reason::Unreadable.number());
        self.profile.count(sample.state, stack, 1);
    }

    pub(super) fn finish(mut self, version: u8) -> Profile {
        self.profile.version = version;
        self.profile
    }

    fn lua(&mut self, frame: LuaFrame) -> Frame {
        match frame {
            LuaFrame::Lua { proto, line } => Frame::Lua {
                proto: self.proto(proto, line),
                line: 0,
            },
            LuaFrame::C(address) => {
                let name = self.profile.symbols.get(&address).cloned();
                self.func(FuncKind::C, name.unwrap_or_default(), address)
            }
            LuaFrame::Builtin(number) => {
                // Our recorder names built-ins by symbols at their numbers,
                // where no code can lie.
                let named = self.profile.symbols.get(&number).cloned();
                let name = named.filter(|_| number <= u8::MAX.into());
                let name = name.unwrap_or_else(|| format!("built-in #{number}").into_bytes());
                self.func(FuncKind::Builtin, name, 0)
            }
        }
    }

    fn func(&mut self, kind: FuncKind, name: Vec<u8>, address: u64) -> Frame {
        let func = Func {
            kind,
            name,
            module: None,
            address,
        };
        Frame::Func {
            func: intern(&mut self.profile.funcs, func),
        }
    }

    fn proto(&mut self, address: u64, line: u64) -> u32 {
        let chunk = match self.chunks.get(&address) {
            Some(chunk) => chunk.clone(),
            None => format!("=?{address:#x}").into_bytes(),
        };
        let proto = Proto {
            chunk,
            // Functions of LuaJIT's own that are written in Lua have line ~0.
            first_line: u32::try_from(line).unwrap_or(u32::MAX),
            num_lines: 0,
            name: Vec::new(),
            name_kind: NameKind::None,
        };
        intern(&mut self.profile.protos, proto)
    }

    fn trace(&mut self, number: u64, proto: u64, line: u64) -> Frame {
        // The line of a sample is that of the prototype; the symbol has the one
        // where the trace starts.
        let start = match self.traces.get(&number) {
            Some((at, start)) if *at == proto => *start,
            _ => line,
        };
        let trace = TraceDef {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            proto: Some(self.proto(proto, line)),
            line: u32::try_from(start).unwrap_or(u32::MAX),
            ..TraceDef::default()
        };
        Frame::Trace {
            trace: intern(&mut self.profile.traces, trace),
        }
    }

    /// Native code, by the start of the symbol that it lies in: addresses within
    /// a function are one frame.
    fn native(&self, address: u64) -> Frame {
        let symbol = self.profile.symbols.range(..=address).next_back();
        let start = match symbol {
            Some((&start, _)) if address - start < REACH => start,
            _ => address,
        };
        Frame::Native {
            module: None,
            address: start,
        }
    }
}

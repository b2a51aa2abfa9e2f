//! Any profile as version 2, for Tarantool's tools.
//!
//! What that version has no place for is left out: lines within functions, names
//! of Lua functions, the stack of compiled code, times. Addresses stand for
//! functions in it: those of native code are the ones that it had in memory,
//! prototypes get one each.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use ljp::decode::Func;
use ljp::encode::{Part, v2_has_lua_stack};
use ljp::profile::Profile;
use ljp::{Frame, FrameDef, FuncKind, VmState};

use super::record;
use crate::label;
use crate::symbols::Symbols;

/// Addresses from here on are no code's on x86-64: they stand for functions
/// whose address is not known, or another function's as well.
const NOWHERE: u64 = 1 << 62;

/// Writes `profile`; without an end if what it was read from has none.
pub fn write(
    profile: &Profile,
    symbols: &mut impl Symbols,
    whole: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut names = Names {
        profile,
        symbols,
        table: profile.symbols.clone(),
        nameless: HashSet::new(),
    };
    let frames: Vec<Piece> = (profile.frames.iter())
        .map(|frame| names.piece(frame))
        .collect();
    record(out, 0, |out| out.v2_symbols())?;
    for (index, proto) in profile.protos.iter().enumerate() {
        record(out, proto.chunk.len(), |out| {
            let (address, line) = (address_of(index as u32), proto.first_line.into());
            out.v2_lua_symbol(Part::Table, address, &proto.chunk, line);
        })?;
    }
    for (address, name) in &names.table {
        record(out, name.len(), |out| {
            out.v2_c_symbol(Part::Table, *address, name);
        })?;
    }
    record(out, 0, |out| out.v2_final())?;
    record(out, 0, |out| out.v2_events())?;

    let mut samples = Samples {
        profile,
        frames: &frames,
        told: HashMap::new(),
    };
    let nodes: Vec<_> = profile.stacks.iter().map(|(node, _)| node).collect();
    for (index, (_, weights)) in profile.stacks.iter().enumerate() {
        let Some(weights) = weights else { continue };
        let mut stack = Vec::new();
        let mut next = Some(index as u32);
        while let Some(index) = next {
            let node = nodes[index as usize];
            stack.push(node.frame);
            next = node.parent;
        }
        for state in VmState::ALL {
            samples.write(state, &stack, weights[state as usize], out)?;
        }
    }
    for state in VmState::ALL {
        samples.write(state, &[], profile.stackless[state as usize], out)?;
    }
    if whole {
        record(out, 0, |out| out.v2_final())?;
    }
    Ok(())
}

/// The address that stands for a prototype.
fn address_of(proto: u32) -> u64 {
    (u64::from(proto) + 1) * 16
}

/// What a frame is in version 2.
#[derive(Clone, Copy)]
enum Piece {
    Lua { proto: u32 },
    C(u64),
    Native(u64),
    Nothing,
}

/// Gives native code its symbols.
struct Names<'a, S> {
    profile: &'a Profile,
    symbols: &'a mut S,
    table: BTreeMap<u64, Vec<u8>>,
    /// Where code begins whose place stands for its name.
    nameless: HashSet<u64>,
}

impl<S: Symbols> Names<'_, S> {
    fn piece(&mut self, def: &FrameDef) -> Piece {
        match def.frame {
            Frame::Lua { proto, .. } => Piece::Lua { proto },
            Frame::Func { func } => Piece::C(self.func(func)),
            Frame::Native { module, address } => Piece::Native(self.native(module, address)),
            Frame::Trace { .. } | Frame::Mark(_) => Piece::Nothing,
        }
    }

    /// Where a C function or built-in is. The latter is one, too: the numbers
    /// that built-ins have are those of one LuaJIT, and names go further.
    fn func(&mut self, index: u32) -> u64 {
        let func: &Func = &self.profile.funcs[index as usize];
        let known = (func.address != 0).then(|| self.absolute(func.module, func.address));
        let name = self.profile.name_of(func);
        if name.is_empty()
            && let Some(address) = known
        {
            self.native(func.module, func.address);
            return address;
        }
        let name = match (func.kind, name) {
            (FuncKind::Builtin, b"") => b"[built-in]",
            (_, name) => name,
        };
        let own = NOWHERE + u64::from(index) * 16;
        let address = known.unwrap_or(own);
        // What Lua calls it is better than nothing.
        if self.nameless.remove(&address) {
            self.table.remove(&address);
        }
        match self.table.get(&address) {
            Some(other) if func.kind == FuncKind::Builtin && other != name => {
                self.table.insert(own, name.to_vec());
                own
            }
            Some(_) => address,
            None => {
                self.table.insert(address, name.to_vec());
                address
            }
        }
    }

    /// Where native code is in memory; its symbol is in the table then. Code
    /// without a name gets one of its own: the reader would take it for part of
    /// the function before it.
    fn native(&mut self, module: Option<u32>, address: u64) -> u64 {
        let absolute = self.absolute(module, address);
        let (module, address) = self.profile.settled(module, address);
        let Some(id) = module else {
            return absolute;
        };
        let module = &self.profile.modules[id as usize];
        let code = self.symbols.at(module, address);
        let start = code.start.unwrap_or(address);
        let at = self.absolute(Some(id), start);
        if let Entry::Vacant(vacant) = self.table.entry(at) {
            let name = match code.functions.first() {
                Some(function) => function.name.clone(),
                None => {
                    self.nameless.insert(at);
                    label::address(Some(module), start)
                }
            };
            vacant.insert(name.into_bytes());
        }
        absolute
    }

    fn absolute(&self, module: Option<u32>, address: u64) -> u64 {
        let bias = module.map_or(0, |id| self.profile.modules[id as usize].bias);
        address.wrapping_add(bias)
    }
}

/// Writes samples, and traces before the first sample in each.
struct Samples<'a> {
    profile: &'a Profile,
    frames: &'a [Piece],
    /// What the reader takes a trace's number for.
    told: HashMap<u32, (u32, u32)>,
}

impl Samples<'_> {
    /// `stack` has frame ids, innermost first.
    fn write(
        &mut self,
        state: VmState,
        stack: &[u32],
        weight: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if weight == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if state == VmState::Trace {
            self.in_trace(stack, out, &mut bytes)?;
        } else {
            record(&mut bytes, 0, |out| out.v2_sample(state))?;
            let pieces = || stack.iter().map(|id| self.frames[*id as usize]);
            if v2_has_lua_stack(state) {
                for piece in pieces() {
                    record(&mut bytes, 0, |out| match piece {
                        Piece::Lua { proto } => {
                            let line = self.profile.protos[proto as usize].first_line;
                            out.v2_lua_frame(address_of(proto), line.into());
                        }
                        Piece::C(address) => out.v2_c_frame(address),
                        Piece::Native(_) | Piece::Nothing => {}
                    })?;
                }
                record(&mut bytes, 0, |out| out.v2_lua_end())?;
            }
            for piece in pieces() {
                if let Piece::Native(address) = piece {
                    record(&mut bytes, 0, |out| out.v2_native_frame(address))?;
                }
            }
            record(&mut bytes, 0, |out| out.v2_native_end())?;
        }
        for _ in 0..weight {
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// A sample in a trace, into `bytes`, and what has to be said before it.
    fn in_trace(
        &mut self,
        stack: &[u32],
        out: &mut dyn Write,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        let trace = stack.iter().find_map(|id| {
            let def = &self.profile.frames[*id as usize];
            match def.frame {
                Frame::Trace { trace } => Some(trace),
                _ => def.compiled,
            }
        });
        let trace = trace.map(|id| self.profile.traces[id as usize]);
        let (Some(trace), Some(proto)) = (trace, trace.and_then(|trace| trace.proto)) else {
            return record(bytes, 0, |out| out.v2_trace_sample(0, 0, 0));
        };
        let (number, address) = (trace.number.into(), address_of(proto));
        if self.told.insert(trace.number, (proto, trace.line)) != Some((proto, trace.line)) {
            record(out, 0, |out| {
                out.v2_trace_symbol(Part::Events, number, address, trace.line.into());
            })?;
        }
        let line = self.profile.protos[proto as usize].first_line;
        record(bytes, 0, |out| {
            out.v2_trace_sample(number, address, line.into());
        })
    }
}

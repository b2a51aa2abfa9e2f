//! What a frame of a profile is called, and whether it is shown at all.
//!
//! Knows single frames. How they follow each other is [`super`]'s.

use std::collections::HashMap;

use ljp::decode::{Func, Module};
use ljp::profile::Profile;
use ljp::{Frame, FrameDef, FuncKind, Mark};

use super::{Kind, Named, View};
use crate::label;
use crate::symbols::{self, Code, Symbols};

/// Names frames one by one.
pub(super) struct Namer<'a, S> {
    profile: &'a Profile,
    symbols: &'a mut S,
    internals: bool,
    /// Whether a module contains LuaJIT.
    luajit: HashMap<u32, bool>,
}

impl<'a, S: Symbols> Namer<'a, S> {
    pub(super) fn new(profile: &'a Profile, symbols: &'a mut S, internals: bool) -> Self {
        Namer {
            profile,
            symbols,
            internals,
            luajit: HashMap::new(),
        }
    }

    pub(super) fn frame(&mut self, view: &mut View, def: &FrameDef) -> Named {
        let mut named = Named {
            parts: Vec::new(),
            trace: def.compiled.map(|trace| self.trace(view, trace)),
            start: None,
            awaits: None,
        };
        match def.frame {
            Frame::Lua { proto, line } => {
                let proto = &self.profile.protos[proto as usize];
                let function = view.function(label::proto(proto), Kind::Lua);
                let line = (line > 0).then(|| view.line(label::line(proto, line)));
                named.parts.push((function, line));
            }
            Frame::Func { func } => {
                let func = &self.profile.funcs[func as usize];
                let name = self.func(func);
                let kind = match func.kind {
                    FuncKind::Builtin => Kind::Builtin,
                    FuncKind::C => Kind::Native,
                };
                named.awaits = (func.address != 0).then_some((func.module, func.address));
                named.parts.push((view.function(name, kind), None));
            }
            Frame::Native { module, address } => {
                let code = self.native(module, address);
                named.start = code.start.map(|start| (module, start));
                if self.internals || !self.is_internal(module, &code) {
                    named.parts = self.native_parts(view, module, address, code);
                }
            }
            Frame::Trace { trace } => {
                let trace = self.trace(view, trace);
                let name = view.traces[trace as usize].clone();
                named.trace = Some(trace);
                named.parts.push((view.function(name, Kind::Trace), None));
            }
            Frame::Mark(Mark::Vm) if !self.internals => {}
            Frame::Mark(mark) => {
                let note = view.function(mark.name().to_owned(), Kind::Note);
                named.parts.push((note, None));
            }
        }
        named
    }

    fn trace(&self, view: &mut View, trace: u32) -> u32 {
        let trace = &self.profile.traces[trace as usize];
        let proto = trace.proto.map(|id| &self.profile.protos[id as usize]);
        view.traces.insert_full(label::trace(trace, proto)).0 as u32
    }

    fn func(&mut self, func: &Func) -> String {
        if let Some(name) = label::func(func) {
            return name;
        }
        let code = self.native(func.module, func.address);
        match code.functions.into_iter().next() {
            Some(function) => function.name,
            None => label::address(self.module(func.module), func.address),
        }
    }

    fn native(&mut self, module: Option<u32>, address: u64) -> Code {
        if let Some(id) = module {
            return self.symbols.at(&self.profile.modules[id as usize], address);
        }
        // Without a module the stream itself may have the name.
        match self.profile.symbols.get(&address) {
            Some(name) => Code {
                start: Some(address),
                functions: vec![symbols::Function {
                    name: label::text(name),
                    place: None,
                }],
            },
            None => Code::default(),
        }
    }

    fn native_parts(
        &self,
        view: &mut View,
        module: Option<u32>,
        address: u64,
        code: Code,
    ) -> Vec<(u32, Option<u32>)> {
        if code.functions.is_empty() {
            let name = label::address(self.module(module), address);
            return vec![(view.function(name, Kind::Native), None)];
        }
        code.functions
            .into_iter()
            .map(|function| {
                let line = function.place.map(|place| view.line(place));
                (view.function(function.name, Kind::Native), line)
            })
            .collect()
    }

    /// Whether native code belongs to LuaJIT itself.
    fn is_internal(&mut self, module: Option<u32>, code: &Code) -> bool {
        let named = code.functions.first();
        let ours = named.is_some_and(|function| is_luajit_name(&function.name));
        let Some(id) = module else {
            return ours;
        };
        let module = &self.profile.modules[id as usize];
        // The library is LuaJIT and nothing else, also where its symbols were
        // stripped; another program may merely contain it.
        let library = named.is_none() && label::file_name(module).contains("luajit");
        if !ours && !library {
            return false;
        }
        let symbols = &mut *self.symbols;
        library
            || *self
                .luajit
                .entry(id)
                .or_insert_with(|| symbols.is_luajit(module))
    }

    fn module(&self, id: Option<u32>) -> Option<&Module> {
        id.map(|id| &self.profile.modules[id as usize])
    }
}

/// Whether LuaJIT names its own functions like this.
fn is_luajit_name(name: &str) -> bool {
    ["lj_", "lua_", "luaL_", "luaJIT_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

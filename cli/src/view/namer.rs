//! What a frame of a profile is called, and whether it is shown at all.
//!
//! Knows single frames. How they follow each other is [`super`]'s.

use std::collections::HashMap;

use ljp::decode::{Func, Module};
use ljp::profile::Profile;
use ljp::{Frame, FrameDef, FuncKind, Mark};

use super::{Inside, Kind, Named, Side, View, hidden};
use crate::label;
use crate::symbols::{self, Code, Symbols};

/// Names frames one by one.
pub(super) struct Namer<'a, S> {
    profile: &'a Profile,
    symbols: &'a mut S,
    internals: bool,
    /// The module that built-ins of LuaJIT are in, as far as the profile says.
    home: Option<u32>,
    /// Whether a module contains LuaJIT.
    luajit: HashMap<u32, bool>,
}

impl<'a, S: Symbols> Namer<'a, S> {
    pub(super) fn new(profile: &'a Profile, symbols: &'a mut S, internals: bool) -> Self {
        let mut builtins = profile
            .funcs
            .iter()
            .filter(|func| func.kind == FuncKind::Builtin);
        Namer {
            profile,
            symbols,
            internals,
            home: builtins.find_map(|func| func.module),
            luajit: HashMap::new(),
        }
    }

    pub(super) fn frame(&mut self, view: &mut View, def: &FrameDef) -> Named {
        let trace = def.compiled.map(|trace| self.trace(view, trace));
        match def.frame {
            Frame::Lua { proto, line } => {
                let proto = &self.profile.protos[proto as usize];
                let function = view.function(label::proto(proto), Kind::Lua);
                let line = (line > 0).then(|| {
                    let place = label::line(proto, line);
                    view.line(if def.ancestor {
                        label::inlined(place)
                    } else {
                        place
                    })
                });
                Named {
                    parts: vec![(function, line)],
                    trace,
                    side: self.lua_side(),
                }
            }
            Frame::Func { func } => Named {
                trace,
                ..self.func(view, &self.profile.funcs[func as usize])
            },
            Frame::Native { module, address } => Named {
                trace,
                ..self.native(view, module, address)
            },
            Frame::Trace { trace } => {
                let trace = self.trace(view, trace);
                let name = view.traces[trace as usize].clone();
                Named {
                    parts: vec![(view.function(name, Kind::Trace), None)],
                    trace: Some(trace),
                    side: self.lua_side(),
                }
            }
            Frame::Mark(mark) => {
                let shown = self.internals || mark != Mark::Vm;
                let note = shown.then(|| view.function(mark.name().to_owned(), Kind::Note));
                Named {
                    parts: note.map(|note| (note, None)).into_iter().collect(),
                    trace,
                    side: Side::Mark,
                }
            }
        }
    }

    fn trace(&self, view: &mut View, trace: u32) -> u32 {
        let trace = &self.profile.traces[trace as usize];
        let proto = trace.proto.map(|id| &self.profile.protos[id as usize]);
        view.traces.insert_full(label::trace(trace, proto)).0 as u32
    }

    fn func(&mut self, view: &mut View, func: &Func) -> Named {
        let (module, address) = self.profile.settled(func.module, func.address);
        let start = (address != 0).then_some((module, address));
        let file = self.module(module).map(label::file_name);
        // LuaJIT's own program calls itself through Lua, too.
        let is_c = func.kind == FuncKind::C;
        let own =
            is_c && func.name.is_empty() && file.is_some_and(|name| hidden::is_luajit_file(&name));
        let mut parts = Vec::new();
        if self.internals || !own {
            let kind = if is_c { Kind::Native } else { Kind::Builtin };
            parts.push((view.function(self.func_name(func), kind), None));
        }
        Named {
            parts,
            trace: None,
            side: Side::Lua {
                start,
                inside: self.inside(module, false).filter(|_| !is_c),
            },
        }
    }

    /// What a Lua function means to the frames around it.
    fn lua_side(&self) -> Side {
        Side::Lua {
            start: None,
            inside: self.inside(self.home, true),
        }
    }

    fn inside(&self, module: Option<u32>, nameless: bool) -> Option<Inside> {
        module
            .filter(|_| !self.internals)
            .map(|module| Inside { module, nameless })
    }

    /// The name that Lua has for it, or else its symbol's, or else its address.
    fn func_name(&mut self, func: &Func) -> String {
        let name = self.profile.name_of(func);
        if !name.is_empty() {
            return label::text(name);
        }
        let (module, address) = self.profile.settled(func.module, func.address);
        let code = self.code(module, address);
        let first = code.functions.first();
        let symbol = first.map(|first| label::text(first.name.as_bytes()));
        match (func.kind, symbol) {
            (FuncKind::C, Some(symbol)) => symbol,
            (FuncKind::C, None) => label::address(self.module(module), address),
            (FuncKind::Builtin, symbol) => symbol
                .and_then(|symbol| hidden::builtin(&symbol))
                .unwrap_or_else(|| "[built-in]".to_owned()),
        }
    }

    fn native(&mut self, view: &mut View, module: Option<u32>, address: u64) -> Named {
        let (module, address) = self.profile.settled(module, address);
        let code = self.code(module, address);
        let start = code.start.map(|start| (module, start));
        let name = code.functions.first().map(|first| first.name.as_str());
        let nameless = name.is_none();
        let internal = !self.internals && self.is_internal(module, name);
        let shown = self.internals || !internal && !name.is_some_and(hidden::starts_program);
        let parts = if shown {
            self.native_parts(view, module, address, code)
        } else {
            Vec::new()
        };
        Named {
            parts,
            trace: None,
            side: Side::Native {
                module,
                start,
                nameless,
                internal,
            },
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
            // Without names, addresses would only scatter what belongs together.
            let name = match self.module(module) {
                Some(module) if !self.internals => format!("[{}]", label::file_name(module)),
                module => label::address(module, code.start.unwrap_or(address)),
            };
            return vec![(view.function(name, Kind::Native), None)];
        }
        code.functions
            .into_iter()
            .map(|function| {
                // Among lines of Lua those of C would only be in the way.
                let place = function.place.filter(|_| self.internals);
                let line = place.map(|place| view.line(place));
                let name = label::text(function.name.as_bytes());
                (view.function(name, Kind::Native), line)
            })
            .collect()
    }

    /// What lies at an address.
    fn code(&mut self, module: Option<u32>, address: u64) -> Code {
        if let Some(id) = module {
            return self.symbols.at(&self.profile.modules[id as usize], address);
        }
        // Without a module the stream itself may have the name.
        match self.profile.symbols.get(&address) {
            Some(name) => Code {
                start: Some(address),
                functions: vec![symbols::Function {
                    name: symbols::demangled(&String::from_utf8_lossy(name)),
                    place: None,
                }],
            },
            None => Code::default(),
        }
    }

    /// Whether the native function belongs to LuaJIT itself.
    fn is_internal(&mut self, module: Option<u32>, name: Option<&str>) -> bool {
        let ours = name.is_some_and(hidden::is_luajit_name);
        let Some(id) = module else {
            return ours;
        };
        let module = &self.profile.modules[id as usize];
        if hidden::is_luajit_file(&label::file_name(module)) {
            return true;
        }
        let symbols = &mut *self.symbols;
        ours && *self
            .luajit
            .entry(id)
            .or_insert_with(|| symbols.is_luajit(module))
    }

    fn module(&self, id: Option<u32>) -> Option<&Module> {
        id.map(|id| &self.profile.modules[id as usize])
    }
}

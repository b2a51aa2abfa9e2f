//! The stacks of a profile as people read them: named, and without the insides
//! of the VM.
//!
//! Knows what is shown and what is hidden, and to whom hidden frames count.
//! Adds nothing up: that is [`crate::tally`].

use std::collections::HashMap;

use indexmap::IndexSet;
use ljp::decode::Func;
use ljp::profile::Profile;
use ljp::{Frame, FrameDef, FuncKind, Mark, Reason};

use crate::label;
use crate::symbols::{Code, Symbols};

/// What a function is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Lua function.
    Lua,
    /// A built-in of the VM.
    Builtin,
    /// A C function, as Lua sees it or by its symbol.
    Native,
    /// A trace.
    Trace,
    /// No function but a remark.
    Note,
}

/// Something that a frame can be in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// A visible frame and where it was called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    /// Index of the node below, always smaller than that of this one.
    pub parent: Option<u32>,
    /// Index of the function.
    pub function: u32,
    /// Index of the place, `file:line`.
    pub line: Option<u32>,
    /// Index of the trace as whose machine code it ran.
    pub trace: Option<u32>,
}

/// The visible stacks as a tree.
#[derive(Debug, Default)]
pub struct View {
    pub functions: IndexSet<Function>,
    pub lines: IndexSet<String>,
    /// Names of traces.
    pub traces: IndexSet<String>,
    pub nodes: IndexSet<Node>,
    /// Samples that fell on each node itself.
    pub own: Vec<u64>,
}

/// How far a stack of the profile has come.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    /// The innermost visible node.
    node: Option<u32>,
    /// That node is a C function of which the native frame has not come yet:
    /// module and address.
    awaits: Option<(Option<u32>, u64)>,
}

/// A frame of the profile, named.
#[derive(Debug, Clone)]
struct Named {
    /// Functions with their places, outermost first; empty if hidden.
    parts: Vec<(u32, Option<u32>)>,
    trace: Option<u32>,
    /// Of a native frame, where its symbol begins.
    start: Option<(Option<u32>, u64)>,
    /// Of a C function, where it begins.
    awaits: Option<(Option<u32>, u64)>,
}

impl View {
    /// Names the stacks. With `internals`, the VM's own frames are shown as
    /// well. Samples without a stack become remarks of their own.
    pub fn new(profile: &Profile, symbols: &mut impl Symbols, internals: bool) -> View {
        let mut view = View::default();
        let mut namer = Namer {
            profile,
            symbols,
            internals,
            luajit: HashMap::new(),
        };
        let frames: Vec<Named> = profile
            .frames
            .iter()
            .map(|frame| namer.frame(&mut view, frame))
            .collect();
        let mut reached: Vec<Reached> = Vec::with_capacity(profile.stacks.len());
        for (node, weights) in profile.stacks.iter() {
            let below = node.parent.map(|parent| reached[parent as usize]);
            let here = view.step(below.unwrap_or_default(), &frames[node.frame as usize]);
            reached.push(here);
            let weight = weights.map_or(0, |weights| sum(weights));
            if weight > 0 {
                let node = here.node.unwrap_or_else(|| view.note(Mark::Vm.name()));
                view.count(node, weight);
            }
        }
        for (reason, weight) in &profile.by_reason {
            let node = view.note(&format!("[no stack: {}]", reason_name(*reason)));
            view.count(node, *weight);
        }
        view
    }

    /// The samples of all nodes together.
    pub fn samples(&self) -> u64 {
        sum(&self.own)
    }

    fn step(&mut self, below: Reached, frame: &Named) -> Reached {
        let mut parts = frame.parts.as_slice();
        // The native side of a C function that is on the stack already.
        let joins = frame.start.is_some() && frame.start == below.awaits;
        if joins && !parts.is_empty() {
            parts = &parts[1..];
        }
        let mut node = below.node;
        for (function, line) in parts {
            node = Some(self.intern(Node {
                parent: node,
                function: *function,
                line: *line,
                trace: frame.trace,
            }));
        }
        let awaits = if frame.parts.is_empty() {
            below.awaits
        } else {
            frame.awaits
        };
        Reached { node, awaits }
    }

    fn intern(&mut self, node: Node) -> u32 {
        let (index, new) = self.nodes.insert_full(node);
        if new {
            self.own.push(0);
        }
        index as u32
    }

    fn count(&mut self, node: u32, weight: u64) {
        let own = &mut self.own[node as usize];
        *own = own.saturating_add(weight);
    }

    /// A node that is a remark in place of a whole stack.
    fn note(&mut self, name: &str) -> u32 {
        let function = self.function(name.to_owned(), Kind::Note);
        self.intern(Node {
            parent: None,
            function,
            line: None,
            trace: None,
        })
    }

    fn function(&mut self, name: String, kind: Kind) -> u32 {
        self.functions.insert_full(Function { name, kind }).0 as u32
    }

    fn line(&mut self, place: String) -> u32 {
        self.lines.insert_full(place).0 as u32
    }
}

/// Names frames one by one.
struct Namer<'a, S> {
    profile: &'a Profile,
    symbols: &'a mut S,
    internals: bool,
    /// Whether a module contains LuaJIT.
    luajit: HashMap<u32, bool>,
}

impl<S: Symbols> Namer<'_, S> {
    fn frame(&mut self, view: &mut View, def: &FrameDef) -> Named {
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
                functions: vec![crate::symbols::Function {
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

    fn module(&self, id: Option<u32>) -> Option<&ljp::decode::Module> {
        id.map(|id| &self.profile.modules[id as usize])
    }
}

/// Whether LuaJIT names its own functions like this.
fn is_luajit_name(name: &str) -> bool {
    ["lj_", "lua_", "luaL_", "luaJIT_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// What a number of a reason means.
pub fn reason_name(number: u8) -> String {
    match Reason::from_number(number.into()) {
        Some(reason) => reason.name().to_owned(),
        None => format!("reason {number}"),
    }
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

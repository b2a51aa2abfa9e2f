//! The stacks of a profile as people read them: named, and without the insides
//! of the VM.
//!
//! Knows what is shown and what is hidden, and to whom hidden frames count.
//! Adds nothing up: that is [`crate::tally`].

mod hidden;
mod namer;
#[cfg(test)]
mod tests;

use indexmap::IndexSet;
use ljp::Mark;
use ljp::profile::Profile;

use crate::label;
use crate::symbols::Symbols;
use namer::Namer;

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
    /// What the frames are in.
    pub functions: IndexSet<Function>,
    /// Places, as `file:line`.
    pub lines: IndexSet<String>,
    /// Names of traces.
    pub traces: IndexSet<String>,
    /// The frames, each after the one below it.
    pub nodes: IndexSet<Node>,
    /// Samples that fell on each node itself.
    pub own: Vec<u64>,
}

/// A place in the numbering of a module's file.
type Place = (Option<u32>, u64);

/// How far a stack of the profile has come.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    /// The innermost visible node.
    node: Option<u32>,
    /// That node is a C function which begins here, and of which the native
    /// frame has not come yet.
    awaits: Option<Place>,
    /// What follows in this module is LuaJIT's.
    inside: Option<Inside>,
}

/// The module that LuaJIT was entered in.
#[derive(Debug, Clone, Copy)]
struct Inside {
    module: u32,
    /// Only code without a name is LuaJIT's there: what a Lua function calls may
    /// also be a C function, through the FFI.
    nameless: bool,
}

/// A frame of the profile, named.
#[derive(Debug, Clone)]
struct Named {
    /// Functions with their places, outermost first; empty if hidden.
    parts: Vec<(u32, Option<u32>)>,
    trace: Option<u32>,
    side: Side,
}

/// What a frame means to the frames around it.
#[derive(Debug, Clone, Copy)]
enum Side {
    /// It is on the Lua stack.
    Lua {
        /// Of a C function, where it begins.
        start: Option<Place>,
        /// Native code of which module it runs in, unless it is a C function.
        inside: Option<Inside>,
    },
    /// It is native code.
    Native {
        module: Option<u32>,
        /// Where its symbol begins.
        start: Option<Place>,
        /// Its name is not known.
        nameless: bool,
        /// It is hidden because it belongs to LuaJIT.
        internal: bool,
    },
    /// It is on neither stack.
    Mark,
}

impl View {
    /// Names the stacks. With `internals`, the VM's own frames are shown as
    /// well. Samples without a stack become remarks of their own.
    pub fn new(profile: &Profile, symbols: &mut impl Symbols, internals: bool) -> View {
        let mut view = View::default();
        let mut namer = Namer::new(profile, symbols, internals);
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
            let node = view.note(&format!("[no stack: {}]", label::reason(*reason)));
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
        let mut here = below;
        match frame.side {
            Side::Lua { start, inside } => {
                here.awaits = start;
                here.inside = inside;
            }
            Side::Native {
                module,
                start,
                nameless,
                internal,
            } => {
                // What LuaJIT calls within its own module is LuaJIT as well,
                // whatever it is named.
                let inside = below.inside.is_some_and(|inside| {
                    module == Some(inside.module) && (nameless || !inside.nameless)
                });
                if internal || inside {
                    parts = &[];
                    here.inside = module.map(|module| Inside {
                        module,
                        nameless: false,
                    });
                } else {
                    here.inside = None;
                    // Without symbols the first one in its module is it.
                    let awaited = below.awaits.is_some_and(|awaited| {
                        start == Some(awaited) || nameless && module == awaited.0
                    });
                    if awaited {
                        // The native side of the C function that is shown already.
                        parts = parts.get(1..).unwrap_or_default();
                        here.awaits = None;
                    } else if !parts.is_empty() {
                        here.awaits = None;
                    }
                    if nameless && below.node.is_some_and(|node| self.is_at(node, parts)) {
                        // One function or several: without names that is the same.
                        parts = &[];
                    }
                }
            }
            Side::Mark => {}
        }
        for (function, line) in parts {
            here.node = Some(self.intern(Node {
                parent: here.node,
                function: *function,
                line: *line,
                trace: frame.trace,
            }));
        }
        here
    }

    /// Whether a node is in the only function of these.
    fn is_at(&self, node: u32, parts: &[(u32, Option<u32>)]) -> bool {
        matches!(parts, [(function, _)] if *function == self.nodes[node as usize].function)
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

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

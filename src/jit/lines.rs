//! The line table of a trace: from an address in its machine code to calls.
//!
//! Knows: how path, instructions and machine code go together. Must not know:
//! who keeps a table, who asks.
//!
//! Making one allocates. Looking an address up does not, so that the signal
//! handler may.

use super::align::align;
use super::code::{self, Place, Token};
use super::path::{self, Code, Node, Path, Recorded};
use crate::memory;
use crate::vm::ir::{FIRST, Ir, op};
use crate::vm::layout::Layout;
use crate::vm::snapshot::Snapshots;
use crate::vm::trace::Trace;
use std::ops::Range;

/// The calls in the machine code of a trace.
pub struct Lines {
    trace: Trace,
    side_of: Option<Exit>,
    replaces_base: bool,
    code: Range<usize>,
    nodes: Box<[Node]>,
    /// Ascending.
    runs: Box<[Run]>,
}

/// A stretch of machine code that belongs to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Where it starts.
    offset: u32,
    calls: Calls,
}

/// The calls at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Index of the innermost call's node.
    node: u32,
    /// Whether there may be calls above it.
    pub ancestor: bool,
}

/// A place where a trace can be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The trace's number.
    pub trace: u32,
    /// The number of the exit.
    pub number: u32,
}

/// How a trace was recorded.
pub struct Recording<'a> {
    /// The exit that it starts from, if it is a side trace.
    pub side_of: Option<Exit>,
    /// What was recorded, in order.
    pub recorded: &'a [Recorded],
}

impl Lines {
    /// The table of `trace`. Without a recording it has what the snapshots say,
    /// which are ancestors, or no calls at all. None if nothing is known for sure.
    pub fn of(layout: &Layout, trace: Trace, recording: Option<&Recording>) -> Option<Lines> {
        let ir = Ir::of(layout, trace)?;
        let snapshots = Snapshots::of(layout, trace, &ir)?;
        let (code, nodes, runs) = match Lines::calls_in(layout, trace, &ir, &snapshots, recording) {
            Some((nodes, runs)) => (trace.code(layout)?, nodes.into(), runs.into()),
            None => (trace.code(layout)?, [].into(), [].into()),
        };
        Some(Lines {
            trace,
            side_of: recording.and_then(|recording| recording.side_of),
            replaces_base: snapshots.replace_base(trace.start(layout)?.0),
            code,
            nodes,
            runs,
        })
    }

    fn calls_in(
        layout: &Layout,
        trace: Trace,
        ir: &Ir,
        snapshots: &Snapshots,
        recording: Option<&Recording>,
    ) -> Option<(Vec<Node>, Vec<Run>)> {
        let path = match recording {
            Some(recording) => Path::of(
                layout,
                snapshots,
                trace.start(layout)?,
                recording.side_of.is_some(),
                recording.recorded,
            )
            .map(|path| (path, true)),
            None => None,
        };
        let (path, exact) = match path {
            Some(path) => path,
            None => (Path::of_snapshots(layout, snapshots)?, false),
        };
        Builder::new(layout, trace, ir, snapshots, path, exact)?.build()
    }

    /// The exit that it starts from, if it is known to be a side trace.
    pub fn side_of(&self) -> Option<Exit> {
        self.side_of
    }

    /// Whether a tail call in it puts another function into the place of the one at
    /// its base, so that what the stack has there may not be what runs.
    pub fn replaces_base(&self) -> bool {
        self.replaces_base
    }

    /// The trace.
    pub fn trace(&self) -> Trace {
        self.trace
    }

    /// Whether `address` lies in its machine code.
    pub fn covers(&self, address: usize) -> bool {
        self.code.contains(&address)
    }

    /// The calls at an address of its machine code.
    pub fn at(&self, address: usize) -> Option<Calls> {
        let offset = self.covers(address).then(|| address - self.code.start)?;
        let after = self
            .runs
            .partition_point(|run| run.offset as usize <= offset);
        self.runs.get(after.checked_sub(1)?).map(|run| run.calls)
    }

    /// Innermost first, down to the one at the trace's base.
    pub fn calls(&self, calls: Calls) -> impl Iterator<Item = Code> {
        let node = |index: u32| self.nodes.get(index as usize);
        std::iter::successors(node(calls.node), move |last| last.caller.and_then(node))
            .map(|node| node.call)
    }
}

/// All that a table is made from.
struct Builder<'a> {
    layout: &'a Layout,
    ir: &'a Ir,
    snapshots: &'a Snapshots<'a>,
    path: Path,
    exact: bool,
    /// Where the loop starts, and what each instruction of it repeats.
    repeats: Option<(u32, Vec<u32>)>,
    tokens: Vec<Token>,
    code: Range<usize>,
    loop_start: u32,
}

impl<'a> Builder<'a> {
    fn new(
        layout: &'a Layout,
        trace: Trace,
        ir: &'a Ir,
        snapshots: &'a Snapshots<'a>,
        path: Path,
        exact: bool,
    ) -> Option<Builder<'a>> {
        let code = trace.code(layout)?;
        let loop_start = trace.loop_start(layout)?;
        let mut bytes = vec![0; code.len()];
        memory::copy(&mut bytes, code.start).then_some(())?;
        let mut tokens = code::tokens(&bytes, code.start);
        for token in &mut tokens {
            token.exit = token.leaves_for.and_then(exit_number);
            // The trace's own loop is no search of one of its instructions.
            token.back_to = token.back_to.filter(|to| ![0, loop_start].contains(to));
        }
        Some(Builder {
            layout,
            ir,
            snapshots,
            path,
            exact,
            repeats: if exact {
                path::origins(ir, snapshots)
            } else {
                None
            },
            tokens,
            code,
            loop_start,
        })
    }

    fn build(mut self) -> Option<(Vec<Node>, Vec<Run>)> {
        let mut owners: Vec<Owner> = Vec::with_capacity(self.tokens.len());
        for stretch in self.stretches() {
            self.stretch(&stretch, &mut owners)?;
        }
        self.follow_base(&mut owners)?;
        let mut runs: Vec<Run> = Vec::new();
        for (token, owner) in self.tokens.iter().zip(&owners) {
            if runs.last().is_none_or(|last| last.calls != owner.calls) {
                runs.push(Run {
                    offset: token.offset,
                    calls: owner.calls,
                });
            }
        }
        Some((self.path.nodes, runs))
    }

    /// What surely belongs together, of instructions and of machine code: what
    /// lies between two snapshots. Where LuaJIT does not keep where those start,
    /// what lies before the loop and in it.
    fn stretches(&self) -> Vec<Stretch> {
        let size = self.code.len() as u32;
        let starts: Vec<(u32, u32)> = match self.snapshots.offsets(size) {
            Some(offsets) => (offsets.into_iter().enumerate())
                .map(|(index, offset)| (self.snapshots.instruction(index), offset))
                .collect(),
            None => {
                let repeats = self.repeats.as_ref();
                let in_loop = repeats.map(|(start, _)| (*start, self.loop_start));
                std::iter::once((FIRST, 0)).chain(in_loop).collect()
            }
        };
        let token_at = |offset| self.tokens.partition_point(|token| token.offset < offset);
        let stretch = |(index, &(first, offset)): (usize, &(u32, u32))| {
            let (last, end) = match starts.get(index + 1) {
                Some(&next) => next,
                None => (self.ir.end(), size),
            };
            // What is made for no snapshot goes before the first one.
            let first = if index == 0 { FIRST } else { first };
            Stretch {
                instructions: first..last,
                tokens: token_at(offset)..token_at(end),
            }
        };
        starts.iter().enumerate().map(stretch).collect()
    }

    /// Adds to whom the tokens of a stretch belong.
    fn stretch(&self, stretch: &Stretch, owners: &mut Vec<Owner>) -> Option<()> {
        let tokens = &self.tokens[stretch.tokens.clone()];
        if tokens.is_empty() {
            return Some(());
        }
        let with_code = (stretch.instructions.clone())
            .filter_map(|number| Some((number, self.ir.get(number)?)))
            .filter(|(_, ins)| ins.is_code());
        let (numbers, instructions): (Vec<u32>, Vec<_>) = with_code
            .map(|(number, ins)| (number, (ins, self.snapshots.before(number))))
            .unzip();
        if instructions.is_empty() {
            let owner = self.owner(stretch.instructions.start)?;
            owners.extend(tokens.iter().map(|_| owner));
            return Some(());
        }
        match align(&instructions, tokens) {
            Some(made_for) => {
                for index in made_for {
                    owners.push(self.owner(numbers[index])?);
                }
            }
            None => {
                // Too long to be told apart: what all of it has in common.
                let mut common = self.owner(numbers[0])?;
                for &number in &numbers {
                    let node = self.owner(number)?.calls.node;
                    common.calls.node = self.path.common(common.calls.node, node)?;
                }
                common.calls.ancestor = true;
                owners.extend(tokens.iter().map(|_| common));
            }
        }
        Some(())
    }

    /// To whom an instruction belongs.
    fn owner(&self, instruction: u32) -> Option<Owner> {
        let before_loop = match &self.repeats {
            Some((start, origins)) if instruction >= *start => {
                let index = (instruction - start) as usize;
                *origins.get(index).or(origins.last())?
            }
            _ => instruction,
        };
        self.at_step(self.path.step_at(before_loop))
    }

    fn at_step(&self, step: usize) -> Option<Owner> {
        Some(Owner {
            step,
            calls: Calls {
                node: self.path.node_of(step)?,
                ancestor: !self.exact,
            },
        })
    }

    /// Makes the calls those above the base that the VM has at each token: it is
    /// moved by returns to frames below, and at the end of a trace that goes on
    /// in a frame above.
    fn follow_base(&mut self, owners: &mut [Owner]) -> Option<()> {
        let mut returns = (FIRST..self.ir.end())
            .filter(|&n| self.ir.get(n).is_some_and(|ins| ins.op == op::RETF))
            .map(|number| self.path.step_at(number))
            .collect::<Vec<_>>()
            .into_iter();
        // Where calls are entered and left must be known to the instruction, and
        // where the base is moved. LuaJITs before 2021 do not keep it.
        let precise = self.exact && self.snapshots.has_offsets();
        let calls = self.path.nodes.iter().any(|node| node.caller.is_some());
        if !precise && (returns.len() > 0 || self.exact && calls) {
            return None;
        }
        let mut from = 0;
        for index in 0..self.tokens.len() {
            if !self.moves_base(&self.tokens[index]) {
                continue;
            }
            let Some(step) = returns.next() else {
                // The end: only the innermost call is above the new base.
                let last = self.snapshots.count().checked_sub(1)?;
                let innermost = *self.snapshots.calls(last)?.first()?;
                let node = self.path.add(Code::Base(innermost.pc), None);
                for owner in &mut owners[index + 1..] {
                    owner.calls.node = node;
                }
                break;
            };
            let (before, after) = (self.at_step(step)?, self.at_step(step + 1)?);
            for owner in &mut owners[from..=index] {
                if owner.step > step {
                    *owner = before;
                }
            }
            for owner in &mut owners[index + 1..] {
                if owner.step <= step {
                    *owner = after;
                }
            }
            from = index + 1;
        }
        (returns.len() == 0).then_some(())
    }

    /// Whether a token sets the VM's field of the base of the running trace.
    fn moves_base(&self, token: &Token) -> bool {
        let field = self.layout.jit_base as u64;
        match token.place {
            Some(Place::Absolute(address)) => address == field,
            Some(Place::FromR14(distance)) => {
                (self.layout.dispatch as u64).wrapping_add_signed(distance) == field
            }
            None => false,
        }
    }
}

/// The number of the exit whose stub is at `address`: it pushes the lower byte
/// of the number and jumps to where the higher one of all stubs of a group is
/// pushed (`asm_exitstub_gen` in `lj_asm_x86.h`).
fn exit_number(address: usize) -> Option<u32> {
    const PUSH_BYTE: u8 = 0x6a;
    const JUMP_SHORT: u8 = 0xeb;
    let byte = |at: usize| memory::read::<u8>(at);
    let push = |at: usize| {
        (byte(at)? == PUSH_BYTE)
            .then(|| byte(at + 1))
            .flatten()
            .map(u32::from)
    };
    let low = push(address)?;
    let high_at = match byte(address + 2)? {
        JUMP_SHORT => {
            let distance = byte(address + 3)?.cast_signed();
            (address + 4).checked_add_signed(distance.into())?
        }
        // The last stub of a group needs no jump.
        _ => address + 2,
    };
    Some(push(high_at)? << 8 | low)
}

/// To whom a token belongs.
#[derive(Clone, Copy)]
struct Owner {
    /// The step of the path.
    step: usize,
    calls: Calls,
}

/// What lies between two snapshots.
struct Stretch {
    instructions: Range<u32>,
    /// Indices of tokens.
    tokens: Range<usize>,
}

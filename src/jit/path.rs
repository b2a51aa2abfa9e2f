//! The calls along which a trace was recorded.
//!
//! Knows: which bytecode was recorded when the intermediate representation had
//! come to which instruction, and that a loop is its first round once more. Must
//! not know: machine code.
//!
//! A call is a node that knows its caller, so that positions share what is
//! below them.

use crate::vm::ir::{FIRST, Ins, Ir, op};
use crate::vm::layout::Layout;
use crate::vm::objects::{Function, Identity, Kind, Proto};
use crate::vm::snapshot::{Call, Inlined, Snapshots};
use std::collections::HashMap;

/// LuaJIT is about to record a bytecode, or a built-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The next instruction of the intermediate representation.
    pub instruction: u32,
    /// How many frames lie between its own and that of the trace's base.
    pub depth: i32,
    /// The function.
    pub function: Function,
    /// Index of the bytecode, none in functions that are not Lua's.
    pub position: Option<u32>,
}

/// A call that runs as part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The function at the trace's base, whose closure is on the stack, with
    /// its next instruction.
    Base(usize),
    /// A Lua function, with its next instruction.
    Lua(Proto, Identity, usize),
    /// A C function or built-in: its machine code, and its number.
    Function(usize, u8),
}

/// A call and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// What was called.
    pub call: Code,
    /// Index of the node that called it, none for the one at the trace's base.
    pub caller: Option<u32>,
}

/// The calls of a trace, and which of them each instruction belongs to.
#[derive(Default)]
pub struct Path {
    /// Callers come before what they call.
    pub nodes: Vec<Node>,
    known: HashMap<Node, u32>,
    /// From which instruction on the innermost call is which node, ascending.
    steps: Vec<(u32, u32)>,
}

impl Path {
    /// The path of a trace whose recording began in `start` and went through
    /// `recorded`. None if they do not fit together.
    pub fn of(
        layout: &Layout,
        snapshots: &Snapshots,
        start: (Proto, usize),
        is_side: bool,
        recorded: &[Recorded],
    ) -> Option<Path> {
        let mut path = Path::default();
        // Frames that there are now: their depth, and the node of their call.
        let mut frames: Vec<(i32, u32)> = Vec::new();
        if is_side {
            for call in snapshots.calls(0)?.iter().rev() {
                let caller = frames.last().map(|frame| frame.1);
                let node = path.add(of_snapshot(layout, call)?, caller);
                frames.push((call.depth, node));
            }
        } else {
            let (proto, pc) = start;
            let call = Code::Lua(proto, proto.identity(layout)?, pc);
            let node = path.add(call, None);
            frames.push((0, node));
        }
        path.steps.push((FIRST, frames.last()?.1));
        for event in recorded {
            while frames.last().is_some_and(|frame| frame.0 >= event.depth) {
                frames.pop();
            }
            if frames.is_empty() != (event.depth == 0) {
                return None;
            }
            let call = of_event(layout, event)?;
            let caller = frames.last().map(|frame| frame.1);
            // A vararg function has two frames: the lower one is at its header.
            let caller = match caller {
                Some(lower) if path.is_lower_frame(layout, lower, call) => {
                    path.nodes[lower as usize].caller
                }
                caller => caller,
            };
            let node = path.add(call, caller);
            frames.push((event.depth, node));
            path.steps.push((event.instruction, node));
        }
        path.steps.is_sorted_by_key(|step| step.0).then_some(path)
    }

    /// The calls of each snapshot of a trace whose recording was not seen: from
    /// each one on, the calls that are there until the next one.
    pub fn of_snapshots(layout: &Layout, snapshots: &Snapshots) -> Option<Path> {
        let mut path = Path::default();
        let all = (0..snapshots.count()).map(|index| snapshots.calls(index));
        let all = all.collect::<Option<Vec<_>>>()?;
        for (index, calls) in all.iter().enumerate() {
            let next = all.get(index + 1).unwrap_or(calls);
            let kept = common(calls, next).max(1);
            let mut caller = None;
            for call in calls[calls.len() - kept..].iter().rev() {
                caller = Some(path.add(of_snapshot(layout, call)?, caller));
            }
            path.steps.push((snapshots.instruction(index), caller?));
        }
        path.steps.is_sorted_by_key(|step| step.0).then_some(path)
    }

    /// The node of this call.
    pub fn add(&mut self, call: Code, caller: Option<u32>) -> u32 {
        let node = Node { call, caller };
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        })
    }

    /// Whether the call of `node` is that of `call` before its arguments were
    /// moved up.
    fn is_lower_frame(&self, layout: &Layout, node: u32, call: Code) -> bool {
        match (self.nodes[node as usize].call, call) {
            (Code::Lua(lower, _, pc), Code::Lua(upper, ..)) => {
                lower == upper && pc == lower.bytecode(layout) + 4
            }
            _ => false,
        }
    }

    /// The index of the step that an instruction before the loop belongs to.
    pub fn step_at(&self, instruction: u32) -> usize {
        let after = self.steps.partition_point(|step| step.0 <= instruction);
        after.saturating_sub(1)
    }

    /// The node of a step.
    pub fn node_of(&self, step: usize) -> Option<u32> {
        self.steps.get(step).map(|step| step.1)
    }

    /// The innermost call that the nodes `a` and `b` have in common.
    pub fn common(&self, mut a: u32, mut b: u32) -> Option<u32> {
        // Callers have lower numbers.
        while a != b {
            if a < b {
                b = self.nodes[b as usize].caller?;
            } else {
                a = self.nodes[a as usize].caller?;
            }
        }
        Some(a)
    }
}

fn of_event(layout: &Layout, event: &Recorded) -> Option<Code> {
    match (event.function.kind(layout)?, event.position) {
        (Kind::Lua(proto), Some(position)) => {
            let pc = proto.bytecode(layout) + 4 * position as usize + 4;
            proto.holds(layout, pc)?.then_some(())?;
            Some(Code::Lua(proto, proto.identity(layout)?, pc))
        }
        (kind, None) => Some(Code::Function(event.function.code(layout)?, kind.number()?)),
        _ => None,
    }
}

fn of_snapshot(layout: &Layout, call: &Call) -> Option<Code> {
    Some(match call.callee {
        Inlined::Base => Code::Base(call.pc),
        Inlined::Lua(proto) => Code::Lua(proto, proto.identity(layout)?, call.pc),
        Inlined::Other(function) => {
            Code::Function(function.code(layout)?, function.kind(layout)?.number()?)
        }
    })
}

/// How many of the outermost calls of two stacks are the same.
fn common(now: &[Call], next: &[Call]) -> usize {
    let mut common = 0;
    let mut made_by = None;
    for (a, b) in now.iter().rev().zip(next.iter().rev()) {
        // Made by the same call, to the same function.
        if made_by.is_some_and(|(a, b): (usize, usize)| a != b) || a.callee != b.callee {
            break;
        }
        made_by = Some((a.pc, b.pc));
        common += 1;
    }
    common
}

/// For each instruction from the loop on (`LOOP` itself first) the one before
/// the loop that it repeats.
///
/// LuaJIT makes a loop by emitting all instructions before it once more, with
/// operands of the round before (`lj_opt_loop.c`). What does not change from
/// round to round is left out, and some become other instructions.
pub fn origins(ir: &Ir, snapshots: &Snapshots) -> Option<(u32, Vec<u32>)> {
    let start = (FIRST..ir.end()).find(|&n| ir.get(n).is_some_and(|ins| ins.op == op::LOOP))?;
    let end = (start + 1..ir.end())
        .find(|&n| {
            ir.get(n)
                .is_none_or(|ins| [op::PHI, op::RENAME].contains(&ins.op))
        })
        .unwrap_or(ir.end());
    // What each instruction before the loop is in it; 0 if that is not known.
    let mut copies: Vec<u32> = vec![0; (start - FIRST) as usize];
    copies[0] = FIRST;
    let mut origins = vec![start - 1];
    let bounds = Bounds::of(snapshots, start);
    let at_end = snapshots.before(start) as usize;
    let mut next = FIRST + 1;
    for number in start + 1..end {
        let ins = ir.get(number)?;
        let last = bounds.last_origin(number);
        let mut found = None;
        for candidate in next..last {
            let origin = ir.get(candidate)?;
            let unchanged = changes_not(ir, &copies, origin);
            // What is no load, store or call is then left out of the loop for sure.
            if !(unchanged && origin.is_pure()) && repeats(&copies, origin, ins) {
                found = Some(candidate);
                break;
            }
            copies[(candidate - FIRST) as usize] = if unchanged {
                candidate
            } else if ir.is_stack_load(origin) {
                // What the round before has left there.
                let [slot, _] = origin.operands;
                (snapshots.slot(at_end, slot)).unwrap_or(candidate)
            } else {
                0
            };
        }
        let Some(found) = found else {
            // It has become something else, or was added.
            copies[(next - FIRST) as usize..(last.max(next) - FIRST) as usize].fill(0);
            origins.push(*origins.last()?);
            continue;
        };
        copies[(found - FIRST) as usize] = number;
        origins.push(found);
        next = found + 1;
    }
    // The first one belongs to where the second one does.
    if let Some(&second) = origins.get(1) {
        origins[0] = second;
    }
    Some((start, origins))
}

/// Whether an instruction before the loop is the same one in each round: it depends
/// on nothing that changes. Of a load from the stack, which depends on nothing at
/// all, that is not known.
fn changes_not(ir: &Ir, copies: &[u32], origin: Ins) -> bool {
    let same = |operand: u16| copy_of(copies, operand) == Some(operand.into());
    origin.operands.iter().any(|&operand| ir.refers(operand))
        && origin.operands.iter().all(|&operand| same(operand))
}

/// What an operand is in the loop: itself if it is a constant, none if unknown.
fn copy_of(copies: &[u32], operand: u16) -> Option<u32> {
    let number = u32::from(operand);
    let Some(index) = number.checked_sub(FIRST) else {
        return Some(number);
    };
    copies
        .get(index as usize)
        .copied()
        .filter(|&copy| copy != 0)
}

/// Whether `ins` may be what has become of `origin` in the loop.
fn repeats(copies: &[u32], origin: Ins, ins: Ins) -> bool {
    let fits = |operand: u16, copy: u16| {
        copy_of(copies, operand).is_none_or(|expected| expected == u32::from(copy))
    };
    let [a, b] = origin.operands;
    let [x, y] = ins.operands;
    origin.op == ins.op
        && origin.kind == ins.kind
        && ((fits(a, x) && fits(b, y)) || (fits(a, y) && fits(b, x)))
}

/// How far the snapshots in the loop are those before it: an instruction in the
/// loop repeats none that comes after the place of the snapshot that follows it.
struct Bounds {
    /// From which instruction in the loop on which one before it is too far.
    until: Vec<(u32, u32)>,
}

impl Bounds {
    fn of(snapshots: &Snapshots, start: u32) -> Bounds {
        let of_loop = |index: &usize| snapshots.instruction(*index) > start;
        let (inside, before): (Vec<_>, Vec<_>) = (0..snapshots.count()).partition(of_loop);
        let mut until = Vec::new();
        let mut next = 1;
        for index in inside {
            let same = |&&original: &&usize| {
                original >= next && snapshots.position(original) == snapshots.position(index)
            };
            if let Some(&original) = before.iter().find(same) {
                next = original + 1;
                until.push((
                    snapshots.instruction(index),
                    snapshots.instruction(original),
                ));
            }
        }
        until.push((u32::MAX, start));
        Bounds { until }
    }

    /// One past the last instruction that the one in the loop may repeat.
    fn last_origin(&self, number: u32) -> u32 {
        let after = self.until.partition_point(|bound| bound.0 <= number);
        self.until[after].1
    }
}

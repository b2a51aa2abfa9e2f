//! Snapshots: the stack that the interpreter would have where a trace is left.
//!
//! Knows: snapshots and their maps (`SnapShot`, `SnapEntry` in `lj_jit.h`,
//! `lj_snap.c`). Must not know: which trace runs, frames below it, who asks.
//!
//! Compiled code keeps no frames for the calls that were inlined into it. For
//! each place where it may be left there is a snapshot: the position at which
//! the interpreter goes on, and where each frame's function and link are to come
//! from. Both are constants of the trace, as it was recorded along one path.
//!
//! Copies what it decodes, so it is not for the signal handler.

use super::frames::Link;
use super::ir::{FIRST, Ir, op};
use super::layout::{Family, Layout};
use super::objects::{Function, Kind, Proto, SLOT};
use super::trace::Trace;
use crate::memory::{self, read};

/// What was called in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inlined {
    /// The function at the trace's base, whose closure is on the stack.
    Base,
    /// A Lua function. The trace may be made for its prototype only.
    Lua(Proto),
    /// A C function or built-in.
    Other(Function),
}

/// A call that runs in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub callee: Inlined,
    /// For Lua functions the next instruction; 0 for others.
    pub pc: usize,
    /// How many frames lie between it and that of the base, itself counted.
    pub depth: i32,
}

/// The snapshots of a trace.
pub struct Snapshots<'a> {
    layout: &'a Layout,
    ir: &'a Ir,
    snapshots: Vec<Snapshot>,
    map: Vec<u32>,
    has_offsets: bool,
}

#[derive(Clone, Copy)]
struct Snapshot {
    /// Index of its first entry in the map.
    first: usize,
    entries: usize,
    /// The first instruction after it.
    instruction: u32,
    /// Where its machine code starts.
    offset: u32,
}

impl<'a> Snapshots<'a> {
    /// Copies those of `trace`, whose instructions are `ir`.
    pub fn of(layout: &'a Layout, trace: Trace, ir: &'a Ir) -> Option<Snapshots<'a>> {
        const SNAPSHOT: usize = 12;
        let field = |offset| trace.address() + offset;
        let count = usize::from(read::<u16>(field(layout.at.trace_nsnap))?);
        let words = read::<u32>(field(layout.at.trace_nsnapmap))? as usize;
        let at = read::<u64>(field(layout.at.trace_snap))? as usize;
        let map_at = read::<u64>(field(layout.at.trace_snapmap))? as usize;
        const MOST: usize = 1 << 20;
        if words > MOST {
            return None;
        }
        let mut bytes = vec![0; 4 * words];
        memory::copy(&mut bytes, map_at).then_some(())?;
        let map = bytes.as_chunks().0.iter().map(|&w| u32::from_le_bytes(w));
        // Since March 2021 it is kept where in the machine code each one starts,
        // the first one at 0. Before, two other fields were there, never 0.
        let has_offsets = read::<u16>(at + 6)? == 0;
        let entries = if has_offsets { 10 } else { 8 };
        let snapshots = (0..count).map(|index| {
            let at = at + index * SNAPSHOT;
            Some(Snapshot {
                first: read::<u32>(at)? as usize,
                instruction: read::<u16>(at + 4)?.into(),
                offset: read::<u16>(at + 6)?.into(),
                entries: read::<u8>(at + entries)?.into(),
            })
        });
        Some(Snapshots {
            layout,
            ir,
            snapshots: snapshots.collect::<Option<_>>()?,
            map: map.collect(),
            has_offsets,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.snapshots.len()
    }

    /// The number of the first instruction after a snapshot.
    pub fn instruction(&self, index: usize) -> u32 {
        self.snapshots[index].instruction
    }

    /// The last snapshot at or before an instruction, whose exit it leaves by.
    pub fn before(&self, instruction: u32) -> u32 {
        let after = (self.snapshots).partition_point(|s| s.instruction <= instruction);
        after.saturating_sub(1) as u32
    }

    /// Whether this LuaJIT keeps where in the machine code they start.
    pub fn has_offsets(&self) -> bool {
        self.has_offsets
    }

    /// Where in the machine code of `size` bytes each snapshot starts, if this
    /// LuaJIT keeps that: those before March 2021 do not.
    pub fn offsets(&self, size: u32) -> Option<Vec<u32>> {
        // Offsets have 16 bits.
        let offsets = || self.snapshots.iter().map(|snapshot| snapshot.offset);
        (self.has_offsets && size <= 0x1_0000 && offsets().is_sorted()).then(|| offsets().collect())
    }

    /// What is the same in two snapshots of the same place: the words that say
    /// where the innermost call goes on.
    pub fn position(&self, index: usize) -> Option<u64> {
        let snapshot = self.snapshots[index];
        let after = snapshot.first + snapshot.entries;
        let low = u64::from(*self.map.get(after)?);
        match self.layout.family {
            Family::Gc64 => Some(low | u64::from(*self.map.get(after + 1)?) << 32),
            Family::Gc32 => Some(low),
        }
    }

    /// The instruction or constant that a snapshot has in a slot of the stack; none
    /// if the trace has not changed the slot.
    pub fn slot(&self, index: usize, slot: u16) -> Option<u32> {
        let mut entries = self.entries(index)?.iter();
        let entry = entries.find(|&&entry| slot_of(entry) == usize::from(slot));
        entry.map(|entry| entry & REF_MASK)
    }

    /// A snapshot's part of the map.
    fn entries(&self, index: usize) -> Option<&[u32]> {
        let snapshot = self.snapshots[index];
        (self.map).get(snapshot.first..snapshot.first + snapshot.entries)
    }

    /// All calls that a snapshot has, innermost first, down to the one at the
    /// trace's base.
    pub fn calls(&self, index: usize) -> Option<Vec<Call>> {
        let snapshot = self.snapshots[index];
        let map = Map {
            snapshots: self,
            entries: self.entries(index)?,
            after: self.map.get(snapshot.first + snapshot.entries..)?,
        };
        let mut calls = Vec::new();
        let (mut slot, mut pc, mut links) = map.innermost(self.position(index)?);
        let mut depth = map.depth(slot);
        // Each round goes down at least one slot.
        while slot != 0 {
            let link = map.link(slot, &mut links)?;
            // The second frame of a vararg function is no call of its own.
            let vararg = matches!(link, Link::Vararg(_));
            if !vararg {
                calls.push(self.call(map.callee(slot, pc)?, pc, depth)?);
            }
            let distance = match link {
                Link::Lua { pc: next } => {
                    pc = next;
                    usize::from(read::<u8>(next.checked_sub(3)?)?) + self.layout.at.frame_slots
                }
                Link::Vararg(delta) => delta / SLOT,
                Link::Pcall(delta) => {
                    pc = 0;
                    delta / SLOT
                }
                Link::Continuation(delta) => {
                    pc = map.continuation(slot, &mut links)?;
                    delta / SLOT
                }
                Link::C(_) | Link::ProtectedC(_) => return None,
            };
            slot = slot.checked_sub(distance).filter(|_| distance != 0)?;
            if !vararg {
                depth = map.depth(slot);
            }
        }
        calls.push(self.call(map.callee(0, pc)?, pc, depth)?);
        Some(calls)
    }

    /// Whether they have different functions at the base of the trace, which begins in
    /// `start`: a tail call.
    pub fn replace_base(&self, start: Proto) -> bool {
        // A return to a frame below moves the base; that is no tail call.
        let moved = (FIRST..self.ir.end())
            .find(|&n| self.ir.get(n).is_some_and(|ins| ins.op == op::RETF))
            .unwrap_or(u32::MAX);
        let mut kept = (0..self.count())
            .filter(|&index| self.instruction(index) <= moved)
            .filter_map(|index| self.calls(index))
            .peekable();
        // A side trace may begin further up.
        let mut base = (kept.peek().is_some_and(|calls| calls.len() == 1)).then_some(start);
        kept.filter_map(|calls| calls.last().copied())
            .any(|outermost| match outermost.callee {
                // What the stack has, whichever function that is.
                Inlined::Base => false,
                Inlined::Lua(proto) => *base.get_or_insert(proto) != proto,
                Inlined::Other(_) => true,
            })
    }

    /// A call at `pc`, if that lies in what was called.
    fn call(&self, callee: Inlined, pc: usize, depth: i32) -> Option<Call> {
        let pc = match callee {
            Inlined::Lua(proto) => proto.holds(self.layout, pc)?.then_some(pc)?,
            Inlined::Base => pc,
            Inlined::Other(_) => 0,
        };
        Some(Call { callee, pc, depth })
    }
}

/// The map of one snapshot: the slots that the trace has changed, ascending.
struct Map<'m> {
    snapshots: &'m Snapshots<'m>,
    entries: &'m [u32],
    /// What follows them.
    after: &'m [u32],
}

/// What an entry says: a slot, the instruction or constant in it, and flags.
const REF_MASK: u32 = 0xffff;
const FRAME: u32 = 0x01_0000;
const CONTINUATION: u32 = 0x02_0000;
const NO_RESTORE: u32 = 0x04_0000;

fn slot_of(entry: u32) -> usize {
    (entry >> 24) as usize
}

impl Map<'_> {
    fn entry(&self, slot: usize) -> Option<u32> {
        let index = self.entries.binary_search_by_key(&slot, |&e| slot_of(e));
        index.ok().map(|index| self.entries[index])
    }

    /// Slot of the innermost frame's function, the walker's position in it, and
    /// the index of the first link among the words that follow.
    fn innermost(&self, position: u64) -> (usize, usize, usize) {
        match self.snapshots.layout.family {
            // The position, and in its lowest byte the distance of bases.
            Family::Gc64 => ((position & 0xff) as usize, (position >> 8) as usize + 4, 0),
            Family::Gc32 => {
                let frame = self.entries.iter().rev().find(|&&e| e & FRAME != 0);
                (frame.map_or(0, |&e| slot_of(e)), position as usize + 4, 1)
            }
        }
    }

    /// How many frames there are above the base's, up to that of the function
    /// in `slot` (`lj_snap_replay`).
    fn depth(&self, slot: usize) -> i32 {
        let extra = self.snapshots.layout.at.frame_slots - 1;
        let frames = self.entries.iter().filter(|&&entry| {
            entry & (FRAME | CONTINUATION) != 0
                && (extra + 1..=slot + extra).contains(&slot_of(entry))
        });
        frames.count() as i32
    }

    /// The link of the frame whose function is in `slot`, which is not that of
    /// the base. With 32-bit references the links follow the position, that of
    /// the innermost frame first; `next` is the next one's index.
    fn link(&self, slot: usize, next: &mut usize) -> Option<Link> {
        match self.snapshots.layout.family {
            Family::Gc64 => Link::decode(self.word(slot + 1, FRAME)?),
            Family::Gc32 => Link::decode(self.following(next)?),
        }
    }

    /// The position at which the frame goes on that has a continuation below
    /// `slot`.
    fn continuation(&self, slot: usize, next: &mut usize) -> Option<usize> {
        match self.snapshots.layout.family {
            Family::Gc64 => self.word(slot.checked_sub(1)?, CONTINUATION),
            Family::Gc32 => self.following(next),
        }
    }

    fn following(&self, next: &mut usize) -> Option<usize> {
        let word = *self.after.get(*next)?;
        *next += 1;
        Some(word as usize)
    }

    /// The 64-bit constant in a slot that is flagged as part of a frame.
    fn word(&self, slot: usize, flag: u32) -> Option<usize> {
        let entry = self.entry(slot).filter(|entry| entry & flag != 0)?;
        let word = self.snapshots.ir.constant(entry & REF_MASK)?;
        Some(word as usize)
    }

    /// The function in `slot`, whose next instruction is `pc`.
    fn callee(&self, slot: usize, pc: usize) -> Option<Inlined> {
        let Snapshots { layout, ir, .. } = self.snapshots;
        let entry = self.entry(slot).filter(|entry| entry & NO_RESTORE == 0);
        let Some(number) = entry.map(|entry| entry & REF_MASK) else {
            return (slot == 0).then_some(Inlined::Base);
        };
        if number < FIRST {
            let function = ir.function(layout, number)?;
            return Some(match function.kind(layout)? {
                Kind::Lua(proto) => Inlined::Lua(proto),
                _ => Inlined::Other(function),
            });
        }
        // Any closure of one prototype, which the position tells.
        match ir.proto_of(layout, pc) {
            Some(proto) => Some(Inlined::Lua(proto)),
            None => (slot == 0).then_some(Inlined::Base),
        }
    }
}

//! What a program calls its functions.
//!
//! Knows: how the bytecode before a call gets at the function that it calls
//! (`lj_debug.c`), and the names of locals and upvalues that a prototype keeps.
//! Must not know: what becomes of a name.
//!
//! Looking a name up is bounded and allocates nothing.

use super::layout::Layout;
use super::objects::{Proto, Text};
use crate::memory::{self, read};
use ljp::NameKind;

/// Longest name that is kept, in bytes.
pub const MAX_NAME: usize = 64;
/// Longest name of a chunk that is kept, in bytes.
pub const MAX_CHUNK: usize = 255;

/// How far back the instruction that fetched a function is looked for.
const MAX_BACK: usize = 256;

/// The name by which the call before `pc` in `caller` got at its function,
/// written to the front of `to`; its kind and length.
pub fn of_call(
    layout: &Layout,
    caller: Proto,
    pc: usize,
    to: &mut [u8; MAX_NAME],
) -> Option<(NameKind, usize)> {
    if !caller.holds(layout, pc)? {
        return None;
    }
    let first = caller.bytecode(layout);
    let call = pc - 4;
    let mut slot = read::<u8>(call + 1)?;
    let mut at = call;
    for _ in 0..MAX_BACK {
        let index = (at - first) / 4;
        if let Some(len) = local_name(layout, caller, index, slot, to) {
            return Some((NameKind::Local, len));
        }
        // The instruction that wrote the slot last.
        let before = (first + 4..at).rev().step_by(4).take(MAX_BACK);
        let mut writer = None;
        for address in before.map(|last_byte| last_byte & !3) {
            if read::<u8>(address + 1)? == slot {
                writer = Some(address);
                break;
            }
        }
        let writer = writer?;
        let opcode = read::<u8>(writer)?;
        let (c, b) = (read::<u8>(writer + 2)?, read::<u8>(writer + 3)?);
        let d = u16::from_le_bytes([c, b]);
        if opcode == layout.opcodes.mov {
            slot = u8::try_from(d).ok()?;
            at = writer;
            continue;
        }
        return if opcode == layout.opcodes.gget {
            constant(layout, caller, d, to).map(|len| (NameKind::Global, len))
        } else if opcode == layout.opcodes.tgets {
            let kind = if passes_self(layout, writer, slot, b)? {
                NameKind::Method
            } else {
                NameKind::Field
            };
            constant(layout, caller, u16::from(c), to).map(|len| (kind, len))
        } else if opcode == layout.opcodes.uget {
            upvalue_name(layout, caller, d, to).map(|len| (NameKind::Upvalue, len))
        } else {
            None
        };
    }
    None
}

/// Whether the instruction before that at `tgets` puts the indexed object in the
/// place of the first argument, as `object:method()` does.
fn passes_self(layout: &Layout, tgets: usize, slot: u8, object: u8) -> Option<bool> {
    let argument = usize::from(slot) + layout.at.frame_slots;
    Some(
        read::<u8>(tgets - 4)? == layout.opcodes.mov
            && usize::from(read::<u8>(tgets - 3)?) == argument
            && read::<u16>(tgets - 2)? == u16::from(object),
    )
}

/// A string among the constants; they lie below the split, counted downwards.
fn constant(layout: &Layout, proto: Proto, index: u16, to: &mut [u8]) -> Option<usize> {
    let below = (usize::from(index) + 1) * layout.reference_size();
    let string = layout.reference(proto.constants(layout)?.checked_sub(below)?)?;
    Some(Text::at(layout, string)?.copy_to(to)?.len())
}

/// Names of upvalues: one C string after the other.
fn upvalue_name(layout: &Layout, proto: Proto, index: u16, to: &mut [u8]) -> Option<usize> {
    let mut at = layout.reference(proto.address() + layout.at.proto_uvinfo)?;
    if at == 0 || index >= u16::from(read::<u8>(proto.address() + layout.at.proto_sizeuv)?) {
        return None;
    }
    for _ in 0..index {
        at = after_string(at)?;
    }
    string(at, to)
}

/// The local variable that lives in `slot` at instruction `index`, if it has a
/// name of the program's own. Each variable is a name, the distance of its first
/// instruction from that of the variable before, and how long it lives.
fn local_name(
    layout: &Layout,
    proto: Proto,
    index: usize,
    slot: u8,
    to: &mut [u8],
) -> Option<usize> {
    /// Bytes below this stand for names that no program can write.
    const INTERNAL_NAMES: u8 = 7;
    const MAX_VARIABLES: usize = 1024;
    let mut at = layout.reference(proto.address() + layout.at.proto_varinfo)?;
    if at == 0 {
        return None;
    }
    let mut start = 0;
    let mut left = usize::from(slot);
    for _ in 0..MAX_VARIABLES {
        let name = at;
        let first = read::<u8>(name)?;
        if first == 0 {
            return None;
        }
        let internal = first < INTERNAL_NAMES;
        at = if internal {
            name + 1
        } else {
            after_string(name)?
        };
        let (step, next) = uleb(at)?;
        let (length, next) = uleb(next)?;
        at = next;
        start += step;
        if start > index {
            return None;
        }
        if index < start + length {
            if left == 0 {
                return if internal { None } else { string(name, to) };
            }
            left -= 1;
        }
    }
    None
}

fn string(at: usize, to: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    while len < to.len() {
        match read::<u8>(at + len)? {
            0 => break,
            byte => to[len] = byte,
        }
        len += 1;
    }
    Some(len)
}

fn after_string(mut at: usize) -> Option<usize> {
    const MAX_LEN: usize = 4096;
    for _ in 0..MAX_LEN {
        at += 1;
        if read::<u8>(at - 1)? == 0 {
            return Some(at);
        }
    }
    None
}

fn uleb(mut at: usize) -> Option<(usize, usize)> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let byte = read::<u8>(at)?;
        at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
    }
    None
}

/// The name of the chunk of `proto`, as much of it as `to` takes.
pub fn chunk<'a>(layout: &Layout, proto: Proto, to: &'a mut [u8]) -> &'a [u8] {
    let len = proto
        .chunkname(layout)
        .map_or(0, |text| text.len.min(to.len()));
    match proto.chunkname(layout) {
        Some(text) if memory::copy(&mut to[..len], text.address) => &to[..len],
        _ => &[],
    }
}

//! From a bytecode position to a source line.
//!
//! Knows: `lineinfo` of a prototype (`lj_debug.c`). Must not know: who asks.

use super::layout::Layout;
use super::objects::Proto;
use crate::memory::read;

/// The line of the instruction before `pc`, which is the one that runs when
/// `pc` is the next one. 0 where the prototype was stripped of its lines, or
/// `pc` does not lie in it.
pub fn line_before(layout: &Layout, proto: Proto, pc: usize) -> u32 {
    line(layout, proto, pc).unwrap_or(0)
}

fn line(layout: &Layout, proto: Proto, pc: usize) -> Option<u32> {
    let info = layout.reference(proto.address() + layout.at.proto_lineinfo)?;
    if info == 0 || !proto.holds(layout, pc)? {
        return None;
    }
    let first = proto.first_line(layout)?;
    // The header instruction has no entry: it is on the first line.
    let Some(entry) = ((pc - proto.bytecode(layout)) / 4).checked_sub(2) else {
        return Some(first);
    };
    let step = match proto.line_count(layout)? {
        0..256 => u32::from(read::<u8>(info + entry)?),
        256..65536 => u32::from(read::<u16>(info + 2 * entry)?),
        _ => read::<u32>(info + 4 * entry)?,
    };
    first.checked_add(step)
}

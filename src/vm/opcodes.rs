//! The few opcodes whose numbers matter.
//!
//! Knows: what LuaJIT's compiler makes of a few lines of source, whatever the
//! numbers are. Must not know: what the opcodes are needed for.
//!
//! Their numbers are learned from functions of known source, once, at `start`.

use super::layout::{Layout, Opcodes};
use super::objects::Proto;
use crate::memory::read;
use std::ffi::CStr;

/// Sources that return a function; the opcodes are those of its instructions.
pub const LESSONS: [&CStr; 6] = [
    c"return function(f) f() end",
    c"local f = ... return function() f() end",
    c"return function() f() end",
    c"return function(t) t.f() end",
    c"return function() while true do end end",
    c"return function(f) do local v f = function() return v end end f() end",
];

/// The opcodes that the functions of [`LESSONS`] have, in their order. What
/// the lessons have in common must be so.
pub fn learned(layout: &Layout, lessons: [Proto; LESSONS.len()]) -> Option<Opcodes> {
    let opcode = |lesson: usize, index: usize| {
        let (proto, at) = (lessons[lesson], 4 * index);
        let within = index < proto.sizebc(layout)? as usize;
        read::<u8>(proto.bytecode(layout) + at).filter(|_| within)
    };
    // Header, what is to be learned, call, return.
    let (call, ret) = (opcode(0, 2)?, opcode(0, 3)?);
    for lesson in 1..4 {
        if [opcode(lesson, 2)?, opcode(lesson, 3)?] != [call, ret] {
            return None;
        }
    }
    let mov = opcode(0, 1)?;
    // Header, v = nil, f = closure, close, move, call, return.
    if [opcode(5, 4)?, opcode(5, 5)?, opcode(5, 6)?] != [mov, call, ret] {
        return None;
    }
    Some(Opcodes {
        mov,
        uget: opcode(1, 1)?,
        gget: opcode(2, 1)?,
        tgets: opcode(3, 1)?,
        // Header, loop, jump, return.
        jmp: opcode(4, 2)?,
        uclo: opcode(5, 3)?,
    })
}

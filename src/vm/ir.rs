//! The intermediate representation of a finished trace.
//!
//! Knows: what an instruction of it is made of (`IRIns` in `lj_ir.h`), and the
//! few operations whose numbers have been the same since LuaJIT 2.0. Must not
//! know: what the instructions are looked at for.
//!
//! Copies a trace's instructions, so it is not for the signal handler.

use super::layout::{Family, Layout, gct};
use super::objects::{Function, Kind, Proto};
use super::trace::Trace;
use crate::memory::{self, read};

/// Instructions have numbers from here on; constants those below (`REF_BIAS`).
pub const FIRST: u32 = 0x8000;

/// Operations (`IRDEF` in `lj_ir.h`); their numbers beyond `NEG` have changed.
pub mod op {
    /// Returns to a frame below the trace's base.
    pub const RETF: u8 = 11;
    /// Nothing, or an instruction that was eliminated.
    pub const NOP: u8 = 12;
    /// The base of the trace.
    pub const BASE: u8 = 13;
    /// A value of the parent trace.
    pub const PVAL: u8 = 14;
    /// Where the loop starts.
    pub const LOOP: u8 = 17;
    /// Keeps a value.
    pub const USE: u8 = 18;
    /// Joins the values of two rounds of a loop.
    pub const PHI: u8 = 19;
    /// A value that changes its register.
    pub const RENAME: u8 = 20;
    /// Sum, difference, product, quotient.
    pub const ARITHMETIC: [u8; 4] = [41, 42, 43, 44];
    /// The last operation whose number is the same in all LuaJITs.
    pub const LAST_COMMON: u8 = 47;
}

/// The type of floating-point numbers (`IRT_NUM`).
pub const NUMBER: u8 = 14;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ins {
    /// Its operands: numbers of instructions or constants, or literals.
    pub operands: [u16; 2],
    /// Type of its result, without flags.
    pub kind: u8,
    /// Whether it may leave the trace.
    pub guard: bool,
    /// Its operation.
    pub op: u8,
    /// The register of its result: x86's numbers, from 16 on those of SSE.
    pub register: Option<u8>,
    /// Whether it was put off to the exits, so that no code was made for it.
    pub sunk: bool,
}

impl Ins {
    fn decode(word: u64) -> Ins {
        const TYPE: u8 = 0x1f;
        const GUARD: u8 = 0x80;
        /// `RID_SINK` and `RID_SUNK`.
        const SUNK: [u8; 2] = [0xfe, 0xfd];
        let [a0, a1, b0, b1, kind, op, register, _] = word.to_le_bytes();
        Ins {
            operands: [u16::from_le_bytes([a0, a1]), u16::from_le_bytes([b0, b1])],
            kind: kind & TYPE,
            guard: kind & GUARD != 0,
            op,
            register: (register < 32).then_some(register),
            sunk: SUNK.contains(&register),
        }
    }

    /// Whether it is known to give the same for the same operands and to do nothing
    /// else: comparisons and arithmetic.
    pub fn is_pure(&self) -> bool {
        self.op < op::RETF || (op::RENAME + 1..=op::LAST_COMMON).contains(&self.op)
    }

    /// Whether code may have been made for it.
    pub fn is_code(&self) -> bool {
        const NONE: [u8; 7] = [
            op::NOP,
            op::BASE,
            op::PVAL,
            op::LOOP,
            op::USE,
            op::PHI,
            op::RENAME,
        ];
        !self.sunk && !NONE.contains(&self.op)
    }
}

/// All instructions and constants of a trace.
pub struct Ir {
    words: Vec<u64>,
    /// Number of the first of them.
    lowest: u32,
}

impl Ir {
    /// Copies those of `trace`.
    pub fn of(layout: &Layout, trace: Trace) -> Option<Ir> {
        let field = |offset| trace.address() + offset;
        let lowest = read::<u32>(field(layout.at.trace_nk))?;
        let end = read::<u32>(field(layout.at.trace_nins))?;
        if lowest > FIRST || !(FIRST..0x1_0000).contains(&end) {
            return None;
        }
        let zeroth = read::<u64>(field(layout.at.trace_ir))? as usize;
        let mut bytes = vec![0; 8 * (end - lowest) as usize];
        memory::copy(&mut bytes, zeroth.wrapping_add(8 * lowest as usize)).then_some(())?;
        let words = bytes
            .as_chunks()
            .0
            .iter()
            .map(|&word| u64::from_le_bytes(word))
            .collect();
        Some(Ir { words, lowest })
    }

    /// One past the last instruction.
    pub fn end(&self) -> u32 {
        self.lowest + self.words.len() as u32
    }

    /// Whether an operand is an instruction or constant, and no literal.
    pub fn refers(&self, operand: u16) -> bool {
        u32::from(operand) >= self.lowest
    }

    /// Whether an instruction has no operands but literals, as those have that load
    /// from the stack: the slot and how. Not all are loads.
    pub fn is_stack_load(&self, ins: Ins) -> bool {
        ins.op > op::LAST_COMMON && !ins.operands.iter().any(|&operand| self.refers(operand))
    }

    fn word(&self, number: u32) -> Option<u64> {
        let index = number.checked_sub(self.lowest)?;
        self.words.get(index as usize).copied()
    }

    /// The instruction of this number.
    pub fn get(&self, number: u32) -> Option<Ins> {
        self.word(number).map(Ins::decode)
    }

    /// The 64-bit value of constant `number`; it stands behind it.
    pub fn constant(&self, number: u32) -> Option<u64> {
        self.word(number + 1).filter(|_| number < FIRST)
    }

    /// The object of this type that constant `number` is.
    fn object(&self, layout: &Layout, number: u32, gct: u8) -> Option<usize> {
        // Types are those of objects where they are objects.
        (self.get(number)?.kind == gct).then_some(())?;
        match layout.family {
            Family::Gc64 => self.constant(number).map(|object| object as usize),
            Family::Gc32 => Some(self.word(number)? as u32 as usize),
        }
    }

    /// The function that constant `number` is.
    pub fn function(&self, layout: &Layout, number: u32) -> Option<Function> {
        Function::at(layout, self.object(layout, number, gct::FUNCTION)?)
    }

    /// The prototype among the constants that `pc` lies in. A trace keeps each
    /// prototype alive that it is made for.
    pub fn proto_of(&self, layout: &Layout, pc: usize) -> Option<Proto> {
        // Constants of 64 bits take two places. What such a one holds may look
        // like another constant, but never like a prototype that has `pc`.
        (self.lowest..FIRST).find_map(|number| {
            let proto = match self.object(layout, number, gct::PROTO) {
                Some(address) => Proto::at(layout, address)?,
                None => match self.function(layout, number)?.kind(layout)? {
                    Kind::Lua(proto) => proto,
                    _ => return None,
                },
            };
            proto.holds(layout, pc)?.then_some(proto)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_decoded_from_its_word() {
        // 0x8003 + constant 0x7ffe, a number that may exit, ADD, in xmm5.
        let word = u64::from_le_bytes([0x03, 0x80, 0xfe, 0x7f, 0x8e, 41, 21, 0]);
        let ins = Ins::decode(word);
        assert_eq!(ins.operands, [0x8003, 0x7ffe]);
        assert_eq!((ins.kind, ins.guard, ins.op), (NUMBER, true, 41));
        assert_eq!((ins.register, ins.sunk), (Some(21), false));
        assert!(ins.is_code());
        // No register, only a hint; then a store that was put off.
        assert_eq!(Ins::decode(0x0085 << 48).register, None);
        assert!(Ins::decode(0x00fe << 48).sunk);
    }
}

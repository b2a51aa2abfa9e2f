//! The way out of a function that no unwind table describes.
//!
//! Knows: x86-64. Code that goes straight to its return, without a branch or a
//! call, tells itself where its frame ends: by what it does to the stack pointer
//! and takes from the stack before it gets there. Must not know: stacks (code
//! alone is read), unwind tables.
//!
//! Runs in the signal handler. iced-x86 decodes without allocating, once
//! [`prepare`] has made it lay out its own tables.

use super::rules::{Base, Rule};
use crate::memory;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register as Name,
};

/// The longest way that is looked at, in bytes.
const MOST_BYTES: usize = 192;
/// Compilers begin functions at multiples of this.
const ALIGNMENT: usize = 16;
/// Bytes of a register on the stack.
const WORD: i32 = 8;

/// Makes [`rule`] fit for a signal handler; not to be called in one.
pub fn prepare() {
    const NOP: &[u8] = &[0x90];
    let _ = Decoder::new(64, NOP, DecoderOptions::NONE).decode();
}

/// How to get from the frame of the code at `ip` to its caller's, if that code
/// goes straight to its return. `interrupted`: it is at that instruction; else a
/// call that it has made returns there.
///
/// [`Rule::Transient`], where its frame is not made yet, or is about to be left
/// for another stack.
pub fn rule(ip: usize, interrupted: bool) -> Option<Rule> {
    let mut buffer = [0; MOST_BYTES];
    let mut decoder = Decoder::with_ip(
        64,
        readable(ip, &mut buffer)?,
        ip as u64,
        DecoderOptions::NONE,
    );
    let mut instruction = Instruction::default();
    let mut way = Way::default();
    // Behind a call that does not return another function may begin.
    if !interrupted && ip.is_multiple_of(ALIGNMENT) {
        return None;
    }
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        match instruction.flow_control() {
            FlowControl::Next if !interrupted && is_padding(&instruction) => return None,
            FlowControl::Next => way.go(&instruction)?,
            FlowControl::Return if instruction.code() == Code::Retnq => {
                way.sp += WORD;
                return way.out();
            }
            FlowControl::IndirectBranch if instruction.op0_kind() == OpKind::Register => {
                let target = way.values[instruction.op0_register().number()];
                return if way.moved || target == Value::Saved(way.sp - WORD) {
                    way.out()
                } else if interrupted
                    && way.sp == 0
                    && has_just_taken(ip, instruction.op0_register())
                {
                    Some(Rule::Transient)
                } else {
                    None
                };
            }
            _ => return None,
        }
    }
    None
}

/// As much of the code at `ip` as there is.
fn readable(ip: usize, buffer: &mut [u8; MOST_BYTES]) -> Option<&[u8]> {
    const PAGE: usize = 4096;
    if memory::copy(buffer, ip) {
        return Some(buffer);
    }
    let rest = &mut buffer[..(PAGE - ip % PAGE).min(MOST_BYTES)];
    memory::copy(rest, ip).then_some(rest)
}

/// Whether the instruction before `ip` takes `register` from the stack: the jump
/// there is the rest of a return.
fn has_just_taken(ip: usize, register: Name) -> bool {
    const POP: usize = 0x58;
    let taken = ip.checked_sub(1).and_then(memory::read::<u8>);
    taken.map(usize::from) == Some(POP + register.number())
}

fn is_padding(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Nop
}

/// Where that is which a register had for the caller.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Value {
    /// In the register itself.
    #[default]
    Kept,
    /// In a word of the stack, that many bytes from where rsp was at first.
    Saved(i32),
    /// Nowhere that is known.
    Lost,
}

/// What happens on the way.
#[derive(Default)]
struct Way {
    /// Bytes that rsp has moved.
    sp: i32,
    /// Whether it was put elsewhere, on another stack maybe.
    moved: bool,
    /// The sixteen registers, by x86's numbers.
    values: [Value; 16],
    /// Words of the stack that were stored to, counted like [`Value::Saved`].
    stored: [Option<i32>; 16],
}

impl Way {
    /// Goes on by an instruction; `None` if it can't be told what it does.
    fn go(&mut self, instruction: &Instruction) -> Option<()> {
        let at_stack = instruction.memory_base() == Name::RSP
            && instruction.memory_index() == Name::None
            && i32::try_from(instruction.memory_displacement64() as i64).is_ok();
        let word = self.sp + instruction.memory_displacement64() as i32;
        let to_rsp = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Name::RSP;
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop | Mnemonic::Endbr64 => {}
            Mnemonic::Push if instruction.stack_pointer_increment() == -WORD => self.sp -= WORD,
            Mnemonic::Pop if instruction.stack_pointer_increment() == WORD => {
                self.set(instruction, Value::Saved(self.sp))?;
                self.sp += WORD;
            }
            Mnemonic::Add if to_rsp => self.sp += constant(instruction)?,
            Mnemonic::Sub if to_rsp => self.sp -= constant(instruction)?,
            Mnemonic::Lea if to_rsp && at_stack => self.sp = word,
            Mnemonic::Leave => {
                self.moved = true;
                self.values[Name::RBP.number()] = Value::Lost;
            }
            _ if to_rsp => self.moved = true,
            Mnemonic::Mov if at_stack && instruction.op1_kind() == OpKind::Memory => {
                let whole = instruction.code() == Code::Mov_r64_rm64;
                let value = if whole {
                    Value::Saved(word)
                } else {
                    Value::Lost
                };
                self.set(instruction, value)?;
            }
            // What they change is not only what they name.
            Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Cpuid => return None,
            _ if instruction.is_stack_instruction() => return None,
            _ => {
                if instruction.op0_kind() == OpKind::Memory && at_stack {
                    let free = self.stored.iter_mut().find(|place| place.is_none())?;
                    *free = Some(word & -WORD);
                }
                self.set(instruction, Value::Lost)?;
            }
        }
        Some(())
    }

    /// Notes what the register has that `instruction` names first, if it does.
    fn set(&mut self, instruction: &Instruction, value: Value) -> Option<()> {
        let name = instruction.op0_register();
        if instruction.op0_kind() == OpKind::Register && name.is_gpr() {
            *self.values.get_mut(name.full_register().number())? = value;
        }
        Some(())
    }

    /// The rule, once the return address has been taken from the stack.
    fn out(&self) -> Option<Rule> {
        if self.moved {
            return Some(Rule::Transient);
        }
        let saved = |name: Name| match self.values[name.number()] {
            Value::Kept => Some(None),
            Value::Saved(word) => Some(Some(word)),
            Value::Lost => None,
        };
        let (rbp, rbx) = (saved(Name::RBP)?, saved(Name::RBX)?);
        let made = |word: i32| word >= 0 && !self.stored.contains(&Some(word));
        if ![Some(self.sp - WORD), rbp, rbx]
            .into_iter()
            .flatten()
            .all(made)
        {
            return Some(Rule::Transient);
        }
        let from_end = |word: Option<i32>| match word {
            None => Some(None),
            Some(word) => i16::try_from(word - self.sp).ok().map(Some),
        };
        Some(Rule::Frame {
            base: Base::Stack,
            size: self.sp,
            rbp: from_end(rbp)?,
            rbx: from_end(rbx)?,
        })
    }
}

/// The constant that `instruction` adds or subtracts.
fn constant(instruction: &Instruction) -> Option<i32> {
    let constant = match instruction.op1_kind() {
        OpKind::Immediate8to64 => i32::from(instruction.immediate8() as i8),
        OpKind::Immediate32to64 => instruction.immediate32() as i32,
        _ => return None,
    };
    // More is no frame.
    (constant.unsigned_abs() < 1 << 20).then_some(constant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{FaultHandlers, tests::DISPOSITIONS};
    use std::sync::PoisonError;

    /// The rule at byte `at` of `code`, which lies at a multiple of 16 and is
    /// followed by what no instruction is.
    fn rule_at(code: &[u8], at: usize, interrupted: bool) -> Option<Rule> {
        #[repr(align(64))]
        struct Room([u8; 512]);
        const NO_INSTRUCTION: u8 = 0x06;
        prepare();
        let mut room = Box::new(Room([NO_INSTRUCTION; 512]));
        room.0[..code.len()].copy_from_slice(code);
        rule(room.0.as_ptr() as usize + at, interrupted)
    }

    fn frame(size: i32, rbp: Option<i16>, rbx: Option<i16>) -> Option<Rule> {
        Some(Rule::Frame {
            base: Base::Stack,
            size,
            rbp,
            rbx,
        })
    }

    /// push rbp; push rbx; push r12; mov [rdi], rsp; mov rsp, [rsi]; pop r12;
    /// pop rbx; pop rbp; pop rcx; jmp rcx
    const SWITCH: &[u8] = &[
        0x55, 0x53, 0x41, 0x54, 0x48, 0x89, 0x27, 0x48, 0x8b, 0x26, 0x41, 0x5c, 0x5b, 0x5d, 0x59,
        0xff, 0xe1,
    ];

    #[test]
    fn a_switch_of_stacks_is_waited_for_and_then_leads_to_the_other_side() {
        for before in [0, 1, 2, 4, 7] {
            assert_eq!(rule_at(SWITCH, before, true), Some(Rule::Transient));
        }
        for (after, is) in [
            (10, frame(32, Some(-16), Some(-24))),
            (12, frame(24, Some(-16), Some(-24))),
            (13, frame(16, Some(-16), None)),
            (14, frame(8, None, None)),
            // Where to, is in rcx alone.
            (15, Some(Rule::Transient)),
        ] {
            assert_eq!(rule_at(SWITCH, after, true), is, "at {after}");
        }
    }

    #[test]
    fn a_function_is_left_by_what_it_does_to_the_stack() {
        // sub rsp, 24; mov [rsp+8], rbx; mov rbx, [rsp+8]; lea rsp, [rsp+24]; ret
        const MOVES: &[u8] = &[
            0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x5c, 0x24, 0x08, 0x48, 0x8b, 0x5c, 0x24, 0x08,
            0x48, 0x8d, 0x64, 0x24, 0x18, 0xc3,
        ];
        assert_eq!(rule_at(MOVES, 0, true), Some(Rule::Transient));
        assert_eq!(rule_at(MOVES, 4, true), Some(Rule::Transient), "not saved");
        assert_eq!(rule_at(MOVES, 9, true), frame(32, None, Some(-24)));
        assert_eq!(rule_at(MOVES, 14, true), frame(32, None, None));
        assert_eq!(rule_at(MOVES, 19, true), frame(8, None, None));
    }

    #[test]
    fn a_call_that_returned_counts_from_the_next_instruction() {
        // call [rip]; mov byte [rsp+1], 0; add rsp, 72; ret
        const AFTER: &[u8] = &[
            0xff, 0x15, 0, 0, 0, 0, 0xc6, 0x44, 0x24, 0x01, 0, 0x48, 0x83, 0xc4, 0x48, 0xc3,
        ];
        assert_eq!(rule_at(AFTER, 6, false), frame(80, None, None));
        assert_eq!(rule_at(AFTER, 0, true), None, "a call is on the way");
    }

    #[test]
    fn what_may_be_another_function_is_not_gone_through() {
        // mov eax, 1; ret, at a multiple of 16, and behind padding
        let mut code = [0x90; 24];
        code[16..22].copy_from_slice(&[0xb8, 1, 0, 0, 0, 0xc3]);
        assert_eq!(rule_at(&code, 16, true), frame(8, None, None));
        assert_eq!(rule_at(&code, 16, false), None);
        assert_eq!(rule_at(&code, 13, false), None);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        for (code, why) in [
            (&[0x75, 0x00, 0xc3][..], "a branch"),
            (&[0xff, 0xe0], "a jump to where a register says"),
            (&[0xc2, 0x08, 0x00], "a return that takes more"),
            (&[0x31, 0xdb, 0xc3], "rbx is set"),
            (&[0x87, 0xdd, 0xc3], "rbx and rbp change places"),
            (&[0x0f, 0xa2, 0xc3], "cpuid"),
            (&[0x9c, 0x9d, 0xc3], "flags on the stack"),
            (&[0x48, 0x01, 0xc4, 0x0f, 0x0b], "no return at all"),
            (&[0x59, 0x31, 0xc9, 0xff, 0xe1], "rcx is set anew"),
            (&[0x59, 0x5a, 0xff, 0xe1], "not the last word"),
        ] {
            assert_eq!(rule_at(code, 0, true), None, "{why}");
        }
        // push rax; ret: the word is not there yet.
        assert_eq!(rule_at(&[0x50, 0xc3], 0, true), Some(Rule::Transient));
        // mov rsp, rbp; pop rbp; ret
        let through_rbp = &[0x48, 0x89, 0xec, 0x5d, 0xc3];
        assert_eq!(rule_at(through_rbp, 0, true), Some(Rule::Transient));
        assert_eq!(rule_at(through_rbp, 3, true), frame(16, Some(-16), None));
    }

    /// The handler must not panic, whatever lies there.
    #[test]
    fn any_bytes_are_code_to_it() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut some = 0;
        for _ in 0..100_000 {
            let mut code = [0; 24];
            code.fill_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            });
            code[8] = 0xc3;
            some += usize::from(rule_at(&code, 0, true).is_some());
        }
        assert!(some > 0);
    }

    #[test]
    fn code_may_end_with_its_page() {
        let _one = DISPOSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let _handlers = FaultHandlers::install().expect("handlers");
        // SAFETY: an anonymous mapping of two pages, the second of which is then
        // made unreadable.
        let page = unsafe {
            let pages = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE),
                0
            );
            let page = std::slice::from_raw_parts_mut(pages.cast::<u8>(), 4096);
            page[4094..].copy_from_slice(&[0x5d, 0xc3]);
            page
        };
        prepare();
        let ip = page.as_ptr() as usize + 4094;
        assert_eq!(rule(ip, true), frame(16, Some(-16), None));
    }
}

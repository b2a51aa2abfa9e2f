//! Which trace is being left.
//!
//! Knows: how the VM leaves a trace (`vm_exit_handler` in `vm_x64.dasc` and
//! `vm_x86.dasc`): it loads the trace's number from the VM state, sets that to
//! EXIT and keeps the number in `jit_State` (`J->parent`). Must not know: what it
//! is needed for.
//!
//! Where `jit_State` has it differs from one LuaJIT to the other, so it is read out
//! of that code, once, at `start`.

use crate::memory;
use crate::vm::layout::{Layout, StateNumbering};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// Where the number of the trace is kept that was left last. `None` if the code
/// does not look as expected.
pub fn field(layout: &Layout) -> Option<usize> {
    let mut code = vec![0; layout.interpreter.len()];
    if !memory::copy(&mut code, layout.interpreter.start) {
        return None;
    }
    let state = layout.vmstate.wrapping_sub(layout.dispatch) as i64;
    let exit = match layout.states {
        StateNumbering::Stock => 3,
        StateNumbering::Tarantool => 5,
    };
    let mut fields = (0..code.len()).filter_map(|at| kept_after(&code, at, state, !exit));
    let field = fields.next()?;
    fields
        .all(|other| other == field)
        .then(|| layout.dispatch.wrapping_add_signed(field as isize))
}

/// If the instruction at `at` sets the VM state, at `state` from what r14 holds, to
/// `exit`: where the code after it keeps what the one before it has loaded from
/// there.
fn kept_after(code: &[u8], at: usize, state: i64, exit: i32) -> Option<i64> {
    /// The state is set by `mov dword [r14+...], ...`, which begins with these.
    const SETS: [u8; 2] = [0x41, 0xc7];
    /// How far behind the number is kept: that of the exit comes in between.
    const NEAR: usize = 4;
    if !code[at..].starts_with(&SETS) {
        return None;
    }
    let mut after = Decoder::new(64, &code[at..], DecoderOptions::NONE);
    let set = after.decode();
    let sets = set.mnemonic() == Mnemonic::Mov
        && at_r14(&set, 0) == Some(state)
        && set.op1_kind() == OpKind::Immediate32
        && set.immediate32() as i32 == exit;
    if !sets {
        return None;
    }
    let number = loaded_before(&code[..at], state)?;
    after.iter().take(NEAR).find_map(|store| {
        let keeps = store.mnemonic() == Mnemonic::Mov && store.op1_register() == number;
        at_r14(&store, 0).filter(|_| keeps)
    })
}

/// The register that the last instruction of `code` loads from `state`. It has the
/// length of one with a displacement of 8 or 32 bits.
fn loaded_before(code: &[u8], state: i64) -> Option<Register> {
    [4, 7].into_iter().find_map(|length| {
        let last = &code[code.len().checked_sub(length)?..];
        let load = Decoder::new(64, last, DecoderOptions::NONE).decode();
        let loads = load.len() == length
            && load.mnemonic() == Mnemonic::Mov
            && at_r14(&load, 1) == Some(state);
        loads.then(|| load.op0_register())
    })
}

/// How far the memory operand `operand` is from what r14 holds.
fn at_r14(instruction: &Instruction, operand: u32) -> Option<i64> {
    let is = instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_base() == Register::R14
        && instruction.memory_index() == Register::None;
    is.then(|| instruction.memory_displacement64() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // mov eax, [r14-0x40]; mov dword [r14-0x40], -4; mov [r14+0x128], ecx;
    // mov [r14+0x124], eax
    const CODE: [u8; 26] = [
        0x41, 0x8b, 0x46, 0xc0, 0x41, 0xc7, 0x46, 0xc0, 0xfc, 0xff, 0xff, 0xff, 0x41, 0x89, 0x8e,
        0x28, 0x01, 0, 0, 0x41, 0x89, 0x86, 0x24, 0x01, 0, 0,
    ];

    #[test]
    fn the_number_is_kept_after_the_state_is_set() {
        assert_eq!(kept_after(&CODE, 4, -0x40, !3), Some(0x124));
        assert_eq!(kept_after(&CODE, 4, -0x40, !5), None, "another state");
        assert_eq!(kept_after(&CODE, 4, -0x48, !3), None, "another field");
        assert_eq!(kept_after(&CODE, 0, -0x40, !3), None, "another instruction");
        assert_eq!(kept_after(&CODE[4..], 0, -0x40, !3), None, "nothing loaded");
    }
}

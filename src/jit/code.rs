//! The machine code of a trace, taken apart.
//!
//! Knows: x86-64. Must not know: LuaJIT.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// What an instruction does, as far as that helps to tell where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A register from another one.
    Move,
    /// A register from memory.
    Load,
    /// Memory from a register or constant.
    Store,
    /// Nothing but flags.
    Compare,
    /// A jump on a condition.
    Branch,
    /// A jump.
    Jump,
    /// A call.
    Call,
    /// Floating-point arithmetic: sum, difference, product, quotient.
    Arithmetic(u8),
    /// Anything else.
    Other,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where it starts in the machine code.
    pub offset: u32,
    /// What it does.
    pub action: Action,
    /// The register that it writes: x86's numbers, from 16 on those of SSE.
    pub target: Option<u8>,
    /// Where it jumps to in the machine code, if that is behind it.
    pub back_to: Option<u32>,
    /// Where it jumps to outside of the machine code.
    pub leaves_for: Option<usize>,
    /// The exit of the trace that it leaves by, once that is known.
    pub exit: Option<u32>,
    /// The memory that it stores to, if that is one fixed place.
    pub place: Option<Place>,
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address.
    Absolute(u64),
    /// A distance from what r14 holds.
    FromR14(i64),
}

/// Takes `bytes` apart, which lie at `address`.
pub fn tokens(bytes: &[u8], address: usize) -> Vec<Token> {
    let start = address as u64;
    Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
        .into_iter()
        .map(|instruction| Token {
            offset: (instruction.ip() - start) as u32,
            action: action(&instruction),
            target: target(&instruction),
            back_to: jump(&instruction)
                .filter(|to| (start..instruction.ip()).contains(to))
                .map(|to| (to - start) as u32),
            leaves_for: jump(&instruction)
                .filter(|to| !(start..start + bytes.len() as u64).contains(to))
                .map(|to| to as usize),
            exit: None,
            place: place(&instruction),
        })
        .collect()
}

fn action(instruction: &Instruction) -> Action {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => return Action::Branch,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => return Action::Jump,
        FlowControl::Call | FlowControl::IndirectCall => return Action::Call,
        _ => {}
    }
    let from_memory = instruction.op_count() > 1 && instruction.op1_kind() == OpKind::Memory;
    let to_memory = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory;
    match instruction.mnemonic() {
        Mnemonic::Addsd => Action::Arithmetic(0),
        Mnemonic::Subsd => Action::Arithmetic(1),
        Mnemonic::Mulsd => Action::Arithmetic(2),
        Mnemonic::Divsd => Action::Arithmetic(3),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Ucomisd | Mnemonic::Comisd => Action::Compare,
        Mnemonic::Mov
        | Mnemonic::Movsd
        | Mnemonic::Movss
        | Mnemonic::Movaps
        | Mnemonic::Movd
        | Mnemonic::Movq
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd => match (to_memory, from_memory) {
            (true, _) => Action::Store,
            (_, true) => Action::Load,
            _ => Action::Move,
        },
        _ => Action::Other,
    }
}

fn target(instruction: &Instruction) -> Option<u8> {
    // A call or jump through a register does not write it.
    let writes = instruction.flow_control() == FlowControl::Next;
    if !writes || instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let register = instruction.op0_register();
    if register.is_gpr() {
        Some((register.full_register() as u32 - Register::RAX as u32) as u8)
    } else if register.is_xmm() {
        Some((register as u32 - Register::XMM0 as u32) as u8 + 16)
    } else {
        None
    }
}

/// Where an instruction jumps to.
fn jump(instruction: &Instruction) -> Option<u64> {
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    jumps.then(|| instruction.near_branch_target())
}

fn place(instruction: &Instruction) -> Option<Place> {
    let stores = matches!(
        instruction.code(),
        Code::Mov_rm64_r64 | Code::Mov_rm32_r32 | Code::Mov_rm64_imm32 | Code::Mov_rm32_imm32
    );
    if !stores
        || instruction.op0_kind() != OpKind::Memory
        || instruction.memory_index() != Register::None
    {
        return None;
    }
    let distance = instruction.memory_displacement64();
    match instruction.memory_base() {
        // Sign-extended by the decoder where the processor does.
        Register::None | Register::RIP => Some(Place::Absolute(distance)),
        Register::R14 => Some(Place::FromR14(distance as i64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> Token {
        let all = tokens(bytes, 0x1000);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    #[test]
    fn actions_and_targets() {
        let kinds = |bytes: &[u8]| (one(bytes).action, one(bytes).target);
        // addsd xmm5, xmm6; addsd xmm12, [rcx]
        assert_eq!(
            kinds(&[0xf2, 0x0f, 0x58, 0xee]),
            (Action::Arithmetic(0), Some(21))
        );
        assert_eq!(
            kinds(&[0xf2, 0x44, 0x0f, 0x58, 0x21]),
            (Action::Arithmetic(0), Some(28))
        );
        // mov ebp, [rdx+8]; mov [rdx+8], ebp; mov r9, rdi
        assert_eq!(kinds(&[0x8b, 0x6a, 0x08]), (Action::Load, Some(5)));
        assert_eq!(kinds(&[0x89, 0x6a, 0x08]), (Action::Store, None));
        assert_eq!(kinds(&[0x49, 0x89, 0xf9]), (Action::Move, Some(9)));
        // cmp eax, 1; jne; jmp; call rbx
        assert_eq!(kinds(&[0x83, 0xf8, 0x01]).0, Action::Compare);
        assert_eq!(kinds(&[0x75, 0x00]), (Action::Branch, None));
        assert_eq!(kinds(&[0xeb, 0x00]), (Action::Jump, None));
        assert_eq!(kinds(&[0xff, 0xd3]), (Action::Call, None));
        // sqrtsd xmm0, xmm1
        assert_eq!(kinds(&[0xf2, 0x0f, 0x51, 0xc1]), (Action::Other, Some(16)));
    }

    #[test]
    fn jumps_say_where_to() {
        // nop; nop; jne -3; jmp +16
        let all = tokens(&[0x90, 0x90, 0x75, 0xfd, 0xeb, 0x10], 0x1000);
        let back: Vec<_> = all.iter().map(|token| token.back_to).collect();
        assert_eq!(back, [None, None, Some(1), None]);
        let out: Vec<_> = all.iter().map(|token| token.leaves_for).collect();
        assert_eq!(out, [None, None, None, Some(0x1016)]);
    }

    #[test]
    fn places_that_are_stored_to() {
        // mov [r14-0x80], rdx
        let token = one(&[0x49, 0x89, 0x56, 0x80]);
        assert_eq!(token.place, Some(Place::FromR14(-0x80)));
        // mov [0x12345678], edx
        let token = one(&[0x89, 0x14, 0x25, 0x78, 0x56, 0x34, 0x12]);
        assert_eq!(token.place, Some(Place::Absolute(0x1234_5678)));
        // mov [rax], edx; mov edx, [r14]
        assert_eq!(one(&[0x89, 0x10]).place, None);
        assert_eq!(one(&[0x41, 0x8b, 0x16]).place, None);
    }
}

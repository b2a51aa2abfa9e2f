//! What unwind tables say of an address, in a few words.
//!
//! Knows: call frame information (`.eh_frame`), through gimli, which evaluates it
//! without allocating where it is given the room. Must not know: whose stack it
//! is for, or where the modules are.
//!
//! Runs in the signal handler.

use super::sections::{Slice, UnwindSections};
use crate::memory;
use gimli::{
    CfaRule, EhFrame, EhFrameHdr, Evaluation, EvaluationResult, Location, NativeEndian, Register,
    RegisterRule, UnwindSection as _, Value,
};

/// Register numbers in x86-64 unwind tables.
const RBX: Register = Register(3);
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// The register that the end of a frame is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// rsp.
    Stack,
    /// rbp.
    Frame,
    /// rbx.
    Kept,
    /// rbp, in the code by which the C++ runtime hands over to an exception's
    /// handler: the handler's registers are put into this very frame.
    Handover,
}

/// Where a function keeps a register of its caller's, counted from the end of
/// its frame; `None`: it has not touched it.
pub type Saved = Option<i16>;

/// How to get from a frame to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The caller's frame begins where this one ends, and the return address is
    /// the last word before.
    Frame {
        /// The end is counted from here,
        base: Base,
        /// and that many bytes away.
        size: i32,
        /// The caller's rbp.
        rbp: Saved,
        /// The caller's rbx.
        rbx: Saved,
    },
    /// The same, but the end takes an expression (`end`).
    Expression,
    /// A signal handler returns to here: its caller is what the signal
    /// interrupted.
    Signal,
    /// There is no caller: a thread's or a fiber's first function.
    Root,
    /// The end is counted from a register that is kept for an instruction or two
    /// only, while a frame is made or taken down, or the stack is left for another.
    Transient,
    /// No table tells, or none that is understood.
    Unknown,
}

/// Room for the rows and registers of one table entry, as gimli wants it where
/// nothing may be allocated.
pub struct Room;

impl gimli::UnwindContextStorage<usize> for Room {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [gimli::UnwindTableRow<usize, Self>; 4];
}

impl<'a> gimli::EvaluationStorage<Slice<'a>> for Room {
    type Stack = [Value; 16];
    type ExpressionStack = [(Slice<'a>, Slice<'a>); 1];
    type Result = [gimli::Piece<Slice<'a>>; 1];
}

/// Room for one look into the tables.
pub type Context = gimli::UnwindContext<usize, Room>;

type Row = gimli::UnwindTableRow<usize, Room>;
type Entry<'s> = gimli::FrameDescriptionEntry<Slice<'s>>;

fn entry<'s>(
    sections: &'s UnwindSections,
    frames: &EhFrame<Slice<'s>>,
    address: usize,
) -> Option<Entry<'s>> {
    let bases = sections.bases();
    let header = EhFrameHdr::new(&sections.header, NativeEndian)
        .parse(&bases, 8)
        .ok()?;
    let table = header.table()?;
    (table.fde_for_address(frames, &bases, address as u64, EhFrame::cie_from_offset)).ok()
}

/// Where the code that one entry describes begins, for the entry of `address`.
pub fn start_of(sections: &UnwindSections, address: usize) -> Option<usize> {
    let entry = entry(sections, &sections.frames(), address)?;
    Some(entry.initial_address() as usize)
}

/// What the tables say of `address`, which lies inside an instruction.
pub fn rule(sections: &UnwindSections, address: usize, context: &mut Context) -> Rule {
    let frames = sections.frames();
    let Some(entry) = entry(sections, &frames, address) else {
        return Rule::Unknown;
    };
    if entry.is_signal_trampoline() {
        return Rule::Signal;
    }
    match entry.unwind_info_for_address(&frames, &sections.bases(), context, address as u64) {
        Ok(row) => match (of_row(row).unwrap_or(Rule::Unknown), handler_ahead(address)) {
            (_, Some(..=0)) => Rule::Transient,
            (
                Rule::Frame {
                    base: Base::Frame,
                    size,
                    rbp,
                    rbx,
                },
                Some(_),
            ) => Rule::Frame {
                base: Base::Handover,
                size,
                rbp,
                rbx,
            },
            (rule, _) => rule,
        },
        Err(_) => Rule::Unknown,
    }
}

/// How far it is from `address` to where an exception's handler is jumped to, if
/// that is near, or the address is in that very jump.
fn handler_ahead(address: usize) -> Option<isize> {
    /// `mov rsp, rcx; pop rcx; jmp rcx`, and `mov rsp, rcx; ret` of older
    /// compilers: what `__builtin_eh_return` ends with.
    const JUMPS: [&[u8]; 2] = [
        &[0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1],
        &[0x48, 0x89, 0xcc, 0xc3],
    ];
    const BEHIND: usize = 4;
    /// From the call of what fills the frame to there.
    const AHEAD: usize = 192;
    let mut code = [0; BEHIND + AHEAD];
    if !memory::copy(&mut code, address - BEHIND) {
        return None;
    }
    let find = |jump: &[u8]| code.windows(jump.len()).position(|bytes| bytes == jump);
    let at = JUMPS.into_iter().find_map(find)?;
    Some(at as isize - BEHIND as isize)
}

fn of_row(row: &Row) -> Option<Rule> {
    match row.register(RETURN_ADDRESS) {
        None | Some(RegisterRule::Undefined) => return Some(Rule::Root),
        Some(RegisterRule::Offset(-8)) => {}
        Some(_) => return None,
    }
    let (rbp, rbx) = (saved(row, RBP)?, saved(row, RBX)?);
    Some(match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Rule::Frame {
            base: match *register {
                RSP => Base::Stack,
                RBP => Base::Frame,
                RBX => Base::Kept,
                _ => return Some(Rule::Transient),
            },
            size: i32::try_from(*offset).ok()?,
            rbp,
            rbx,
        },
        // Of such frames (stubs of the linker's) it is known that they keep
        // nothing.
        CfaRule::Expression(_) => (rbp.is_none() && rbx.is_none()).then_some(Rule::Expression)?,
    })
}

fn saved(row: &Row, register: Register) -> Option<Saved> {
    match row.register(register) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(None),
        Some(RegisterRule::Offset(offset)) => i16::try_from(offset).ok().map(Some),
        Some(_) => None,
    }
}

/// The end of a frame whose rule is [`Rule::Expression`]; `read` gives words of
/// memory, `ip`, `sp` and `bp` are the frame's registers.
pub fn end(
    sections: &UnwindSections,
    address: usize,
    context: &mut Context,
    [ip, sp, bp]: [usize; 3],
    read: impl Fn(usize) -> Option<u64>,
) -> Option<usize> {
    /// More operations than any linker's expression has.
    const MOST_OPERATIONS: u32 = 100;
    let frames = sections.frames();
    let entry = entry(sections, &frames, address)?;
    let row = (entry.unwind_info_for_address(&frames, &sections.bases(), context, address as u64))
        .ok()?;
    let CfaRule::Expression(expression) = row.cfa() else {
        return None;
    };
    let bytes = expression.get(&frames).ok()?.0;
    let mut evaluation = Evaluation::<_, Room>::new_in(bytes, entry.cie().encoding());
    evaluation.set_max_iterations(MOST_OPERATIONS);
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = match register {
                    RSP => sp,
                    RBP => bp,
                    RETURN_ADDRESS => ip,
                    _ => return None,
                };
                evaluation.resume_with_register(Value::Generic(value as u64))
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => evaluation.resume_with_memory(Value::Generic(read(address as usize)?)),
            _ => return None,
        }
        .ok()?;
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address as usize),
        _ => None,
    }
}

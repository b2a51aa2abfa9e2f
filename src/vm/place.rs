//! Where the innermost Lua frame is, at any instruction of the VM.
//!
//! Knows: what the interpreter keeps in its registers (`vm_x64.dasc`,
//! `vm_x86.dasc`), and when it does not. Must not know: frames further down
//! (`frames`), the native stack.
//!
//! The interpreter keeps the base of the running frame in rdx, the next
//! instruction in rbx and the constants of the running function in r15. All
//! three are right while a bytecode runs, and in transit while a call or return
//! is made, or after a call of a C helper, when rdx is whatever the helper left.
//! The three are written one after the other, so what they say holds together
//! only when none of them is in transit: that is what [`interpreter`] checks.
//! Where they do not, or where another register tells as good a story, the
//! answer is [`Place::Moving`]: the program is to go on by an instruction.

use super::frames::{self, Link, lua_caller};
use super::layout::Layout;
use super::objects::{CFrame, Callee, Function, Kind, SLOT, Stack, Thread};
use crate::memory::read;
use crate::registers::Registers;

/// The innermost frame of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// The VM's C frame that owns the stretch.
    pub cframe: CFrame,
    /// Whose stack it is on.
    pub thread: Thread,
    /// Extent of that stack.
    pub stack: Stack,
    /// Base of the frame.
    pub base: usize,
    /// Next instruction, if its function is a Lua function; 0 if unknown.
    pub pc: usize,
}

/// What the registers say about an address in the interpreter's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The innermost frame.
    At(Top),
    /// A call or return is being made, or the registers are in use otherwise.
    Moving,
}

/// The place of an instruction of the interpreter.
pub fn interpreter(layout: &Layout, registers: &Registers) -> Place {
    settled(layout, registers).map_or(Place::Moving, Place::At)
}

fn settled(layout: &Layout, registers: &Registers) -> Option<Top> {
    if registers.r14 != layout.dispatch {
        return None;
    }
    // The stack pointer is that of the C frame, or one subroutine call below.
    let (cframe, thread) =
        owner(layout, registers.rsp).or_else(|| owner(layout, registers.rsp + 8))?;
    let stack = thread.stack(layout)?;
    let base = registers.rdx;
    let pc = registers.rbx & !3;
    let top = |pc| Top {
        cframe,
        thread,
        stack,
        base,
        pc,
    };
    let function = function_at(layout, stack, base)?;
    let link = Link::of(layout, base)?;
    match function.kind(layout)? {
        Kind::Lua(proto) => {
            let header = proto.bytecode(layout);
            // At a call the position is first that of the header itself.
            let pc = if pc == header { header + 4 } else { pc };
            let entering = pc == header + 4;
            let running = proto.holds(layout, pc)?
                && (entering || registers.r15 == proto.constants(layout)?);
            // A return has fetched the caller's position, or a call has moved
            // the base but not yet stored the caller's position beside it.
            let returning = link == Link::Lua { pc: registers.rbx };
            let calling = !entering && registers.rbp == function.address();
            let rival = rivals(registers, thread, layout).any(|rival| {
                rival != base
                    && function_at(layout, stack, rival).is_some_and(|function| {
                        matches!(function.kind(layout), Some(Kind::Lua(proto))
                            if proto.holds(layout, pc) == Some(true))
                    })
            });
            let arrived = match entering {
                true => at_header(layout, registers.rip, header)?,
                false => at_or_before(layout, registers, pc)?,
            };
            (running
                && arrived
                && !returning
                && !calling
                && !rival
                && called(layout, stack, base, link))
            .then(|| top(pc))
        }
        Kind::C | Kind::Builtin(_) => {
            let within = |function| runs_in(layout, function, registers.rip);
            let rival = rivals(registers, thread, layout).any(|rival| {
                rival != base
                    && function_at(layout, stack, rival)
                        .is_some_and(|function| within(function) == Some(true))
            });
            (within(function)? && !rival && called(layout, stack, base, link)).then(|| top(0))
        }
    }
}

/// Whether the code of the function header at `header` is at `ip`. Headers that
/// count calls go on into the code of those that do not, the next opcode's.
/// Elsewhere a position right after the header may be another function's, or left
/// from before: the VM leaves compiled code with that trace's registers.
fn at_header(layout: &Layout, ip: usize, header: usize) -> Option<bool> {
    let opcode = usize::from(read::<u8>(header)?);
    let handler = layout.handler_of(ip)?;
    Some(
        layout
            .entries
            .get(opcode..)?
            .iter()
            .take(2)
            .any(|&entry| entry == handler),
    )
}

/// Whether the instruction before `pc` is the one that runs, or the next one to
/// run. After a jump it is neither until the next one was fetched: then rax has
/// that instruction, or its operand, and rbp its opcode.
fn at_or_before(layout: &Layout, registers: &Registers, pc: usize) -> Option<bool> {
    let instruction = read::<u32>(pc - 4)?;
    let opcode = (instruction & 0xff) as u8;
    let operand = instruction >> 16;
    let rax = registers.rax;
    let handler = layout.handler_of(registers.rip);
    if layout.entries.get(usize::from(opcode)).copied() != handler {
        return Some(
            registers.rbp == usize::from(opcode)
                && (rax == instruction as usize || rax == operand as usize),
        );
    }
    // It may have jumped to behind one of its own kind. Before it jumps, and not
    // after, its operand is in rax.
    let jumps = opcode == layout.opcodes.jmp || opcode == layout.opcodes.uclo;
    Some(!jumps || rax == operand as usize)
}

/// The thread that the C frame at `address` runs, if it is that thread's newest.
fn owner(layout: &Layout, address: usize) -> Option<(CFrame, Thread)> {
    let cframe = CFrame(address);
    let thread = cframe.thread(layout)?;
    (thread.cframe(layout)? == address).then_some((cframe, thread))
}

/// Other bases that rbp hints at: it keeps either the thread, whose own base
/// counts then, or a copy of the base, over calls of C helpers.
fn rivals(
    registers: &Registers,
    thread: Thread,
    layout: &Layout,
) -> impl Iterator<Item = usize> + use<> {
    let stored = (registers.rbp == thread.address())
        .then(|| thread.base(layout))
        .flatten();
    stored.into_iter().chain([registers.rbp])
}

fn function_at(layout: &Layout, stack: Stack, base: usize) -> Option<Function> {
    if !stack.holds(layout, base) {
        return None;
    }
    match Callee::of(layout, base)? {
        Callee::Function(function) => Some(function),
        Callee::Dummy => None,
    }
}

/// Whether the caller that `link` names is one.
fn called(layout: &Layout, stack: Stack, base: usize, link: Link) -> bool {
    match link {
        Link::Lua { pc } => lua_caller(layout, base, pc).is_some_and(|below| {
            function_at(layout, stack, below).is_some_and(|function| {
                matches!(function.kind(layout), Some(Kind::Lua(proto))
                    if proto.holds(layout, pc) == Some(true))
            })
        }),
        Link::C(delta)
        | Link::Continuation(delta)
        | Link::Vararg(delta)
        | Link::ProtectedC(delta)
        | Link::Pcall(delta) => delta != 0 && stack.holds(layout, base.wrapping_sub(delta)),
    }
}

/// The innermost frame of the stretch that `cframe` owns, for native code that
/// the VM called and that returns to `ip`. `rbp` and `rbx` are those of the VM at
/// the call; `rbx` is only asked for where it matters.
///
/// The interpreter stores its base before it calls a helper that may look at it,
/// and then keeps the thread in rbp. Before it calls one that does not, it only
/// keeps the base in rbp. The position is in rbx, as always; it is stored as
/// well where an error may want to tell it.
pub fn called_from(
    layout: &Layout,
    cframe: CFrame,
    ip: usize,
    rbp: usize,
    mut rbx: impl FnMut() -> Option<usize>,
) -> Option<Top> {
    let thread = cframe.thread(layout)?;
    let stack = thread.stack(layout)?;
    let base = thread.base(layout)?;
    let saved = cframe.pc(layout)?;
    let top = |base: usize, pc: usize| Top {
        cframe,
        thread,
        stack,
        base,
        pc,
    };
    if rbx().is_some_and(|rbx| is_ctype_state(layout, rbx)) {
        return Some(top(base, or_start(layout, stack, base, saved)));
    }
    let current = |base: usize, pc: usize| within(layout, stack, base, pc) != 0;
    if rbp != thread.address() && stack.holds(layout, rbp) {
        match function_at(layout, stack, rbp).map(|kept| (kept, kept.kind(layout))) {
            // The helper has put results of a built-in in the place of its
            // frame: the caller's is the innermost one now.
            None => {
                let pc = rbx()?;
                if let Some(below) = returned_to(layout, rbp, pc) {
                    return Some(top(below, or_start(layout, stack, below, pc)));
                }
            }
            Some((_, None)) => return None,
            Some((_, Some(Kind::Lua(_)))) => {
                let pc = rbx()? & !3;
                // A callee that is being made ready for its call lies there,
                // too: then the position is the caller's, and was stored.
                let stored = pc == saved && current(base, pc);
                if current(rbp, pc) && !stored {
                    return Some(top(rbp, pc));
                }
                return Some(top(base, or_start(layout, stack, base, pc)));
            }
            Some((kept, Some(Kind::C | Kind::Builtin(_)))) => {
                if runs_in(layout, kept, ip)? {
                    return Some(top(rbp, 0));
                }
            }
        }
    }
    let pc = match function_at(layout, stack, base).map(|function| function.kind(layout)) {
        Some(Some(Kind::Lua(_))) => match rbx().map(|pc| pc & !3) {
            // It has jumped already when it closes upvalues.
            Some(pc) if current(base, pc + 4) && closes_upvalues(layout, ip) => pc + 4,
            Some(pc) if current(base, pc) => pc,
            _ => saved,
        },
        _ => 0,
    };
    Some(top(base, or_start(layout, stack, base, pc)))
}

/// The base of the caller of the frame at `base`, by the link `word` that its
/// frame had.
fn returned_to(layout: &Layout, base: usize, word: usize) -> Option<usize> {
    match Link::decode(word)? {
        Link::Lua { pc } => {
            let below = lua_caller(layout, base, pc)?;
            let caller = Callee::of(layout, below)?;
            matches!(caller, Callee::Function(function)
                if matches!(function.kind(layout), Some(Kind::Lua(proto))
                    if proto.holds(layout, pc) == Some(true)))
            .then_some(below)
        }
        Link::Pcall(delta) => base.checked_sub(delta),
        _ => None,
    }
}

fn closes_upvalues(layout: &Layout, ip: usize) -> bool {
    let start = layout.entries.get(usize::from(layout.opcodes.uclo));
    start.copied() == layout.handler_of(ip)
}

/// How far the VM's C frame of `top` has got that has called native code, which
/// returns to `ip`; `rbx` is that of the VM at the call.
pub fn entry(layout: &Layout, top: Top, ip: usize, rbx: usize) -> Entry {
    if is_ctype_state(layout, rbx) {
        let made = Link::of(layout, top.base)
            .is_some_and(|link| frames::is_callback(layout, top.base, link));
        return match made {
            true => Entry::Callback,
            false => Entry::Pending,
        };
    }
    let function = function_at(layout, top.stack, top.base);
    let is_c = |function: &Function| function.kind(layout) == Some(Kind::C);
    match function.filter(is_c) {
        // `lua_cpcall` has a C function called that makes the frame; but for that
        // the VM would be at the function's own header, for a hook or the recorder.
        Some(function)
            if top.cframe.results(layout) == Some(1)
                && runs_in(layout, function, ip) == Some(false)
                && !is_at_header(layout, function, top.cframe) =>
        {
            Entry::Pending
        }
        _ => Entry::Made,
    }
}

/// Whether the VM has left `cframe` with its position after the header of
/// `function` (`vm_hotcall` and `vm_callhook` in `vm_x86.dasc`, `vm_x64.dasc`).
fn is_at_header(layout: &Layout, function: Function, cframe: CFrame) -> bool {
    let header = function.header(layout);
    header.is_some() && cframe.pc(layout) == header.map(|header| header + 4)
}

/// While an error is unwinding the stack: whether a frame that was entered from C
/// by the function of `top` is still there above it. The error leaves that frame:
/// it has put the base back, and is about to put the C frame back.
pub fn is_left(layout: &Layout, top: Top) -> bool {
    /// More slots than a C function's own values take, mostly.
    const MOST: usize = 64;
    let Some(end) = top.thread.top(layout) else {
        return false;
    };
    let first = top.base + layout.at.frame_slots * SLOT;
    (first..=end).step_by(SLOT).take(MOST).any(|base| {
        let entered = match Link::of(layout, base) {
            Some(Link::C(delta) | Link::ProtectedC(delta)) => base - top.base == delta,
            _ => false,
        };
        entered && matches!(Callee::of(layout, base), Some(Callee::Function(_)))
    })
}

/// What of an entry into the VM there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A C frame, and frames on the Lua stack that belong to it.
    Made,
    /// Only the C frame: what lies on the Lua stack belongs to the one before.
    Pending,
    /// An FFI callback's, which is being entered or left.
    Callback,
}

/// Whether `address` is that of the FFI's `CTState`, which the VM keeps in rbx
/// while it enters or leaves a callback (`lj_ctype.h`: a table, two numbers, the
/// thread, and then `global_State`). The last alone is not enough: rbx may hold the
/// position of a built-in, and `global_State`'s own address lie behind that.
fn is_ctype_state(layout: &Layout, address: usize) -> bool {
    const THREAD: usize = 16;
    const GLOBAL: usize = 24;
    let thread = || Thread::at(layout, read::<u64>(address + THREAD)? as usize);
    address.is_multiple_of(SLOT)
        && read::<u64>(address.wrapping_add(GLOBAL)) == Some(layout.global as u64)
        && thread().is_some()
}

/// Whether the position of the function of `top`, which is being left, is one
/// that it was called or made a call at, and not where it returned.
pub fn is_stale(layout: &Layout, top: Top) -> bool {
    let saved = top.cframe.pc(layout);
    function_at(layout, top.stack, top.base).is_some_and(|function| match function.kind(layout) {
        Some(Kind::Lua(proto)) => saved.and_then(|pc| proto.holds(layout, pc)) == Some(true),
        _ => false,
    })
}

/// Whether `ip` lies in the code by which C enters an FFI callback: a page that
/// begins with the address in the VM that it jumps to (`lj_ccallback.c`).
pub fn is_callback(layout: &Layout, ip: usize) -> bool {
    const PAGE: usize = 4096;
    read::<u64>(ip & !(PAGE - 1))
        .is_some_and(|entry| layout.interpreter.contains(&(entry as usize)))
}

/// Whether `ip` lies in the machine code of a built-in, or of the bytecode by
/// which C functions are called.
fn runs_in(layout: &Layout, function: Function, ip: usize) -> Option<bool> {
    let opcode = read::<u8>(function.header(layout)?)?;
    let start = *layout.entries.get(usize::from(opcode))?;
    Some(layout.handler_of(ip)? == start)
}

/// The stretch that `cframe` owns below a boundary, at `base`.
pub fn below_boundary(layout: &Layout, cframe: CFrame, thread: Thread, base: usize) -> Option<Top> {
    let stack = thread.stack(layout)?;
    Some(Top {
        cframe,
        thread,
        stack,
        base,
        pc: within(layout, stack, base, cframe.pc(layout)?),
    })
}

/// `pc` if it is one of the function at `base`, else 0: the VM puts other values
/// in its place when no bytecode is being run.
fn within(layout: &Layout, stack: Stack, base: usize, pc: usize) -> usize {
    function_at(layout, stack, base)
        .and_then(|function| match function.kind(layout)? {
            Kind::Lua(proto) => proto.holds(layout, pc)?.then_some(pc),
            _ => None,
        })
        .unwrap_or(0)
}

/// `pc` if it lies in the Lua function at `base`, else the start of that
/// function: one that has a frame and no position is about to be called. A
/// position behind the function's end stands for its last line: the VM has lost
/// the position where an FFI callback returned (`lj_ccallback_leave`).
fn or_start(layout: &Layout, stack: Stack, base: usize, pc: usize) -> usize {
    function_at(layout, stack, base)
        .and_then(|function| match function.kind(layout)? {
            Kind::Lua(proto) if proto.holds(layout, pc)? => Some(pc),
            Kind::Lua(proto) if proto.holds(layout, pc.checked_sub(4)?)? => Some(pc - 4),
            Kind::Lua(proto) => Some(proto.bytecode(layout) + 4),
            _ => None,
        })
        .unwrap_or(0)
}

/// Whether the frame at `base` belongs to `cframe`. A frame that `lua_cpcall`
/// made may own none: it then only marks how high the stack was.
pub fn owns_frames(layout: &Layout, cframe: CFrame, stack: Stack, base: usize) -> Option<bool> {
    let results = cframe.results(layout)?;
    if results >= 0 {
        return Some(true);
    }
    let height = stack.low + results.unsigned_abs() as usize;
    Some(base > height)
}

//! Walks one stretch of a Lua stack, from a frame down to the next C boundary.
//!
//! Knows: frames and what links them (`lj_frame.h`). Must not know: which frame
//! is the innermost one (`place`), what lies on the native stack.
//!
//! A stretch is what one C frame of the VM owns: it ends at a frame that was
//! entered from C. Below it, the thread's stack goes on with the stretch of an
//! older C frame.

use super::known::{Body, Known};
use super::layout::{Family, Layout};
use super::objects::{Callee, Function, Kind, SLOT, Stack};
use crate::memory::read;

/// What the word beside a frame's function says: how to get to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Called from Lua: the caller's next instruction.
    Lua {
        /// Address of that instruction.
        pc: usize,
    },
    /// Called from C; the distance to the caller's base in bytes.
    C(usize),
    /// Called by the VM for a metamethod or the like.
    Continuation(usize),
    /// The second frame of a vararg function; no call of its own.
    Vararg(usize),
    /// Called from C under protection (`lua_pcall`, a coroutine's start).
    ProtectedC(usize),
    /// Called by `pcall` or `xpcall`.
    Pcall(usize),
}

/// Two continuations are numbers instead of code (`LJ_CONT_*`).
const CONT_FFI_CALLBACK: u64 = 1;

impl Link {
    /// Decodes a frame word.
    pub fn decode(word: usize) -> Option<Link> {
        let delta = word & !7;
        Some(match word & 7 {
            0 | 4 => Link::Lua { pc: word },
            1 => Link::C(delta),
            2 => Link::Continuation(delta),
            3 => Link::Vararg(delta),
            5 => Link::ProtectedC(delta),
            6 | 7 => Link::Pcall(delta),
            _ => return None,
        })
    }

    /// The link of the frame at `base`.
    #[inline]
    pub fn of(layout: &Layout, base: usize) -> Option<Link> {
        Link::decode(match layout.family {
            Family::Gc64 => read::<u64>(base - SLOT)? as usize,
            Family::Gc32 => read::<u32>(base - 4)? as usize,
        })
    }
}

/// Base of the frame that called the one at `base` by the call before `pc`.
#[inline]
pub fn lua_caller(layout: &Layout, base: usize, pc: usize) -> Option<usize> {
    let call_slot = usize::from(read::<u8>(pc.wrapping_sub(3))?);
    base.checked_sub((call_slot + layout.at.frame_slots) * SLOT)
}

/// One call on a Lua stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What was called.
    pub function: Function,
    /// What that is made of.
    pub body: Body,
    /// For Lua functions the address of the next instruction.
    pub pc: usize,
    /// Its base.
    pub base: usize,
}

/// Why a walk cannot go on. Nothing is guessed past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Memory on the way could not be read.
    Unreadable,
    /// What was read does not hold together.
    Inconsistent,
}

/// Where a stretch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At a frame that was entered from C; the stretch below begins at `base`.
    Boundary {
        /// Base of the frame that was innermost when C was left for the VM.
        base: usize,
    },
    /// At the bottom of the thread's stack.
    Bottom,
    /// The visitor wanted no more.
    Enough,
}

/// Walks from the frame at `base` to the end of its stretch and shows each call
/// to `visit`, which returns whether it wants more. `pc` is the next instruction
/// of the function at `base`, if that is a Lua function.
///
/// # Errors
/// Where the chain of frames breaks.
pub fn walk(
    layout: &Layout,
    known: &mut Known,
    stack: Stack,
    mut base: usize,
    mut pc: usize,
    mut visit: impl FnMut(Frame) -> bool,
) -> Result<End, Broken> {
    let bottom = stack.bottom(layout);
    let mut innermost = true;
    // Each round goes down at least one slot, so the stack's size bounds them.
    loop {
        if base == bottom {
            return Ok(End::Bottom);
        }
        if !stack.holds(layout, base) {
            return Err(Broken::Inconsistent);
        }
        let function = match Callee::address(layout, base) {
            Some(address) if known.met(address).is_some() => Some(Function::known(address)),
            slot => match slot.and_then(|address| Callee::at(layout, address)) {
                Some(Callee::Function(function)) => {
                    known.meet(layout, function).ok_or(Broken::Inconsistent)?;
                    Some(function)
                }
                Some(Callee::Dummy) => None,
                // A built-in may have put its result in its own place already.
                None if innermost => None,
                None => return Err(Broken::Inconsistent),
            },
        };
        innermost = false;
        let link = Link::of(layout, base).ok_or(Broken::Unreadable)?;
        if !matches!(link, Link::Vararg(_))
            && let Some(function) = function
            && let Some(body) = known.met(function.address())
        {
            if let Kind::Lua(proto) = body.kind
                && pc != 0
                && !proto.spans(layout, body.sizebc, pc)
            {
                return Err(Broken::Inconsistent);
            }
            let frame = Frame {
                function,
                body: *body,
                pc,
                base,
            };
            if !visit(frame) {
                return Ok(End::Enough);
            }
        }
        let below = match link {
            Link::Lua { pc: next } => {
                pc = next;
                lua_caller(layout, base, next).ok_or(Broken::Unreadable)?
            }
            Link::Vararg(delta) => base.wrapping_sub(delta),
            Link::Pcall(delta) => {
                pc = 0;
                base.wrapping_sub(delta)
            }
            Link::Continuation(delta) => {
                let (continuation, next) = continuation(layout, base).ok_or(Broken::Unreadable)?;
                if continuation == CONT_FFI_CALLBACK {
                    return boundary(layout, stack, base, delta);
                }
                pc = next;
                base.wrapping_sub(delta)
            }
            Link::C(delta) | Link::ProtectedC(delta) => {
                return boundary(layout, stack, base, delta);
            }
        };
        if below >= base {
            return Err(Broken::Inconsistent);
        }
        base = below;
    }
}

/// The boundary at `base`, if there is a frame below it. A stack that has moved
/// is freed before its thread knows: the allocator's own words lie on the old one
/// then, and a small number among them reads as a link to C.
fn boundary(layout: &Layout, stack: Stack, base: usize, delta: usize) -> Result<End, Broken> {
    let below = base.wrapping_sub(delta);
    if below < base && stack.holds(layout, below) && Callee::of(layout, below).is_some() {
        Ok(End::Boundary { base: below })
    } else {
        Err(Broken::Inconsistent)
    }
}

/// Whether the frame at `base`, linked so, is that of an FFI callback.
pub fn is_callback(layout: &Layout, base: usize, link: Link) -> bool {
    matches!(link, Link::Continuation(_))
        && continuation(layout, base).is_some_and(|(kind, _)| kind == CONT_FFI_CALLBACK)
}

/// The continuation of the frame at `base` and the bytecode it goes on at.
fn continuation(layout: &Layout, base: usize) -> Option<(u64, usize)> {
    match layout.family {
        Family::Gc64 => Some((
            read::<u64>(base - 4 * SLOT)?,
            read::<u64>(base - 3 * SLOT)? as usize,
        )),
        Family::Gc32 => Some((
            u64::from(read::<u32>(base - 2 * SLOT)?),
            read::<u32>(base - 2 * SLOT + 4)? as usize,
        )),
    }
}

//! Frame pointers, where no unwind table tells.
//!
//! Knows: what code looks like that keeps its frame in rbp, and how to prove
//! that a function does: the call that led to it says where it begins, it begins
//! by setting rbp up, and no other function begins between there and the place
//! that it is at. Must not know: unwind tables.
//!
//! rbp alone proves nothing: in a function that does not use it as a frame
//! pointer it is that of a caller further out, and to follow it would leave out
//! the one between. So what can't be proven is not followed.
//!
//! Runs in the signal handler.

use super::unwind::NativeFrame;
use crate::memory::{self, read};
use std::ops::Range;

/// The longest way from a function's beginning that is looked at.
const MOST_BYTES: usize = 16 * 1024;

const PUSH_RBP: u8 = 0x55;
/// `mov rbp, rsp`, in both encodings.
const MOV_RBP_RSP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
/// `endbr64`, which may come before.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;
/// First bytes of the instructions that fill gaps between functions: `nop`s of
/// all lengths, `int3`.
const PADDING: [u8; 4] = [0x90, 0x66, 0x0f, 0xcc];
/// Compilers begin functions at multiples of this.
const ALIGNMENT: usize = 16;

/// Whether `frame` has its frame in rbp, that of its caller in the word there and
/// its return address in the word after. It is in `module`, in code that no table
/// describes; `described` tells whether one describes an address.
pub fn is_set_up(
    frame: NativeFrame,
    module: Range<usize>,
    described: impl Fn(usize) -> bool,
) -> bool {
    let on_stack = frame.bp.is_multiple_of(8) && frame.bp >= frame.sp;
    on_stack && proven(frame, &module, described).unwrap_or(false)
}

fn proven(
    frame: NativeFrame,
    module: &Range<usize>,
    described: impl Fn(usize) -> bool,
) -> Option<bool> {
    let return_address = read::<u64>(frame.bp.checked_add(8)?)? as usize;
    let start = called_at(return_address)?;
    let body = after_prologue(start)?;
    let near = module.contains(&start) && body <= frame.ip && frame.ip - body <= MOST_BYTES;
    Some(near && !described(start) && is_one_function(body..frame.ip)?)
}

/// Where the function begins that was called by the instruction before
/// `return_address`, if that names it.
fn called_at(return_address: usize) -> Option<usize> {
    const CALL: u8 = 0xe8;
    let from = return_address.checked_sub(5)?;
    if read::<u8>(from)? != CALL {
        return None;
    }
    let relative = |at: usize| Some(read::<u32>(at)? as i32 as isize);
    let target = return_address.checked_add_signed(relative(from + 1)?)?;
    // A stub of the linker's jumps on by way of a table.
    let stub = match bytes(target)? {
        ENDBR64 => target + 4,
        _ => target,
    };
    let stub = match read::<u8>(stub)? {
        // bnd
        0xf2 => stub + 1,
        _ => stub,
    };
    if read::<u8>(stub)? == 0xff && read::<u8>(stub + 1)? == 0x25 {
        let slot = (stub + 6).checked_add_signed(relative(stub + 2)?)?;
        return read::<u64>(slot).map(|address| address as usize);
    }
    Some(target)
}

/// The instruction after that by which the function at `start` sets rbp up, if
/// it does: it pushes rbp first, and soon puts the stack pointer there.
fn after_prologue(start: usize) -> Option<usize> {
    const NEAR: usize = 24;
    let start = match bytes(start)? {
        ENDBR64 => start + 4,
        _ => start,
    };
    let mut code = [0; NEAR];
    if !memory::copy(&mut code, start) || code[0] != PUSH_RBP {
        return None;
    }
    let set = code
        .windows(3)
        .position(|bytes| MOV_RBP_RSP.iter().any(|mov| bytes == mov))?;
    Some(start + set + 3)
}

fn bytes(at: usize) -> Option<[u8; 4]> {
    read::<u32>(at).map(u32::to_le_bytes)
}

/// Whether no function ends or begins in `code`. Instructions are not decoded,
/// so that a byte of one may be taken for an end; never the other way round.
fn is_one_function(code: Range<usize>) -> Option<bool> {
    let mut buffer = [0; 256];
    let mut before = 0u32;
    let mut at = code.start;
    while at < code.end {
        let len = buffer.len().min(code.end - at);
        if !memory::copy(&mut buffer[..len], at) {
            return None;
        }
        for (offset, &byte) in buffer[..len].iter().enumerate() {
            let boundary = (at + offset).is_multiple_of(ALIGNMENT);
            let ended = before as u8 == RET && (boundary || PADDING.contains(&byte));
            before = before << 8 | u32::from(byte);
            let [first, rest @ ..] = before.to_be_bytes();
            if ended || first == PUSH_RBP && MOV_RBP_RSP.contains(&rest) {
                return Some(false);
            }
        }
        at += len;
    }
    Some(true)
}

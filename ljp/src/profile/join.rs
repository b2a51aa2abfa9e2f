//! One stack out of a Lua and a native stack that were recorded side by side.
//!
//! Knows how the two alternate: native code enters Lua through a few functions
//! of the API, and a C function that Lua calls is on both stacks.

use crate::Frame;

/// Through these the native stack enters Lua.
const ENTRIES: [&[u8]; 4] = [b"lua_call", b"lua_pcall", b"lua_cpcall", b"lua_resume"];

/// Whether the native function with this name enters Lua.
pub(super) fn is_entry(name: &[u8]) -> bool {
    ENTRIES.contains(&name)
}

/// Puts the frames of both stacks, which come innermost first, into `out`,
/// outermost first. `enters` says of a native frame whether it enters Lua,
/// `is_c` of a Lua frame whether it is a C function.
///
/// Below every entry come the Lua frames up to the next C function, which is
/// where the native stack goes on. Without an entry the native frames can only
/// be what the innermost Lua function is doing.
pub(super) fn outermost_first(
    lua: &[Frame],
    native: &[Frame],
    enters: impl Fn(&Frame) -> bool,
    is_c: impl Fn(&Frame) -> bool,
    out: &mut Vec<Frame>,
) {
    let mut lua = lua.iter().rev();
    let mut entries = native.iter().filter(|frame| enters(frame)).count();
    if entries == 0 {
        out.extend(lua.by_ref());
    }
    for frame in native.iter().rev() {
        out.push(*frame);
        if !enters(frame) {
            continue;
        }
        entries -= 1;
        for frame in lua.by_ref() {
            out.push(*frame);
            // After the last entry there is no way back into Lua, so all that
            // is left belongs here.
            if entries > 0 && is_c(frame) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lua(proto: u32) -> Frame {
        Frame::Lua { proto, line: 0 }
    }

    fn c(func: u32) -> Frame {
        Frame::Func { func }
    }

    fn native(address: u64) -> Frame {
        Frame::Native {
            module: None,
            address,
        }
    }

    /// Native frames with an address below 10 enter Lua.
    fn join(lua: &[Frame], native: &[Frame]) -> Vec<Frame> {
        let mut out = Vec::new();
        outermost_first(
            lua,
            native,
            |frame| matches!(frame, Frame::Native { address, .. } if *address < 10),
            |frame| matches!(frame, Frame::Func { .. }),
            &mut out,
        );
        out
    }

    #[test]
    fn the_stacks_alternate() {
        let joined = join(
            &[lua(4), lua(3), c(2), lua(1)],
            &[native(40), native(2), native(30), native(1), native(20)],
        );
        let expected = [
            native(20),
            native(1),
            lua(1),
            c(2),
            native(30),
            native(2),
            lua(3),
            lua(4),
            native(40),
        ];
        assert_eq!(joined, expected);
    }

    #[test]
    fn without_an_entry_native_code_is_innermost() {
        assert_eq!(
            join(&[c(1), lua(0)], &[native(50)]),
            [lua(0), c(1), native(50)]
        );
        assert_eq!(join(&[], &[native(50)]), [native(50)]);
        assert_eq!(join(&[lua(1)], &[]), [lua(1)]);
    }

    #[test]
    fn no_frame_is_lost_when_the_stacks_disagree() {
        let joined = join(&[c(3), lua(2), c(1), c(0)], &[native(1), native(2)]);
        assert_eq!(joined.len(), 6);
        let joined = join(&[lua(0)], &[native(1), native(2), native(3)]);
        assert_eq!(joined.len(), 4);
    }
}

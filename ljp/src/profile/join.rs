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
/// `inside` of a Lua frame the index of the innermost native frame that lies in
/// it, which can only be one of a C function.
///
/// At every entry come the Lua frames up to the next C function that the native
/// stack goes on with. What is left of the Lua stack comes last: the recorder
/// may have left out the native frames that it belongs to. Without any entry,
/// the Lua stack is taken to have been entered at once.
pub(super) fn outermost_first(
    lua: &[Frame],
    native: &[Frame],
    enters: impl Fn(&Frame) -> bool,
    inside: impl Fn(&Frame) -> Option<usize>,
    out: &mut Vec<Frame>,
) {
    let mut lua = lua.iter().rev();
    // `left` is how many native frames, the innermost ones, are still to come.
    let mut enter = |left: usize, out: &mut Vec<Frame>| {
        for frame in lua.by_ref() {
            out.push(*frame);
            if inside(frame).is_some_and(|at| at < left) {
                break;
            }
        }
    };
    if !native.iter().any(&enters) {
        enter(native.len(), out);
    }
    for (left, frame) in native.iter().enumerate().rev() {
        out.push(*frame);
        if enters(frame) {
            enter(left, out);
        }
    }
    enter(0, out);
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

    /// Native frames with an address below 10 enter Lua, the one with address
    /// 10 times a C function's number is in it.
    fn join(lua: &[Frame], native: &[Frame]) -> Vec<Frame> {
        let mut out = Vec::new();
        outermost_first(
            lua,
            native,
            |frame| matches!(frame, Frame::Native { address, .. } if *address < 10),
            |frame| match frame {
                Frame::Func { func } => {
                    let frame = self::native(u64::from(*func) * 10);
                    native.iter().position(|native| *native == frame)
                }
                _ => None,
            },
            &mut out,
        );
        out
    }

    #[test]
    fn the_stacks_alternate() {
        let joined = join(
            &[lua(4), lua(3), c(3), lua(1)],
            &[native(40), native(2), native(30), native(1), native(20)],
        );
        let expected = [
            native(20),
            native(1),
            lua(1),
            c(3),
            native(30),
            native(2),
            lua(3),
            lua(4),
            native(40),
        ];
        assert_eq!(joined, expected);
    }

    #[test]
    fn what_native_frames_are_missing_for_comes_last() {
        // The way from the C function back into Lua was not recorded.
        let joined = join(&[lua(1), c(3)], &[native(30), native(2), native(20)]);
        let expected = [native(20), native(2), c(3), native(30), lua(1)];
        assert_eq!(joined, expected);
        // Nor was the C function itself.
        let joined = join(&[lua(1), c(3)], &[native(2), native(20)]);
        assert_eq!(joined, [native(20), native(2), c(3), lua(1)]);
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

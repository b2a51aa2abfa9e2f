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

/// Which built-in the native function `symbol` is, in the way in which [`builtin`]
/// has it: LuaJIT makes `table.sort` of `lj_cf_table_sort`.
pub(super) fn builtin_of(symbol: &[u8]) -> Option<&[u8]> {
    symbol.strip_prefix(b"lj_cf_")
}

/// A built-in's name as it is part of its symbol.
pub(super) fn builtin(name: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| if *byte == b'.' { b'_' } else { *byte };
    name.iter().map(plain).collect()
}

/// Puts the frames of both stacks, which come innermost first, into `out`,
/// outermost first. `enters` says of a native frame whether it enters Lua,
/// `inside` of a Lua frame the index of the innermost native frame that lies in
/// it, which can only be one of a C function or a built-in.
///
/// At every entry come the Lua frames up to the next C function that the native
/// stack goes on with. Such a function comes before its native frame even where
/// no entry is seen: `lua_call` leaves its place to what it calls. What is left of
/// the Lua stack comes last: the recorder may have left out the native frames that
/// it belongs to. Without any entry, the Lua stack is taken to have been entered
/// at once.
pub(super) fn outermost_first(
    lua: &[Frame],
    native: &[Frame],
    enters: impl Fn(&Frame) -> bool,
    inside: impl Fn(&Frame) -> Option<usize>,
    out: &mut Vec<Frame>,
) {
    // How many frames, the innermost ones, are still to come: of the Lua stack,
    // and of the native one.
    let (mut lua_left, mut left) = (lua.len(), native.len());
    let inside: Vec<Option<usize>> = lua.iter().map(inside).collect();
    // The native frame of the C function that came last, if it is still to come.
    let mut awaited: Option<&Frame> = None;
    let enter = |lua_left: &mut usize, left: usize, out: &mut Vec<Frame>| {
        while *lua_left > 0 {
            *lua_left -= 1;
            out.push(lua[*lua_left]);
            if let Some(at) = inside[*lua_left].filter(|&at| at < left) {
                return Some(&native[at]);
            }
        }
        None
    };
    if !native.iter().any(&enters) {
        awaited = enter(&mut lua_left, left, out);
    }
    // Lua frames from here on are no C functions whose native frame is to come.
    let mut passed = lua.len();
    for frame in native.iter().rev() {
        if awaited == Some(frame) {
            awaited = None;
        } else if awaited.is_none() {
            passed = passed.min(lua_left);
            while passed > 0 && inside[passed - 1].is_none_or(|at| at >= left) {
                passed -= 1;
            }
            let next = passed.checked_sub(1).and_then(|next| inside[next]);
            if next.is_some_and(|at| native[at] == *frame) {
                enter(&mut lua_left, left, out);
            }
        }
        out.push(*frame);
        left -= 1;
        if enters(frame) {
            awaited = enter(&mut lua_left, left, out);
        }
    }
    enter(&mut lua_left, 0, out);
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

    #[test]
    fn built_ins_are_named_after_their_library() {
        for (symbol, name) in [("lj_cf_table_sort", "table.sort"), ("lj_cf_print", "print")] {
            assert_eq!(
                builtin_of(symbol.as_bytes()),
                Some(&builtin(name.as_bytes())[..])
            );
        }
        assert_eq!(builtin_of(b"table_sort"), None);
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
    fn a_c_function_comes_before_its_native_frame_where_no_entry_is_seen() {
        // `lua_call` has left no frame between the two C functions.
        let joined = join(
            &[c(4), lua(3), c(3), lua(1)],
            &[native(40), native(31), native(30), native(1), native(20)],
        );
        let expected = [
            native(20),
            native(1),
            lua(1),
            c(3),
            native(30),
            native(31),
            lua(3),
            c(4),
            native(40),
        ];
        assert_eq!(joined, expected);
    }

    #[test]
    fn a_c_function_inside_of_itself_is_two() {
        let joined = join(
            &[c(3), lua(2), c(3), lua(1)],
            &[native(30), native(2), native(30), native(1)],
        );
        let expected = [
            native(1),
            lua(1),
            c(3),
            native(30),
            native(2),
            lua(2),
            c(3),
            native(30),
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

//! How functions and places are called.
//!
//! Knows definitions of a profile one at a time. Knows nothing of stacks, and
//! of native code only the name that a symbol has already got.

use crate::number::counted;
use ljp::decode::{Abort, Module, Proto};
use ljp::{NameKind, Reason, TraceDef};

/// The longest text of a chunk without a file name that is shown, as in Lua's
/// own messages (`LUA_IDSIZE` without the brackets, and with the dots).
const TEXT_LIMIT: usize = 48;
const CUT_TEXT_LIMIT: usize = 45;

/// First line of a function of LuaJIT's own that is written in Lua.
const BUILTIN_LINE: u32 = u32::MAX;

/// A chunk's name as Lua's messages show it: `@file` is a file, `=name` a name,
/// and anything else the source text itself, of which the first line is shown.
pub fn chunk(name: &[u8]) -> String {
    match name.split_first() {
        Some((b'@' | b'=', rest)) => text(rest),
        _ => {
            let line = name
                .iter()
                .take(TEXT_LIMIT)
                .take_while(|byte| **byte >= b' ')
                .count();
            if line == name.len() {
                format!("[string \"{}\"]", text(name))
            } else {
                let line = &name[..line.min(CUT_TEXT_LIMIT)];
                format!("[string \"{}...\"]", text(line))
            }
        }
    }
}

/// A Lua function: `name (file:line)` with the line where it starts,
/// `file:line` if it has no name, or `main chunk (file)`.
pub fn proto(proto: &Proto) -> String {
    if proto.first_line == BUILTIN_LINE {
        let name = if proto.name.is_empty() {
            &proto.chunk
        } else {
            &proto.name
        };
        return text(name.strip_prefix(b"=").unwrap_or(name));
    }
    let chunk = chunk(&proto.chunk);
    let nameless = proto.name.is_empty();
    if proto.name_kind == NameKind::Main || nameless && proto.first_line == 0 {
        return format!("main chunk ({chunk})");
    }
    if nameless {
        format!("{chunk}:{}", proto.first_line)
    } else {
        format!("{} ({chunk}:{})", text(&proto.name), proto.first_line)
    }
}

/// A place in a Lua function: `file:line`.
pub fn line(proto: &Proto, line: u32) -> String {
    format!("{}:{line}", chunk(&proto.chunk))
}

/// A place in a function that calls may have been inlined into.
pub fn inlined(line: String) -> String {
    line + ", or inlined there"
}

/// A recording that was aborted: `file:line: reason`.
pub fn abort(abort: &Abort) -> String {
    let (chunk, reason) = (chunk(&abort.chunk), text(&abort.reason));
    match abort.line {
        0 => format!("{chunk}: {reason}"),
        line => format!("{chunk}:{line}: {reason}"),
    }
}

/// A trace: `trace 7 (file:line)`, with the line where it starts; then the exit
/// that it starts from, its size and where it goes on, if the stream says so.
pub fn trace(trace: &TraceDef, proto: Option<&Proto>) -> String {
    let mut label = place(trace, proto);
    if trace.parent > 0 {
        label += &format!(", from exit {} of trace {}", trace.exit, trace.parent);
    }
    if trace.mcode_size > 0 {
        label += &format!(", {}", counted(trace.mcode_size, "byte"));
        label += &match trace.link {
            0 => ", back to the interpreter".to_owned(),
            link if link == trace.number => ", loops".to_owned(),
            link => format!(", on to trace {link}"),
        };
    }
    label
}

fn place(trace: &TraceDef, proto: Option<&Proto>) -> String {
    match proto {
        Some(proto) if trace.line > 0 => {
            format!("trace {} ({})", trace.number, line(proto, trace.line))
        }
        Some(proto) => format!("trace {} ({})", trace.number, chunk(&proto.chunk)),
        None => format!("trace {}", trace.number),
    }
}

/// Native code without a name: `module+0x1234`.
pub fn address(module: Option<&Module>, address: u64) -> String {
    match module {
        Some(module) => format!("{}+{address:#x}", file_name(module)),
        None => format!("{address:#x}"),
    }
}

/// Why a sample has no stack, by the number of the reason.
pub fn reason(number: u8) -> String {
    match Reason::from_number(number.into()) {
        Some(reason) => reason.name().to_owned(),
        None => format!("reason {number}"),
    }
}

/// The last part of a module's path.
pub fn file_name(module: &Module) -> String {
    let name = module.path.rsplit(|byte| *byte == b'/').next();
    text(name.unwrap_or_default())
}

/// Bytes as text. Control characters would garble a terminal, so they are
/// shown by their escapes.
pub fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    let mut shown = String::new();
    for char in text.chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(chunk: &str, first_line: u32, name: &str, name_kind: NameKind) -> Proto {
        Proto {
            chunk: chunk.into(),
            first_line,
            num_lines: 1,
            name: name.into(),
            name_kind,
        }
    }

    #[test]
    fn chunks_read_as_in_lua() {
        assert_eq!(chunk(b"@/srv/app.lua"), "/srv/app.lua");
        assert_eq!(chunk(b"=stdin"), "stdin");
        assert_eq!(chunk(b"return 1"), "[string \"return 1\"]");
        assert_eq!(chunk(b"local x\nreturn x"), "[string \"local x...\"]");
        let long = [b'x'; 100];
        assert_eq!(chunk(&long), format!("[string \"{}...\"]", "x".repeat(45)));
        assert_eq!(chunk(b""), "[string \"\"]");
    }

    #[test]
    fn functions_are_named_or_placed() {
        let named = function("@a.lua", 3, "work", NameKind::Local);
        assert_eq!(proto(&named), "work (a.lua:3)");
        let nameless = function("@a.lua", 3, "", NameKind::None);
        assert_eq!(proto(&nameless), "a.lua:3");
        let main = function("@a.lua", 0, "", NameKind::Main);
        assert_eq!(proto(&main), "main chunk (a.lua)");
        let own = function("rad", BUILTIN_LINE, "", NameKind::None);
        assert_eq!(proto(&own), "rad");
    }

    #[test]
    fn traces_say_where_they_start_and_go_on() {
        let proto = function("@a.lua", 3, "work", NameKind::Local);
        let root = TraceDef {
            number: 5,
            line: 4,
            mcode_size: 300,
            link: 5,
            ..TraceDef::default()
        };
        assert_eq!(
            trace(&root, Some(&proto)),
            "trace 5 (a.lua:4), 300 bytes, loops"
        );
        let side = TraceDef {
            number: 6,
            parent: 5,
            exit: 2,
            ..root
        };
        assert_eq!(
            trace(&side, Some(&proto)),
            "trace 6 (a.lua:4), from exit 2 of trace 5, 300 bytes, on to trace 5"
        );
        let last = TraceDef { link: 0, ..root };
        assert_eq!(
            trace(&last, None),
            "trace 5, 300 bytes, back to the interpreter"
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(text(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\u{fffd}");
    }
}

//! Which recordings came to nothing, where and why.
//!
//! Knows: the arguments of LuaJIT's event (`trace_abort` in `lj_trace.c`): the place,
//! an error's number or text, and what the error is about. LuaJIT's own table
//! `jit.vmdef` says what the numbers mean. Must not know: who shows it.
//!
//! Not for signal handlers.

use crate::memory;
use crate::vm::layout::Layout;
use crate::vm::lines;
use crate::vm::names::{self, MAX_CHUNK};
use crate::vm::objects::{Function, Kind};
use mlua::{Lua, Table, ffi};
use std::collections::HashMap;

/// The most kinds of aborts that are told apart. A program that makes up code at run
/// time has no end of them.
const MOST: usize = 512;

/// Why, in LuaJIT's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Error {
    Number(i64),
    Text(String),
}

/// What an error is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum About {
    Nothing,
    /// A bytecode, or something else that has a number.
    Number(i64),
    /// A C function or built-in.
    Function(usize, u8),
    /// A place in Lua, or a text.
    Text(String),
}

/// A place with the reason why what was recorded from there was given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    chunk: Vec<u8>,
    line: u32,
    error: Error,
    about: About,
}

/// Recordings that were aborted, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// How many.
    pub times: u64,
    /// The chunk and line at which recording ended.
    pub chunk: Vec<u8>,
    /// 0 if unknown.
    pub line: u32,
    /// Why.
    pub reason: String,
}

/// How often which recordings were aborted.
#[derive(Debug, Default)]
pub struct Aborts {
    times: HashMap<Kept, u64>,
}

impl Aborts {
    /// Counts the one that `state` has the arguments of, as the event's callback gets
    /// them: the function, the position in it, the error and what that is about
    /// come third to sixth.
    ///
    /// # Safety
    /// `state` is that of a callback whose arguments are still on the stack.
    pub unsafe fn count(&mut self, layout: &Layout, state: *mut ffi::lua_State) {
        // SAFETY: the caller's promise; reads of arguments.
        let (function, position) = unsafe {
            (
                ffi::lua_topointer(state, 3) as usize,
                ffi::lua_tointeger(state, 4) as i64,
            )
        };
        // SAFETY: as above.
        let (error, about) = unsafe {
            let error = match ffi::lua_type(state, 5) {
                ffi::LUA_TNUMBER => Error::Number(ffi::lua_tointeger(state, 5) as i64),
                _ => Error::Text(text(state, 5)),
            };
            let about = match ffi::lua_type(state, 6) {
                ffi::LUA_TNUMBER => About::Number(ffi::lua_tointeger(state, 6) as i64),
                ffi::LUA_TFUNCTION => about(layout, ffi::lua_topointer(state, 6) as usize),
                ffi::LUA_TSTRING => About::Text(text(state, 6)),
                _ => About::Nothing,
            };
            (error, about)
        };
        let Some((chunk, line)) = place(layout, function, position) else {
            return;
        };
        let kept = Kept {
            chunk,
            line,
            error,
            about,
        };
        if self.times.len() < MOST || self.times.contains_key(&kept) {
            *self.times.entry(kept).or_default() += 1;
        }
    }

    /// All of them, most frequent first. `name` has the name of a function by its
    /// machine code and number, empty if there is none.
    pub fn told<'n>(&self, lua: &Lua, name: &impl Fn(usize, u8) -> &'n str) -> Vec<Abort> {
        let has_number = |kept: &Kept| matches!(kept.error, Error::Number(_));
        let meanings = match self.times.keys().any(has_number) {
            true => Meanings::of(lua),
            false => Meanings::default(),
        };
        let mut all: Vec<Abort> = (self.times.iter())
            .map(|(kept, &times)| Abort {
                times,
                chunk: kept.chunk.clone(),
                line: kept.line,
                reason: meanings.reason(&kept.error, &kept.about, name),
            })
            .collect();
        all.sort_by(|a, b| {
            let place = |abort: &Abort| (abort.chunk.clone(), abort.line, abort.reason.clone());
            (b.times.cmp(&a.times)).then_with(|| place(a).cmp(&place(b)))
        });
        all
    }
}

/// What LuaJIT's numbers mean.
#[derive(Debug, Default)]
struct Meanings {
    /// Messages, with a place for what they are about.
    errors: HashMap<i64, String>,
    /// Names of bytecodes in one string, six characters each.
    bytecodes: String,
    builtins: HashMap<i64, String>,
}

impl Meanings {
    /// Those that `jit.vmdef` has, if it is installed.
    fn of(lua: &Lua) -> Meanings {
        let require = lua.globals().raw_get::<mlua::Function>("require");
        let Ok(table) = require.and_then(|require| require.call::<Table>("jit.vmdef")) else {
            return Meanings::default();
        };
        let list = |name| {
            let list: Table = table.raw_get(name).ok()?;
            Some(list.pairs().flatten().collect())
        };
        Meanings {
            errors: list("traceerr").unwrap_or_default(),
            bytecodes: table.raw_get("bcnames").unwrap_or_default(),
            builtins: list("ffnames").unwrap_or_default(),
        }
    }

    fn reason<'n>(
        &self,
        error: &Error,
        about: &About,
        name: &impl Fn(usize, u8) -> &'n str,
    ) -> String {
        let number = match error {
            Error::Text(text) => return text.clone(),
            Error::Number(number) => *number,
        };
        let Some(message) = self.errors.get(&number) else {
            return format!("error {number}");
        };
        let about = match about {
            About::Nothing => String::new(),
            About::Number(number) => {
                let bytecode = || {
                    self.bytecode(*number)
                        .filter(|_| message.contains("bytecode"))
                };
                bytecode().unwrap_or_else(|| number.to_string())
            }
            About::Function(code, ffid) => match name(*code, *ffid) {
                "" => self.builtins.get(&i64::from(*ffid)).cloned(),
                name => Some(name.to_owned()),
            }
            .unwrap_or_else(|| format!("{code:#x}")),
            About::Text(text) => text.clone(),
        };
        (message.replacen("%s", &about, 1)).replacen("%d", &about, 1)
    }

    fn bytecode(&self, number: i64) -> Option<String> {
        const EACH: usize = 6;
        let start = usize::try_from(number).ok()?.checked_mul(EACH)?;
        let name = self.bytecodes.get(start..start.checked_add(EACH)?)?;
        Some(name.trim().to_owned())
    }
}

/// The chunk and line of a position in the function at `address`.
fn place(layout: &Layout, address: usize, position: i64) -> Option<(Vec<u8>, u32)> {
    let Some(Kind::Lua(proto)) = Function::at(layout, address)?.kind(layout) else {
        return None;
    };
    let mut chunk = [0; MAX_CHUNK];
    let chunk = names::chunk(layout, proto, &mut chunk).to_vec();
    let after = usize::try_from(position).ok()?.checked_add(1)?;
    let line = lines::line_before(layout, proto, proto.bytecode(layout) + 4 * after);
    Some((chunk, line))
}

/// What an error is about that has the function at `address`.
fn about(layout: &Layout, address: usize) -> About {
    let function = Function::at(layout, address);
    match function.and_then(|function| Some((function, function.kind(layout)?))) {
        Some((_, Kind::Lua(proto))) => {
            let mut chunk = [0; MAX_CHUNK];
            let chunk = names::chunk(layout, proto, &mut chunk);
            let chunk = chunk.strip_prefix(b"@").unwrap_or(chunk);
            let line = proto.first_line(layout).unwrap_or(0);
            About::Text(format!("{}:{line}", String::from_utf8_lossy(chunk)))
        }
        Some((function, kind)) => About::Function(
            function.code(layout).unwrap_or(0),
            kind.number().unwrap_or(1),
        ),
        None => About::Nothing,
    }
}

/// The text at `index`, if there is one.
///
/// # Safety
/// `state` is live.
unsafe fn text(state: *mut ffi::lua_State, index: i32) -> String {
    /// Errors may be of any length.
    const MOST: usize = 200;
    let mut length = 0;
    // SAFETY: the caller's promise; a string is not converted, and is as long as
    // Lua says.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TSTRING {
            return "an error that is no text".to_owned();
        }
        let start = ffi::lua_tolstring(state, index, &mut length);
        let mut bytes = vec![0; length.min(MOST)];
        memory::copy(&mut bytes, start as usize);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_put_into_words() {
        let meanings = Meanings {
            errors: [
                (1, "NYI: bytecode %s"),
                (2, "NYI: bytecode %d"),
                (3, "NYI: %s"),
                (4, "loop"),
            ]
            .map(|(number, text)| (number, text.to_owned()))
            .into(),
            bytecodes: "ISLT  FNEW  ".to_owned(),
            builtins: [(9, "select".to_owned())].into(),
        };
        let name = |code: usize, _| if code == 0x10 { "cjson.encode" } else { "" };
        let reason = |number, about| meanings.reason(&Error::Number(number), &about, &name);
        assert_eq!(reason(1, About::Number(1)), "NYI: bytecode FNEW");
        assert_eq!(reason(2, About::Number(0)), "NYI: bytecode ISLT");
        assert_eq!(reason(1, About::Number(2)), "NYI: bytecode 2");
        assert_eq!(reason(1, About::Number(-1)), "NYI: bytecode -1");
        assert_eq!(
            reason(1, About::Number(i64::MAX)),
            format!("NYI: bytecode {}", i64::MAX)
        );
        assert_eq!(reason(3, About::Number(1)), "NYI: 1");
        assert_eq!(reason(3, About::Function(0x10, 1)), "NYI: cjson.encode");
        assert_eq!(reason(3, About::Function(0x20, 9)), "NYI: select");
        assert_eq!(reason(3, About::Function(0x20, 1)), "NYI: 0x20");
        assert_eq!(reason(3, About::Text("a.lua:1".into())), "NYI: a.lua:1");
        assert_eq!(reason(4, About::Nothing), "loop");
        assert_eq!(reason(5, About::Nothing), "error 5");
        let thrown = Error::Text("thrown".into());
        assert_eq!(meanings.reason(&thrown, &About::Nothing, &name), "thrown");
    }
}

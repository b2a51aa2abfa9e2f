//! What the functions of the loaded libraries are called.
//!
//! Knows: where Lua keeps libraries, and what else leads to their functions. Must
//! not know: what names are needed for.
//!
//! Not for signal handlers: Lua runs.

use crate::stream::intern::{FunctionNames, NamedFunction};
use crate::vm::layout::Layout;
use crate::vm::objects::{Function, Kind};
use mlua::{Lua, Result, Table, Value, ffi};
use std::collections::{HashMap, HashSet};

/// The C functions and built-ins of all loaded libraries, by name.
pub fn functions(lua: &Lua, layout: &Layout) -> FunctionNames {
    let mut names = Vec::new();
    let mut owners = HashMap::new();
    let mut shared = HashSet::new();
    let mut add = |function: &mlua::Function, name: String| {
        let Some(function) = Function::at(layout, function.to_pointer() as usize) else {
            return;
        };
        let Some(ffid) = function.kind(layout).and_then(Kind::number) else {
            return;
        };
        if let Some(code) = function.code(layout) {
            let key = (code, ffid);
            if *owners.entry(key).or_insert(function) != function && ffid == 1 {
                shared.insert(key);
            }
            names.push(NamedFunction {
                code,
                ffid,
                in_c: function.is_builtin_in_c(layout),
                name,
            });
        }
    };
    let loaded = libraries(lua);
    for (library, table) in loaded
        .iter()
        .flat_map(|loaded| named(loaded, Value::as_table))
    {
        for (name, function) in named(&table, Value::as_function) {
            let name = if library == "_G" {
                name
            } else {
                format!("{library}.{name}")
            };
            add(&function, name);
        }
    }
    for (function, name) in hidden_functions(lua, layout) {
        add(&function, name);
    }
    // A language's bindings may give all of their functions the same machine code,
    // by which they can't be told apart.
    names.retain(|function| !shared.contains(&(function.code, function.ffid)));
    FunctionNames::new(names)
}

/// The entries of `table` whose key is a string and whose value `of` takes.
///
/// Pairs are read as plain values: reading them as other types would end at the
/// first one that is none.
fn named<T: Clone>(table: &Table, of: fn(&Value) -> Option<&T>) -> Vec<(String, T)> {
    let pairs = table.pairs::<Value, Value>().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.as_string()?.to_string_lossy(), of(&value)?.clone())))
        .collect()
}

/// `package.loaded`.
fn libraries(lua: &Lua) -> Result<Table> {
    (lua.globals().raw_get::<Table>("package")).and_then(|package| package.raw_get("loaded"))
}

/// Built-ins that no library's table holds: iterators and their like, as their
/// makers return them, and what metatables of LuaJIT's own types hold.
fn hidden_functions(lua: &Lua, layout: &Layout) -> Vec<(mlua::Function, String)> {
    const MAKERS: [(&str, &str); 3] = [
        ("ipairs_aux", "return (ipairs({}))"),
        (
            "coroutine.wrap_aux",
            "return (coroutine.wrap(function() end))",
        ),
        ("string.gmatch_aux", "return (string.gmatch('', ''))"),
    ];
    // In an environment of the originals: a program may have put its own
    // functions in their place, which are none of our business.
    let Ok(environment) = pristine(lua, layout) else {
        return Vec::new();
    };
    let mut found: Vec<(mlua::Function, String)> = MAKERS
        .iter()
        .filter_map(|(name, maker)| {
            let maker = lua.load(*maker).set_environment(environment.clone());
            Some((maker.call::<mlua::Function>(()).ok()?, (*name).to_owned()))
        })
        .collect();
    for (of, metatable) in metatables(lua, layout) {
        let methods = metatable.raw_get::<Table>("__index").ok();
        for table in [Some(metatable), methods].into_iter().flatten() {
            let functions = named(&table, Value::as_function).into_iter();
            // A program may have put its own there.
            for (name, function) in functions.filter(|(_, f)| is_built_in(layout, f)) {
                // The table of methods may be the metatable itself.
                let joint = if name.starts_with("__") { '.' } else { ':' };
                found.push((function, format!("{of}{joint}{name}")));
            }
        }
    }
    found
}

/// The metatables of files and of what else the loaded libraries make, and what
/// their functions are called after.
fn metatables(lua: &Lua, layout: &Layout) -> Vec<(&'static str, Table)> {
    let made = |library: &str, maker: &str, of: Option<&str>| -> Result<Value> {
        let library: Table = libraries(lua)?.raw_get(library)?;
        match built_in(layout, &library, maker)? {
            Some(maker) => maker.call(of),
            None => Ok(Value::Nil),
        }
    };
    let held = |library: &str, value: &str| -> Result<Value> {
        libraries(lua)?.raw_get::<Table>(library)?.raw_get(value)
    };
    let examples = [
        ("file", held("io", "stdout")),
        ("ffi.meta", made("ffi", "typeof", Some("int"))),
        ("ffi.clib", held("ffi", "C")),
        ("buffer", made("string.buffer", "new", None)),
    ];
    let metatable = |example: Value| -> Result<Option<Table>> {
        // SAFETY: the argument is on the stack; what is pushed is returned.
        let metatable: Value = unsafe {
            lua.exec_raw(example, |state| {
                if ffi::lua_getmetatable(state, 1) == 0 {
                    ffi::lua_pushnil(state);
                }
                ffi::lua_replace(state, 1);
            })
        }?;
        Ok(metatable.as_table().cloned())
    };
    examples
        .into_iter()
        .filter_map(|(of, example)| Some((of, metatable(example.ok()?).ok()??)))
        .collect()
}

/// The built-ins that [`hidden_functions`] calls, those that are still built-ins.
fn pristine(lua: &Lua, layout: &Layout) -> Result<Table> {
    let environment = lua.create_table()?;
    let globals = lua.globals();
    let copy = |from: &Table, to: &Table, name: &str| match built_in(layout, from, name)? {
        Some(function) => to.raw_set(name, function),
        None => Ok(()),
    };
    copy(&globals, &environment, "ipairs")?;
    for (library, function) in [("coroutine", "wrap"), ("string", "gmatch")] {
        let table = lua.create_table()?;
        copy(&globals.raw_get(library)?, &table, function)?;
        environment.raw_set(library, table)?;
    }
    Ok(environment)
}

/// The function of that name in `library`, if it is still LuaJIT's own.
fn built_in(layout: &Layout, library: &Table, name: &str) -> Result<Option<mlua::Function>> {
    let function = library.raw_get::<mlua::Function>(name)?;
    Ok(is_built_in(layout, &function).then_some(function))
}

fn is_built_in(layout: &Layout, function: &mlua::Function) -> bool {
    // Not by `Function::info`: in Tarantool 2.6 mlua panics there.
    let kind = Function::at(layout, function.to_pointer() as usize)
        .and_then(|function| function.kind(layout));
    matches!(kind, Some(Kind::Builtin(_)))
}

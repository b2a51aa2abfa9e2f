//! The recorder as Lua sees it: `start`, `stop`, `report`.
//!
//! Knows: Lua values, and how errors look there. Must not know: how a session
//! works.

use crate::jit::events;
use crate::libraries;
use crate::native::modules::Catalogue;
use crate::native::tables;
use crate::options::{self, ClockChoice, Format, Misuse, Mode, Options};
use crate::sampler::Late;
use crate::session::{self, Error, Host};
use crate::vm::heap;
use crate::vm::layout::Family;
use crate::vm::probe::{self, CodeExtent};
use ljp::{Reason, VmState};
use mlua::{Lua, MultiValue, Result, Table, Value, ffi};
use std::ffi::c_int;
use std::path::PathBuf;

/// Where a VM keeps its guard.
const GUARD: &str = "sysprof.guard";

/// The guard's finalizer: ends the session when its VM is closed.
unsafe extern "C-unwind" fn on_close(state: *mut ffi::lua_State) -> c_int {
    if let Some(global) = global_of(state) {
        session::vm_closes(global);
    }
    // LuaJIT takes all of the register that holds this for the number of results;
    // of an `int` the upper half may be anything, of a constant it is zero.
    0
}

/// The module's table.
///
/// # Errors
/// When Lua is out of memory.
pub fn module(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("start", lua.create_function(start)?)?;
    table.set(
        "stop",
        lua.create_function(|lua, ()| {
            let late = known_now(lua);
            let stopped = session::stop(None, late.as_ref());
            events::detach(lua);
            answer(lua, stopped)
        })?,
    )?;
    table.set("report", lua.create_function(|lua, ()| report(lua))?)?;
    table.set("version", env!("CARGO_PKG_VERSION"))?;
    Ok(table)
}

fn start(lua: &Lua, arguments: MultiValue) -> Result<MultiValue> {
    if cfg!(feature = "disabled") {
        return answer(lua, Err(Error::Disabled));
    }
    let mut followed = false;
    let started = parse(&arguments).map_err(Error::from).and_then(|options| {
        session::start(&options, None, || {
            let mut host = look(lua, options.format)?;
            followed = options.mode != Mode::Default;
            host.following = followed.then(|| events::follow(lua, &host.layout));
            Ok(host)
        })
    });
    if followed && started.is_err() {
        events::detach(lua);
    }
    answer(lua, started)
}

/// `true`, or `nil`, message and number.
fn answer(lua: &Lua, result: std::result::Result<(), Error>) -> Result<MultiValue> {
    Ok(match result {
        Ok(()) => MultiValue::from_iter([Value::Boolean(true)]),
        Err(error) => MultiValue::from_iter([
            Value::Nil,
            Value::String(lua.create_string(error.to_string())?),
            Value::Integer(error.errno().into()),
        ]),
    })
}

type Parsed<T> = std::result::Result<T, Misuse>;

const NAMES: [&str; 6] = ["mode", "interval", "path", "depth", "clock", "format"];

fn parse(arguments: &MultiValue) -> Parsed<Options> {
    let mut options = Options::default();
    let table = match arguments.front() {
        None | Some(Value::Nil) => return Ok(options),
        Some(Value::Table(table)) => table,
        Some(other) => {
            return Err(Misuse(format!(
                "start takes a table of options, not a {}",
                type_name(other)
            )));
        }
    };
    for pair in table.pairs::<Value, Value>() {
        let (key, value) =
            pair.map_err(|error| Misuse(format!("options could not be read: {error}")))?;
        let Value::String(key) = key else {
            return Err(Misuse(format!(
                "unknown option of type {}",
                type_name(&key)
            )));
        };
        let key = key.to_string_lossy();
        match key.as_ref() {
            "mode" => options.mode = one_of(&value, "mode", &MODES)?,
            "interval" => options.interval = options::interval(number(&value, "interval")?)?,
            "path" => options.path = Some(path(&value)?),
            "depth" => options.depth = options::depth(number(&value, "depth")?)?,
            "clock" => {
                options.clock = one_of(&value, "clock", &ClockChoice::ALL.map(|c| (c.name(), c)))?;
            }
            "format" => options.format = format(&value)?,
            unknown => {
                let meant = options::nearest(unknown, &NAMES)
                    .map(|name| format!(", did you mean '{name}'?"))
                    .unwrap_or_else(|| format!("; there are {}", NAMES.join(", ")));
                return Err(Misuse(format!("unknown option '{unknown}'{meant}")));
            }
        }
    }
    Ok(options)
}

const MODES: [(&str, Mode); 3] = [
    ("D", Mode::Default),
    ("L", Mode::Leaf),
    ("C", Mode::Callgraph),
];

/// A value's type as Lua calls it; to mlua a whole number is an integer.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) => "userdata",
        other => other.type_name(),
    }
}

fn wrong_type(option: &str, wanted: &str, value: &Value) -> Misuse {
    Misuse(format!(
        "option '{option}' must be {wanted}, not a {}",
        type_name(value)
    ))
}

fn number(value: &Value, option: &str) -> Parsed<f64> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        other => Err(wrong_type(option, "a number", other)),
    }
}

fn format(value: &Value) -> Parsed<Format> {
    let version =
        number(value, "format").map_err(|_| wrong_type("format", "a number, 2 or 3", value))?;
    options::format(version)
}

fn one_of<T: Copy>(value: &Value, option: &str, choices: &[(&str, T)]) -> Parsed<T> {
    let list = || {
        let names: Vec<String> = choices
            .iter()
            .map(|(name, _)| format!("\"{name}\""))
            .collect();
        format!("one of {}", names.join(", "))
    };
    let Value::String(text) = value else {
        return Err(wrong_type(option, &list(), value));
    };
    let text = text.to_string_lossy();
    (choices.iter().find(|(name, _)| *name == text))
        .map(|(_, choice)| *choice)
        .ok_or_else(|| {
            Misuse(format!(
                "option '{option}' must be {}, not \"{text}\"",
                list()
            ))
        })
}

fn path(value: &Value) -> Parsed<PathBuf> {
    let Value::String(path) = value else {
        return Err(wrong_type("path", "a string", value));
    };
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Misuse(
            "option 'path' must name a file, it is empty or has a NUL in it".into(),
        ));
    }
    use std::os::unix::ffi::OsStrExt;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
}

fn report(lua: &Lua) -> Result<MultiValue> {
    if cfg!(feature = "disabled") {
        return answer(lua, Err(Error::Disabled));
    }
    counted(lua).map(|table| MultiValue::from_iter([Value::Table(table)]))
}

fn counted(lua: &Lua) -> Result<Table> {
    let report = session::report();
    let table = lua.create_table()?;
    table.set("samples", report.counts.samples)?;
    table.set("overruns", report.counts.overruns)?;
    let states = lua.create_table()?;
    for state in VmState::ALL {
        states.set(state.name(), report.counts.by_state[state as usize])?;
    }
    table.set("vmstate", states)?;
    let reasons = lua.create_table()?;
    for reason in Reason::ALL {
        // Where no stack is asked for, its absence is not worth a word.
        if reason != Reason::Mode {
            reasons.set(reason.name(), report.counts.by_reason[reason as usize])?;
        }
    }
    table.set("without_stack", reasons)?;
    table.set("running", report.running)?;
    table.set("mode", report.mode.letter())?;
    table.set("interval", report.interval.as_secs_f64() * 1e3)?;
    table.set("clock", report.clock.map(|clock| clock.name()))?;
    Ok(table)
}

/// Finds out about the VM that runs, for a stream of that format.
fn look(lua: &Lua, format: Format) -> std::result::Result<Host, Error> {
    let modules = Catalogue::new();
    let extent_of = |address: usize| {
        let module = modules
            .loaded()
            .find(|module| module.range.contains(&address))?;
        let described = tables::describe(module, address)?;
        Some(CodeExtent {
            range: described.range,
            frame_size: described.frame_size,
        })
    };
    let mut probed = Err(probe::NotFound("a protected call"));
    // SAFETY: `state` is the running thread's, and the probe leaves its stack as
    // it found it.
    let called =
        unsafe { lua.exec_raw::<()>((), |state| probed = probe::probe(state, &extent_of)) };
    called.map_err(|_| Error::Memory(libc::ENOMEM))?;
    let layout = probed.map_err(Error::Layout)?;
    let version = lua
        .globals()
        .raw_get::<Table>("jit")
        .and_then(|jit| jit.raw_get::<String>("version"))
        .unwrap_or_default();
    let functions = libraries::functions(lua, &layout);
    let mut prototypes = Vec::new();
    if format == Format::Version2 {
        // SAFETY: as above.
        unsafe { lua.exec_raw::<()>((), |state| prototypes = heap::prototypes(state, &layout)) }
            .map_err(|_| Error::Memory(libc::ENOMEM))?;
    }
    Ok(Host {
        functions,
        prototypes,
        layout,
        modules,
        version,
        following: None,
    })
}

/// Finds out about the VM of `state`, without the API of this module being
/// called from it.
///
/// # Errors
/// What was not found.
///
/// # Safety
/// `state` is a live `lua_State` of the calling thread.
pub unsafe fn look_from(state: *mut ffi::lua_State) -> std::result::Result<Host, Error> {
    // SAFETY: the caller's promise.
    let lua = unsafe { Lua::get_or_init_from_ptr(state) };
    look(lua, Format::Version3)
}

/// The same for a session that C starts: the stream has version 2, and the
/// session ends when the VM is closed.
///
/// # Errors
/// What was not found.
///
/// # Safety
/// As above.
pub unsafe fn look_from_c(state: *mut ffi::lua_State) -> std::result::Result<Host, Error> {
    // SAFETY: the caller's promise.
    let lua = unsafe { Lua::get_or_init_from_ptr(state) };
    guard(lua).map_err(|_| Error::Memory(libc::ENOMEM))?;
    look(lua, Format::Version2)
}

/// Has the session ended when the VM is closed. The guard is not of mlua's making,
/// whose finalizer returns a number that it has worked out: see [`on_close`].
fn guard(lua: &Lua) -> Result<()> {
    // A module that is loaded again finds the first one's guard: were it
    // replaced, its collection would end the session.
    if !lua.named_registry_value::<Value>(GUARD)?.is_nil() {
        return Ok(());
    }
    let finalizer = lua.create_table()?;
    // SAFETY: a C function that keeps to the API.
    finalizer.raw_set("__gc", unsafe { lua.create_c_function(on_close) }?)?;
    // SAFETY: the argument is on the stack, below the userdata that takes it for
    // its metatable and that is returned.
    let guard: Value = unsafe {
        lua.exec_raw(finalizer, |state| {
            ffi::lua_newuserdata(state, 0);
            ffi::lua_insert(state, 1);
            ffi::lua_setmetatable(state, 1);
        })
    }?;
    lua.set_named_registry_value(GUARD, guard)
}

/// Where the `global_State` of the VM of `state` is.
pub fn global_of(state: *mut ffi::lua_State) -> Option<usize> {
    Family::of(state as usize)?.global_of(state as usize)
}

/// What is known when a session of this VM is stopped: libraries may have been
/// loaded since its start.
fn known_now(lua: &Lua) -> Option<Late> {
    let layout = session::layout()?;
    let mut global = None;
    // SAFETY: only reads the running thread.
    unsafe { lua.exec_raw::<()>((), |state| global = global_of(state)) }.ok()?;
    (global == Some(layout.global)).then(|| {
        let names = libraries::functions(lua, &layout);
        let aborts = events::aborts(lua, &|code, ffid| names.get(code, ffid));
        Late { names, aborts }
    })
}

/// What `require` calls.
///
/// # Safety
/// `state` is a live `lua_State` of the calling thread.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn luaopen_sysprof_core(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        mlua::Lua::entrypoint1(state, |lua: &Lua| {
            let module = module(lua)?;
            guard(lua)?;
            Ok(module)
        })
    }
}

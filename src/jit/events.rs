//! Follows what LuaJIT compiles, by the events that it sends.
//!
//! Knows: the events `trace` and `record` (`jit.attach`, sent in `lj_trace.c`),
//! and that LuaJIT keeps one callback for each: one that was there before is
//! called on. Must not know: what becomes of the tables.
//!
//! The callbacks run on the VM's thread, in the middle of LuaJIT's work on a
//! trace, never in a signal handler.

use super::aborts::{Abort, Aborts};
use super::exits;
use super::lines::{Exit, Lines, Recording};
use super::path::Recorded;
use super::tables::Tables;
use crate::memory::read;
use crate::vm::ir::FIRST;
use crate::vm::layout::Layout;
use crate::vm::objects::{Function, Proto};
use crate::vm::trace::Traces;
use mlua::{Function as LuaFunction, Lua, Result, Table, Value, ffi};
use std::ffi::{CStr, c_int};
use std::sync::{Arc, Mutex, PoisonError};

/// The VM that is followed; one at a time.
static FOLLOWED: Mutex<Option<Follower>> = Mutex::new(None);

/// Follows one VM.
struct Follower {
    layout: Layout,
    tables: Arc<Tables>,
    traces: Traces,
    /// Where `jit_State` has the trace that is being compiled.
    current: Option<usize>,
    /// What was recorded of it so far; emptied when another one is started.
    recorded: Vec<Recorded>,
    number: u32,
    side_of: Option<Exit>,
    aborts: Aborts,
}

/// The most bytecodes that are kept of one trace; LuaJIT's own limits are lower
/// unless a program raises them.
const MOST_RECORDED: usize = 1 << 16;

impl Follower {
    fn start(&mut self, number: u32, side_of: Option<Exit>) {
        self.number = number;
        self.side_of = side_of;
        self.recorded.clear();
        self.tables.set_recording(true);
    }

    fn record(&mut self, number: u32, function: usize, position: i64, depth: i32) {
        if number != self.number || self.recorded.len() >= MOST_RECORDED {
            return self.give_up();
        }
        let layout = &self.layout;
        let current = match self.current {
            Some(current) => Some(current),
            None => find_current(layout, number),
        };
        let recorded = current.and_then(|current| {
            self.current = Some(current);
            let of_this = read::<u16>(current + layout.at.trace_number)? == number as u16;
            Some(Recorded {
                instruction: read::<u32>(current + layout.at.trace_nins).filter(|_| of_this)?,
                depth,
                function: Function::at(layout, function)?,
                position: u32::try_from(position).ok(),
            })
        });
        match recorded {
            Some(recorded) => self.recorded.push(recorded),
            None => self.give_up(),
        }
    }

    /// What has been recorded is not all that there was.
    fn give_up(&mut self) {
        self.number = 0;
        self.recorded.clear();
    }

    fn stop(&mut self, number: u32) {
        let Some(trace) = self.traces.get(&self.layout, number) else {
            return;
        };
        let whole = number == self.number && !self.recorded.is_empty();
        let recording = whole.then_some(Recording {
            side_of: self.side_of,
            recorded: &self.recorded,
        });
        let lines = Lines::of(&self.layout, trace, recording.as_ref());
        self.tables.put(number, lines);
        self.give_up();
    }
}

/// The trace that is being compiled is the one object between `global_State` and
/// the dispatch table that looks like trace `number` as far as it has come.
fn find_current(layout: &Layout, number: u32) -> Option<usize> {
    (layout.global..layout.dispatch).step_by(8).find(|&at| {
        let looks = || {
            let instructions = read::<u32>(at + layout.at.trace_nins)?;
            let constants = read::<u32>(at + layout.at.trace_nk)?;
            if u32::from(read::<u16>(at + layout.at.trace_number)?) != number {
                return None;
            }
            let start = layout.reference(at + layout.at.trace_startpt)?;
            Proto::at(layout, start)?;
            Some(
                (FIRST + 1..2 * FIRST).contains(&instructions)
                    && (1..FIRST).contains(&constants)
                    && read::<u32>(at + layout.at.trace_szmcode)? == 0,
            )
        };
        looks() == Some(true)
    })
}

/// A VM is followed as long as this is there.
pub struct Following {
    tables: Arc<Tables>,
}

impl Following {
    /// The tables of its traces.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // In a child another thread's callback may hold the lock for ever; that
        // thread does not exist there, so there is nothing to follow either.
        if let Ok(mut followed) = FOLLOWED.try_lock() {
            *followed = None;
        }
    }
}

/// Follows the VM of `lua` from now on. What was compiled before has the tables
/// that snapshots give, and so has everything where LuaJIT sends no events. The
/// callbacks stay, without effect, until [`detach`].
pub fn follow(lua: &Lua, layout: &Layout) -> Following {
    // Those of a session that ended without.
    detach(lua);
    let tables = Arc::new(Tables::new(exits::field(layout)));
    let mut follower = Follower {
        layout: layout.clone(),
        tables: tables.clone(),
        traces: Traces::default(),
        current: None,
        recorded: Vec::with_capacity(4096),
        number: 0,
        side_of: None,
        aborts: Aborts::default(),
    };
    follower.look_back();
    *followed() = Some(follower);
    for (event, callback) in CALLBACKS {
        // Without `jit.attach` there are no events.
        let _ = attach(lua, event, callback);
    }
    Following { tables }
}

impl Follower {
    /// Makes tables for the traces that there are already.
    fn look_back(&mut self) {
        for trace in self.traces.all(&self.layout) {
            let lines = Lines::of(&self.layout, trace, None);
            self.tables.put(trace.number(), lines);
        }
    }
}

/// What was aborted since [`follow`], if the VM of `lua` is followed. `name` is as
/// [`Aborts::told`] wants it.
pub fn aborts<'n>(lua: &Lua, name: &impl Fn(usize, u8) -> &'n str) -> Vec<Abort> {
    // Taken out: to put them into words runs Lua, which may call us.
    let aborts = followed()
        .as_mut()
        .map(|follower| std::mem::take(&mut follower.aborts));
    aborts.map_or(Vec::new(), |aborts| aborts.told(lua, name))
}

/// Puts the callbacks back that were there before those of [`follow`].
pub fn detach(lua: &Lua) {
    for (event, _) in CALLBACKS {
        // One that cannot be put back is called on to.
        let _ = detach_from(lua, event);
    }
}

fn followed() -> std::sync::MutexGuard<'static, Option<Follower>> {
    FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner)
}

const CALLBACKS: [(&str, ffi::lua_CFunction); 2] = [("trace", on_trace), ("record", on_record)];

/// Where LuaJIT keeps callbacks, by a hash of the event's name.
const EVENTS: &str = "_VMEVENTS";

/// Where a VM keeps our callback of an event, the event's key, and the callback
/// before it.
fn kept_as(event: &str) -> String {
    format!("sysprof.events.{event}")
}

fn jit_attach(lua: &Lua) -> Result<LuaFunction> {
    let loaded: Table = lua.named_registry_value("_LOADED")?;
    loaded.raw_get::<Table>("jit")?.raw_get("attach")
}

fn attach(lua: &Lua, event: &str, callback: ffi::lua_CFunction) -> Result<()> {
    let attach = jit_attach(lua)?;
    let before: Vec<(Value, Value)> = match lua.named_registry_value(EVENTS)? {
        Value::Table(events) => events.pairs().collect::<Result<_>>()?,
        _ => Vec::new(),
    };
    // Attached once to learn the event's key, which is of LuaJIT's making.
    // SAFETY: a C function that keeps to the API.
    let marker = unsafe { lua.create_c_function(callback) }?;
    attach.call::<()>((&marker, event))?;
    let events: Table = lua.named_registry_value(EVENTS)?;
    let key = key_of(&events, &marker)?;
    let previous = (before.into_iter()).find_map(|(known, value)| (known == key).then_some(value));
    let ours = match &previous {
        Some(Value::Function(previous)) => {
            let ours = match is_tarantool(lua) {
                true => lua.load(CALLING_ON).call((&marker, previous))?,
                false => calling_on(lua, callback, previous)?,
            };
            attach.call::<()>((&ours, event))?;
            ours
        }
        _ => marker,
    };
    let kept = lua.create_table()?;
    kept.raw_set("callback", ours)?;
    kept.raw_set("key", key)?;
    kept.raw_set("previous", previous)?;
    lua.set_named_registry_value(&kept_as(event), kept)
}

/// Whether a trace that is being recorded is aborted when C calls anything.
fn is_tarantool(lua: &Lua) -> bool {
    matches!(lua.globals().raw_get("_TARANTOOL"), Ok(Value::String(_)))
}

/// A callback that calls ours and the one before it, for Tarantool. C has no part in
/// the hot counters, Lua has.
const CALLING_ON: &str =
    "local ours, previous = ... return function(...) ours(...) return previous(...) end";

/// The key in `events` of `callback`.
fn key_of(events: &Table, callback: &LuaFunction) -> Result<Value> {
    for pair in events.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if value.to_pointer() == callback.to_pointer() {
            return Ok(key);
        }
    }
    Err(mlua::Error::runtime("jit.attach has attached nothing"))
}

/// `callback` with the one before it as its upvalue.
fn calling_on(
    lua: &Lua,
    callback: ffi::lua_CFunction,
    previous: &LuaFunction,
) -> Result<LuaFunction> {
    // SAFETY: the argument is on the stack, and the closure takes its place.
    unsafe { lua.exec_raw(previous, |state| ffi::lua_pushcclosure(state, callback, 1)) }
}

fn detach_from(lua: &Lua, event: &str) -> Result<()> {
    let name = kept_as(event);
    let Value::Table(kept) = lua.named_registry_value(&name)? else {
        return Ok(());
    };
    lua.unset_named_registry_value(&name)?;
    let events: Table = lua.named_registry_value(EVENTS)?;
    let key: Value = kept.raw_get("key")?;
    let there: Value = events.raw_get(&key)?;
    let ours: LuaFunction = kept.raw_get("callback")?;
    // Somebody may have attached a callback of theirs since.
    if there.to_pointer() != ours.to_pointer() {
        return Ok(());
    }
    match kept.raw_get::<Value>("previous")? {
        Value::Function(previous) => jit_attach(lua)?.call((previous, event)),
        _ => events.raw_set(key, Value::Nil),
    }
}

/// `record`: number of the trace, function, index of the bytecode, depth.
unsafe extern "C-unwind" fn on_record(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by LuaJIT with a live state; plain reads of its arguments.
    let (number, function, position, depth) = unsafe {
        (
            ffi::lua_tointeger(state, 1) as u32,
            ffi::lua_topointer(state, 2) as usize,
            ffi::lua_tointeger(state, 3) as i64,
            ffi::lua_tointeger(state, 4) as i32,
        )
    };
    with_follower(state, |follower| {
        follower.record(number, function, position, depth);
    });
    // SAFETY: as above.
    unsafe { call_on(state) }
}

/// `trace`: what happens to it, its number, and more that depends on that.
unsafe extern "C-unwind" fn on_trace(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by LuaJIT with a live state, and a string first.
    let (what, number, arguments) = unsafe {
        let what = ffi::lua_tostring(state, 1);
        let what = if what.is_null() {
            c""
        } else {
            CStr::from_ptr(what)
        };
        let number = ffi::lua_tointeger(state, 2) as u32;
        (what, number, ffi::lua_gettop(state))
    };
    with_follower(state, |follower| match what.to_bytes() {
        // A parent and its exit, which is -1 where traces are stitched.
        b"start" => {
            // SAFETY: as above.
            let [trace, exit] = [5, 6].map(|at| unsafe { ffi::lua_tointeger(state, at) });
            let side_of = (arguments >= 6 && exit >= 0).then_some(Exit {
                trace: trace as u32,
                number: exit as u32,
            });
            follower.start(number, side_of);
        }
        b"stop" => {
            follower.tables.set_recording(false);
            follower.stop(number);
        }
        b"abort" => {
            follower.tables.set_recording(false);
            let layout = &follower.layout;
            // SAFETY: as above.
            unsafe { follower.aborts.count(layout, state) };
            follower.give_up();
        }
        b"flush" => follower.tables.clear(),
        _ => {}
    });
    // SAFETY: as above.
    unsafe { call_on(state) }
}

/// Runs `f` with the follower of the VM of `state`, if it is followed.
fn with_follower(state: *mut ffi::lua_State, f: impl FnOnce(&mut Follower)) {
    // What is read may not be there, and a host that has taken SIGSEGV since must
    // not see that.
    if crate::fault::in_place()
        && let Some(follower) = followed().as_mut()
        && follower.layout.family.global_of(state as usize) == Some(follower.layout.global)
    {
        let _readable = crate::fault::unblock();
        f(follower);
    }
}

/// Calls the callback that was there before with the same arguments.
///
/// # Safety
/// `state` is that of a callback whose arguments are still on the stack.
unsafe fn call_on(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller's promise. An error goes on to LuaJIT, as that of the
    // callback alone would; nothing here is to be dropped.
    unsafe {
        let previous = ffi::lua_upvalueindex(1);
        if ffi::lua_type(state, previous) == ffi::LUA_TFUNCTION {
            let count = ffi::lua_gettop(state);
            ffi::lua_pushvalue(state, previous);
            ffi::lua_insert(state, 1);
            ffi::lua_call(state, count, 0);
        }
    }
    0
}

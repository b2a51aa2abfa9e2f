//! Stepping pauses while the recorder makes line tables: that is ours, and long.
//!
//! Knows: the callbacks that the recorder attaches to LuaJIT's events. Must not
//! know: what they do.

use crate::step;
use crate::truth;
use mlua::{Function, Lua, Result, Table, Value, ffi};
use std::ffi::c_int;

/// Calls a callback between two C functions. It is in Lua, as Tarantool aborts what
/// is being recorded when C calls anything.
const PAUSED: &str = "local pause, callback, resume = ...
return function(...) pause() callback(...) resume() end";

const CHUNK: &str = "=pause";

/// Has the recorder's callbacks called with the trap flag cleared.
pub fn events(lua: &Lua) -> Result<()> {
    let jit: Table = lua.globals().raw_get("jit")?;
    let attach: Function = jit.raw_get("attach")?;
    // SAFETY: C functions that keep to the API.
    let (pause, resume) = unsafe {
        (
            lua.create_c_function(pause)?,
            lua.create_c_function(resume)?,
        )
    };
    for event in ["trace", "record"] {
        let kept = format!("sysprof.events.{event}");
        let Value::Table(kept) = lua.named_registry_value(&kept)? else {
            continue;
        };
        let callback: Function = kept.raw_get("callback")?;
        let pausing: Function =
            (lua.load(PAUSED).set_name(CHUNK)).call((&pause, callback, &resume))?;
        attach.call::<()>((&pausing, event))?;
        // So that it is taken out again at the end.
        kept.raw_set("callback", pausing)?;
    }
    Ok(())
}

/// What the stack shows of it.
pub fn key() -> u64 {
    truth::lua_key(CHUNK.as_bytes(), 2)
}

unsafe extern "C-unwind" fn pause(_: *mut ffi::lua_State) -> c_int {
    step::pause();
    0
}

unsafe extern "C-unwind" fn resume(_: *mut ffi::lua_State) -> c_int {
    step::resume();
    0
}

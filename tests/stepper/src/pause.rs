//! Stepping pauses while the recorder makes line tables: that is ours, and long.
//!
//! Knows: the callbacks that the recorder attaches to LuaJIT's events. Must not
//! know: what they do.

use crate::step;
use mlua::{Function, Lua, Result, Table, Value, ffi};
use std::ffi::c_int;

/// Has the recorder's callbacks called with the trap flag cleared.
pub fn events(lua: &Lua) -> Result<()> {
    let jit: Table = lua.globals().raw_get("jit")?;
    let attach: Function = jit.raw_get("attach")?;
    for event in ["trace", "record"] {
        let kept = format!("sysprof.events.{event}");
        let Value::Table(kept) = lua.named_registry_value(&kept)? else {
            continue;
        };
        let callback: Function = kept.raw_get("callback")?;
        // SAFETY: the argument is on the stack, and the closure takes its place.
        let pausing: Function =
            unsafe { lua.exec_raw(callback, |state| ffi::lua_pushcclosure(state, paused, 1)) }?;
        attach.call::<()>((&pausing, event))?;
        // So that it is taken out again at the end.
        kept.raw_set("callback", pausing)?;
    }
    Ok(())
}

/// The machine code of the callback.
pub fn code() -> usize {
    paused as *const () as usize
}

unsafe extern "C-unwind" fn paused(state: *mut ffi::lua_State) -> c_int {
    step::pause();
    // SAFETY: called by LuaJIT with a live state; the upvalue is a function.
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, 0);
    }
    step::resume();
    0
}

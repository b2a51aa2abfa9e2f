//! Holds the stack walker against the truth at every machine instruction.
//!
//! `check(f)` runs `f` twice. First under LuaJIT's own hooks, which say the
//! stack at each call and each bytecode (`truth`). Then one instruction at a
//! time under the trap flag, with the recorder's walker looking at each
//! (`step`); what it sees must be that very sequence (`follow`).

mod follow;
mod step;
mod truth;

use mlua::ffi;
use std::ffi::c_int;
use std::fmt::Write as _;
use sysprof::native::unwind::Unwinder;
use sysprof::session::Error;
use sysprof::stack::{Extent, Walker};

/// `check(f, compiled)`: returns counts, and what was wrong as text.
unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua with a live state; the API is used as documented.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        let compiled = ffi::lua_toboolean(state, 2) != 0;
        ffi::lua_settop(state, 1);
        // Finalizers are to run when the program says so, in both runs alike.
        ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
        ffi::lua_gc(state, ffi::LUA_GCSTOP, 0);
        let truth = truth::record(state);
        let result = match look_around(state) {
            Ok(walker) => Ok(step::run(state, walker, &truth, compiled)),
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok(outcome) => {
                ffi::lua_createtable(state, 0, 8);
                for (name, value) in outcome.counts() {
                    ffi::lua_pushnumber(state, value as f64);
                    ffi::lua_setfield(state, -2, name.as_ptr());
                }
                let mut text = String::new();
                for line in &outcome.wrong {
                    let _ = writeln!(text, "{line}");
                }
                ffi::lua_pushlstring(state, text.as_ptr().cast(), text.len());
                2
            }
            Err(message) => {
                ffi::lua_pushnil(state);
                ffi::lua_pushlstring(state, message.as_ptr().cast(), message.len());
                2
            }
        }
    }
}

fn look_around(state: *mut ffi::lua_State) -> Result<Walker, Error> {
    // SAFETY: a live state of this thread.
    let host = unsafe { sysprof::lua_api::look_from(state) }?;
    let unwinder = Unwinder::new(host.modules.loaded());
    Ok(Walker::new(host.layout, unwinder, Extent::Full(1000)))
}

/// What `require` calls.
///
/// # Safety
/// `state` is a live `lua_State`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn luaopen_sysprof_stepper(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushcfunction(state, check);
        ffi::lua_setfield(state, -2, c"check".as_ptr());
    }
    1
}

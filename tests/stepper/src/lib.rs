//! Holds the stack walker against the truth at every machine instruction.
//!
//! `check(f)` runs `f` twice. First under LuaJIT's own hooks, which say the
//! stack at each call and each bytecode (`truth`). Then one instruction at a
//! time under the trap flag, with the recorder's walker looking at each
//! (`step`); what it sees must be that very sequence (`follow`), and the native
//! part of it what the module of tests/native says of itself (`native`).

mod follow;
mod native;
mod pause;
mod step;
mod tally;
mod truth;

use mlua::ffi;
use std::ffi::{CStr, c_int};
use std::fmt::Write as _;
use sysprof::fault::FaultHandlers;
use sysprof::jit::events::{self, Following};
use sysprof::native::unwind::Unwinder;
use sysprof::session::Error;
use sysprof::stack::{Extent, Walker};
use truth::Clock;

/// Where `before` is kept.
const BEFORE: &CStr = c"stepper.before";

/// `check(f, compiled, clock, before)`: returns counts, and what was wrong as text.
/// `before` is called when the truth is known and nobody looks yet.
unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua with a live state; the API is used as documented.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        let compiled = ffi::lua_toboolean(state, 2) != 0;
        ffi::lua_settop(state, 4);
        ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, BEFORE.as_ptr());
        // What is read while looking around may not be there.
        let faults = FaultHandlers::install();
        let clock = Clock::of(state, 3);
        ffi::lua_settop(state, 1);
        // Finalizers are to run when the program says so, in both runs alike.
        ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0);
        ffi::lua_gc(state, ffi::LUA_GCSTOP, 0);
        let truth = truth::record(state, clock);
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, BEFORE.as_ptr());
        match ffi::lua_isfunction(state, -1) {
            0 => ffi::lua_pop(state, 1),
            _ => ffi::lua_call(state, 0, 0),
        }
        let result = match look_around(state) {
            Ok((walker, following)) => {
                let lua = mlua::Lua::get_or_init_from_ptr(state);
                let paused = pause::events(lua);
                let outcome = paused
                    .map(|()| step::run(state, walker, &truth, compiled, clock))
                    .map_err(|error| error.to_string());
                events::detach(lua);
                drop(following);
                outcome
            }
            Err(error) => Err(error.to_string()),
        };
        drop(faults);
        match result {
            Ok(outcome) => {
                ffi::lua_createtable(state, 0, 8);
                for (name, value) in outcome.counts() {
                    ffi::lua_pushnumber(state, value as f64);
                    ffi::lua_setfield(state, -2, name.as_ptr());
                }
                for (what, place, count) in outcome.tally.by_line(&truth) {
                    set_in(state, what, &place, count);
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

/// `table[what][place] = count` for the table at the top of the stack.
unsafe fn set_in(state: *mut ffi::lua_State, what: &CStr, place: &str, count: u64) {
    // SAFETY: the caller's promise; the API is used as documented.
    unsafe {
        ffi::lua_getfield(state, -1, what.as_ptr());
        if ffi::lua_istable(state, -1) == 0 {
            ffi::lua_pop(state, 1);
            ffi::lua_createtable(state, 0, 8);
            ffi::lua_pushvalue(state, -1);
            ffi::lua_setfield(state, -3, what.as_ptr());
        }
        ffi::lua_pushlstring(state, place.as_ptr().cast(), place.len());
        ffi::lua_pushnumber(state, count as f64);
        ffi::lua_rawset(state, -3);
        ffi::lua_pop(state, 1);
    }
}

/// `forget_lines()`: what compiled code has done by line so far is not counted.
unsafe extern "C-unwind" fn forget_lines(_state: *mut ffi::lua_State) -> c_int {
    step::forget_lines();
    0
}

fn look_around(state: *mut ffi::lua_State) -> Result<(Walker, Following), Error> {
    // SAFETY: a live state of this thread.
    let (host, lua) = unsafe {
        (
            sysprof::lua_api::look_from(state)?,
            mlua::Lua::get_or_init_from_ptr(state),
        )
    };
    let unwinder = Unwinder::new(host.modules.loaded());
    let following = events::follow(lua, &host.layout);
    let walker = Walker::new(host.layout, unwinder, Extent::Full(1000))
        .with_tables(Some(following.tables()));
    Ok((walker, following))
}

/// What `require` calls.
///
/// # Safety
/// `state` is a live `lua_State`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn luaopen_sysprof_stepper(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(state, 0, 2);
        ffi::lua_pushcfunction(state, check);
        ffi::lua_setfield(state, -2, c"check".as_ptr());
        ffi::lua_pushcfunction(state, forget_lines);
        ffi::lua_setfield(state, -2, c"forget_lines".as_ptr());
    }
    1
}

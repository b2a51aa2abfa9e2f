//! The recorder as C sees it (`include/lmisclib.h`).
//!
//! Knows: C's structures, and what each error is there. Must not know: how a
//! session works.
//!
//! The writer, what is called at the stop and the backtracer are set beforehand
//! and taken over by `start`; the rest comes with it.

#![allow(non_snake_case, reason = "the names are those of the C API")]

use crate::lua_api;
use crate::options::{self, ClockChoice, Format, Misuse, Mode, Options};
use crate::session::{self, Error, HostWriter, OnStopFn};
use crate::stream::callback::WriterFn;
use crate::stream::version2::BacktracerFn;
use ljp::VmState;
use mlua::ffi::lua_State;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Results, as the header numbers them.
const SUCCESS: c_int = 0;
const ERRUSE: c_int = 1;
const ERRRUN: c_int = 2;
const ERRMEM: c_int = 3;
const ERRIO: c_int = 4;

/// The interval of a clock that never ticks.
const NEVER: u64 = u64::MAX;

/// `struct luam_Sysprof_Config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    writer: Option<WriterFn>,
    on_stop: Option<OnStopFn>,
    backtracer: Option<BacktracerFn>,
}

/// `struct luam_Sysprof_Options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct COptions {
    mode: u8,
    interval: u64,
    buf: *mut u8,
    len: usize,
    ctx: *mut c_void,
}

/// `struct luam_Sysprof_Counters`: by state in the order of their numbers.
#[repr(C)]
pub struct CCounters {
    by_state: [u64; VmState::COUNT],
    samples: u64,
    overruns: u64,
}

// The order of the fields in the header.
const _: () = {
    let order = [
        VmState::Interp,
        VmState::Lfunc,
        VmState::Ffunc,
        VmState::Cfunc,
        VmState::Gc,
        VmState::Exit,
        VmState::Record,
        VmState::Opt,
        VmState::Asm,
        VmState::Trace,
    ];
    assert!(order.len() == VmState::COUNT);
    let mut number = 0;
    while number < order.len() {
        assert!(order[number] as usize == number);
        number += 1;
    }
};

static CONFIG: Mutex<Config> = Mutex::new(Config {
    writer: None,
    on_stop: None,
    backtracer: None,
});

fn config() -> MutexGuard<'static, Config> {
    CONFIG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result and errno of an outcome.
fn answer(outcome: Result<(), Error>) -> c_int {
    let Err(error) = outcome else {
        return SUCCESS;
    };
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error.errno() };
    match error {
        Error::Misuse(_) | Error::OtherVm | Error::Disabled => ERRUSE,
        Error::Running
        | Error::NotRunning
        | Error::Layout(_)
        | Error::Platform
        | Error::Clock(_)
        | Error::NoSignal
        | Error::Handler(_)
        | Error::Thread(_) => ERRRUN,
        Error::Memory(_) => ERRMEM,
        Error::File(..) | Error::Writer(_) | Error::OnStop(_) => ERRIO,
    }
}

fn misuse(what: &str) -> Error {
    Error::Misuse(Misuse(what.to_owned()))
}

/// Runs `f`; C must not be unwound through by a panic of ours.
fn guarded(f: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    answer(outcome.unwrap_or(Err(Error::Memory(libc::ENOMEM))))
}

fn configure(change: impl FnOnce(&mut Config)) -> c_int {
    guarded(|| {
        if cfg!(feature = "disabled") {
            return Err(Error::Disabled);
        }
        let mut config = config();
        if session::is_running() {
            return Err(misuse("it can't be configured while it runs"));
        }
        change(&mut config);
        Ok(())
    })
}

/// Sets writer, on_stop and backtracer.
///
/// # Safety
/// `config` is null or points to one; its functions are as the header says.
// Not in unit tests, which have no Lua to be linked with.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn luaM_sysprof_configure(config: *const Config) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { config.as_ref() } {
        Some(new) => configure(|config| *config = *new),
        None => answer(Err(misuse("there is no configuration"))),
    }
}

/// Sets the writer.
///
/// # Safety
/// It is null or as the header says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn luaM_sysprof_set_writer(writer: Option<WriterFn>) -> c_int {
    configure(|config| config.writer = writer)
}

/// Sets what is called at the end of a session.
///
/// # Safety
/// It is null or as the header says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn luaM_sysprof_set_on_stop(on_stop: Option<OnStopFn>) -> c_int {
    configure(|config| config.on_stop = on_stop)
}

/// Sets the backtracer, or ours for null.
///
/// # Safety
/// It is null or as the header says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn luaM_sysprof_set_backtracer(backtracer: Option<BacktracerFn>) -> c_int {
    configure(|config| config.backtracer = backtracer)
}

/// Starts a session of the calling thread and the VM of `state`.
///
/// # Safety
/// `state` is a live `lua_State` of the calling thread, `options` points to
/// options whose buffer is the session's until on_stop is called.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn luaM_sysprof_start(
    state: *mut lua_State,
    options: *const COptions,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(&options) = (unsafe { options.as_ref() }) else {
        return answer(Err(misuse("there are no options")));
    };
    let config = *config();
    let host_writer = HostWriter {
        writer: config.writer,
        on_stop: config.on_stop,
        backtracer: config.backtracer,
        buffer: options.buf,
        len: options.len,
        context: options.ctx,
    };
    let result = guarded(|| {
        if cfg!(feature = "disabled") {
            return Err(Error::Disabled);
        }
        if session::is_running() {
            return Err(Error::Running);
        }
        let checked = check(&options, &config)?;
        if state.is_null() {
            return Err(misuse("there is no lua_State"));
        }
        session::start(&checked, Some(host_writer), || {
            // SAFETY: the caller's promise.
            unsafe { lua_api::look_from_c(state) }
        })
    });
    if result != SUCCESS
        && let Some(on_stop) = config.on_stop
    {
        // SAFETY: this thread's errno, and the host's function, which frees what
        // was meant for the session.
        unsafe {
            let errno = *libc::__errno_location();
            on_stop(options.ctx, options.buf);
            *libc::__errno_location() = errno;
        }
    }
    result
}

/// What C asks for.
fn check(options: &COptions, config: &Config) -> Result<Options, Error> {
    let mode = match options.mode {
        0 => Mode::Default,
        1 => Mode::Leaf,
        2 => Mode::Callgraph,
        _ => return Err(misuse("there is no such mode")),
    };
    if mode != Mode::Default {
        if options.buf.is_null() || options.len == 0 {
            return Err(misuse("this mode needs a buffer"));
        }
        if config.writer.is_none() || config.on_stop.is_none() {
            return Err(misuse("this mode needs a writer and on_stop"));
        }
    }
    let (interval, clock) = match options.interval {
        NEVER => (
            crate::clock::MAX_INTERVAL,
            ClockChoice::Only(crate::clock::Kind::Manual),
        ),
        milliseconds => (options::interval(milliseconds as f64)?, ClockChoice::Auto),
    };
    Ok(Options {
        mode,
        interval,
        clock,
        format: Format::Version2,
        ..Options::default()
    })
}

/// Stops the session of the VM of `state`.
///
/// # Safety
/// `state` is a live `lua_State`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn luaM_sysprof_stop(state: *mut lua_State) -> c_int {
    guarded(|| {
        let global = lua_api::global_of(state).ok_or(misuse("there is no lua_State"));
        // What is wrong first is whether there is a session at all.
        match global {
            Ok(global) => session::stop(Some(global), None),
            Err(error) if session::is_running() => Err(error),
            Err(_) => session::stop(None, None),
        }
    })
}

/// Fills in what the session that runs has counted, or the last one.
///
/// # Safety
/// `counters` is null or points to counters.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn luaM_sysprof_report(counters: *mut CCounters) -> c_int {
    // SAFETY: the caller's promise.
    let Some(counters) = (unsafe { counters.as_mut() }) else {
        return answer(Err(misuse("there is no place for the counters")));
    };
    guarded(|| {
        if cfg!(feature = "disabled") {
            return Err(Error::Disabled);
        }
        let counts = session::report().counts;
        *counters = CCounters {
            by_state: counts.by_state,
            samples: counts.samples,
            overruns: counts.overruns,
        };
        Ok(())
    })
}

//! The truth: the stacks that LuaJIT's own hooks and debug interface show, at
//! each call and before each bytecode.
//!
//! Knows: Lua's debug API. Must not know: anything of the walker.

use mlua::ffi;
use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::hash::{Hash, Hasher};
use sysprof::memory;

/// A call on a stack: who, and at which line (0 for C functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What identifies the function in both runs.
    pub key: u64,
    /// The line that it is at.
    pub line: u32,
    /// Whether it is a Lua function.
    pub lua: bool,
}

/// Stacks in the order in which they were, outermost call first; consecutive
/// ones differ, or are those of different calls.
#[derive(Default)]
pub struct Truth {
    stacks: Vec<Vec<Call>>,
    /// Whether each was seen when its innermost function was called.
    calls: Vec<bool>,
    /// What the program's clock said when it was first seen.
    ticks: Vec<u64>,
    /// Names of the keys, for messages.
    names: Vec<(u64, String)>,
}

impl Truth {
    /// The stack number `index`.
    pub fn get(&self, index: usize) -> Option<&[Call]> {
        self.stacks.get(index).map(Vec::as_slice)
    }

    /// Whether the innermost call of the stack number `index` had just been made.
    pub fn is_call(&self, index: usize) -> bool {
        self.calls.get(index).is_some_and(|&call| call)
    }

    /// What the clock said when the stack number `index` was first seen.
    pub fn tick(&self, index: usize) -> Option<u64> {
        self.ticks.get(index).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether a function is in any of the stacks.
    pub fn knows(&self, key: u64) -> bool {
        self.names.iter().any(|(known, _)| *known == key)
    }

    /// The file that a Lua function is in, without its folders.
    pub fn file(&self, key: u64) -> &str {
        let name = self.names.iter().find(|(known, _)| *known == key);
        name.and_then(|(_, name)| name.rsplit_once(':'))
            .map_or("?", |(file, _)| file)
    }

    /// A stack in words.
    pub fn describe(&self, stack: &[Call]) -> String {
        let call = |call: &Call| {
            let name = self.names.iter().find(|(key, _)| *key == call.key);
            let name = name.map_or_else(|| format!("?{:x}", call.key), |(_, name)| name.clone());
            if call.lua {
                format!("{name}@{}", call.line)
            } else {
                name
            }
        };
        stack.iter().map(call).collect::<Vec<_>>().join(" ")
    }
}

/// The key of a Lua function.
pub fn lua_key(chunk: &[u8], first_line: u32) -> u64 {
    key(|hasher| {
        chunk.hash(hasher);
        first_line.hash(hasher);
    })
}

/// The key of a C function or built-in.
pub fn c_key(code: usize, ffid: u8) -> u64 {
    key(|hasher| (code, ffid).hash(hasher))
}

fn key(hash: impl FnOnce(&mut Fnv)) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hash(&mut hasher);
    hasher.finish()
}

/// FNV-1a: no allocation, usable in a handler.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

thread_local! {
    static RECORDING: RefCell<Recording> = RefCell::default();
}

#[derive(Default)]
struct Recording {
    truth: Truth,
    /// The running coroutine and those that wait for it, outermost first.
    threads: Vec<*mut ffi::lua_State>,
    clock: Option<Clock>,
}

/// A number that the program counts up as it goes on: it tells one round of a
/// loop from another, in compiled code as well.
#[derive(Clone, Copy, Debug)]
pub struct Clock(usize);

impl Clock {
    /// The clock that is the first element of the table at `index`.
    ///
    /// # Safety
    /// `state` is a live state.
    pub unsafe fn of(state: *mut ffi::lua_State, index: c_int) -> Option<Clock> {
        /// No program counts so far.
        const MARK: f64 = 1.234_062_5e103;
        // SAFETY: the caller's promise; the API is used as documented.
        let table = unsafe {
            if ffi::lua_type(state, index) != ffi::LUA_TTABLE {
                return None;
            }
            ffi::lua_pushnumber(state, MARK);
            ffi::lua_rawseti(state, index, 1);
            ffi::lua_topointer(state, index) as usize
        };
        // Where in the table's object the pointer to its elements is depends on
        // the LuaJIT; the mark is found through it alone.
        let pointers = (0..64).step_by(4).flat_map(|at| {
            let wide = memory::read::<u64>(table + at).unwrap_or(0) as usize;
            let narrow = memory::read::<u32>(table + at).unwrap_or(0) as usize;
            [wide, narrow]
        });
        let element = pointers
            .map(|array| array.wrapping_add(8))
            .find(|&at| memory::read(at) == Some(MARK.to_bits()));
        // SAFETY: as above.
        unsafe {
            ffi::lua_pushnumber(state, 0.0);
            ffi::lua_rawseti(state, index, 1);
        }
        element.map(Clock)
    }

    /// Sets it back.
    ///
    /// # Safety
    /// Nobody uses the table.
    pub unsafe fn reset(self) {
        // SAFETY: the element's place, found in `of`; the table is the caller's.
        unsafe { *(self.0 as *mut f64) = 0.0 };
    }

    /// What it says now.
    pub fn read(self) -> u64 {
        memory::read(self.0).unwrap_or(0)
    }
}

/// Runs the function at the top of the stack under hooks.
///
/// # Safety
/// `state` is a live state with a function at its top.
pub unsafe fn record(state: *mut ffi::lua_State, clock: Option<Clock>) -> Truth {
    RECORDING.with_borrow_mut(|recording| {
        *recording = Recording {
            truth: Truth::default(),
            threads: vec![state],
            clock,
        };
    });
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_pushvalue(state, -1);
        ffi::lua_sethook(
            state,
            Some(on_event),
            ffi::LUA_MASKCALL | ffi::LUA_MASKCOUNT,
            1,
        );
        let status = ffi::lua_pcall(state, 0, 0, 0);
        ffi::lua_sethook(state, None, 0, 0);
        if status != 0 {
            ffi::lua_error(state);
        }
    }
    RECORDING.with_borrow_mut(|recording| std::mem::take(&mut recording.truth))
}

unsafe extern "C-unwind" fn on_event(state: *mut ffi::lua_State, event: *mut ffi::lua_Debug) {
    // SAFETY: the hook's argument.
    let is_call = unsafe { (*event).event } == ffi::LUA_HOOKCALL;
    RECORDING.with_borrow_mut(|recording| {
        // A coroutine that is not among those that wait was resumed by the one
        // that ran last; one that is among them has got its turn back.
        match recording.threads.iter().position(|&thread| thread == state) {
            Some(index) => recording.threads.truncate(index + 1),
            None => {
                // Those that ended or yielded do not wait for anybody.
                // SAFETY: threads on this list are kept alive by their resumer,
                // and by the program's own references.
                recording
                    .threads
                    .retain(|&thread| unsafe { is_waiting(thread) });
                recording.threads.push(state);
            }
        }
        let mut stack = Vec::new();
        for thread in recording.threads.iter().rev() {
            // SAFETY: as above.
            unsafe { calls(*thread, &mut stack, &mut recording.truth.names) };
        }
        stack.reverse();
        // A function that is called from C time and again makes the same stack
        // each time.
        let tick = recording.clock.map_or(0, Clock::read);
        let truth = &mut recording.truth;
        let same = truth.stacks.last() == Some(&stack) && truth.ticks.last() == Some(&tick);
        if is_call || !same {
            truth.stacks.push(stack);
            truth.calls.push(is_call);
            truth.ticks.push(tick);
        }
    });
}

/// Whether a coroutine has resumed another one, or is the main one.
unsafe fn is_waiting(thread: *mut ffi::lua_State) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let mut debug = std::mem::zeroed();
        ffi::lua_status(thread) == 0 && ffi::lua_getstack(thread, 0, &mut debug) == 1
    }
}

/// Adds the calls of one thread, innermost first.
unsafe fn calls(
    thread: *mut ffi::lua_State,
    stack: &mut Vec<Call>,
    names: &mut Vec<(u64, String)>,
) {
    // SAFETY: the caller's promise; the API is used as documented.
    unsafe {
        let mut level = 0;
        let mut debug: ffi::lua_Debug = std::mem::zeroed();
        while ffi::lua_getstack(thread, level, &mut debug) == 1 {
            level += 1;
            if ffi::lua_getinfo(thread, c"Slf".as_ptr(), &mut debug) == 0 {
                break;
            }
            let function = ffi::lua_topointer(thread, -1) as usize;
            ffi::lua_pop(thread, 1);
            let lua = CStr::from_ptr(debug.what) != c"C";
            let (key, name) = if lua {
                let source = CStr::from_ptr(debug.source);
                let short = CStr::from_ptr(debug.short_src.as_ptr()).to_string_lossy();
                let first = debug.linedefined as u32;
                let file = short.rsplit('/').next().unwrap_or_default().to_owned();
                (lua_key(source.to_bytes(), first), format!("{file}:{first}"))
            } else {
                let (code, ffid) = crate::step::code_of(function);
                (c_key(code, ffid), format!("[C {ffid} {code:x}]"))
            };
            if !names.iter().any(|(known, _)| *known == key) {
                names.push((key, name));
            }
            stack.push(Call {
                key,
                line: if lua {
                    debug.currentline.max(0) as u32
                } else {
                    0
                },
                lua,
            });
        }
    }
}

//! Whether the native part of a stack is the one that the truth says.
//!
//! Knows: the module of tests/native, which writes down its own call chain, and
//! to where each of its functions returns. Must not know: how stacks were found,
//! Lua's part of them (`follow`).
//!
//! A function is written down after it has begun and taken off before it
//! returns; so the innermost one may be missing there, and no other. What lies
//! between two functions of the module (the C library, LuaJIT, Rust) is held at
//! both ends: whoever called the inner one is who it returns to, and the outer
//! one is at its call.

use mlua::ffi;
use object::{Object, ObjectSymbol, SymbolKind};
use std::ffi::CStr;
use std::ops::Range;
use std::ptr;
use sysprof::stack::RawFrame;

/// Room of the module's list (`SHADOW_DEPTH`).
const SHADOW_DEPTH: usize = 256;

/// A call as the module has it (`struct shadow_call`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    function: usize,
    caller: usize,
}

/// The module's list (`struct shadow`), outermost call first.
#[repr(C)]
struct Shadow {
    count: usize,
    calls: [Call; SHADOW_DEPTH],
}

/// What the module says.
pub struct Native {
    shadow: *const Shadow,
    /// The functions that it writes down, ascending.
    functions: Vec<Range<usize>>,
    /// The VM's own code: what it calls has a frame on the Lua stack, too.
    vm: Range<usize>,
    /// The module that unwinds exceptions: at its work a function may be there of
    /// which the Lua stack has been cleared already.
    unwinder: Range<usize>,
    /// The frames around the stepping, outermost last: always the same.
    root: Vec<RawFrame>,
}

impl Native {
    /// The module, if the program has loaded it.
    ///
    /// # Safety
    /// `state` is a live state.
    pub unsafe fn of(state: *mut ffi::lua_State, vm: Range<usize>) -> Option<Native> {
        // SAFETY: the caller's promise; the module keeps its address there.
        let shadow = unsafe {
            ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, c"native.shadow".as_ptr());
            let shadow = ffi::lua_touserdata(state, -1);
            ffi::lua_pop(state, 1);
            shadow.cast_const().cast::<Shadow>()
        };
        (!shadow.is_null()).then(|| Native {
            shadow,
            functions: functions(shadow as usize),
            vm,
            unwinder: unwinder(),
            root: Vec::with_capacity(ROOT),
        })
    }

    /// Whether `frames`, innermost first, are right as far as the module knows.
    /// Allocates nothing.
    pub fn agrees(&mut self, frames: &[RawFrame]) -> bool {
        if self.root.is_empty() {
            // The first one is in the C function that steps.
            let inside = frames.iter().position(is_c_function).unwrap_or(0);
            self.root.extend(frames[inside..].iter().take(ROOT));
        }
        // SAFETY: the module is loaded, and does not write while it is stepped.
        let written = unsafe {
            let count = ptr::read_volatile(&raw const (*self.shadow).count);
            &(&(*self.shadow).calls)[..count.min(SHADOW_DEPTH)]
        };
        let mut left = written.iter();
        let unwinding = (frames.iter())
            .any(|frame| matches!(frame, RawFrame::Native { address } if self.unwinder.contains(address)));
        let mut unwritten = 0;
        for (index, frame) in frames.iter().enumerate().rev() {
            let inner = index.checked_sub(1).map(|i| &frames[i]);
            match *frame {
                RawFrame::Mark(_) => return false,
                RawFrame::Lua { .. } | RawFrame::Function { .. } if unwritten > 0 => return false,
                RawFrame::Lua { .. } => {}
                RawFrame::Function { code, .. } => {
                    // It runs, unless it is about to, or has just returned.
                    let runs = match inner {
                        Some(RawFrame::Native { address }) => self.begin(*address) == Some(code),
                        inner => inner.is_none(),
                    };
                    if self.begin(code).is_some() && !runs {
                        return false;
                    }
                }
                RawFrame::Native { address } => {
                    let Some(begin) = self.begin(address) else {
                        continue;
                    };
                    let agrees = match left.next() {
                        Some(call) => {
                            let outer = &frames[index + 1..];
                            call.function == begin && self.returns(call, outer, unwinding)
                        }
                        None => {
                            unwritten += 1;
                            unwritten == 1
                        }
                    };
                    if !agrees {
                        return false;
                    }
                }
            }
        }
        left.next().is_none() && frames.ends_with(&self.root)
    }

    /// Whether `call` was made by the first frame of `outer`.
    fn returns(&self, call: &Call, outer: &[RawFrame], unwinding: bool) -> bool {
        let by_vm = self.vm.contains(&call.caller);
        match *outer {
            [RawFrame::Native { .. }, ..] if by_vm && unwinding => true,
            [RawFrame::Native { address }, ..] => address == call.caller - 1,
            [RawFrame::Function { code, ffid: 1 }, ..] => by_vm && code == call.function,
            // Compiled code makes FFI calls by itself, for the built-in that they
            // are in Lua.
            [RawFrame::Lua { compiled, .. }, ..]
            | [
                RawFrame::Function { .. },
                RawFrame::Lua { compiled, .. },
                ..,
            ] => !by_vm && compiled.is_some(),
            _ => false,
        }
    }

    /// Where the function that `address` lies in begins, if it is one that the
    /// module writes down.
    fn begin(&self, address: usize) -> Option<usize> {
        let after = (self.functions).partition_point(|function| function.start <= address);
        let function = &self.functions[after.checked_sub(1)?];
        function.contains(&address).then_some(function.start)
    }
}

/// How many frames around the stepping are held.
const ROOT: usize = 64;

fn is_c_function(frame: &RawFrame) -> bool {
    matches!(frame, RawFrame::Function { ffid: 1, .. })
}

/// The code of the module that unwinds exceptions.
fn unwinder() -> Range<usize> {
    unsafe extern "C" {
        fn _Unwind_RaiseException();
    }
    let address = _Unwind_RaiseException as *const () as usize;
    (sysprof::native::modules::Catalogue::new().loaded())
        .map(|module| module.range.clone())
        .find(|range| range.contains(&address))
        .expect("a loaded module")
}

/// The functions of the module that `inside` lies in: those that it exports,
/// but for the hooks and what `require` calls.
fn functions(inside: usize) -> Vec<Range<usize>> {
    // SAFETY: dladdr fills in the record; the module is loaded.
    let (path, bias) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(inside as *const _, &mut info), 0);
        let path = CStr::from_ptr(info.dli_fname)
            .to_string_lossy()
            .into_owned();
        (path, info.dli_fbase as usize)
    };
    let bytes = std::fs::read(&path).expect("the module's file");
    let file = object::File::parse(&*bytes).expect("a library");
    let mut functions: Vec<Range<usize>> = (file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter(|symbol| {
            let name = symbol.name().unwrap_or_default();
            !name.starts_with("__cyg_") && !name.starts_with("luaopen_")
        })
        .map(|symbol| {
            let start = bias + symbol.address() as usize;
            start..start + symbol.size() as usize
        })
        .collect();
    functions.sort_by_key(|function| function.start);
    functions
}

//! Finds the layout of the LuaJIT that runs, by its behaviour.
//!
//! Knows: what each field does, and how to tell it from its neighbours by
//! looking while the VM is in a known situation. Must not know: versions, or
//! machine code.
//!
//! The situations: a C function that runs in the thread at hand, the same one
//! in a coroutine, a hook that the interpreter calls where that leaves a doubt, a
//! string of known length, a function of known source. What
//! was found one way is held against what another way says. Where that fails,
//! [`probe`] says what was not found, and nothing is guessed.

use super::layout::{Family, Layout, Opcodes, StateNumbering, StringLayout};
use super::lines;
use super::objects::{Callee, Function, Kind, Proto, SLOT, Thread};
use super::opcodes::{self, LESSONS};
use crate::memory::read;
use mlua::ffi;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ops::Range;

/// Something that a LuaJIT has and that could not be found in this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound(pub &'static str);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this LuaJIT is laid out in a way that sysprof does not know: {} was not found",
            self.0
        )
    }
}

/// What the unwind tables know about an address in machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeExtent {
    /// The code that one table entry describes, or that no entry does.
    pub range: Range<usize>,
    /// Bytes from the stack pointer to the end of the frame, where known.
    pub frame_size: Option<usize>,
}

/// How far past `global_State`'s start its fields are looked for, in bytes.
const GLOBAL_REACH: usize = 1536;
/// How far past it the dispatch table is looked for.
const DISPATCH_REACH: usize = 32 * 1024;
/// Opcodes after the first function header's, that one included (`lj_bc.h`).
const FUNCTION_HEADERS: usize = 8;
/// Bytes of a C frame without and with r12 and r13 (`LJ_NO_UNWIND`).
const CFRAME_SIZES: [usize; 2] = [80, 96];

/// What a C function called from Lua saw.
#[derive(Default)]
struct Sight {
    thread: usize,
    /// Offsets in `global_State` of references to the running thread.
    references: BTreeSet<usize>,
    /// Offsets of numbers that can say "in C", and in which numbering.
    states: BTreeSet<(usize, StateNumbering)>,
    /// Where the C function was to return to.
    return_address: usize,
    /// Whether the thread's base led to this very function.
    function_found: bool,
}

/// Finds the layout of the LuaJIT that `state` belongs to.
///
/// # Errors
/// What was not found.
///
/// # Safety
/// `state` is a live `lua_State` of the calling thread, not in the middle of
/// compilation or collection. Its stack is left as it was; a coroutine, a
/// string and a function are left to the collector.
pub unsafe fn probe(
    state: *mut ffi::lua_State,
    extent_of: &dyn Fn(usize) -> Option<CodeExtent>,
) -> Result<Layout, NotFound> {
    let family = Family::of(state as usize).ok_or(NotFound("the type of a lua_State"))?;
    let mut layout = Layout::unknown(family);
    layout.global = family
        .global_of(state as usize)
        .filter(|&global| global != 0)
        .ok_or(NotFound("the global state"))?;

    // SAFETY: the caller's promise on `state`, here and below.
    let here = unsafe { look(state, &layout, false) }.ok_or(NotFound("a call of a C function"))?;
    // SAFETY: as above.
    let there = unsafe { look(state, &layout, true) }.ok_or(NotFound("a call in a coroutine"))?;
    if !here.function_found || !there.function_found {
        return Err(NotFound("the base of a running function"));
    }
    let both = here.references.intersection(&there.references).copied();
    layout.cur_l = layout.global + only(both).ok_or(NotFound("the running thread (cur_L)"))?;
    layout.jit_base = layout.cur_l + layout.reference_size();
    if layout.reference(layout.jit_base) != Some(0) {
        return Err(NotFound("the base of a running trace (jit_base)"));
    }
    let in_c: Vec<_> = here.states.intersection(&there.states).copied().collect();
    let (offset, states) = match in_c[..] {
        [state] => Some(state),
        // SAFETY: as above.
        _ => unsafe { interprets_too(state, &layout, &in_c) },
    }
    .ok_or(NotFound("the VM state (vmstate)"))?;
    layout.vmstate = layout.global + offset;
    layout.states = states;

    let extent = extent_of(here.return_address).ok_or(NotFound("the interpreter's code"))?;
    layout.interpreter = extent.range;
    find_dispatch(&mut layout).ok_or(NotFound("the dispatch table"))?;
    // SAFETY: as above.
    layout.cframe_size = unsafe { find_cframe_size(state, &layout, extent.frame_size, extent_of) }
        .ok_or(NotFound("the size of the interpreter's C frame"))?;
    // SAFETY: as above.
    layout.string = unsafe { find_string(state) }.ok_or(NotFound("the text of a string"))?;
    // SAFETY: as above.
    unsafe { check_proto(state, &layout) }.ok_or(NotFound("the lines of a function"))?;
    // SAFETY: as above.
    layout.opcodes =
        unsafe { learn_opcodes(state, &layout) }.ok_or(NotFound("the numbers of a few opcodes"))?;
    Ok(layout)
}

fn only<T>(mut candidates: impl Iterator<Item = T>) -> Option<T> {
    let first = candidates.next();
    first.filter(|_| candidates.next().is_none())
}

struct Looking<'a> {
    layout: &'a Layout,
    sight: Option<Sight>,
}

/// Calls a C function that looks at the VM, in `state` or in a new coroutine.
unsafe fn look(state: *mut ffi::lua_State, layout: &Layout, coroutine: bool) -> Option<Sight> {
    let mut looking = Looking {
        layout,
        sight: None,
    };
    let argument: *mut c_void = (&raw mut looking).cast();
    // SAFETY: the API is used as documented, on a live state with room for
    // the few slots; `looking` outlives the calls.
    unsafe {
        let top = ffi::lua_gettop(state);
        if ffi::lua_checkstack(state, 4) == 0 {
            return None;
        }
        if coroutine {
            let thread = ffi::lua_newthread(state);
            ffi::lua_pushcfunction(thread, sight_of);
            ffi::lua_pushlightuserdata(thread, argument);
            let mut results = 0;
            ffi::lua_resume(thread, state, 1, &mut results);
        } else {
            ffi::lua_pushcfunction(state, sight_of);
            ffi::lua_pushlightuserdata(state, argument);
            ffi::lua_pcall(state, 1, 0, 0);
        }
        ffi::lua_settop(state, top);
    }
    looking.sight
}

/// The C function that is called: notes what can be seen from it.
unsafe extern "C-unwind" fn sight_of(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: `look` passed a pointer to a `Looking` that lives.
    let looking = unsafe { &mut *ffi::lua_touserdata(state, 1).cast::<Looking>() };
    looking.sight = see(state as usize, looking.layout);
    0
}

fn see(thread: usize, layout: &Layout) -> Option<Sight> {
    let at = layout.at;
    let mut sight = Sight {
        thread,
        ..Sight::default()
    };
    for offset in (0..GLOBAL_REACH).step_by(layout.reference_size()) {
        if layout.reference(layout.global + offset)? == sight.thread {
            sight.references.insert(offset);
        }
    }
    for offset in (0..GLOBAL_REACH).step_by(4) {
        let value = read::<u32>(layout.global + offset)?;
        if let Some(states) = StateNumbering::of_c(value) {
            sight.states.insert((offset, states));
        }
    }
    let cframe = read::<u64>(thread + at.state_cframe)? as usize & !3;
    sight.return_address = read::<u64>(cframe.checked_sub(SLOT)?)? as usize;
    let base = read::<u64>(thread + at.state_base)? as usize;
    sight.function_found = matches!(Callee::of(layout, base)?, Callee::Function(function)
        if function.kind(layout)? == Kind::C
            && function.code(layout)? == sight_of as *const () as usize);
    Some(sight)
}

/// What a hook is to look at, and has found: it is called without an argument.
struct Hooked {
    global: usize,
    /// Words that said "in C" while a C function ran.
    in_c: Vec<(usize, StateNumbering)>,
    /// Those of them that said "interpreting" at each call of the hook.
    interpreting: Option<BTreeSet<(usize, StateNumbering)>>,
}

thread_local! {
    static HOOKED: RefCell<Option<Hooked>> = const { RefCell::new(None) };
}

/// The one of the words `in_c` that says "interpreting" while bytecode is
/// interpreted: a count hook is called from the interpreter itself. Hooks are
/// for the doubtful case only, as setting one ends a recording.
unsafe fn interprets_too(
    state: *mut ffi::lua_State,
    layout: &Layout,
    in_c: &[(usize, StateNumbering)],
) -> Option<(usize, StateNumbering)> {
    HOOKED.set(Some(Hooked {
        global: layout.global,
        in_c: in_c.to_vec(),
        interpreting: None,
    }));
    // SAFETY: a live state with room for a function. The host's own hook is put
    // back, and is not called in between.
    unsafe {
        let top = ffi::lua_gettop(state);
        if ffi::lua_checkstack(state, 1) != 0
            && ffi::luaL_loadstring(state, c"local a = 1 local b = a".as_ptr()) == 0
        {
            let hook = ffi::lua_gethook(state);
            let mask = ffi::lua_gethookmask(state);
            let count = ffi::lua_gethookcount(state);
            ffi::lua_sethook(state, Some(note_states), ffi::LUA_MASKCOUNT, 1);
            ffi::lua_pcall(state, 0, 0, 0);
            ffi::lua_sethook(state, hook, mask, count);
        }
        ffi::lua_settop(state, top);
    }
    only(HOOKED.take()?.interpreting?.into_iter())
}

/// The hook: called by the interpreter before each instruction.
unsafe extern "C-unwind" fn note_states(_: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    HOOKED.with_borrow_mut(|hooked| {
        let Some(hooked) = hooked else { return };
        let interprets = |&(offset, states): &(usize, StateNumbering)| {
            read::<u32>(hooked.global + offset).is_some_and(|raw| states.is_interpreting(raw))
        };
        let these: BTreeSet<_> = (hooked.in_c.iter().copied().filter(interprets)).collect();
        hooked.interpreting = Some(match hooked.interpreting.take() {
            Some(before) => before.intersection(&these).copied().collect(),
            None => these,
        });
    });
}

/// The dispatch table lies behind the `global_State` and the `jit_State`: a run
/// of addresses in the interpreter, followed by the header instructions of the
/// built-ins that have machine code, whose opcodes count up from the number of
/// bytecodes.
fn find_dispatch(layout: &mut Layout) -> Option<()> {
    let mut best = 0..0;
    let mut run = layout.global..layout.global;
    for address in (layout.global..layout.global + DISPATCH_REACH).step_by(8) {
        match read::<u64>(address) {
            Some(target) if layout.interpreter.contains(&(target as usize)) => {
                run.end = address + 8;
                if run.len() > best.len() {
                    best = run.clone();
                }
            }
            Some(_) => run = address + 8..address + 8,
            None => break,
        }
    }
    if best.is_empty() {
        return None;
    }
    let table: Vec<usize> = (best.clone().step_by(8))
        .map(|address| read::<u64>(address).map(|target| target as usize))
        .collect::<Option<_>>()?;
    let opcode = |index: usize| read::<u8>(best.end + 4 * index).map(usize::from);
    let bytecodes = opcode(0)?;
    let mut builtins = 0;
    while opcode(builtins)? == bytecodes + builtins {
        builtins += 1;
    }
    let dynamic = bytecodes + builtins;
    let fixed = table.len().checked_sub(dynamic)?;
    if builtins == 0 || fixed + FUNCTION_HEADERS != bytecodes {
        return None;
    }
    layout.dispatch = best.start;
    // Hooks and the recorder change the entries of the first part; the second
    // part keeps those of the bytecodes below the function headers.
    layout.entries = (0..dynamic)
        .map(|op| table[if op < fixed { dynamic + op } else { op }])
        .collect();
    layout.handlers = table.clone();
    layout.handlers.sort_unstable();
    layout.handlers.dedup();
    Some(())
}

/// The C frame's return address leads to code outside the interpreter.
unsafe fn find_cframe_size(
    state: *mut ffi::lua_State,
    layout: &Layout,
    described: Option<usize>,
    extent_of: &dyn Fn(usize) -> Option<CodeExtent>,
) -> Option<usize> {
    let thread = Thread::at(layout, state as usize)?;
    let cframe = thread.cframe(layout)?;
    let plausible = |size: usize| {
        if cframe == 0 {
            return true;
        }
        read::<u64>(cframe + size - 8).is_some_and(|address| {
            extent_of(address as usize).is_some() && address as usize != layout.interpreter.start
        })
    };
    match described {
        Some(size) => (CFRAME_SIZES.contains(&size) && plausible(size)).then_some(size),
        None => only(CFRAME_SIZES.into_iter().filter(|&size| plausible(size))),
    }
}

/// A string's length is the one header field that follows it.
unsafe fn find_string(state: *mut ffi::lua_State) -> Option<StringLayout> {
    const LENGTHS: [usize; 2] = [4099, 1033];
    let mut found: Option<BTreeSet<(usize, usize)>> = None;
    for len in LENGTHS {
        let text = vec![b'x'; len];
        // SAFETY: a live state; the pointers stay valid while the string is on
        // its stack.
        let (object, data) = unsafe {
            ffi::lua_pushlstring(state, text.as_ptr().cast::<c_char>(), len);
            let object = ffi::lua_topointer(state, -1) as usize;
            let data = ffi::lua_tolstring(state, -1, std::ptr::null_mut()) as usize;
            ffi::lua_pop(state, 1);
            (object, data)
        };
        let header = data.checked_sub(object).filter(|&header| header <= 64)?;
        let these: BTreeSet<_> = (0..header)
            .step_by(4)
            .filter(|offset| read::<u32>(object + offset) == Some(len as u32))
            .map(|offset| (offset, header))
            .collect();
        found = Some(match found {
            Some(before) => before.intersection(&these).copied().collect(),
            None => these,
        });
    }
    only(found?.into_iter()).map(|(len, text)| StringLayout { len, text })
}

/// Compiles `source`, runs it, and leaves the function that it returns on the
/// stack. Its address; `None`, with something else on the stack, if it failed.
unsafe fn compile(state: *mut ffi::lua_State, source: &CStr, name: &CStr) -> Option<usize> {
    // SAFETY: the caller's promise: a live state with room on its stack.
    unsafe {
        let loaded =
            ffi::luaL_loadbuffer(state, source.as_ptr(), source.count_bytes(), name.as_ptr());
        (loaded == 0 && ffi::lua_pcall(state, 0, 1, 0) == 0)
            .then(|| ffi::lua_topointer(state, -1) as usize)
    }
}

/// The prototype of the function at `address`.
fn proto_of(layout: &Layout, address: usize) -> Option<Proto> {
    match Function::at(layout, address)?.kind(layout)? {
        Kind::Lua(proto) => Some(proto),
        _ => None,
    }
}

/// A function of known source must read as what it is.
unsafe fn check_proto(state: *mut ffi::lua_State, layout: &Layout) -> Option<()> {
    const SOURCE: &CStr = c"local a\n\nreturn function(x)\n local y = x + 1\n\n return y\nend";
    const NAME: &CStr = c"@sysprof.probe";
    const FIRST: u32 = 3;
    const LINES: [u32; 4] = [3, 4, 6, 7];
    // SAFETY: a live state; the function stays on its stack while it is read.
    unsafe {
        let top = ffi::lua_gettop(state);
        let good = compile(state, SOURCE, NAME)
            .and_then(|function| proto_of(layout, function))
            .and_then(|proto| reads_as_written(layout, proto));
        ffi::lua_settop(state, top);
        return good;
    }

    fn reads_as_written(layout: &Layout, proto: Proto) -> Option<()> {
        let mut text = [0; 64];
        let text = proto.chunkname(layout)?.copy_to(&mut text)?;
        let first = proto.bytecode(layout);
        let size = proto.sizebc(layout)? as usize;
        let lines: BTreeSet<u32> = (1..=size)
            .map(|index| lines::line_before(layout, proto, first + 4 * index))
            .collect();
        let good = text == NAME.to_bytes()
            && proto.first_line(layout)? == FIRST
            && proto.line_count(layout)? == LINES[3] - FIRST
            && (3..16).contains(&size)
            && lines.iter().all(|line| LINES.contains(line))
            && lines.contains(&LINES[1])
            && lines.contains(&LINES[2])
            && proto.constants(layout)? > proto.address();
        good.then_some(())
    }
}

/// Learns the opcodes from functions that are compiled for it.
unsafe fn learn_opcodes(state: *mut ffi::lua_State, layout: &Layout) -> Option<Opcodes> {
    // SAFETY: a live state; the functions stay on its stack while they are read.
    unsafe {
        let top = ffi::lua_gettop(state);
        if ffi::lua_checkstack(state, LESSONS.len() as c_int + 2) == 0 {
            return None;
        }
        let protos = LESSONS
            .map(|source| compile(state, source, c"=sysprof").and_then(|f| proto_of(layout, f)));
        let learned = match protos {
            [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] => {
                opcodes::learned(layout, [a, b, c, d, e, f])
            }
            _ => None,
        };
        ffi::lua_settop(state, top);
        learned
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;

    const INTERPRETER: Range<usize> = 0x10_0000..0x10_4000;
    /// Bytecodes below the function headers, the headers, and built-ins.
    const FIXED: usize = 90;
    const BYTECODES: usize = FIXED + FUNCTION_HEADERS;
    const BUILTINS: usize = 50;
    /// Words before the table.
    const BEFORE: usize = 100;

    /// A VM's memory from its `global_State` on: other things, the dispatch
    /// table, and the header instructions of the built-ins.
    fn memory() -> Vec<u64> {
        let code = |index: usize| (INTERPRETER.start + 16 * index) as u64;
        let mut words = vec![7; BEFORE];
        // Hooked entries first, as if a hook were set.
        words.extend((0..FIXED).map(|_| code(900)));
        words.extend((FIXED..BYTECODES + BUILTINS).map(code));
        words.extend((0..FIXED).map(code));
        let headers: Vec<u32> = (0..BUILTINS)
            .map(|index| (BYTECODES + index) as u32 | 0x100)
            .collect();
        let pairs = headers.chunks(2);
        words.extend(pairs.map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32));
        words.resize(DISPATCH_REACH / 8 + 100, 7);
        words
    }

    /// What is made of such memory.
    fn found(memory: &[u64]) -> Option<Layout> {
        let mut layout = Layout::unknown(Family::Gc64);
        layout.global = memory.as_ptr() as usize;
        layout.interpreter = INTERPRETER;
        find_dispatch(&mut layout)?;
        Some(layout)
    }

    #[test]
    fn the_dispatch_table_is_found_wherever_it_is() {
        for words_before in [0, 1, 777] {
            let mut words = vec![3; words_before];
            words.extend(memory());
            let layout = found(&words).expect("a table");
            let start = layout.global + 8 * (words_before + BEFORE);
            assert_eq!(layout.dispatch, start);
            // By opcode, the hooked entries' originals among them.
            let code = |index: usize| INTERPRETER.start + 16 * index;
            let entries: Vec<_> = (0..BYTECODES + BUILTINS).map(code).collect();
            assert_eq!(layout.entries, entries);
            assert!(layout.handlers.is_sorted());
            assert!(layout.handlers.contains(&code(900)));
        }
    }

    #[test]
    fn a_dispatch_table_of_another_make_is_not_believed() {
        assert!(found(&memory()).is_some());
        let changed = |change: &dyn Fn(&mut Vec<u64>)| {
            let mut words = memory();
            change(&mut words);
            found(&words).is_some()
        };
        let end = BEFORE + 2 * FIXED + FUNCTION_HEADERS + BUILTINS;
        assert!(!changed(&|words| words.fill(7)), "there is none");
        assert!(
            !changed(&|words| _ = words.remove(BEFORE)),
            "one is missing"
        );
        assert!(
            !changed(&|words| words[BEFORE + 30] = 7),
            "one leads elsewhere"
        );
        let one_more = INTERPRETER.start as u64;
        assert!(!changed(&|words| words.insert(end, one_more)), "one more");
        assert!(!changed(&|words| words[end] = 0), "no built-ins behind it");
        assert!(!changed(&|words| words[end + 1] = 0), "built-ins that stop");
    }

    #[test]
    fn one_candidate_is_an_answer_and_two_are_none() {
        assert_eq!(only([5].into_iter()), Some(5));
        assert_eq!(only([5, 6].into_iter()), None);
        assert_eq!(only(std::iter::empty::<u8>()), None);
    }
}

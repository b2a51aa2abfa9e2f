//! What is shown, what is hidden, and to whom hidden frames count: with symbols
//! that are made up here.

use ljp::decode::Module;
use ljp::encode::Cursor;
use ljp::profile::Profile;
use ljp::{Frame, FrameDef, FuncKind, Mark, NameKind, Reason, TraceDef, VmState};

use super::View;
use crate::symbols::{Code, Function, Symbols};

/// Every function is 0x100 long. In `host`, which contains LuaJIT, there are
/// functions of LuaJIT at 0x100, 0x200 and 0x400, of which the last does not say
/// so, and the host's own at 0x300. In `lib.so` there is `work` at 0x100 with `inner` inlined at 0x180,
/// and `lua_like` at 0x200. All else has no name.
struct Fake;

impl Symbols for Fake {
    fn at(&mut self, module: &Module, address: u64) -> Code {
        let start = address & !0xff;
        let function = |name: &str, place: Option<&str>| Function {
            name: name.to_owned(),
            place: place.map(str::to_owned),
        };
        let functions = match (&module.path[..], start) {
            (b"/bin/host", 0x100) => vec![function("lj_vm_call", None)],
            (b"/bin/host", 0x200) => vec![function("lua_pcall", None)],
            (b"/bin/host", 0x300) => vec![function("main", None)],
            (b"/bin/host", 0x400) => vec![function("auxsort", None)],
            (b"/lib.so", 0x100) if address >= 0x180 => {
                vec![
                    function("work", Some("work.c:9")),
                    function("inner", Some("inner.h:2")),
                ]
            }
            (b"/lib.so", 0x100) => vec![function("work", Some("work.c:5"))],
            (b"/lib.so", 0x200) => vec![function("lua_like", None)],
            _ => return Code::default(),
        };
        Code {
            start: Some(start),
            functions,
        }
    }

    fn is_luajit(&mut self, module: &Module) -> bool {
        module.path == b"/bin/host"
    }

    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }
}

const HOST: u32 = 0;
const LIB: u32 = 1;
const LUAJIT: u32 = 2;

fn native(module: u32, address: u64) -> Frame {
    Frame::Native {
        module: Some(module),
        address,
    }
}

fn lua(line: u32) -> Frame {
    Frame::Lua { proto: 0, line }
}

/// The C function `work` of `lib.so`, without a name that Lua has for it.
const WORK: Frame = Frame::Func { func: 0 };
/// The built-in `sort`.
const SORT: Frame = Frame::Func { func: 1 };
const VM: Frame = Frame::Mark(Mark::Vm);

/// One line for each stack with samples, of a profile with this one stack,
/// outermost first.
fn shown(stack: &[Frame], internals: bool) -> Vec<String> {
    let mut buf = [0; 4096];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    out.module(b"/bin/host", b"", 0, 0, 0);
    out.module(b"/lib.so", b"", 0, 0, 0);
    out.module(b"/usr/lib/libluajit-5.1.so.2", b"", 0, 0, 0);
    out.proto(b"@a.lua", 3, 9, b"f", NameKind::Local);
    out.func(FuncKind::C, b"", Some(LIB), 0x100);
    out.func(FuncKind::Builtin, b"sort", None, 0);
    out.func(FuncKind::C, b"", Some(LUAJIT), 0x500);
    out.func(FuncKind::Builtin, b"next", Some(HOST), 0x600);
    out.trace(&TraceDef {
        number: 5,
        proto: Some(0),
        line: 4,
        ..TraceDef::default()
    });
    for (at, frame) in stack.iter().enumerate() {
        out.frame(&FrameDef::from(*frame));
        out.stack((at as u32).checked_sub(1), at as u32);
    }
    out.sample(VmState::Cfunc, Ok(stack.len() as u32 - 1), 3, 0);
    assert!(!out.overflowed());
    lines(out.written(), internals)
}

fn lines(stream: &[u8], internals: bool) -> Vec<String> {
    let profile = Profile::read(stream).unwrap().profile;
    let view = View::new(&profile, &mut Fake, internals);
    crate::collapse::stacks(&view)
        .map(|stack| {
            let names: Vec<&str> = stack
                .functions
                .iter()
                .map(|function| view.functions[*function as usize].name.as_str())
                .collect();
            format!("{} {}", names.join(";"), stack.samples)
        })
        .collect()
}

#[test]
fn the_insides_of_luajit_are_hidden() {
    let stack = [
        native(HOST, 0x310),
        native(HOST, 0x210),
        native(HOST, 0x110),
        lua(5),
        SORT,
        native(HOST, 0x120),
    ];
    assert_eq!(shown(&stack, false), ["main;f (a.lua:3);sort 3"]);
    assert_eq!(
        shown(&stack, true),
        ["main;lua_pcall;lj_vm_call;f (a.lua:3);sort;lj_vm_call 3"]
    );
}

#[test]
fn names_alone_do_not_make_an_inside_of_luajit() {
    let stack = [lua(5), native(LIB, 0x210)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);lua_like 3"]);
}

#[test]
fn what_luajit_calls_in_its_module_is_luajit() {
    let stack = [native(HOST, 0x440), lua(5), SORT];
    assert_eq!(shown(&stack, false), ["auxsort;f (a.lua:3);sort 3"]);
    let inner = [
        native(HOST, 0x120),
        native(HOST, 0x440),
        native(HOST, 0x440),
    ];
    let stack = [&[lua(5), SORT][..], &inner].concat();
    assert_eq!(shown(&stack, false), ["f (a.lua:3);sort 3"]);
    // Through Lua it may come back to the host.
    let stack = [&inner[..], &[lua(5), native(HOST, 0x310)]].concat();
    assert_eq!(shown(&stack, false), ["f (a.lua:3);main 3"]);
    // Another library is not LuaJIT.
    let stack = [&[lua(5)][..], &inner, &[native(LIB, 0x110)]].concat();
    assert_eq!(shown(&stack, false), ["f (a.lua:3);work 3"]);
}

#[test]
fn a_file_that_is_luajit_is_hidden_without_any_symbol() {
    let stack = [native(LUAJIT, 0x900), lua(5), native(LIB, 0x900)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);[lib.so] 3"]);
    let own = Frame::Func { func: 2 };
    let stack = [own, native(LUAJIT, 0x510), lua(5)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3) 3"]);
}

#[test]
fn built_ins_say_where_luajit_is() {
    let builtin = Frame::Func { func: 3 };
    // Nothing in it needs a name to be known as LuaJIT's.
    let stack = [lua(5), builtin, native(HOST, 0x930), native(HOST, 0x440)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);next 3"]);
    // What a Lua function calls is LuaJIT's unless its name says otherwise.
    let stack = [native(HOST, 0x950), lua(5), native(HOST, 0x910)];
    assert_eq!(shown(&stack, false), ["[host];f (a.lua:3) 3"]);
    let stack = [lua(5), native(HOST, 0x310)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);main 3"]);
}

#[test]
fn code_without_names_is_one_frame() {
    let stack = [
        native(LIB, 0x900),
        native(LIB, 0x980),
        lua(5),
        native(LIB, 0x910),
    ];
    assert_eq!(shown(&stack, false), ["[lib.so];f (a.lua:3);[lib.so] 3"]);
    assert_eq!(
        shown(&stack, true),
        ["lib.so+0x900;lib.so+0x980;f (a.lua:3);lib.so+0x910 3"]
    );
}

#[test]
fn a_c_function_is_shown_once() {
    // Its native frame follows it, with an inside of LuaJIT between.
    let stack = [lua(5), WORK, native(HOST, 0x110), native(LIB, 0x140)];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);work 3"]);
    // What is inlined into it or called by it stays, itself included.
    let stack = [WORK, native(LIB, 0x190)];
    assert_eq!(shown(&stack, false), ["work;inner 3"]);
    let stack = [WORK, native(LIB, 0x140), native(LIB, 0x140)];
    assert_eq!(shown(&stack, false), ["work;work 3"]);
    // Another function's native frame is not it.
    let stack = [WORK, native(LIB, 0x210)];
    assert_eq!(shown(&stack, false), ["work;lua_like 3"]);
}

#[test]
fn marks_are_shown_but_for_the_vms_own_code() {
    let stack = [Frame::Mark(Mark::Cut), lua(5), VM];
    assert_eq!(
        shown(&stack, false),
        ["[older frames left out];f (a.lua:3) 3"]
    );
    assert_eq!(
        shown(&stack, true),
        ["[older frames left out];f (a.lua:3);[vm] 3"]
    );
    // Where nothing else is left, it stands for the sample.
    assert_eq!(shown(&[VM], false), ["[vm] 3"]);
}

#[test]
fn code_that_was_met_before_its_module_was_known_has_its_name() {
    let mut buf = [0; 256];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    let frame = |address| Frame::Native {
        module: None,
        address,
    };
    out.frame(&frame(0x7000_0140).into());
    out.frame(&frame(0x9000_0140).into());
    for id in [0, 1] {
        out.stack(None, id);
        out.sample(VmState::Cfunc, Ok(id), 1, 0);
    }
    out.module(b"/lib.so", b"", 0x7000_0000, 0x7000_0000, 0x7001_0000);
    assert_eq!(lines(out.written(), false), ["work 1", "0x90000140 1"]);
}

#[test]
fn traces_are_named_by_where_they_start() {
    let stack = [lua(5), Frame::Trace { trace: 0 }];
    assert_eq!(shown(&stack, false), ["f (a.lua:3);trace 5 (a.lua:4) 3"]);
}

#[test]
fn lines_differ_where_functions_do_not() {
    // The same function at two lines is two nodes, and one stack of functions.
    let mut buf = [0; 256];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    out.proto(b"@a.lua", 3, 9, b"", NameKind::None);
    for line in [4, 5] {
        out.frame(&lua(line).into());
    }
    out.stack(None, 0);
    out.stack(None, 1);
    out.sample(VmState::Lfunc, Ok(0), 1, 0);
    out.sample(VmState::Lfunc, Ok(1), 2, 0);
    out.sample(VmState::Gc, Err(Reason::Busy), 4, 0);
    let stream = out.written();
    assert_eq!(lines(stream, false), ["a.lua:3 3", "[no stack: busy] 4"]);
    let profile = Profile::read(stream).unwrap().profile;
    let view = View::new(&profile, &mut Fake, false);
    let places: Vec<&String> = view.lines.iter().collect();
    assert_eq!(places, ["a.lua:4", "a.lua:5"]);
    assert_eq!(view.samples(), 7);
}

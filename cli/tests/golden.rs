//! What the command prints of small profiles, to the letter.

mod common;

use common::{fixture, folder, heavy_and_light, run, write};
use ljp::encode::Cursor;
use ljp::{Frame, FrameDef, FuncKind, NameKind, TraceDef, VmState};

/// Lines without what is only there for alignment at their ends.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).collect()
}

#[test]
fn report_begins_with_what_matters() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let ran = run(folder.path(), &["report", "a.bin"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let expected = "\
100 samples, in 100.5 ms, one every 1 ms of the perf clock
/usr/bin/luajit
1 sample (1.0%) without a stack

VM states
  share  samples  state
  97.0%       97  LFUNC
   1.0%        1  FFUNC
   1.0%        1  GC
   1.0%        1  TRACE

Top functions
   self  total  samples  function
  96.0%  96.0%       96  app.lua:1
   1.0%  74.0%       74  heavy (app.lua:3)
   1.0%   1.0%        1  [no stack: unreadable]
   1.0%   1.0%        1  fib (app.lua:20)
   1.0%   1.0%        1  string.rep
   0.0%  99.0%       99  main chunk (app.lua)
   0.0%  24.0%       24  light (app.lua:8)

Top lines
   self  total  samples  line
  96.0%  96.0%       96  app.lua:1
   1.0%   1.0%        1  app.lua:22
   1.0%   1.0%        1  app.lua:6
   0.0%  99.0%       99  app.lua:30
   0.0%  73.0%       73  app.lua:5
   0.0%  24.0%       24  app.lua:9
";
    assert_eq!(lines(&ran.out), lines(expected), "{}", ran.out);
}

#[test]
fn report_has_each_table_on_its_own() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(24, 72));
    let table = |by| run(folder.path(), &["report", "a.bin", "--by", by]).out;
    assert!(table("function").contains("72.0%       72  light (app.lua:8)"));
    assert!(table("function").contains("26.0%       26  heavy (app.lua:3)"));
    assert!(table("line").contains("99.0%       99  app.lua:30"));
    assert_eq!(
        lines(&table("trace")),
        [
            "  self  total  samples  in loop  outside  native  exits  trace",
            "  1.0%   1.0%        1        0        1       0      0  trace 2 (app.lua:4)"
        ]
    );
    assert!(table("state").starts_with("  share  samples  state\n  97.0%       97  LFUNC\n"));
}

#[test]
fn report_says_what_it_leaves_out() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let ran = run(
        folder.path(),
        &["report", "a.bin", "--by", "function", "--limit", "2"],
    );
    assert_eq!(ran.out.lines().count(), 4);
    assert!(ran.out.ends_with("… and 5 more; --limit shows them\n"));
}

#[test]
fn report_says_what_each_trace_was_at() {
    let mut buf = vec![0; 4096];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    out.proto(b"@app.lua", 3, 4, b"hot", NameKind::Local);
    for (number, line) in [(2, 4), (3, 9)] {
        out.trace(&TraceDef {
            number,
            proto: Some(0),
            line,
            ..TraceDef::default()
        });
    }
    out.func(FuncKind::Builtin, b"string.rep", None, 0x40);
    let lua = |compiled, in_loop| FrameDef {
        compiled,
        in_loop,
        ..Frame::Lua { proto: 0, line: 4 }.into()
    };
    let native = Frame::Native {
        module: None,
        address: 0x44,
    };
    let frames = [
        lua(None, false),
        lua(Some(0), false),
        lua(Some(0), true),
        native.into(),
        Frame::Func { func: 0 }.into(),
        lua(Some(1), false),
    ];
    frames.iter().for_each(|frame| out.frame(frame));
    // Stacks 1 and 2 are trace 2 before and in its loop; there it has a built-in
    // compiled in (3), which calls native code (4), which calls back (5) what has
    // a trace of its own (6).
    for (parent, frame) in [
        (None, 0),
        (Some(0), 1),
        (Some(0), 2),
        (Some(2), 4),
        (Some(3), 3),
        (Some(4), 0),
        (Some(5), 5),
    ] {
        out.stack(parent, frame);
    }
    for (stack, state, weight) in [
        (1, VmState::Trace, 1),
        (2, VmState::Trace, 2),
        (3, VmState::Trace, 4),
        (4, VmState::Trace, 8),
        (1, VmState::Exit, 16),
        (5, VmState::Lfunc, 32),
        (6, VmState::Trace, 64),
        (0, VmState::Lfunc, 73),
    ] {
        out.sample(state, Ok(stack), weight, 1000);
    }
    out.abort(2, b"@app.lua", 7, b"NYI: bytecode FNEW");
    out.abort(3, b"=chunk", 0, b"leaving loop in root trace");
    let profile = out.written().to_vec();

    let folder = folder();
    write(folder.path(), "a.bin", &profile);
    assert_eq!(
        lines(&run(folder.path(), &["report", "a.bin", "--by", "trace"]).out),
        [
            "   self  total  samples  in loop  outside  native  exits  trace",
            "  32.0%  32.0%       64        0       64       0      0  trace 3 (app.lua:9)",
            "   3.5%  63.5%      127        6        1       8     16  trace 2 (app.lua:4)",
            "",
            "Aborted recordings",
            "  times  where and why",
            "      3  chunk: leaving loop in root trace",
            "      2  app.lua:7: NYI: bytecode FNEW",
        ]
    );
}

#[test]
fn report_says_where_inlined_calls_may_be_missing() {
    let mut buf = vec![0; 4096];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    out.proto(b"@app.lua", 3, 4, b"hot", NameKind::Local);
    out.trace(&TraceDef {
        number: 2,
        proto: Some(0),
        line: 4,
        ..TraceDef::default()
    });
    let exact = FrameDef {
        compiled: Some(0),
        ..Frame::Lua { proto: 0, line: 4 }.into()
    };
    let ancestor = FrameDef {
        ancestor: true,
        ..exact
    };
    out.frame(&exact);
    out.frame(&ancestor);
    out.stack(None, 0);
    out.stack(None, 1);
    out.sample(VmState::Trace, Ok(0), 3, 1000);
    out.sample(VmState::Trace, Ok(1), 1, 1000);
    let profile = out.written().to_vec();

    let folder = folder();
    write(folder.path(), "a.bin", &profile);
    let whole = run(folder.path(), &["report", "a.bin"]).out;
    assert!(
        whole.contains("1 sample (25.0%) in compiled code of which inlined calls are not known\n"),
        "{whole}"
    );
    assert_eq!(
        lines(&run(folder.path(), &["report", "a.bin", "--by", "line"]).out),
        [
            "   self  total  samples  line",
            "  75.0%  75.0%        3  app.lua:4",
            "  25.0%  25.0%        1  app.lua:4, or inlined there",
        ]
    );
}

#[test]
fn collapse_prints_outermost_first() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let ran = run(folder.path(), &["collapse", "a.bin"]);
    assert_eq!(ran.code, Some(0));
    let expected = "\
main chunk (app.lua);heavy (app.lua:3) 1
main chunk (app.lua);heavy (app.lua:3);app.lua:1 72
main chunk (app.lua);light (app.lua:8);app.lua:1 24
main chunk (app.lua);fib (app.lua:20);fib (app.lua:20) 1
main chunk (app.lua);heavy (app.lua:3);string.rep 1
[no stack: unreadable] 1
";
    assert_eq!(lines(&ran.out), lines(expected), "{}", ran.out);
}

#[test]
fn info_tells_what_the_file_knows() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let ran = run(folder.path(), &["info", "a.bin"]);
    assert_eq!(ran.code, Some(0));
    let expected = "\
file                     whole
format                   version 3
host                     /usr/bin/luajit
LuaJIT                   LuaJIT 2.1
recorder                 0.1.0
mode                     C
clock                    perf
interval                 1 ms
duration                 100.5 ms
samples                  100
overruns                 94
stacks                   9
LFUNC                    97 (97.0%)
FFUNC                    1 (1.0%)
GC                       1 (1.0%)
TRACE                    1 (1.0%)
no stack: unreadable     1 (1.0%)
";
    assert_eq!(lines(&ran.out), lines(expected), "{}", ran.out);
}

#[test]
fn diff_orders_by_change() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    write(folder.path(), "b.bin", &heavy_and_light(10, 86));
    let ran = run(folder.path(), &["diff", "a.bin", "b.bin", "--limit", "3"]);
    assert_eq!(ran.code, Some(0));
    let expected = "\
before: 100 samples, after: 100 samples
  change  self before  after  total before  after  function
    +0.0         1.0%   1.0%         74.0%  12.0%  heavy (app.lua:3)
    +0.0         0.0%   0.0%         24.0%  86.0%  light (app.lua:8)
    +0.0         1.0%   1.0%          1.0%   1.0%  [no stack: unreadable]
  … and 4 more; --limit shows them
";
    assert_eq!(lines(&ran.out), lines(expected), "{}", ran.out);
}

#[test]
fn flamegraph_draws_functions_in_their_colours() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let ran = run(folder.path(), &["flamegraph", "a.bin", "-o", "a.svg"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let svg = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    for part in [
        "heavy (app.lua:3) (74 samples, 74.00%)",
        "a.bin",
        "one every 1 ms of the perf clock",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    let again = run(folder.path(), &["flamegraph", "a.bin", "-o", "b.svg"]);
    assert_eq!(again.code, Some(0));
    let other = std::fs::read_to_string(folder.path().join("b.svg")).unwrap();
    assert_eq!(svg, other);
}

#[test]
fn profiles_of_tarantool_are_shown() {
    let folder = folder();
    let file = fixture("mixed-C.bin");
    let file = file.to_str().unwrap();
    let ran = run(folder.path(), &["collapse", file]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let samples: u64 = ran
        .out
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(samples, 10);
    assert!(ran.out.contains(";main chunk (mixed.lua);mixed.lua:6;"));
    let ran = run(folder.path(), &["info", file]);
    assert!(ran.out.contains("version 2") && ran.out.contains("CFUNC"));
    let trace = fixture("trace-C.bin");
    let ran = run(
        folder.path(),
        &["report", trace.to_str().unwrap(), "--by", "trace"],
    );
    assert!(ran.out.contains("trace 1 (trace.lua:5)"), "{}", ran.out);
}

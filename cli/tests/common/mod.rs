//! Running the command, and profiles for it to read.

#![allow(dead_code)] // Each test uses its part of this.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ljp::encode::Cursor;
use ljp::{Counters, Frame, FrameDef, FuncKind, NameKind, Reason, TraceDef, VmState};

/// The command.
pub fn sysprof() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sysprof"))
}

/// What it did.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs it in a folder.
pub fn run(folder: &Path, args: &[&str]) -> Ran {
    let output = sysprof().args(args).current_dir(folder).output().unwrap();
    ran(output)
}

pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder for a test, gone with the value.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// One of the profiles that another implementation has recorded.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ljp/tests/fixtures/tarantool")
        .join(name)
}

/// Writes the profile `name` into a folder.
pub fn write(folder: &Path, name: &str, profile: &[u8]) {
    std::fs::write(folder.join(name), profile).unwrap();
}

/// A profile of a program in which `heavy` spends `heavy` samples in the callee
/// that it shares with `light`, which spends `light` there. One sample each
/// fell into a recursive function, a built-in, a trace and the collector; that
/// one has no stack.
pub fn heavy_and_light(heavy: u64, light: u64) -> Vec<u8> {
    let mut buf = vec![0; 4096];
    let mut out = Cursor::new(&mut buf);
    out.prologue();
    for (key, value) in [
        ("recorder", "0.1.0"),
        ("mode", "C"),
        ("clock", "perf"),
        ("interval_ns", "1000000"),
        ("host", "/usr/bin/luajit"),
        ("luajit", "LuaJIT 2.1"),
    ] {
        out.meta(key.as_bytes(), value.as_bytes());
    }
    out.proto(b"@app.lua", 0, 40, b"", NameKind::Main);
    out.proto(b"@app.lua", 3, 4, b"heavy", NameKind::Local);
    out.proto(b"@app.lua", 8, 4, b"light", NameKind::Local);
    out.proto(b"@app.lua", 1, 1, b"", NameKind::None);
    out.proto(b"@app.lua", 20, 5, b"fib", NameKind::Global);
    out.func(FuncKind::Builtin, b"string.rep", None, 0);
    out.trace(&TraceDef {
        number: 2,
        proto: Some(1),
        line: 4,
        ..TraceDef::default()
    });
    let lua = |proto, line| FrameDef::from(Frame::Lua { proto, line });
    for frame in [
        lua(0, 30),
        lua(1, 5),
        lua(2, 9),
        lua(3, 1),
        lua(4, 22),
        Frame::Func { func: 0 }.into(),
        FrameDef {
            compiled: Some(0),
            ..lua(1, 6)
        },
    ] {
        out.frame(&frame);
    }
    out.stack(None, 0);
    out.stack(Some(0), 1); // main > heavy
    out.stack(Some(1), 3); // main > heavy > callee
    out.stack(Some(0), 2); // main > light
    out.stack(Some(3), 3); // main > light > callee
    out.stack(Some(0), 4); // main > fib
    out.stack(Some(5), 4); // main > fib > fib
    out.stack(Some(1), 5); // main > heavy > string.rep
    out.stack(Some(0), 6); // main > heavy, compiled
    out.sample(VmState::Lfunc, Ok(2), heavy, 1000);
    out.sample(VmState::Lfunc, Ok(4), light, 1000);
    out.sample(VmState::Lfunc, Ok(6), 1, 1000);
    out.sample(VmState::Ffunc, Ok(7), 1, 1000);
    out.sample(VmState::Trace, Ok(8), 1, 1000);
    out.sample(VmState::Gc, Err(Reason::Unreadable), 1, 1000);
    let mut counters = Counters {
        duration_us: 100_500,
        samples: heavy + light + 4,
        overruns: heavy + light - 2,
        ..Counters::default()
    };
    counters.by_state[VmState::Lfunc as usize] = heavy + light + 1;
    for state in [VmState::Ffunc, VmState::Trace, VmState::Gc] {
        counters.by_state[state as usize] = 1;
    }
    counters.by_reason[Reason::Unreadable as usize] = 1;
    out.end(&counters);
    assert!(!out.overflowed());
    out.written().to_vec()
}

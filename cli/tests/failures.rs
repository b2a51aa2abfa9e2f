//! What the command says of files that it cannot read, or not wholly, and what
//! scripts can tell from its exit code.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{folder, heavy_and_light, run, sysprof, write};

const READERS: [&[&str]; 4] = [
    &["report"],
    &["collapse"],
    &["info"],
    &["flamegraph", "-o", "out.svg"],
];

#[test]
fn what_is_no_profile_is_refused_with_a_reason() {
    let folder = folder();
    write(folder.path(), "empty", b"");
    write(folder.path(), "foreign", b"#!/bin/sh\necho\n");
    write(folder.path(), "newer", b"ljp\x09\0\0\0");
    std::fs::create_dir(folder.path().join("directory")).unwrap();
    for (file, said) in [
        ("missing", "missing: No such file or directory"),
        ("empty", "empty: the file is empty; "),
        (
            "foreign",
            "foreign: not a profile: it begins with \"#!/bin/\"; ",
        ),
        ("newer", "newer: a profile of an unknown version: ljp 9; "),
        ("directory", "directory: is a directory; "),
    ] {
        for reader in READERS {
            let args = [reader, &[file]].concat();
            let ran = run(folder.path(), &args);
            assert_eq!(ran.code, Some(1), "{args:?}");
            assert_eq!(ran.out, "", "{args:?}");
            let expected = format!("sysprof: {said}");
            assert!(ran.err.starts_with(&expected), "{args:?}: {}", ran.err);
            assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        }
    }
    assert!(!folder.path().join("out.svg").exists());
}

#[test]
fn a_truncated_profile_is_shown_as_far_as_it_goes() {
    let folder = folder();
    let whole = heavy_and_light(72, 24);
    write(folder.path(), "cut", &whole[..whole.len() - 3]);
    for reader in READERS {
        let ran = run(folder.path(), &[reader, &["cut"]].concat());
        assert_eq!(ran.code, Some(0), "{reader:?}: {}", ran.err);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains("cut off: its end is missing"), "{said}");
    }
    let ran = run(folder.path(), &["report", "cut"]);
    assert!(ran.out.starts_with("100 samples, in 6 ms"), "{}", ran.out);
    assert!(
        ran.err.starts_with("sysprof: warning: cut: "),
        "{}",
        ran.err
    );
    // Nothing in it but its beginning.
    write(folder.path(), "stub", &whole[..5]);
    let ran = run(folder.path(), &["report", "stub"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("there is nothing in it to show"),
        "{}",
        ran.err
    );
}

#[test]
fn a_damaged_profile_is_shown_up_to_the_damage() {
    let folder = folder();
    let mut bytes = heavy_and_light(72, 24);
    bytes.push(0);
    write(folder.path(), "damaged", &bytes);
    for reader in READERS {
        let ran = run(folder.path(), &[reader, &["damaged"]].concat());
        assert_eq!(ran.code, Some(1), "{reader:?}");
        let said = format!("{}{}", ran.out, ran.err);
        let place = format!("damaged at byte {}: ", bytes.len() - 1);
        assert!(said.contains(&place), "{said}");
    }
    let ran = run(folder.path(), &["report", "damaged"]);
    assert!(ran.out.starts_with("100 samples"), "{}", ran.out);
}

#[test]
fn usage_errors_have_their_own_code() {
    let folder = folder();
    for args in [
        &["report"][..],
        &["report", "a", "--by", "colour"],
        &["record", "--interval", "0", "--", "true"],
        &["record", "--interval", "nan", "--", "true"],
        &["record", "--depth", "0", "--", "true"],
        &["record", "--mode", "X", "--", "true"],
        &["record"],
        &["polish"],
    ] {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert_eq!(ran.out, "");
        assert!(ran.err.contains("error: "), "{}", ran.err);
    }
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let folder = folder();
    let ran = run(folder.path(), &["--help"]);
    assert_eq!(ran.code, Some(0));
    for command in ["record", "report", "flamegraph", "collapse", "info", "diff"] {
        assert!(ran.out.contains(command));
        let ran = run(folder.path(), &[command, "--help"]);
        assert_eq!(ran.code, Some(0));
        let example = format!("\n  sysprof {command} ");
        assert!(ran.out.contains(&example), "{}", ran.out);
    }
}

#[test]
fn a_reader_may_leave_early() {
    let folder = folder();
    // Enough to fill any pipe: many stacks of their own.
    let mut buf = vec![0; 1 << 21];
    let mut out = ljp::encode::Cursor::new(&mut buf);
    out.prologue();
    for at in 0..20_000u32 {
        let chunk = format!("@file_{at}.lua");
        out.proto(chunk.as_bytes(), 1, 1, b"", ljp::NameKind::None);
        out.frame(&ljp::Frame::Lua { proto: at, line: 1 }.into());
        out.stack(None, at);
        out.sample(ljp::VmState::Lfunc, Ok(at), 1, 1);
    }
    assert!(!out.overflowed());
    write(folder.path(), "wide", out.written());
    let mut child = sysprof()
        .args(["collapse", "wide"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(first, "file_0.lua:1 1\n");
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cut off"), "{said}");
}

#[test]
fn a_full_disk_is_an_error() {
    let folder = folder();
    write(folder.path(), "a.bin", &heavy_and_light(72, 24));
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = sysprof()
        .args(["report", "a.bin"])
        .current_dir(folder.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("sysprof: standard output: "), "{said}");
    let ran = run(
        folder.path(),
        &["flamegraph", "a.bin", "-o", "no/such/folder.svg"],
    );
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("sysprof: no/such/folder.svg: "));
}

#[test]
fn without_stacks_there_is_nothing_to_draw() {
    let folder = folder();
    let mut buf = [0; 256];
    let mut out = ljp::encode::Cursor::new(&mut buf);
    out.prologue();
    out.sample(ljp::VmState::Gc, Err(ljp::Reason::Mode), 4, 1);
    let mut counters = ljp::Counters {
        samples: 4,
        ..ljp::Counters::default()
    };
    counters.by_state[ljp::VmState::Gc as usize] = 4;
    counters.by_reason[0] = 4;
    out.end(&counters);
    write(folder.path(), "states", out.written());
    let ran = run(folder.path(), &["flamegraph", "states"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("record with --mode C"), "{}", ran.err);
    let ran = run(folder.path(), &["report", "states", "--by", "state"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("100.0%        4  GC"), "{}", ran.out);
}

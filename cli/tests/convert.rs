//! `sysprof convert`, there and back.

mod common;

use common::{fixture, folder, heavy_and_light, run, write};

/// What a profile says: its stacks with samples, and its samples by state.
fn says(folder: &std::path::Path, file: &str) -> (Vec<String>, String) {
    let collapsed = run(folder, &["collapse", file]);
    assert_eq!(collapsed.code, Some(0), "{}", collapsed.err);
    let mut stacks: Vec<String> = collapsed.out.lines().map(str::to_owned).collect();
    stacks.sort();
    let states = run(folder, &["report", "--by", "state", file]);
    assert_eq!(states.code, Some(0), "{}", states.err);
    (stacks, states.out)
}

#[test]
fn version_2_becomes_3_and_2_again_and_says_the_same() {
    let folder = folder();
    for name in [
        "fib-C", "fib-L", "late-C", "late-L", "mixed-C", "mixed-L", "trace-C", "trace-L",
    ] {
        let original = fixture(&format!("{name}.bin"));
        let original = original.to_str().unwrap();
        for args in [
            ["convert", "--to", "3", original, "-o", "three"],
            ["convert", "--to", "2", "three", "-o", "two"],
        ] {
            let ran = run(folder.path(), &args);
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.err);
        }
        let before = says(folder.path(), original);
        assert!(!before.0.is_empty());
        assert_eq!(says(folder.path(), "three"), before, "{name}");
        assert_eq!(says(folder.path(), "two"), before, "{name}");
    }
}

#[test]
fn version_3_keeps_functions_and_states_in_2() {
    let folder = folder();
    write(folder.path(), "three", &heavy_and_light(30, 10));
    let ran = run(
        folder.path(),
        &["convert", "--to", "2", "three", "-o", "two"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (stacks, states) = says(folder.path(), "two");
    assert_eq!(states, says(folder.path(), "three").1);
    let expected = [
        ("30", "app.lua:3;app.lua:1"),
        ("10", "app.lua:8;app.lua:1"),
        ("1", "app.lua:3;string.rep"),
        ("1", "app.lua:20;app.lua:20"),
    ];
    for (samples, frames) in expected {
        let ends = format!("{frames} {samples}");
        assert!(
            stacks.iter().any(|stack| stack.ends_with(&ends)),
            "no {ends} in {stacks:#?}"
        );
    }
}

#[test]
fn version_1_becomes_2_and_3_and_says_the_same() {
    let folder = folder();
    // Symbols of version 2 and events of version 1: a Lua function, a trace with its
    // address, a C function among the events; a sample with both stacks, one in the
    // trace, one in the collector without any stack.
    let mut one = b"ljs\x02\0\0\0".to_vec();
    one.extend(b"\x00\x10\x06@a.lua\x05");
    one.extend([1, 9, 99, 16, 6, 0x80]);
    one.extend(b"ljp\x01\0\0\0");
    one.extend([10, 64, 1, b'f']);
    one.extend([3, 2, 64, 1, 16, 5, 0x80, 70, 0]);
    one.extend([9, 9, 16, 5]);
    one.extend([4, 0, 0x80]);
    write(folder.path(), "one", &one);
    let before = says(folder.path(), "one");
    let stacks = [
        "[no stack: unreadable] 1",
        "a.lua:5;f 1",
        "trace 9 (a.lua:6) 1",
    ];
    assert_eq!(before.0, stacks);
    for args in [
        ["convert", "--to", "2", "one", "-o", "two"],
        ["convert", "--to", "3", "one", "-o", "three"],
        ["convert", "--to", "2", "three", "-o", "three-in-2"],
    ] {
        let ran = run(folder.path(), &args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{args:?}");
    }
    for (file, version) in [("two", 2), ("three", 3), ("three-in-2", 2)] {
        assert_eq!(says(folder.path(), file), before, "{file}");
        let info = run(folder.path(), &["info", file]);
        let row = format!("version {version}\n");
        assert!(info.out.contains(&row), "{}", info.out);
        assert!(info.out.contains("whole"), "{}", info.out);
    }
    // A cut one becomes a cut one, with what was good.
    write(folder.path(), "cut", &one[..one.len() - 1]);
    let ran = run(
        folder.path(),
        &["convert", "--to", "3", "cut", "-o", "cut-in-3"],
    );
    assert!(ran.err.contains("cut"), "{}", ran.err);
    assert_eq!(
        run(folder.path(), &["collapse", "cut-in-3"])
            .out
            .lines()
            .count(),
        3
    );
}

#[test]
fn there_is_nothing_to_do_for_the_same_version() {
    let folder = folder();
    write(folder.path(), "three", &heavy_and_light(1, 1));
    let ran = run(
        folder.path(),
        &["convert", "--to", "3", "three", "-o", "again"],
    );
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("is version 3 already"), "{}", ran.err);
    assert!(!folder.path().join("again").exists());
}

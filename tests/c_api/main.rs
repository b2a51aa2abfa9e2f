//! The C API, used by a host in C (`host.c`): as C11, as C++, and under
//! sanitizers. Each case checks itself; the streams are read here.

use ljp::decode::{AnyReader, LuaFrame, TarantoolEvent, TarantoolSample, TarantoolSymbol};
use ljp::profile::Profile;
use ljp::{Frame, VmState};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The LuaJIT that is linked into the host.
const BUILD: &str = "210.7.4-gc64";

const CASES: [&str; 13] = [
    "misuse",
    "counters",
    "ticks",
    "callgraph",
    "leaf",
    "slow_writer",
    "halt",
    "halt_at_start",
    "end",
    "bad_end",
    "own_backtracer",
    "leaf_backtracer",
    "closes",
];

/// What the host is compiled as.
#[derive(Clone, Copy, Debug)]
enum Flavour {
    C,
    Cpp,
    Sanitized,
}

/// The module as cargo has built it for these tests: next to their program.
fn module() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    test.with_file_name("libsysprof.so")
}

/// A host that was compiled, in a folder of its own.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn compile(flavour: Flavour, module: &Path) -> Host {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let luajit = root.join("build/luajit").join(BUILD);
        assert!(luajit.is_dir(), "`make luajit` builds {}", luajit.display());
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = match flavour {
            Flavour::Cpp => Command::new("g++"),
            Flavour::C | Flavour::Sanitized => Command::new("gcc"),
        };
        command.args(["-Wall", "-Wextra", "-Werror", "-g", "-O1"]);
        match flavour {
            Flavour::C => command.args(["-std=c11", "-D_GNU_SOURCE"]),
            Flavour::Cpp => command.args(["-std=c++17", "-x", "c++"]),
            Flavour::Sanitized => command.args([
                "-std=c11",
                "-D_GNU_SOURCE",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
            ]),
        };
        let output = command
            .arg("-I")
            .arg(root.join("include"))
            .arg("-I")
            .arg(luajit.join("include"))
            .arg(root.join("tests/c_api/host.c"))
            .args(["-x", "none", "-o"])
            .arg(folder.path().join("host"))
            .arg(module)
            .arg(format!(
                "-Wl,-rpath,{}",
                module.parent().expect("a folder").display()
            ))
            .arg("-Wl,--whole-archive")
            .arg(luajit.join("lib/libluajit.a"))
            .args(["-Wl,--no-whole-archive", "-Wl,-E", "-lm", "-ldl"])
            .output()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(
            output.status.success(),
            "{flavour:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Host { folder }
    }

    fn stream(&self, case: &str) -> PathBuf {
        self.folder.path().join(case)
    }

    /// Runs a case to its end.
    fn run(&self, case: &str) {
        let Output { status, stderr, .. } = Command::new(self.folder.path().join("host"))
            .arg(case)
            .arg(self.stream(case))
            // The sanitizer's signal stack is too small for a recorder that was
            // not optimised.
            .env("ASAN_OPTIONS", "use_sigaltstack=0")
            .output()
            .expect("the host runs");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{case}: {status}\n{said}");
    }

    /// The stream of a case, added up.
    fn profile(&self, case: &str) -> Profile {
        let bytes = std::fs::read(self.stream(case)).expect("a stream");
        let reading = Profile::read(&bytes[..]).expect("a profile");
        assert!(reading.fault.is_none(), "{case}: {:?}", reading.fault);
        reading.profile
    }

    /// The samples of a case, and the symbols before them.
    fn events(&self, case: &str) -> (Vec<TarantoolSample>, Vec<TarantoolSymbol>) {
        let bytes = std::fs::read(self.stream(case)).expect("a stream");
        let Ok(AnyReader::Tarantool(mut reader)) = ljp::decode::open(&bytes[..]) else {
            panic!("{case}: not version 2");
        };
        let (mut samples, mut symbols) = (Vec::new(), Vec::new());
        while let Some(event) = reader.next_event().expect("a whole stream") {
            match event {
                TarantoolEvent::Sample(sample) => samples.push(sample),
                TarantoolEvent::Symbol(symbol) => symbols.push(symbol),
                _ => {}
            }
        }
        assert_eq!(reader.version(), None, "read to the end");
        (samples, symbols)
    }
}

#[test]
fn every_case_passes_as_cpp() {
    let host = Host::compile(Flavour::Cpp, &module());
    CASES.iter().for_each(|case| host.run(case));
}

#[test]
fn every_case_passes_under_sanitizers() {
    let host = Host::compile(Flavour::Sanitized, &module());
    CASES.iter().for_each(|case| host.run(case));
}

#[test]
fn every_case_passes_as_c() {
    let host = Host::compile(Flavour::C, &module());
    CASES.iter().for_each(|case| host.run(case));

    // Short and interrupted writes leave the same stream as whole ones.
    for (case, samples) in [("callgraph", 100), ("slow_writer", 100), ("closes", 10)] {
        let profile = host.profile(case);
        assert_eq!(profile.version, 2);
        assert_eq!(profile.by_state[VmState::Cfunc as usize], samples, "{case}");
        assert_eq!(profile.samples(), samples);
        check_stacks(&host, case);
    }

    // In leaf mode the C function on top is the stack.
    let (samples, symbols) = host.events("leaf");
    assert_eq!(samples.len(), 100);
    let sample_here = address_of(&symbols, "sample_here");
    for sample in samples {
        assert_eq!(sample.lua, [LuaFrame::C(sample_here)]);
        assert!(sample.native.is_empty());
    }

    // The host's own backtracer: all that it gives, or one in leaf mode.
    for (case, frames) in [("own_backtracer", 8), ("leaf_backtracer", 1)] {
        let (samples, symbols) = host.events(case);
        let sample_here = address_of(&symbols, "sample_here");
        assert_eq!(samples.len(), 5);
        for sample in samples {
            let native = &sample.native;
            assert_eq!(native.len(), frames, "{case}");
            assert!(native.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            assert_eq!(sample.lua[0], LuaFrame::C(sample_here), "{case}");
        }
    }

    // A profile that its writer ended early has no end, but is good so far.
    let bytes = std::fs::read(host.stream("end")).expect("a stream");
    let reading = Profile::read(&bytes[..]).expect("a profile");
    assert!(matches!(
        reading.fault,
        Some(ljp::decode::Error::Truncated { .. })
    ));
}

fn address_of(symbols: &[TarantoolSymbol], wanted: &str) -> u64 {
    (symbols.iter())
        .find_map(|symbol| match symbol {
            TarantoolSymbol::C { address, name } if name == wanted.as_bytes() => Some(*address),
            _ => None,
        })
        .unwrap_or_else(|| panic!("no symbol {wanted}"))
}

/// Each sample's Lua stack is `sample_here` in `inner` in `outer`; joined with
/// the native one it lies between `main` and the code that raises the signal.
fn check_stacks(host: &Host, case: &str) {
    let (samples, symbols) = host.events(case);
    let lines: HashMap<u64, u64> = (symbols.iter())
        .filter_map(|symbol| match symbol {
            TarantoolSymbol::Lua {
                address,
                chunk,
                line,
            } if chunk == b"=program" => Some((*address, *line)),
            _ => None,
        })
        .collect();
    let sample_here = address_of(&symbols, "sample_here");
    for sample in &samples {
        let lua: Vec<Option<u64>> = (sample.lua.iter())
            .map(|frame| match frame {
                LuaFrame::Lua { proto, line } => {
                    assert_eq!(lines.get(proto), Some(line), "the symbol says the same");
                    Some(*line)
                }
                LuaFrame::C(address) if *address == sample_here => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lua, [None, Some(1), Some(2)], "{case}");
    }

    let profile = host.profile(case);
    let heaviest = (profile.stacks.iter())
        .position(|(_, weights)| weights.is_some())
        .expect("a stack");
    let nodes: Vec<_> = profile.stacks.iter().map(|(node, _)| node).collect();
    let mut names = Vec::new();
    let mut next = Some(heaviest as u32);
    while let Some(index) = next {
        let node = nodes[index as usize];
        names.push(match profile.frames[node.frame as usize].frame {
            Frame::Lua { proto, .. } => {
                format!("line {}", profile.protos[proto as usize].first_line)
            }
            Frame::Func { func } => text(&profile.funcs[func as usize].name),
            Frame::Native { address, .. } => {
                (profile.symbols.get(&address)).map_or("?".to_owned(), |name| text(name))
            }
            other => panic!("{other:?}"),
        });
        next = node.parent;
    }
    let of = |name: &str| {
        (names.iter().position(|known| known == name))
            .unwrap_or_else(|| panic!("{case}: no {name} in {names:?}"))
    };
    let order = [
        "sample_here",
        "line 1",
        "line 2",
        "lua_pcall",
        "run",
        "main",
    ]
    .map(of);
    assert!(order.is_sorted(), "{case}: {names:?}");
    assert!(of("sample_here") > 0, "raise is inside it: {names:?}");
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// `make disabled` builds that module; `make test` makes it.
#[test]
fn a_module_that_is_disabled_says_so() {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("build/disabled/libsysprof.so");
    assert!(
        module.is_file(),
        "`make disabled` builds {}",
        module.display()
    );
    Host::compile(Flavour::C, &module).run("disabled");
    let (start, line) = ("profiler is disabled", "nil true true 95\n");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(&module, folder.path().join("sysprof_core.so")).expect("a link");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = format!(
        r#"
        local sysprof = require "sysprof"
        assert(misc.sysprof == sysprof and type(sysprof.version) == "string")
        local function answered(result, message, errno)
          print(result, message:find("{start}", 1, true) == 1, message:find "'disabled'" ~= nil, errno)
        end
        answered(sysprof.start())
        answered(sysprof.start {{ mode = "C", path = "profile", format = 2 }})
        answered(sysprof.stop())
        answered(sysprof.report())
        assert(not io.open "profile")
        -- There is nothing that could be misused.
        answered(sysprof.start {{ mode = "X" }})
        "#
    );
    let output = Command::new(root.join("build/luajit").join(BUILD).join("bin/luajit"))
        .args(["-e", &program])
        .current_dir(&folder)
        .env("LUA_PATH", root.join("lua/?.lua"))
        .env("LUA_CPATH", folder.path().join("?.so"))
        .output()
        .expect("luajit runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let out = String::from_utf8_lossy(&output.stdout).replace('\t', " ");
    assert_eq!(out, line.repeat(5));
}

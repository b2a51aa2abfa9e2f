//! Versions 1 and 2, held against files that another implementation recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ljp::decode::{AnyReader, Error, TarantoolEvent, TarantoolSymbol, open};
use ljp::profile::{Profile, Reading};
use ljp::{Frame, VmState};

const ALL: [&str; 8] = [
    "fib-C", "fib-L", "late-C", "late-L", "mixed-C", "mixed-L", "trace-C", "trace-L",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tarantool")
        .join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(&format!("{name}.bin"))).unwrap()
}

fn counters(name: &str) -> HashMap<String, u64> {
    let text = std::fs::read_to_string(fixture(&format!("{name}.counters"))).unwrap();
    let rows = text.lines().map(|line| line.split_once(' ').unwrap());
    rows.map(|(key, n)| (key.to_owned(), n.parse().unwrap()))
        .collect()
}

/// Symbols before the first event of another kind, and after: Lua functions, C
/// functions, traces.
fn symbols(name: &str) -> ([usize; 3], [usize; 3]) {
    let bytes = bytes(name);
    let Ok(AnyReader::Tarantool(mut reader)) = open(&bytes[..]) else {
        panic!("{name} is not taken for what it is");
    };
    let mut table = [0; 3];
    let mut later = [0; 3];
    while let Some(event) = reader.next_event().unwrap() {
        let TarantoolEvent::Symbol(symbol) = event else {
            continue;
        };
        let counts = match reader.version() {
            None => &mut table,
            Some(_) => &mut later,
        };
        counts[match symbol {
            TarantoolSymbol::Lua { .. } => 0,
            TarantoolSymbol::C { .. } => 1,
            TarantoolSymbol::Trace { .. } => 2,
        }] += 1;
    }
    (table, later)
}

#[test]
fn the_counts_are_those_of_the_recorder() {
    for name in ALL {
        let Reading { profile, fault } = Profile::read(&bytes(name)[..]).unwrap();
        assert!(fault.is_none(), "{name}: {fault:?}");
        assert_eq!(profile.version, 2);
        let expected = counters(name);
        assert_eq!(profile.samples(), expected["samples"], "{name}");
        for state in VmState::ALL {
            let count = profile.by_state[state as usize];
            assert_eq!(count, expected[state.name()], "{name} {}", state.name());
        }
    }
}

#[test]
fn the_symbols_are_all_there() {
    for name in ALL {
        let (table, _) = symbols(name);
        assert_eq!(table, [9, 5701, 0], "{name}");
    }
    assert_eq!(symbols("late-C").1, [121, 0, 60]);
    assert_eq!(symbols("trace-C").1, [3, 0, 2]);
    assert_eq!(symbols("fib-C").1, [2, 0, 0]);
}

#[test]
fn samples_in_traces_lead_to_where_the_trace_starts() {
    let Reading { profile, .. } = Profile::read(&bytes("trace-C")[..]).unwrap();
    let traces: Vec<_> = profile
        .frames
        .iter()
        .filter_map(|def| match def.frame {
            Frame::Trace { trace } => Some(profile.traces[trace as usize]),
            _ => None,
        })
        .collect();
    assert!(!traces.is_empty());
    for trace in traces {
        let proto = &profile.protos[trace.proto.unwrap() as usize];
        assert!(proto.chunk.ends_with(b"trace.lua"), "{proto:?}");
        assert!(trace.number > 0 && trace.line > 0);
    }
}

#[test]
fn a_cut_stream_gives_what_was_before() {
    let whole = bytes("fib-C");
    for len in (7..whole.len()).step_by(997) {
        let Reading { profile, fault } = Profile::read(&whole[..len]).unwrap();
        assert!(
            matches!(fault, Some(Error::Truncated { good }) if good <= len as u64),
            "{len}: {fault:?}"
        );
        assert!(profile.samples() <= 64);
    }
}

#[test]
fn a_wrong_byte_is_never_a_panic() {
    let whole = bytes("late-C");
    let events = whole.windows(4).position(|at| at == b"ljp\x02").unwrap();
    // The table is long and all alike, so its start stands for it.
    for part in [&whole[..300], &whole[events..]] {
        for at in 0..part.len() {
            for byte in [0, 10, 0x80, 0xff] {
                let mut bytes = part.to_vec();
                bytes[at] = byte;
                let _ = Profile::read(&bytes[..]);
            }
        }
    }
}

#[test]
fn older_versions_are_read() {
    // Symbol table 2: a Lua function and a trace with its address; events 1:
    // a C symbol, a sample with both stacks, one in the trace, one in the
    // collector.
    let mut stream = b"ljs\x02\0\0\0".to_vec();
    stream.extend([0, 16, 3, b'a', b'.', b'l', 5]);
    stream.extend([1, 9, 99, 16, 6]);
    stream.push(0x80);
    stream.extend(b"ljp\x01\0\0\0");
    stream.extend([10, 64, 1, b'f']);
    stream.extend([3, 2, 64, 1, 16, 5, 0x80, 70, 0]);
    stream.extend([9, 9, 16, 5]);
    stream.extend([4, 0]);
    stream.push(0x80);
    let Reading { profile, fault } = Profile::read(&stream[..]).unwrap();
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!((profile.version, profile.samples()), (1, 3));
    assert_eq!(profile.protos[0].chunk, b"a.l");
    assert_eq!(profile.funcs[0].name, b"f");
    let trace = profile.traces[0];
    assert_eq!((trace.number, trace.line), (9, 6));
    // The native frame is in the C function that Lua called.
    assert_eq!(profile.stacks.len(), 4);
    assert_eq!(profile.stackless[VmState::Gc as usize], 1);
}

//! What comes out of a stream of version 3, and out of broken ones.

mod common;

use common::{encoded, small};
use ljp::decode::{Abort, AnyReader, Error, Event, Func, Module, Proto, Sample, open};
use ljp::encode::Cursor;
use ljp::profile::{Profile, Reading};
use ljp::{Counters, Frame, FrameDef, FuncKind, Mark, NameKind, Reason, TraceDef, VmState};
use proptest::prelude::*;

/// Everything that can be read, and what ended it.
fn events(bytes: &[u8]) -> (Vec<Event>, Option<Error>) {
    let mut reader = match open(bytes) {
        Ok(AnyReader::V3(reader)) => reader,
        Ok(AnyReader::Tarantool(_)) => panic!("taken for another version"),
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    loop {
        match reader.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => {
                assert!(matches!(reader.next_event(), Ok(None)));
                return (events, Some(error));
            }
        }
    }
}

fn read(bytes: &[u8]) -> Reading {
    Profile::read(bytes).unwrap()
}

/// What is wrong with a stream of which the prologue is good.
fn fault(write: impl FnOnce(&mut Cursor<'_>)) -> Error {
    let bytes = encoded(|out| {
        out.prologue();
        write(out);
    });
    events(&bytes).1.unwrap()
}

#[test]
fn a_whole_stream_is_added_up() {
    let Reading { profile, fault } = read(&small());
    assert!(fault.is_none());
    assert_eq!(profile.version, 3);
    assert_eq!(profile.samples(), 8);
    assert_eq!(profile.records, 3);
    assert_eq!(profile.duration_us(), 7000);
    assert_eq!(profile.sampled_us, 6000);
    assert_eq!(profile.meta["clock"], "perf");
    assert_eq!(profile.by_state[VmState::Gc as usize], 5);
    assert_eq!(profile.by_reason[&Reason::Unreadable.number()], 5);
    // The second epoch defines again what the first had.
    assert_eq!(profile.protos.len(), 1);
    assert_eq!(profile.frames.len(), 5);
    assert_eq!(profile.stacks.len(), 6);
    let weights: u64 = profile
        .stacks
        .iter()
        .filter_map(|(_, weights)| weights)
        .flatten()
        .sum();
    assert_eq!(weights, 3);
}

#[test]
fn a_stream_cut_anywhere_gives_all_whole_records() {
    let whole = small();
    let (all, _) = events(&whole);
    let mut longest = 0;
    for len in 0..whole.len() {
        let (some, error) = events(&whole[..len]);
        assert_eq!(some, all[..some.len()]);
        assert!(some.len() >= longest);
        longest = some.len();
        match error {
            Some(Error::Empty) => assert_eq!(len, 0),
            Some(Error::Truncated { good }) => {
                assert!(good <= len as u64);
                // What is said to be good is: it reads the same on its own.
                assert_eq!(events(&whole[..good as usize]).0, some);
            }
            other => panic!("cut at {len}: {other:?}"),
        }
    }
    assert_eq!(longest, all.len() - 1);
}

#[test]
fn a_wrong_byte_is_never_a_panic() {
    let whole = small();
    for at in 0..whole.len() {
        for byte in 0..=255 {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if let Err(error) = Profile::read(&bytes[..]) {
                assert!(at < 7, "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn what_is_no_profile_is_told_apart() {
    assert!(matches!(open(&b""[..]), Err(Error::Empty)));
    let error = open(&b"#!/bin/sh\n"[..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not a profile: it begins with \"#!/bin/\""
    );
    assert!(matches!(
        open(&b"lj"[..]),
        Err(Error::Truncated { good: 0 })
    ));
    let error = open(&b"ljp\x04\0\0\0"[..]).unwrap_err();
    assert!(matches!(
        error,
        Error::Version {
            part: "ljp",
            found: 4
        }
    ));
    let error = open(&b"ljs\x09\0\0\0"[..]).unwrap_err();
    assert!(matches!(
        error,
        Error::Version {
            part: "ljs",
            found: 9
        }
    ));
}

#[test]
fn unknown_records_and_fields_are_passed_over() {
    let mut bytes = encoded(|out| out.prologue());
    // A tag that does not exist, with a payload longer than any buffer.
    bytes.extend([0x3c, 0x80, 0x80, 0x08]);
    bytes.resize(bytes.len() + (1 << 17), 0xaa);
    // META with three bytes more than this reader knows.
    bytes.extend([0x01, 7, 1, b'k', 1, b'v', 9, 9, 9]);
    bytes.extend(encoded(|out| out.end(&Counters::default())));
    let (events, error) = events(&bytes);
    assert!(error.is_none());
    assert_eq!(events.len(), 2);
    assert!(matches!(&events[0], Event::Meta { key, value } if key == b"k" && value == b"v"));
}

#[test]
fn ids_must_be_defined() {
    for (what, error) in [
        (
            "stack 0",
            fault(|out| out.sample(VmState::Lfunc, Ok(0), 1, 0)),
        ),
        ("frame 3", fault(|out| out.stack(None, 3))),
        (
            "prototype 1",
            fault(|out| out.frame(&Frame::Lua { proto: 1, line: 0 }.into())),
        ),
        (
            "module 2",
            fault(|out| out.func(FuncKind::C, b"f", Some(2), 0)),
        ),
        (
            "stack 0",
            fault(|out| {
                out.frame(&Frame::Mark(Mark::Vm).into());
                out.stack(None, 0);
                out.epoch();
                out.sample(VmState::Lfunc, Ok(0), 1, 0);
            }),
        ),
    ] {
        assert!(
            matches!(&error, Error::Damaged { .. }) && error.to_string().contains(what),
            "{error}"
        );
    }
}

#[test]
fn lengths_are_not_believed() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    // A known record, an unknown one, and a string within a record.
    assert!(matches!(
        fault(|out| {
            out.u8(0x01);
            out.bytes(&huge);
        }),
        Error::Damaged { offset: 7, .. }
    ));
    assert!(matches!(
        fault(|out| {
            out.u8(0x3c);
            out.bytes(&huge);
        }),
        Error::Truncated { good: 7 }
    ));
    assert!(matches!(
        fault(|out| {
            out.bytes(&[0x01, 10]);
            out.bytes(&huge);
        }),
        Error::Damaged { offset: 9, .. }
    ));
    // An end record that claims more reasons than it has bytes.
    assert!(matches!(
        fault(|out| {
            out.bytes(&[0x0f, 23]);
            out.bytes(&[0; 13]);
            out.bytes(&huge);
        }),
        Error::Damaged { .. }
    ));
}

#[test]
fn nothing_may_follow_the_end() {
    let mut bytes = small();
    let end = bytes.len() as u64;
    bytes.push(0);
    let Reading { profile, fault } = read(&bytes);
    assert!(matches!(fault, Some(Error::Damaged { offset, .. }) if offset == end));
    assert_eq!(profile.samples(), 8);
}

#[test]
fn the_end_must_agree_with_what_came_before() {
    let bytes = encoded(|out| {
        out.prologue();
        out.sample(VmState::Gc, Err(Reason::Mode), 1, 0);
        out.end(&Counters::default());
    });
    let Reading { profile, fault } = read(&bytes);
    assert_eq!(profile.samples(), 1);
    let what = fault.unwrap().to_string();
    assert!(
        what.contains("counts 0 samples, the stream has 1"),
        "{what}"
    );
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

static STATES: [VmState; VmState::COUNT] = VmState::ALL;
static REASONS: [Reason; Reason::COUNT] = Reason::ALL;
static NAMES: [NameKind; NameKind::COUNT] = NameKind::ALL;
static FUNCS: [FuncKind; FuncKind::COUNT] = FuncKind::ALL;
static MARKS: [Mark; Mark::COUNT] = Mark::ALL;

/// Any record that needs no earlier one, or only the definitions 0 of each
/// kind, as an event.
fn event() -> impl Strategy<Value = Event> {
    let id = prop_oneof![Just(None), Just(Some(0u32))];
    let frame = prop_oneof![
        any::<u32>().prop_map(|line| Frame::Lua { proto: 0, line }),
        Just(Frame::Func { func: 0 }),
        (id.clone(), any::<u64>()).prop_map(|(module, address)| Frame::Native { module, address }),
        Just(Frame::Trace { trace: 0 }),
        of(&MARKS).prop_map(Frame::Mark),
    ];
    prop_oneof![
        (bytes(), bytes()).prop_map(|(key, value)| Event::Meta { key, value }),
        (bytes(), bytes(), any::<[u64; 3]>()).prop_map(|(path, build_id, [bias, low, end])| {
            Event::Module(Module {
                path,
                build_id,
                bias,
                low,
                end,
            })
        }),
        (bytes(), any::<[u32; 2]>(), bytes(), of(&NAMES)).prop_map(
            |(chunk, [first_line, num_lines], name, name_kind)| {
                Event::Proto(Proto {
                    chunk,
                    first_line,
                    num_lines,
                    name,
                    name_kind,
                })
            }
        ),
        (of(&FUNCS), bytes(), id.clone(), any::<u64>()).prop_map(
            |(kind, name, module, address)| {
                Event::Func(Func {
                    kind,
                    name,
                    module,
                    address,
                })
            }
        ),
        (any::<[u32; 6]>(), any::<u64>(), id.clone()).prop_map(|(n, mcode_size, proto)| {
            Event::Trace(TraceDef {
                number: n[0],
                parent: n[1],
                exit: n[2],
                root: n[3],
                link: n[4],
                mcode_size,
                proto,
                line: n[5],
            })
        }),
        (frame, id.clone(), any::<[bool; 2]>()).prop_map(
            |(frame, compiled, [in_loop, ancestor])| {
                Event::Frame(FrameDef {
                    frame,
                    compiled,
                    in_loop,
                    ancestor,
                })
            }
        ),
        (any::<u64>(), bytes(), any::<u32>(), bytes()).prop_map(|(times, chunk, line, reason)| {
            Event::Abort {
                times,
                abort: Abort {
                    chunk,
                    line,
                    reason,
                },
            }
        }),
        id.prop_map(|parent| Event::Stack { parent, frame: 0 }),
        (
            of(&STATES),
            prop_oneof![
                Just(Ok(0u32)),
                of(&REASONS).prop_map(|reason| Err(reason.number()))
            ],
            any::<u64>(),
            any::<u64>()
        )
            .prop_map(|(state, stack, weight, step_us)| Event::Sample(Sample {
                state,
                stack,
                weight,
                step_us
            })),
    ]
}

fn counters() -> impl Strategy<Value = Counters> {
    (
        any::<[u64; 3]>(),
        any::<[u64; 10]>(),
        any::<[u64; 6]>(),
        any::<u32>(),
    )
        .prop_map(
            |([duration_us, samples, overruns], by_state, by_reason, errno)| Counters {
                duration_us,
                samples,
                overruns,
                by_state,
                by_reason,
                errno,
            },
        )
}

fn write(out: &mut Cursor<'_>, event: &Event) {
    match event {
        Event::Meta { key, value } => out.meta(key, value),
        Event::Module(m) => out.module(&m.path, &m.build_id, m.bias, m.low, m.end),
        Event::Proto(p) => out.proto(&p.chunk, p.first_line, p.num_lines, &p.name, p.name_kind),
        Event::Func(f) => out.func(f.kind, &f.name, f.module, f.address),
        Event::Trace(trace) => out.trace(trace),
        Event::Frame(frame) => out.frame(frame),
        Event::Stack { parent, frame } => out.stack(*parent, *frame),
        Event::Abort { times, abort } => out.abort(*times, &abort.chunk, abort.line, &abort.reason),
        Event::Epoch => out.epoch(),
        Event::Sample(s) => {
            let stack = s.stack.map_err(|n| Reason::from_number(n.into()).unwrap());
            out.sample(s.state, stack, s.weight, s.step_us);
        }
        Event::End(counters) => out.end(counters),
        other => panic!("no way to write {other:?}"),
    }
}

/// The definitions 0 of each kind.
fn first_definitions() -> Vec<Event> {
    let (events, _) = events(&encoded(|out| {
        out.prologue();
        out.module(b"m", b"", 0, 0, 0);
        out.proto(b"@p", 1, 1, b"", NameKind::None);
        out.func(FuncKind::C, b"f", None, 1);
        out.trace(&TraceDef::default());
        out.frame(&Frame::Mark(Mark::Vm).into());
        out.stack(None, 0);
    }));
    events
}

proptest! {
    #[test]
    fn every_record_comes_back_as_written(
        some in proptest::collection::vec(event(), 0..20),
        counters in counters(),
    ) {
        let mut expected = first_definitions();
        expected.extend(some);
        expected.push(Event::Epoch);
        expected.push(Event::End(counters));
        let bytes = encoded(|out| {
            out.prologue();
            for event in &expected {
                write(out, event);
            }
        });
        let (read, error) = events(&bytes);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..2000)) {
        for start in [&b"ljp\x03\0\0\0"[..], b"ljp\x02\0\0\0", b"ljs\x02\0\0\0", b"ljs\x03\0\0\0"] {
            let mut bytes = start.to_vec();
            bytes.extend(&noise);
            let _ = Profile::read(&bytes[..]);
        }
        let _ = Profile::read(&noise[..]);
    }
}

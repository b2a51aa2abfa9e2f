//! Files that nobody wrote on purpose, and files that somebody did: no panic,
//! and no more memory than a profile of their size is worth.
//!
//! Knows the decoder's promises. The inputs are those that fuzzing has kept
//! (`fuzz/corpus`, `make fuzz`), mutations of them that are the same every time,
//! and the ones that cost most for their size.

use cap::Cap;
use ljp::decode::Error;
use ljp::encode::Cursor;
use ljp::profile::{Profile, Reading};
use ljp::{Frame, FuncKind, NameKind, TraceDef, VmState};
use std::alloc::System;
use std::path::Path;

/// What reading a file of up to [`FILE`] bytes may take. An allocation beyond it
/// fails, and that ends the test.
const MEMORY: usize = 64 << 20;
const FILE: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Reads `bytes` within the limit.
fn read(bytes: &[u8]) {
    assert!(bytes.len() <= FILE);
    let limit = ALLOCATOR.allocated() + MEMORY;
    ALLOCATOR.set_limit(limit).expect("more than is allocated");
    if let Ok(Reading { profile, fault }) = Profile::read(bytes) {
        keeps_what_is_whole(bytes, profile, fault);
    }
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
}

/// The whole records say the same without the piece of one behind them.
fn keeps_what_is_whole(bytes: &[u8], profile: Profile, fault: Option<Error>) {
    let Some(Error::Truncated { good }) = fault else {
        return;
    };
    let seen = |profile: &Profile| (profile.by_state, profile.records, profile.frames.len());
    let before = seen(&profile);
    drop(profile);
    let again = Profile::read(&bytes[..good as usize]).expect("it was read with more behind it");
    assert_eq!(before, seen(&again.profile));
    assert!(matches!(again.fault, Some(Error::Truncated { good: same }) if same == good));
}

/// The inputs that fuzzing has kept, by name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/decode");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read(&path).expect("an input"))
        })
        .collect();
    inputs.sort();
    inputs
}

/// One change of a file of the kinds that a disk, a network or somebody makes.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut fastrand::Rng) {
    let at = random.usize(0..=bytes.len());
    match random.u8(0..6) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] = random.u8(..),
        2 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
        3 => bytes.insert(
            at,
            *random.choice([0, 0x7f, 0x80, 0xff].iter()).expect("some"),
        ),
        4 => {
            let from = random.usize(0..=other.len());
            let piece = &other[from..(from + random.usize(0..64)).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        _ => {
            let end = (at + random.usize(0..16)).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

fn repeated(start: &[u8], mut more: impl FnMut(u32, &mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = start.to_vec();
    for n in 0.. {
        let len = bytes.len();
        more(n, &mut bytes);
        if bytes.len() > FILE {
            bytes.truncate(len);
            return bytes;
        }
    }
    unreachable!()
}

/// A stream of version 3 with as many of one thing as fit.
fn many(before: impl Fn(&mut Cursor<'_>), each: impl Fn(u32, &mut Cursor<'_>)) -> Vec<u8> {
    let encoded = |write: &dyn Fn(&mut Cursor<'_>)| {
        let mut buffer = [0; 4096];
        let mut out = Cursor::new(&mut buffer);
        write(&mut out);
        assert!(!out.overflowed());
        out.written().to_vec()
    };
    let start = encoded(&|out| {
        out.prologue();
        before(out);
    });
    repeated(&start, |n, bytes| {
        bytes.extend(encoded(&|out| each(n, out)))
    })
}

fn uleb(mut number: u32, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A stream of version 2 with samples in `state` of 60,000 frames each, and as
/// many frames as fit.
fn deep(state: VmState, frame: impl Fn(u32, &mut Vec<u8>)) -> Vec<u8> {
    repeated(b"ljp\x02\0\0\0", |n, bytes| {
        if n % 60_000 == 0 {
            match (n, state) {
                (0, _) => {}
                (_, VmState::Gc) => bytes.push(0),
                // The end of the Lua stack, and a native one of no frames.
                _ => bytes.extend([0x80, 0]),
            }
            bytes.push(state as u8);
        }
        frame(n, bytes);
    })
}

/// A symbol table with as many symbols as fit.
fn symbols(kind: u8, rest: &'static [u8]) -> Vec<u8> {
    repeated(b"ljs\x03\0\0\0", move |n, bytes| {
        bytes.push(kind);
        uleb(n, bytes);
        bytes.extend(rest);
    })
}

type Input = (&'static str, fn() -> Vec<u8>);

/// The files of 1 MiB that take most memory: as many things as fit.
const COSTLY: [Input; 19] = [
    ("meta", || {
        many(|_| {}, |n, out| out.meta(&n.to_le_bytes()[..3], b""))
    }),
    ("modules", || {
        many(|_| {}, |_, out| out.module(b"", b"", 0, 0, 0))
    }),
    ("prototypes", || {
        many(|_| {}, |n, out| out.proto(b"", n, 0, b"", NameKind::None))
    }),
    ("functions", || {
        many(|_| {}, |n, out| out.func(FuncKind::C, b"", None, n.into()))
    }),
    ("traces", || {
        many(
            |_| {},
            |number, out| {
                out.trace(&TraceDef {
                    number,
                    ..TraceDef::default()
                })
            },
        )
    }),
    ("aborts", || {
        many(|_| {}, |n, out| out.abort(1, b"", n, b""))
    }),
    ("frames", || many(|_| {}, |n, out| out.frame(&native(n)))),
    ("stacks", || {
        many(
            |out| out.frame(&native(0)),
            |n, out| out.stack(n.checked_sub(1), 0),
        )
    }),
    ("stacks with a sample each", || {
        many(
            |out| out.frame(&native(0)),
            |n, out| {
                out.stack(n.checked_sub(1), 0);
                out.sample(VmState::Lfunc, Ok(n), 1, 0);
            },
        )
    }),
    ("frames and stacks", || {
        many(
            |_| {},
            |n, out| {
                out.frame(&native(n));
                out.stack(n.checked_sub(1), n);
                out.sample(VmState::Gc, Ok(n), 1, 0);
            },
        )
    }),
    ("deep native stacks", || {
        deep(VmState::Gc, |n, bytes| {
            // No two begin alike.
            if n % 60_000 == 0 {
                uleb(1000 + n / 60_000, bytes);
            }
            bytes.push(1 + (n % 127) as u8);
        })
    }),
    ("native functions", || {
        deep(VmState::Gc, |n, bytes| uleb(n + 1, bytes))
    }),
    ("unknown Lua functions", || {
        deep(VmState::Lfunc, |n, bytes| {
            bytes.push(1);
            uleb(n, bytes);
            bytes.push(0);
        })
    }),
    ("lines of a few Lua functions", || {
        deep(VmState::Lfunc, |n, bytes| {
            bytes.extend([1, (n % 128) as u8]);
            uleb(n / 128, bytes);
        })
    }),
    ("built-ins", || {
        deep(VmState::Ffunc, |n, bytes| {
            bytes.push(3);
            uleb(n, bytes);
        })
    }),
    ("unknown traces", || {
        repeated(b"ljp\x02\0\0\0", |n, bytes| {
            bytes.push(VmState::Trace as u8);
            uleb(n, bytes);
            bytes.extend([1, 0]);
        })
    }),
    ("Lua symbols", || symbols(0, &[0, 0])),
    ("C symbols", || symbols(1, &[0])),
    ("trace symbols", || symbols(2, &[0, 0])),
];

fn native(address: u32) -> ljp::FrameDef {
    let address = address.into();
    Frame::Native {
        module: None,
        address,
    }
    .into()
}

#[test]
fn hostile_files_are_read_in_bounded_memory() {
    // One after the other: the limit is the process's.
    // What does not fit ends the process: its name is printed before.
    for (name, file) in COSTLY {
        println!("{name}");
        let file = file();
        assert!(file.len() > FILE - 100);
        read(&file);
    }
    let corpus = corpus();
    assert!(corpus.len() >= 8, "the corpus is not there");
    for (name, bytes) in &corpus {
        println!("{name}");
        read(bytes);
    }
    println!("mutations");
    let mut random = fastrand::Rng::with_seed(20_261_201);
    for (_, bytes) in &corpus {
        for _ in 0..100 {
            let other = random.usize(0..corpus.len());
            let mut bytes = bytes.clone();
            for _ in 0..random.u8(1..5) {
                mutate(&mut bytes, &corpus[other].1, &mut random);
            }
            read(&bytes);
        }
    }
}

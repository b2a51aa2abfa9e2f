//! Large profiles: read in bounded memory, with a picture of how far it is.
//!
//! CI reads one that is just large enough for the picture;
//! `LARGE_STREAM_MIB=2048 cargo nextest run --release -p sysprof-cli --test large`
//! reads one of 2 GiB.

mod common;

use common::{folder, sysprof};
use ljp::encode::Cursor;
use ljp::{Frame, NameKind, VmState};
use nix::pty::{Winsize, openpty};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::Stdio;

/// What reading may take, however large the file.
const MEMORY: i64 = 200 << 20;

const PROTOS: u32 = 500;
const STACKS: u32 = 20_000;

/// Writes a stream of that many MiB: epochs of 20,000 stacks and half a million
/// samples, as a long recording has them. Returns how many samples there are.
fn write_stream(path: &Path, mib: u64) -> u64 {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut buffer = vec![0; 1 << 16];
    let mut written = 0;
    let mut write = |record: &dyn Fn(&mut Cursor<'_>)| {
        let mut out = Cursor::new(&mut buffer);
        record(&mut out);
        assert!(!out.overflowed());
        written += out.written().len() as u64;
        file.write_all(out.written()).unwrap();
        written
    };
    write(&|out| out.prologue());
    let mut samples = 0;
    loop {
        for n in 0..PROTOS {
            write(&|out| {
                let chunk = format!("@file_{}.lua", n / 20);
                out.proto(chunk.as_bytes(), n % 20 * 10 + 1, 10, b"", NameKind::None);
                for line in 0..4 {
                    out.frame(&Frame::Lua { proto: n, line }.into());
                }
            });
        }
        for n in 0..STACKS {
            // Trees of 20 and more frames, all of the same kind.
            write(&|out| out.stack((n % 25 != 0).then(|| n - 1), n * 7 % (4 * PROTOS)));
        }
        for n in 0..5_000u32 {
            let end = write(&|out| {
                for i in 0..100 {
                    out.sample(VmState::Lfunc, Ok((n * 100 + i) * 31 % STACKS), 1, 1000);
                }
            });
            samples += 100;
            if end >= mib << 20 {
                file.flush().unwrap();
                return samples;
            }
        }
        write(&|out| out.epoch());
    }
}

/// The most memory that a child of this process has had.
fn peak() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() * 1024
}

#[test]
fn a_large_profile_is_read_in_bounded_memory() {
    let mib = std::env::var("LARGE_STREAM_MIB").map_or(40, |mib| mib.parse().unwrap());
    let folder = folder();
    let samples = write_stream(&folder.path().join("large"), mib);
    let output = sysprof()
        .args(["report", "large", "--by", "state"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    // Not on a terminal: the one line says that the stream has no end record.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cut off: its end is missing"), "{said}");
    let out = String::from_utf8(output.stdout).unwrap();
    let counted: String = out.chars().filter(|c| *c != ',').collect();
    assert!(counted.contains(&samples.to_string()), "{out}");
    let peak = peak();
    println!("{mib} MiB, {samples} samples: {} KiB at most", peak / 1024);
    assert!(peak < MEMORY, "{peak} bytes");
}

#[test]
fn a_terminal_shows_how_far_reading_is() {
    let folder = folder();
    write_stream(&folder.path().join("large"), 40);
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None).unwrap();
    let mut child = sysprof()
        .args(["report", "large"])
        .current_dir(folder.path())
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(terminal.slave)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    // A terminal that nobody writes to any more ends by an error.
    let _ = File::from(terminal.master).read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(child.wait().unwrap().success());
    assert!(shown.contains("reading "), "{shown:?}");
    assert!(shown.contains("/40.0"), "{shown:?}");
    // It is gone at the end, when the warning stands there.
    let last = shown.rsplit("sysprof: warning").next().unwrap();
    assert!(!last.contains("reading"), "{shown:?}");
}

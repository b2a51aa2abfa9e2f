//! `sysprof info`: what was recorded, how, and whether the file is whole.

use std::io::{self, Write};

use ljp::VmState;
use ljp::decode::Error;
use ljp::profile::Profile;

use crate::args::Info;
use crate::failure::{Failure, Outcome};
use crate::number::{counted, duration, grouped, percent};
use crate::{label, load};

/// Prints all that is known about the recording.
///
/// # Errors
///
/// If the profile cannot be read or the output not be written.
pub fn run(args: &Info, out: &mut impl Write) -> Result<Outcome, Failure> {
    let loaded = load::load_quietly(&args.file)?;
    let profile = &loaded.profile;
    row(out, "file", &state_of_file(loaded.fault.as_ref(), profile))?;
    row(out, "format", &format!("version {}", profile.version))?;
    for (key, what) in [
        ("host", "host"),
        ("luajit", "LuaJIT"),
        ("arch", "architecture"),
        ("gc64", "64-bit references"),
        ("pid", "process"),
        ("tid", "thread"),
        ("recorder", "recorder"),
        ("mode", "mode"),
        ("clock", "clock"),
    ] {
        meta(out, profile, key, what)?;
    }
    if let Some(interval) = interval(profile) {
        row(out, "interval", &interval)?;
    }
    meta(out, profile, "depth", "depth")?;
    if profile.version >= 3 {
        row(out, "duration", &duration(profile.duration_us()))?;
    }
    row(out, "samples", &grouped(profile.samples()))?;
    if let Some(end) = &profile.end {
        row(out, "overruns", &grouped(end.overruns))?;
        if end.errno != 0 {
            let reason = io::Error::from_raw_os_error(end.errno as i32);
            row(out, "ended early", &reason.to_string())?;
        }
    }
    row(out, "stacks", &grouped(profile.stacks.len() as u64))?;
    for state in VmState::ALL {
        let samples = profile.by_state[state as usize];
        if samples > 0 {
            share(out, state.name(), samples, profile)?;
        }
    }
    for (reason, samples) in &profile.by_reason {
        let what = format!("no stack: {}", label::reason(*reason));
        share(out, &what, *samples, profile)?;
    }
    Ok(loaded.outcome())
}

/// The recording in a line: samples, duration, and how the samples came, as far
/// as it is known.
pub fn headline(profile: &Profile) -> String {
    let mut parts = vec![counted(profile.samples(), "sample")];
    match profile.duration_us() {
        0 => {}
        us => parts.push(format!("in {}", duration(us))),
    }
    parts.extend(ticks(profile));
    parts.join(", ")
}

/// How the samples came: "one every 1 ms of the perf clock".
fn ticks(profile: &Profile) -> Option<String> {
    let clock = profile
        .meta
        .get("clock")
        .map(|name| label::text(name.as_bytes()));
    match (interval(profile), clock) {
        (Some(interval), Some(clock)) => Some(format!("one every {interval} of the {clock} clock")),
        (Some(interval), None) => Some(format!("one every {interval}")),
        (None, Some(clock)) => Some(format!("{clock} clock")),
        (None, None) => None,
    }
}

fn interval(profile: &Profile) -> Option<String> {
    let ns: u64 = profile.meta.get("interval_ns")?.parse().ok()?;
    Some(if ns.is_multiple_of(1000) {
        duration(ns / 1000)
    } else {
        format!("{} ns", grouped(ns))
    })
}

fn state_of_file(fault: Option<&Error>, profile: &Profile) -> String {
    match fault {
        Some(fault) => load::advice(fault),
        None if profile.end.is_some_and(|end| end.errno != 0) => {
            "whole, of a recording that was ended early".to_owned()
        }
        None => "whole".to_owned(),
    }
}

fn meta(out: &mut impl Write, profile: &Profile, key: &str, what: &str) -> io::Result<()> {
    match profile.meta.get(key) {
        Some(value) => row(out, what, &label::text(value.as_bytes())),
        None => Ok(()),
    }
}

fn share(out: &mut impl Write, what: &str, samples: u64, profile: &Profile) -> io::Result<()> {
    let percent = percent(samples, profile.samples());
    row(out, what, &format!("{} ({percent})", grouped(samples)))
}

fn row(out: &mut impl Write, what: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{what:<24} {value}")
}

//! What a session can be asked for.
//!
//! Knows: options, their defaults and ranges. Must not know: how they are
//! passed in (`lua_api`).

use crate::clock::{self, Kind};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// "D": counts of VM states, and a stream of them only if a path is given.
    Default,
    /// "L": the innermost frame of each sample.
    Leaf,
    /// "C": the whole stack of each sample.
    Callgraph,
}

impl Mode {
    /// The letter that users write.
    pub fn letter(self) -> &'static str {
        match self {
            Mode::Default => "D",
            Mode::Leaf => "L",
            Mode::Callgraph => "C",
        }
    }

    /// The mode of a letter.
    pub fn of_letter(letter: &str) -> Option<Mode> {
        [Mode::Default, Mode::Leaf, Mode::Callgraph]
            .into_iter()
            .find(|mode| mode.letter() == letter)
    }
}

/// How the stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 2, for Tarantool's tools.
    Version2,
    /// Version 3, ours.
    Version3,
}

/// Which clock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChoice {
    /// The best clock of CPU time that can be had.
    Auto,
    /// This one or none.
    Only(Kind),
}

impl ClockChoice {
    /// All of them that users can name.
    pub const ALL: [ClockChoice; 5] = [
        ClockChoice::Auto,
        ClockChoice::Only(Kind::Perf),
        ClockChoice::Only(Kind::Thread),
        ClockChoice::Only(Kind::Interval),
        ClockChoice::Only(Kind::Wall),
    ];

    /// How users name it.
    pub fn name(self) -> &'static str {
        match self {
            ClockChoice::Auto => "auto",
            ClockChoice::Only(kind) => kind.name(),
        }
    }
}

/// The interval that is used if none is given.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(10);
/// The file that is written if none is given.
pub const DEFAULT_PATH: &str = "sysprof.bin";
/// Frames that a stack has at most if nothing else is said.
pub const DEFAULT_DEPTH: usize = 512;
/// The most that may be asked for.
pub const MAX_DEPTH: usize = 4096;

/// All options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is recorded.
    pub mode: Mode,
    /// Time between samples.
    pub interval: Duration,
    /// The file that the stream goes to, if one was named.
    pub path: Option<PathBuf>,
    /// Frames that a stack has at most; of a deeper one the innermost are kept.
    pub depth: usize,
    /// The clock.
    pub clock: ClockChoice,
    /// How the stream is written.
    pub format: Format,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Default,
            interval: DEFAULT_INTERVAL,
            path: None,
            depth: DEFAULT_DEPTH,
            clock: ClockChoice::Auto,
            format: Format::Version3,
        }
    }
}

impl Options {
    /// The file that the stream goes to, if there is one: modes with stacks
    /// always have a stream.
    pub fn output(&self) -> Option<&Path> {
        match (&self.path, self.mode) {
            (Some(path), _) => Some(path),
            (None, Mode::Default) => None,
            (None, Mode::Leaf | Mode::Callgraph) => Some(Path::new(DEFAULT_PATH)),
        }
    }
}

/// An option that makes no sense; says which and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profiler misuse: {}", self.0)
    }
}

/// The interval of `milliseconds`.
///
/// # Errors
/// If no clock can do it.
pub fn interval(milliseconds: f64) -> Result<Duration, Misuse> {
    let limits = [clock::MIN_INTERVAL, clock::MAX_INTERVAL].map(|limit| limit.as_secs_f64() * 1e3);
    if milliseconds >= limits[0] && milliseconds <= limits[1] {
        return Ok(Duration::from_secs_f64(milliseconds / 1e3));
    }
    Err(Misuse(format!(
        "option 'interval' must be a number of milliseconds from {} to {}, not {milliseconds}",
        limits[0], limits[1]
    )))
}

/// The depth of that many frames.
///
/// # Errors
/// If it is out of range, or not a whole number.
pub fn depth(frames: f64) -> Result<usize, Misuse> {
    if frames.fract() == 0.0 && (1.0..=MAX_DEPTH as f64).contains(&frames) {
        return Ok(frames as usize);
    }
    Err(Misuse(format!(
        "option 'depth' must be a whole number from 1 to {MAX_DEPTH}, not {frames}"
    )))
}

/// The format of this number.
///
/// # Errors
/// If there is none.
pub fn format(version: f64) -> Result<Format, Misuse> {
    match version {
        2.0 => Ok(Format::Version2),
        3.0 => Ok(Format::Version3),
        _ => Err(Misuse(format!(
            "option 'format' must be 2 or 3, not {version}"
        ))),
    }
}

/// The one of `known` that somebody who wrote `word` most likely meant, if any
/// is near.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_what_the_clocks_can_do() {
        assert_eq!(interval(0.25), Ok(Duration::from_micros(250)));
        assert_eq!(interval(0.01), Ok(clock::MIN_INTERVAL));
        for wrong in [0.0, -1.0, 0.0099, f64::NAN, f64::INFINITY, 1e10] {
            let message = interval(wrong).expect_err("out of range").to_string();
            assert!(
                message.starts_with("profiler misuse: option 'interval'"),
                "{message}"
            );
        }
    }

    #[test]
    fn only_mode_d_has_no_stream_of_its_own() {
        let mut options = Options::default();
        assert_eq!(options.output(), None);
        options.mode = Mode::Leaf;
        assert_eq!(options.output(), Some(Path::new(DEFAULT_PATH)));
        options.path = Some("named".into());
        assert_eq!(options.output(), Some(Path::new("named")));
        options.mode = Mode::Default;
        assert_eq!(options.output(), Some(Path::new("named")));
    }

    #[test]
    fn depths_are_whole_numbers_in_range() {
        assert_eq!(depth(4096.0), Ok(4096));
        for wrong in [0.0, 1.5, 4097.0, f64::NAN, -3.0] {
            assert!(depth(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formats_are_two_numbers() {
        assert_eq!(format(2.0), Ok(Format::Version2));
        assert_eq!(format(3.0), Ok(Format::Version3));
        for wrong in [1.0, 2.5, 4.0, f64::NAN] {
            assert!(format(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["mode", "interval", "path", "depth", "clock"];
        assert_eq!(nearest("intervall", &known), Some("interval"));
        assert_eq!(nearest("pth", &known), Some("path"));
        assert_eq!(nearest("bananas", &known), None);
    }
}

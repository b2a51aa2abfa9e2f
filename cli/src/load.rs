//! A profile from a file: opening, progress, and what to say of a bad one.

use std::fs::File;
use std::io::{IsTerminal, stderr};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ljp::decode::Error;
use ljp::profile::{Profile, Reading};

use crate::failure::{self, Failure, Outcome};
use crate::symbols::{Files, Symbols};
use crate::view::View;

/// Reading a file shorter than this, in bytes, takes no time worth a picture.
const PROGRESS_FROM: u64 = 32 << 20;

/// A profile that can be shown.
#[derive(Debug)]
pub struct Loaded {
    pub profile: Profile,
    /// Why it was not read to a good end.
    pub fault: Option<Error>,
}

impl Loaded {
    /// Names its stacks with the help of the files of this machine, and warns
    /// of those that do not help. `internals` shows the insides of LuaJIT.
    pub fn view(&self, internals: bool) -> View {
        let mut symbols = Files::default();
        let view = View::new(&self.profile, &mut symbols, internals);
        for complaint in symbols.complaints() {
            failure::say(format_args!("warning: {complaint}"));
        }
        view
    }

    /// What showing it means for the exit code: a profile that was cut is fine
    /// as far as it goes, a damaged one is not.
    pub fn outcome(&self) -> Outcome {
        match self.fault {
            None | Some(Error::Truncated { .. }) => Outcome::Whole,
            Some(_) => Outcome::Damaged,
        }
    }
}

/// Reads the profile and warns on the standard error if it is not whole.
///
/// # Errors
///
/// If there is nothing in it to show.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let loaded = load_quietly(path)?;
    if let Some(fault) = &loaded.fault {
        failure::say(format_args!(
            "warning: {}: {}",
            path.display(),
            advice(fault)
        ));
    }
    Ok(loaded)
}

/// Reads the profile; its fault is for the caller to tell.
///
/// # Errors
///
/// If there is nothing in it to show.
pub fn load_quietly(path: &Path) -> Result<Loaded, Failure> {
    let failed = |error: std::io::Error| Failure::of_file(path, error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::of_file(
            path,
            "is a directory; give the profile in it",
        ));
    }
    let reading = if metadata.len() >= PROGRESS_FROM && stderr().is_terminal() {
        let bar = progress(metadata.len());
        let reading = Profile::read(bar.wrap_read(file));
        bar.finish_and_clear();
        reading
    } else {
        Profile::read(file)
    };
    match reading {
        Ok(Reading { profile, fault }) => Ok(Loaded { profile, fault }),
        Err(error) => Err(Failure::of_file(path, advice(&error))),
    }
}

/// What happened, and what that means or what to do.
pub fn advice(error: &Error) -> String {
    let what = error.to_string();
    match error {
        Error::Empty => format!("{what}; did the recorded program end properly?"),
        Error::Foreign { .. } => format!("{what}; give a file that sysprof has recorded"),
        Error::Version { .. } => format!("{what}; a newer sysprof may read it"),
        Error::Truncated { good: 0 } => format!("{what}; there is nothing in it to show"),
        Error::Truncated { .. } => format!("{what}; shown as far as it goes"),
        Error::Damaged { .. } => format!("{what}; shown up to there"),
        _ => what,
    }
}

fn progress(len: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("reading {wide_bar} {bytes}/{total_bytes} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

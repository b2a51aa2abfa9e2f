//! `sysprof convert`: a profile in another version of the format.
//!
//! Knows files, and which version can become which. What each has for what the
//! other says is known to [`to2`] and [`to3`].

mod to2;
mod to3;

use std::fs::File;
use std::io::{self, BufWriter, Write};

use ljp::encode::Cursor;

use crate::args::{Convert, Version};
use crate::failure::{self, Failure, Outcome};
use crate::load;
use crate::symbols::{Files, Symbols};

/// More samples than this are not written one by one.
const MAX_SAMPLES: u64 = 1_000_000_000;

/// Reads the profile whole and writes it anew.
///
/// # Errors
///
/// If the profile cannot be read, has the wanted version already, or the other
/// one cannot be written.
pub fn run(args: &Convert) -> Result<Outcome, Failure> {
    let loaded = load::load(&args.file)?;
    let profile = &loaded.profile;
    let wanted = match args.to {
        Version::Two => 2,
        Version::Three => 3,
    };
    if profile.version == wanted {
        return Err(Failure::of_file(
            &args.file,
            format_args!("is version {wanted} already; it needs no conversion"),
        ));
    }
    if wanted == 2 && profile.samples() > MAX_SAMPLES {
        return Err(Failure::of_file(
            &args.file,
            format_args!(
                "{} samples are too many for version 2, which has each of them by itself",
                profile.samples()
            ),
        ));
    }
    let whole = loaded.fault.is_none();
    let write = |out: &mut dyn Write| match args.to {
        Version::Three => to3::write(profile, whole, out),
        Version::Two => {
            let mut symbols = Files::default();
            to2::write(profile, &mut symbols, whole, out)?;
            for complaint in symbols.complaints() {
                failure::say(format_args!("warning: {complaint}"));
            }
            Ok(())
        }
    };
    let written = File::create(&args.output).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    written.map_err(|error| Failure::of_file(&args.output, error))?;
    Ok(loaded.outcome())
}

/// Writes one record, which has `text` bytes of text.
fn record(
    out: &mut (impl Write + ?Sized),
    text: usize,
    encode: impl FnOnce(&mut Cursor<'_>),
) -> io::Result<()> {
    /// The most that any record has besides its text.
    const NUMBERS: usize = 512;
    let mut small = [0; NUMBERS];
    let mut large = Vec::new();
    let bytes = if text == 0 {
        &mut small[..]
    } else {
        large.resize(text + NUMBERS, 0);
        &mut large[..]
    };
    let mut cursor = Cursor::new(bytes);
    encode(&mut cursor);
    debug_assert!(!cursor.overflowed());
    out.write_all(cursor.written())
}

//! `sysprof flamegraph`: the stacks as a picture to click into.
//!
//! Knows what stands above the picture and which colours it has. Drawing it is
//! inferno's.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options};

use crate::args::Flamegraph;
use crate::collapse;
use crate::failure::{Failure, Outcome};
use crate::view::{Kind, View};
use crate::{info, label, load};

/// Hues of the kinds of functions, each from dark to light: a name gets one of
/// the shades, the same in every picture.
const fn shades(kind: Kind, compiled: bool) -> [(u8, u8, u8); 4] {
    match kind {
        Kind::Lua | Kind::Trace if compiled => [
            (88, 172, 88),
            (104, 188, 100),
            (122, 202, 112),
            (140, 214, 126),
        ],
        Kind::Lua | Kind::Trace => [
            (226, 142, 58),
            (236, 156, 70),
            (243, 170, 84),
            (248, 184, 100),
        ],
        Kind::Builtin => [
            (206, 176, 60),
            (216, 188, 74),
            (226, 200, 88),
            (234, 210, 104),
        ],
        Kind::Native => [
            (104, 150, 204),
            (118, 164, 214),
            (132, 178, 224),
            (148, 190, 232),
        ],
        Kind::Note => [(176, 176, 176); 4],
    }
}

/// Draws the profile into a file.
///
/// # Errors
///
/// If the profile cannot be read or has no stacks, or the picture not be
/// written.
pub fn run(args: &Flamegraph) -> Result<Outcome, Failure> {
    let loaded = load::load(&args.file)?;
    let profile = &loaded.profile;
    if profile.stacks.is_empty() {
        let what = "no stack in it to draw; record with --mode C";
        return Err(Failure::of_file(&args.file, what));
    }
    let view = loaded.view(args.native);

    let mut options = Options::default();
    options.title = args.title.clone().unwrap_or_else(|| title(&args.file));
    options.subtitle = Some(format!(
        "{} \u{2014} orange: Lua, green: compiled, yellow: built-in, blue: native",
        info::headline(profile)
    ));
    options.count_name = "samples".to_owned();
    options.bgcolors = Some(BackgroundColor::Flat(Color {
        r: 250,
        g: 250,
        b: 250,
    }));
    let mut palette = palette(&view);
    options.palette_map = Some(&mut palette);

    let lines: Vec<String> = collapse::stacks(&view)
        .map(|stack| collapse::line(&view, &stack))
        .collect();
    let failed = |error: std::io::Error| Failure::of_file(&args.output, error);
    let mut file = BufWriter::new(File::create(&args.output).map_err(failed)?);
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut options, lines, &mut file)
        .map_err(|error| Failure::of_file(&args.output, error))?;
    file.flush().map_err(failed)?;
    Ok(loaded.outcome())
}

fn title(profile: &Path) -> String {
    let name = profile.file_name().unwrap_or(profile.as_os_str());
    label::text(name.as_encoded_bytes())
}

/// A colour for every function. One that mostly ran as machine code of traces
/// has the colour of compiled code.
fn palette(view: &View) -> PaletteMap {
    let mut samples = vec![0u64; view.functions.len()];
    let mut compiled = samples.clone();
    for (node, own) in view.nodes.iter().zip(&view.own) {
        let function = node.function as usize;
        // A function that only calls others still ran one way or the other.
        let weight = own.saturating_add(1);
        samples[function] = samples[function].saturating_add(weight);
        if node.trace.is_some() {
            compiled[function] = compiled[function].saturating_add(weight);
        }
    }
    let mut palette = PaletteMap::default();
    for (at, function) in view.functions.iter().enumerate() {
        let shades = shades(function.kind, compiled[at] > samples[at] / 2);
        let name = collapse::name(&function.name);
        let hash = name.bytes().fold(0usize, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(byte.into())
        });
        let (r, g, b) = shades[hash % shades.len()];
        palette.insert(name, Color { r, g, b });
    }
    palette
}

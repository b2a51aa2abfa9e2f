//! `sysprof diff`: what has become faster and slower between two profiles.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use crate::args::Diff;
use crate::failure::{Failure, Outcome};
use crate::load;
use crate::number::{counted, grouped, share};
use crate::table::Table;
use crate::tally::{self, Count};

/// One of the two profiles, by function.
struct Side {
    samples: u64,
    functions: HashMap<String, Count>,
    outcome: Outcome,
}

impl Side {
    /// Shares in percent: of the function itself, and with what it called.
    fn shares(&self, function: &str) -> (f64, f64) {
        let count = self.functions.get(function).copied().unwrap_or_default();
        (
            share(count.own, self.samples),
            share(count.total, self.samples),
        )
    }
}

/// Prints the functions whose shares differ, those that changed most first.
///
/// # Errors
///
/// If a profile cannot be read or the output not be written.
pub fn run(args: &Diff, out: &mut impl Write) -> Result<Outcome, Failure> {
    let before = side(&args.before, args.native)?;
    let after = side(&args.after, args.native)?;
    writeln!(
        out,
        "before: {}, after: {}",
        counted(before.samples, "sample"),
        counted(after.samples, "sample")
    )?;

    let mut names: Vec<&String> = before.functions.keys().collect();
    let new = after.functions.keys();
    names.extend(new.filter(|name| !before.functions.contains_key(*name)));
    let mut rows: Vec<(f64, &String)> = names
        .into_iter()
        .map(|name| (after.shares(name).0 - before.shares(name).0, name))
        .collect();
    let change = |name: &String| (after.shares(name).1 - before.shares(name).1).abs();
    rows.sort_by(|(a, a_name), (b, b_name)| {
        (b.abs().total_cmp(&a.abs()))
            .then_with(|| change(b_name).total_cmp(&change(a_name)))
            .then_with(|| a_name.cmp(b_name))
    });

    let heads = [
        "change",
        "self before",
        "after",
        "total before",
        "after",
        "function",
    ];
    let mut table = Table::new(&heads);
    for (change, name) in rows.iter().take(args.limit) {
        let (own_before, total_before) = before.shares(name);
        let (own_after, total_after) = after.shares(name);
        table.row(vec![
            format!("{change:+.1}"),
            format!("{own_before:.1}%"),
            format!("{own_after:.1}%"),
            format!("{total_before:.1}%"),
            format!("{total_after:.1}%"),
            (*name).clone(),
        ]);
    }
    table.write(out)?;
    if let more @ 1.. = rows.len().saturating_sub(args.limit) {
        let more = grouped(more as u64);
        writeln!(out, "  … and {more} more; --limit shows them")?;
    }
    Ok(if before.outcome == Outcome::Damaged {
        before.outcome
    } else {
        after.outcome
    })
}

fn side(path: &Path, native: bool) -> Result<Side, Failure> {
    let loaded = load::load(path)?;
    let view = loaded.view(native);
    let counts = tally::by(&view, view.functions.len(), |node| Some(node.function));
    let functions = tally::ranked(&counts, &view.functions, |function| &function.name);
    let functions = functions
        .into_iter()
        .map(|(count, function)| (function.name.clone(), count));
    Ok(Side {
        samples: view.samples(),
        functions: functions.collect(),
        outcome: loaded.outcome(),
    })
}

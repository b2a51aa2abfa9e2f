//! `sysprof report`: the hottest functions and lines.
//!
//! Knows which tables there are and what stands above them.

use std::io::{self, Write};

use ljp::VmState;
use ljp::profile::Profile;

use crate::args::{By, Report};
use crate::failure::{Failure, Outcome};
use crate::number::{counted, grouped, percent};
use crate::table::Table;
use crate::tally::{self, Count};
use crate::view::View;
use crate::{info, label, load, traces};

/// Prints what was asked for.
///
/// # Errors
///
/// If the profile cannot be read or the output not be written.
pub fn run(args: &Report, out: &mut impl Write) -> Result<Outcome, Failure> {
    let loaded = load::load(&args.file)?;
    let profile = &loaded.profile;
    if args.by == Some(By::State) {
        states(profile, out)?;
        return Ok(loaded.outcome());
    }
    let view = loaded.view(args.native);
    let tables = Tables {
        view: &view,
        limit: args.limit,
    };
    match args.by {
        Some(By::Function) => tables.functions(out)?,
        Some(By::Line) => tables.lines(out)?,
        Some(By::Trace) => tables.traces(profile, out)?,
        Some(By::State) | None => {
            header(profile, out)?;
            writeln!(out, "\nVM states")?;
            states(profile, out)?;
            writeln!(out, "\nTop functions")?;
            tables.functions(out)?;
            writeln!(out, "\nTop lines")?;
            tables.lines(out)?;
        }
    }
    Ok(loaded.outcome())
}

fn header(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", info::headline(profile))?;
    if let Some(host) = profile.meta.get("host") {
        writeln!(out, "{}", label::text(host.as_bytes()))?;
    }
    let without = profile
        .by_reason
        .values()
        .fold(0u64, |sum, n| sum.saturating_add(*n));
    if without > 0 {
        let share = percent(without, profile.samples());
        writeln!(
            out,
            "{} ({share}) without a stack",
            counted(without, "sample")
        )?;
    }
    let ancestors = ancestors(profile);
    if ancestors > 0 {
        let share = percent(ancestors, profile.samples());
        writeln!(
            out,
            "{} ({share}) in compiled code of which inlined calls are not known",
            counted(ancestors, "sample")
        )?;
    }
    Ok(())
}

/// Samples with a frame in them that is only known as an ancestor.
fn ancestors(profile: &Profile) -> u64 {
    let mut within = Vec::with_capacity(profile.stacks.len());
    let mut samples = 0u64;
    for (node, weights) in profile.stacks.iter() {
        let below = node.parent.is_some_and(|parent| within[parent as usize]);
        let here = below || profile.frames[node.frame as usize].ancestor;
        within.push(here);
        if let Some(weights) = weights.filter(|_| here) {
            samples = weights
                .iter()
                .fold(samples, |sum, n| sum.saturating_add(*n));
        }
    }
    samples
}

fn states(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::new(&["share", "samples", "state"]);
    let mut rows: Vec<_> = VmState::ALL
        .into_iter()
        .map(|state| (profile.by_state[state as usize], state))
        .filter(|(samples, _)| *samples > 0)
        .collect();
    rows.sort_by_key(|(samples, state)| (u64::MAX - samples, *state));
    for (samples, state) in rows {
        table.row(vec![
            percent(samples, profile.samples()),
            grouped(samples),
            state.name().to_owned(),
        ]);
    }
    table.write(out)
}

/// The tables that are made of stacks.
struct Tables<'a> {
    view: &'a View,
    limit: usize,
}

impl Tables<'_> {
    fn functions(&self, out: &mut impl Write) -> io::Result<()> {
        let view = self.view;
        let counts = tally::by(view, view.functions.len(), |node| Some(node.function));
        let rows = tally::ranked(&counts, &view.functions, |function| &function.name);
        let rows = rows
            .into_iter()
            .map(|(count, function)| (count, function.name.as_str()));
        self.write("function", rows.collect(), out)
    }

    fn lines(&self, out: &mut impl Write) -> io::Result<()> {
        let view = self.view;
        let counts = tally::by(view, view.lines.len(), |node| node.line);
        let rows = tally::ranked(&counts, &view.lines, |line| line);
        let rows = rows.into_iter().map(|(count, line)| (count, line.as_str()));
        self.write("line", rows.collect(), out)
    }

    fn traces(&self, profile: &Profile, out: &mut impl Write) -> io::Result<()> {
        let view = self.view;
        let parts = traces::parts(profile, view);
        let mut counts = tally::by(view, view.traces.len(), |node| node.trace);
        for (count, parts) in counts.iter_mut().zip(&parts) {
            // What the view hides is native code all the same.
            count.own = parts.own();
        }
        let named = view.traces.iter().zip(&parts).collect::<Vec<_>>();
        let rows = tally::ranked(&counts, &named, |(trace, _)| trace);
        let heads = ["in loop", "outside", "native", "exits"];
        let rows = rows.into_iter().map(|(count, (trace, parts))| {
            let parts = [parts.in_loop, parts.outside, parts.native, parts.exits];
            (count, parts.map(grouped).to_vec(), trace.as_str())
        });
        self.write_with(&heads, "trace", rows.collect(), out)?;
        self.aborts(profile, out)
    }

    /// What LuaJIT began to record and gave up, if that was anything.
    fn aborts(&self, profile: &Profile, out: &mut impl Write) -> io::Result<()> {
        if profile.aborts.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nAborted recordings")?;
        let mut rows: Vec<_> = profile.aborts.iter().collect();
        rows.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        let mut table = Table::new(&["times", "where and why"]);
        for (abort, times) in rows.iter().take(self.limit) {
            table.row(vec![grouped(**times), label::abort(abort)]);
        }
        table.write(out)?;
        more(rows.len().saturating_sub(self.limit), out)
    }

    fn write(&self, what: &str, rows: Vec<(Count, &str)>, out: &mut impl Write) -> io::Result<()> {
        let rows = rows.into_iter().map(|(count, name)| (count, vec![], name));
        self.write_with(&[], what, rows.collect(), out)
    }

    /// The same with more columns.
    fn write_with(
        &self,
        heads: &[&str],
        what: &str,
        rows: Vec<(Count, Vec<String>, &str)>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if rows.is_empty() {
            return writeln!(out, "  no sample has a {what}");
        }
        let samples = self.view.samples();
        let mut table = Table::new(&[&["self", "total", "samples"], heads, &[what]].concat());
        for (count, more, name) in rows.iter().take(self.limit) {
            let mut cells = vec![
                percent(count.own, samples),
                percent(count.total, samples),
                grouped(count.total),
            ];
            cells.extend_from_slice(more);
            cells.push((*name).to_owned());
            table.row(cells);
        }
        table.write(out)?;
        more(rows.len().saturating_sub(self.limit), out)
    }
}

/// Says how many rows were left out.
fn more(rows: usize, out: &mut impl Write) -> io::Result<()> {
    match rows {
        0 => Ok(()),
        rows => writeln!(
            out,
            "  … and {} more; --limit shows them",
            grouped(rows as u64)
        ),
    }
}

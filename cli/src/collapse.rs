//! `sysprof collapse`: stacks as lines of text, as flame graph tools read them.

use std::io::Write;

use indexmap::IndexSet;

use crate::args::Collapse;
use crate::failure::{Failure, Outcome};
use crate::load;
use crate::view::View;

/// Prints one line for every stack with samples.
///
/// # Errors
///
/// If the profile cannot be read or the output not be written.
pub fn run(args: &Collapse, out: &mut impl Write) -> Result<Outcome, Failure> {
    let loaded = load::load(&args.file)?;
    let view = loaded.view(args.native);
    for stack in stacks(&view) {
        writeln!(out, "{}", line(&view, &stack))?;
    }
    Ok(loaded.outcome())
}

/// A stack of functions with samples of its own.
pub struct Stack {
    /// Indices of its functions, outermost first.
    pub functions: Vec<u32>,
    /// Its samples.
    pub samples: u64,
}

/// The stacks with samples. Stacks that differ only in lines are one.
pub fn stacks(view: &View) -> impl Iterator<Item = Stack> + use<> {
    // The tree of the view, without lines: of each node, its place there.
    let mut nodes: IndexSet<(Option<u32>, u32)> = IndexSet::new();
    let mut samples: Vec<u64> = Vec::new();
    let mut places: Vec<u32> = Vec::with_capacity(view.nodes.len());
    for (node, own) in view.nodes.iter().zip(&view.own) {
        let parent = node.parent.map(|parent| places[parent as usize]);
        let (place, new) = nodes.insert_full((parent, node.function));
        if new {
            samples.push(0);
        }
        samples[place] = samples[place].saturating_add(*own);
        places.push(place as u32);
    }
    let path = move |place: usize| {
        let mut functions = Vec::new();
        let mut next = Some(place as u32);
        while let Some(place) = next {
            let (parent, function) = nodes[place as usize];
            functions.push(function);
            next = parent;
        }
        functions.reverse();
        functions
    };
    let with_samples = samples.into_iter().enumerate().filter(|(_, own)| *own > 0);
    with_samples.map(move |(place, own)| Stack {
        functions: path(place),
        samples: own,
    })
}

/// A stack as a line: its functions with `;` between, and its samples.
pub fn line(view: &View, stack: &Stack) -> String {
    let mut line = String::new();
    for (at, function) in stack.functions.iter().enumerate() {
        if at > 0 {
            line.push(';');
        }
        line.push_str(&name(&view.functions[*function as usize].name));
    }
    line + " " + &stack.samples.to_string()
}

/// A function's name without what separates frames and stacks.
pub fn name(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_break_the_format() {
        assert_eq!(name("[string \"a;b\nc\"]"), "[string \"a:b c\"]");
    }
}

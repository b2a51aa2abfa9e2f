//! `sysprof collapse`: stacks as lines of text, as flame graph tools read them.

use std::io::Write;

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
    // One string for all lines: deep stacks are long.
    let mut line = String::new();
    for stack in stacks(&view) {
        line.clear();
        for (at, function) in stack.functions.iter().enumerate() {
            if at > 0 {
                line.push(';');
            }
            line.push_str(&name(&view.functions[*function as usize].name));
        }
        writeln!(out, "{line} {}", stack.samples)?;
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

/// The stacks with samples, one by one.
pub fn stacks(view: &View) -> impl Iterator<Item = Stack> + '_ {
    let with_samples = view.own.iter().enumerate().filter(|(_, own)| **own > 0);
    with_samples.map(|(at, own)| {
        let mut functions = Vec::new();
        let mut next = Some(at as u32);
        while let Some(node) = next {
            let node = view.nodes[node as usize];
            functions.push(node.function);
            next = node.parent;
        }
        functions.reverse();
        Stack {
            functions,
            samples: *own,
        }
    })
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

//! Who has how many samples: itself, and together with what it called.
//!
//! Knows the visible tree only.

use crate::view::{Node, View};

/// One row: something and its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples in which it was innermost.
    pub own: u64,
    /// Samples with it anywhere on the stack, each counted once.
    pub total: u64,
}

/// Counts by the things that `key` finds in nodes, of which there are `len`.
///
/// A thing that is on a stack more than once, as a recursive function is, has
/// each sample once in its total.
pub fn by(view: &View, len: usize, key: impl Fn(&Node) -> Option<u32>) -> Vec<Count> {
    let subtree = subtrees(view);
    let children = Children::new(view);
    let mut counts = vec![Count::default(); len];
    // How often each thing is on the path to the current node.
    let mut depth = vec![0u32; len];
    // A path may be as deep as a hostile profile likes, so it is kept here and
    // not on the call stack. Each entry is a node to enter or to leave.
    let mut work: Vec<(u32, bool)> = children.roots.iter().map(|root| (*root, true)).collect();
    while let Some((at, enter)) = work.pop() {
        let thing = key(&view.nodes[at as usize]).map(|thing| thing as usize);
        if !enter {
            if let Some(thing) = thing {
                depth[thing] -= 1;
            }
            continue;
        }
        if let Some(thing) = thing {
            let count = &mut counts[thing];
            count.own = count.own.saturating_add(view.own[at as usize]);
            if depth[thing] == 0 {
                count.total = count.total.saturating_add(subtree[at as usize]);
            }
            depth[thing] += 1;
            work.push((at, false));
        }
        work.extend(children.of(at).iter().map(|child| (*child, true)));
    }
    counts
}

/// The things that have samples, most of their own first, then most in total,
/// then by name.
pub fn ranked<'a, T>(
    counts: &[Count],
    things: impl IntoIterator<Item = &'a T>,
    name: impl Fn(&T) -> &str,
) -> Vec<(Count, &'a T)> {
    let mut rows: Vec<(Count, &T)> = counts.iter().copied().zip(things).collect();
    rows.retain(|(count, _)| count.total > 0);
    rows.sort_by(|(a, a_thing), (b, b_thing)| {
        (b.own, b.total)
            .cmp(&(a.own, a.total))
            .then_with(|| name(a_thing).cmp(name(b_thing)))
    });
    rows
}

/// The samples of every node with all that it called.
fn subtrees(view: &View) -> Vec<u64> {
    let mut sums = view.own.clone();
    for at in (0..sums.len()).rev() {
        if let Some(parent) = view.nodes[at].parent {
            sums[parent as usize] = sums[parent as usize].saturating_add(sums[at]);
        }
    }
    sums
}

/// What each node called, as ranges of one list.
struct Children {
    roots: Vec<u32>,
    list: Vec<u32>,
    /// Where in the list a node's children begin; those of the next end them.
    begin: Vec<usize>,
}

impl Children {
    fn new(view: &View) -> Self {
        let len = view.nodes.len();
        let mut begin = vec![0; len + 1];
        let mut roots = Vec::new();
        for (at, node) in view.nodes.iter().enumerate() {
            match node.parent {
                Some(parent) => begin[parent as usize + 1] += 1,
                None => roots.push(at as u32),
            }
        }
        for at in 0..len {
            begin[at + 1] += begin[at];
        }
        let mut next = begin.clone();
        let mut list = vec![0; len - roots.len()];
        for (at, node) in view.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                let slot = &mut next[parent as usize];
                list[*slot] = at as u32;
                *slot += 1;
            }
        }
        Children { roots, list, begin }
    }

    fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.list[self.begin[node]..self.begin[node + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Function, Kind};

    /// A view of these nodes: the one below, the function, samples of its own.
    fn view(nodes: &[(Option<u32>, u32, u64)]) -> View {
        let mut view = View::default();
        for (parent, function, own) in nodes {
            let name = format!("f{function}");
            let kind = Kind::Lua;
            view.functions.insert(Function { name, kind });
            view.nodes.insert(Node {
                parent: *parent,
                function: *function,
                line: None,
                trace: None,
            });
            view.own.push(*own);
        }
        view
    }

    fn functions(view: &View) -> Vec<(u64, u64)> {
        let counts = by(view, view.functions.len(), |node| Some(node.function));
        counts
            .iter()
            .map(|count| (count.own, count.total))
            .collect()
    }

    #[test]
    fn a_recursive_function_has_each_sample_once() {
        // f0 > f1 > f0 > f1, and f0 > f0.
        let view = view(&[
            (None, 0, 1),
            (Some(0), 1, 2),
            (Some(1), 0, 4),
            (Some(2), 1, 8),
            (Some(0), 0, 16),
        ]);
        assert_eq!(functions(&view), [(21, 31), (10, 14)]);
    }

    #[test]
    fn a_stack_may_be_very_deep() {
        let nodes: Vec<_> = (0..200_000u32)
            .map(|at| (at.checked_sub(1), at % 2, 1))
            .collect();
        assert_eq!(
            functions(&view(&nodes)),
            [(100_000, 200_000), (100_000, 199_999)]
        );
    }

    #[test]
    fn rows_go_by_own_then_total_then_name() {
        let counts = [(1, 1), (0, 5), (0, 0), (1, 3), (1, 1)];
        let counts = counts.map(|(own, total)| Count { own, total });
        let names = ["c", "d", "never", "e", "b"];
        let rows = ranked(&counts, &names, |name| name);
        let names: Vec<&str> = rows.iter().map(|(_, name)| **name).collect();
        assert_eq!(names, ["e", "b", "c", "d"]);
    }
}

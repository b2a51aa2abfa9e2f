//! Stacks as a tree, and the samples that fell on each.
//!
//! Knows frames by their ids only.

use crate::VmState;
use indexmap::IndexSet;

/// Samples by VM state, at the index of the state's number.
pub type Weights = [u64; VmState::COUNT];

/// A frame and the stack that it was called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    /// Index of the stack below, which is always smaller than that of this one;
    /// `None` if the frame is the outermost.
    pub parent: Option<u32>,
    /// Id of the frame.
    pub frame: u32,
}

/// All the stacks, each once.
#[derive(Debug, Default)]
pub struct Stacks {
    nodes: IndexSet<Node>,
    /// Of each node, its place in `weights` plus 1, or 0: most nodes only lead
    /// to others.
    slots: Vec<u32>,
    weights: Vec<Weights>,
}

impl Stacks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All of them in the order of their indices: every stack comes after the
    /// one below it.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Node, Option<&Weights>)> + '_ {
        self.nodes.iter().zip(&self.slots).map(|(node, slot)| {
            let weights = slot.checked_sub(1).map(|at| &self.weights[at as usize]);
            (*node, weights)
        })
    }

    /// The index of a stack, which is added if it is new.
    pub(super) fn intern(&mut self, node: Node) -> u32 {
        let index = super::intern(&mut self.nodes, node);
        if self.slots.len() < self.nodes.len() {
            self.slots.push(0);
        }
        index
    }

    pub(super) fn add(&mut self, stack: u32, state: VmState, weight: u64) {
        let slot = &mut self.slots[stack as usize];
        if *slot == 0 {
            self.weights.push(Weights::default());
            *slot = self.weights.len() as u32;
        }
        let of_state = &mut self.weights[*slot as usize - 1][state as usize];
        *of_state = of_state.saturating_add(weight);
    }
}

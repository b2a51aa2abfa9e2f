//! What traces were at: in their loop, before it, in native code that they called,
//! being left.
//!
//! Knows frames of the profile and the VM states of samples. How a trace is called
//! is the view's.

use ljp::profile::Profile;
use ljp::{Frame, VmState};

use crate::label;
use crate::view::View;

/// Samples of one trace, by what it was at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// In its machine code, from where its loop begins.
    pub in_loop: u64,
    /// In its machine code, before its loop or where there is none.
    pub outside: u64,
    /// In native code that it called.
    pub native: u64,
    /// Being left: its stack is put back for the interpreter.
    pub exits: u64,
}

impl Parts {
    /// Samples in its own machine code.
    pub fn own(&self) -> u64 {
        self.in_loop.saturating_add(self.outside)
    }
}

/// Where a stack has come to.
#[derive(Debug, Clone, Copy)]
struct Reached {
    /// The trace that runs, by its place in the view.
    trace: u32,
    in_loop: bool,
    /// Native code that it called runs.
    native: bool,
}

/// The parts of each trace of the view.
pub fn parts(profile: &Profile, view: &View) -> Vec<Parts> {
    let names: Vec<Option<u32>> = profile
        .traces
        .iter()
        .map(|trace| {
            let proto = trace.proto.map(|id| &profile.protos[id as usize]);
            let found = view.traces.get_index_of(&label::trace(trace, proto));
            found.map(|index| index as u32)
        })
        .collect();
    let mut parts = vec![Parts::default(); view.traces.len()];
    let mut reached: Vec<Option<Reached>> = Vec::with_capacity(profile.stacks.len());
    for (node, weights) in profile.stacks.iter() {
        let below = node.parent.and_then(|parent| reached[parent as usize]);
        let def = &profile.frames[node.frame as usize];
        let trace = match def.frame {
            Frame::Trace { trace } => Some(trace),
            _ => def.compiled,
        };
        let entered = trace
            .and_then(|trace| names[trace as usize])
            .map(|trace| Reached {
                trace,
                in_loop: def.in_loop,
                native: false,
            });
        let here = match (entered, def.frame) {
            (Some(entered), _) => Some(entered),
            (None, Frame::Native { .. }) => below.map(|below| Reached {
                native: true,
                ..below
            }),
            // A built-in may be compiled, too.
            (None, Frame::Func { .. } | Frame::Mark(_)) => below,
            (None, Frame::Lua { .. } | Frame::Trace { .. }) => None,
        };
        reached.push(here);
        let (Some(here), Some(weights)) = (here, weights) else {
            continue;
        };
        let of = &mut parts[here.trace as usize];
        for state in VmState::ALL {
            let part = match state {
                VmState::Exit => &mut of.exits,
                _ if here.native => &mut of.native,
                _ if here.in_loop => &mut of.in_loop,
                _ => &mut of.outside,
            };
            *part = part.saturating_add(weights[state as usize]);
        }
    }
    parts
}

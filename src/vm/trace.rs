//! JIT-compiled code: which trace runs, and what is known of it.
//!
//! Knows: trace objects (`GCtrace` in `lj_jit.h`) and where LuaJIT keeps them.
//! Must not know: the stack that a trace runs on top of.

use super::layout::{Layout, gct};
use super::objects::{Proto, SLOT};
use crate::memory::read;
use std::ops::Range;

/// A trace (`GCtrace`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trace(usize);

impl Trace {
    fn at(layout: &Layout, address: usize, number: u32) -> Option<Trace> {
        (address != 0
            && read::<u8>(address + layout.at.gct)? == gct::TRACE
            && u32::from(read::<u16>(address + layout.at.trace_number)?) == number)
            .then_some(Trace(address))
    }

    /// Its number.
    pub fn number(self, layout: &Layout) -> Option<u32> {
        read::<u16>(self.0 + layout.at.trace_number).map(u32::from)
    }

    /// Its machine code.
    pub fn code(self, layout: &Layout) -> Option<Range<usize>> {
        let start = read::<u64>(self.0 + layout.at.trace_mcode)? as usize;
        Some(start..start + read::<u32>(self.0 + layout.at.trace_szmcode)? as usize)
    }

    /// The trace that it jumps to at its end (itself for a loop), 0 if none.
    pub fn link(self, layout: &Layout) -> Option<u32> {
        read::<u16>(self.0 + layout.at.trace_link).map(u32::from)
    }

    /// The root trace of a side trace, 0 for a root trace.
    pub fn root(self, layout: &Layout) -> Option<u32> {
        read::<u16>(self.0 + layout.at.trace_root).map(u32::from)
    }

    /// Where it starts: prototype, and the position after the first instruction.
    pub fn start(self, layout: &Layout) -> Option<(Proto, usize)> {
        let proto = Proto::at(layout, layout.reference(self.0 + layout.at.trace_startpt)?)?;
        Some((
            proto,
            layout.reference(self.0 + layout.at.trace_startpc)? + 4,
        ))
    }
}

/// The traces of one VM. Where it keeps them is found when the first one runs.
#[derive(Debug, Default)]
pub struct Traces {
    /// Address of the field of `jit_State` that points to the array.
    field: Option<usize>,
}

impl Traces {
    /// The trace of this number.
    pub fn get(&mut self, layout: &Layout, number: u32) -> Option<Trace> {
        if self.field.is_none() {
            self.field = find_array(layout, number);
        }
        entry(layout, read::<u64>(self.field?)? as usize, number)
    }

    /// The trace whose machine code `address` lies in. Bounded by the number of
    /// traces that the VM has room for.
    pub fn covering(&mut self, layout: &Layout, address: usize) -> Option<Trace> {
        const MOST: u32 = 65536;
        let field = self.field?;
        let array = read::<u64>(field)? as usize;
        // GCRef *trace; TraceNo freetrace; MSize sizetrace;
        let size = read::<u32>(field + 12)?.min(MOST);
        (1..size).find_map(|number| {
            let trace = entry(layout, array, number)?;
            trace.code(layout)?.contains(&address).then_some(trace)
        })
    }
}

fn entry(layout: &Layout, array: usize, number: u32) -> Option<Trace> {
    let slot = array + number as usize * layout.reference_size();
    Trace::at(layout, layout.reference(slot)?, number)
}

/// The array is what the one pointer between `global_State` and the dispatch
/// table points to whose entry at a trace's number is that very trace.
fn find_array(layout: &Layout, number: u32) -> Option<usize> {
    (layout.global..layout.dispatch)
        .step_by(SLOT)
        .find(|&field| {
            read::<u64>(field).is_some_and(|array| {
                array.is_multiple_of(4) && entry(layout, array as usize, number).is_some()
            })
        })
}

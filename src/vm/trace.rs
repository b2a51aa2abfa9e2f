//! JIT-compiled code: which trace runs, and what is known of it.
//!
//! Knows: trace objects (`GCtrace` in `lj_jit.h`) and where LuaJIT keeps them.
//! Must not know: the stack that a trace runs on top of.

use super::layout::{Layout, gct};
use super::objects::{Proto, SLOT};
use crate::memory::read;
use std::ops::Range;

/// A trace (`GCtrace`), with what tells it from another one that came to lie at
/// the same address, or got the same number, after it was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trace {
    address: usize,
    number: u32,
    /// Where its machine code starts.
    code: usize,
}

impl Trace {
    fn at(layout: &Layout, address: usize, number: u32) -> Option<Trace> {
        if address == 0
            || address > usize::MAX / 2
            || read::<u8>(address + layout.at.gct)? != gct::TRACE
            || u32::from(read::<u16>(address + layout.at.trace_number)?) != number
        {
            return None;
        }
        Some(Trace {
            address,
            number,
            code: read::<u64>(address + layout.at.trace_mcode)? as usize,
        })
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.address
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Its machine code.
    pub fn code(self, layout: &Layout) -> Option<Range<usize>> {
        let size = read::<u32>(self.address + layout.at.trace_szmcode)? as usize;
        Some(self.code..self.code.checked_add(size)?)
    }

    /// Bytes by which it moves the stack pointer below the VM's C frame.
    pub fn stack_adjustment(self, layout: &Layout) -> Option<usize> {
        read::<u16>(self.address + layout.at.trace_spadjust).map(usize::from)
    }

    /// How far into its machine code its loop starts, 0 if there is none.
    pub fn loop_start(self, layout: &Layout) -> Option<u32> {
        read::<u32>(self.address + layout.at.trace_mcloop)
    }

    /// The trace that it jumps to at its end (itself for a loop), 0 if none.
    pub fn link(self, layout: &Layout) -> Option<u32> {
        read::<u16>(self.address + layout.at.trace_link).map(u32::from)
    }

    /// The root trace of a side trace, 0 for a root trace.
    pub fn root(self, layout: &Layout) -> Option<u32> {
        read::<u16>(self.address + layout.at.trace_root).map(u32::from)
    }

    /// Where it starts: prototype, and the position after the first instruction.
    pub fn start(self, layout: &Layout) -> Option<(Proto, usize)> {
        let proto = layout.reference(self.address + layout.at.trace_startpt)?;
        let position = layout.reference(self.address + layout.at.trace_startpc)?;
        Some((Proto::at(layout, proto)?, position + 4))
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
        entry(layout, self.array(layout)?.address, number)
    }

    /// All that there are. Allocates.
    pub fn all(&mut self, layout: &Layout) -> Vec<Trace> {
        let array = self.array(layout);
        array.map_or(Vec::new(), |array| array.traces(layout).collect())
    }

    /// The trace whose machine code `address` lies in. Bounded by the number of
    /// traces that the VM has room for.
    pub fn covering(&mut self, layout: &Layout, address: usize) -> Option<Trace> {
        (self.array(layout)?.traces(layout)).find(|trace| {
            trace
                .code(layout)
                .is_some_and(|code| code.contains(&address))
        })
    }

    fn array(&mut self, layout: &Layout) -> Option<Array> {
        if self.field.is_none() {
            self.field = find_array(layout);
        }
        Array::at(self.field?)
    }
}

/// The array of traces, by number: `trace`, `freetrace` and `sizetrace` in
/// `jit_State`.
#[derive(Clone, Copy)]
struct Array {
    address: usize,
    size: u32,
}

impl Array {
    /// The one that the field at `field` points to, if it may be one.
    fn at(field: usize) -> Option<Array> {
        /// Numbers have 16 bits.
        const MOST: u32 = 1 << 16;
        let array = Array {
            address: read::<u64>(field)? as usize,
            size: read::<u32>(field + 12)?,
        };
        let free = read::<u32>(field + 8)?;
        let may_be = array.address != 0
            && array.address < usize::MAX / 2
            && array.address.is_multiple_of(4)
            && (1..=MOST).contains(&array.size)
            && free <= array.size;
        may_be.then_some(array)
    }

    fn traces(self, layout: &Layout) -> impl Iterator<Item = Trace> {
        (1..self.size).filter_map(move |number| entry(layout, self.address, number))
    }
}

fn entry(layout: &Layout, array: usize, number: u32) -> Option<Trace> {
    let slot = array.checked_add(number as usize * layout.reference_size())?;
    Trace::at(layout, layout.reference(slot)?, number)
}

/// The array is what the one pointer between `global_State` and the dispatch
/// table points to in which a trace stands at its number. Each of its entries is
/// a trace, or nothing, or the one that is being compiled, in `jit_State`.
fn find_array(layout: &Layout) -> Option<usize> {
    let states = layout.global..layout.dispatch;
    let holds_traces = |array: Array| {
        for number in 1..array.size {
            let slot = array.address + number as usize * layout.reference_size();
            match layout.reference(slot)? {
                0 => {}
                current if states.contains(&current) => {}
                _ => return entry(layout, array.address, number),
            }
        }
        None
    };
    states
        .clone()
        .step_by(SLOT)
        .find(|&field| Array::at(field).and_then(holds_traces).is_some())
}

//! What the functions on a stack are made of, found out once a look.
//!
//! Knows: that nothing changes while the program is interrupted. Must not know:
//! where functions are met.
//!
//! Between two looks a function may be collected and another one made in its
//! place, so that nothing is kept from one to the next.

use super::layout::Layout;
use super::objects::{Function, Identity, Kind};

/// What there is to know of a function that is on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// What it is made of.
    pub kind: Kind,
    /// What tells its prototype from others at the same address.
    pub identity: Identity,
    /// Number of its bytecode instructions.
    pub sizebc: u32,
}

impl Body {
    fn read(layout: &Layout, function: Function) -> Option<Body> {
        let kind = function.kind(layout)?;
        let (identity, sizebc) = match kind {
            Kind::Lua(proto) => (proto.identity(layout)?, proto.sizebc(layout)?),
            Kind::C | Kind::Builtin(_) => (Identity::default(), 0),
        };
        Some(Body {
            kind,
            identity,
            sizebc,
        })
    }
}

/// A function that was met, and when.
#[derive(Clone, Copy)]
struct Entry {
    look: u64,
    function: usize,
    body: Body,
}

/// Functions that were met in this look, by a few bits of their address.
pub struct Known {
    entries: Box<[Entry; Known::PLACES]>,
    look: u64,
}

impl Default for Known {
    fn default() -> Known {
        let none = Entry {
            look: 0,
            function: 0,
            body: Body {
                kind: Kind::C,
                identity: Identity::default(),
                sizebc: 0,
            },
        };
        Known {
            entries: Box::new([none; Known::PLACES]),
            look: 0,
        }
    }
}

impl Known {
    const PLACES: usize = 256;

    /// Forgets everything: the program has run since.
    pub fn begin(&mut self) {
        self.look += 1;
    }

    /// Objects are aligned to 8 bytes and larger than two such units.
    fn place(address: usize) -> usize {
        (address >> 4) % Known::PLACES
    }

    /// What the function at `address` is made of, if it was met before.
    #[inline(always)]
    pub fn met(&self, address: usize) -> Option<&Body> {
        let entry = &self.entries[Known::place(address)];
        (entry.function == address && entry.look == self.look).then_some(&entry.body)
    }

    /// Finds out what `function` is made of.
    pub fn meet(&mut self, layout: &Layout, function: Function) -> Option<&Body> {
        let entry = &mut self.entries[Known::place(function.address())];
        *entry = Entry {
            look: self.look,
            function: function.address(),
            body: Body::read(layout, function)?,
        };
        Some(&entry.body)
    }
}

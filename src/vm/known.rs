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

/// Functions that were met in this look, by a few bits of their address.
pub struct Known {
    entries: Box<[Option<(u64, Function, Body)>; 256]>,
    look: u64,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            entries: Box::new([None; 256]),
            look: 0,
        }
    }
}

impl Known {
    /// Forgets everything: the program has run since.
    pub fn begin(&mut self) {
        self.look += 1;
    }

    /// What `function` is made of.
    #[inline(always)]
    pub fn body(&mut self, layout: &Layout, function: Function) -> Option<Body> {
        // Objects are aligned to 8 bytes and larger than two such units.
        let entry = &mut self.entries[(function.address() >> 4) & 0xff];
        if let Some((look, known, body)) = entry
            && *look == self.look
            && *known == function
        {
            return Some(*body);
        }
        let body = Body::read(layout, function)?;
        *entry = Some((self.look, function, body));
        Some(body)
    }
}

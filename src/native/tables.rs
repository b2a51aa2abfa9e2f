//! Unwind tables (`.eh_frame` and its header), looked into directly.
//!
//! Knows: the tables of one module, through gimli. Must not know: the stack;
//! walking it is `unwind`'s job.

use super::modules::Module;
use super::sections::UnwindSections;
use gimli::{
    CfaRule, CieOrFde, EhFrame, EhFrameHdr, NativeEndian, Register, UnwindContext, UnwindSection,
};
use std::ops::Range;

/// The stack pointer's number in x86-64 unwind tables.
const RSP: Register = Register(7);

/// The code around an address, as the tables of its module have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The code that one entry describes; where none does, the gap between the
    /// entries before and after.
    pub range: Range<usize>,
    /// Bytes from the stack pointer to the frame's end in the middle of that
    /// code, if the tables give it so.
    pub frame_size: Option<usize>,
}

/// Where the functions begin that the tables of `module` describe, in the order
/// in which those have them.
pub fn starts(module: &Module) -> Vec<usize> {
    let mut starts = Vec::new();
    if let Some(sections) = &module.unwind {
        each(sections, |code| starts.push(code.start));
    }
    starts
}

/// Calls `with` for the code that each entry describes.
fn each(sections: &UnwindSections, mut with: impl FnMut(Range<usize>)) {
    let (bases, frames) = (sections.bases(), sections.frames());
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        if let Ok(entry) = partial.parse(EhFrame::cie_from_offset) {
            let start = entry.initial_address() as usize;
            with(start..start + entry.len() as usize);
        }
    }
}

/// Looks `address` up in the tables of `module`.
pub fn describe(module: &Module, address: usize) -> Option<Described> {
    let sections = module.unwind.as_ref()?;
    let bases = sections.bases();
    let frames = sections.frames();
    let table = EhFrameHdr::new(&sections.header, NativeEndian)
        .parse(&bases, 8)
        .ok()?;
    let found = table.table().and_then(|table| {
        let entry =
            table.fde_for_address(&frames, &bases, address as u64, EhFrame::cie_from_offset);
        entry.ok()
    });
    if let Some(entry) = found {
        let start = entry.initial_address() as usize;
        let mut context = UnwindContext::new();
        let frame_size = entry
            .unwind_info_for_address(&frames, &bases, &mut context, address as u64)
            .ok()
            .and_then(|row| match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } if *register == RSP => {
                    usize::try_from(*offset).ok()
                }
                _ => None,
            });
        return Some(Described {
            range: start..start + entry.len() as usize,
            frame_size,
        });
    }
    let mut gap = module.range.clone();
    each(sections, |code| {
        if code.end <= address {
            gap.start = gap.start.max(code.end);
        } else if code.start > address {
            gap.end = gap.end.min(code.start);
        }
    });
    Some(Described {
        range: gap,
        frame_size: None,
    })
}

//! Unwind tables (`.eh_frame` and its header), looked into directly.
//!
//! Knows: the tables of one module, through gimli. Must not know: the stack;
//! walking it is `unwind`'s job.

use super::modules::{Module, UnwindSections};
use crate::memory;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection,
};
use std::ops::Range;

/// Register numbers in x86-64 unwind tables.
const RBX: Register = Register(3);
const RSP: Register = Register(7);

type Slice<'a> = EndianSlice<'a, NativeEndian>;

/// Where the section that the header at `header` belongs to begins. The linker
/// writes it relative to the header and in four bytes (`DW_EH_PE_pcrel |
/// DW_EH_PE_sdata4`); other encodings are not in use.
pub fn frames_address(header: &Range<usize>) -> Option<usize> {
    const PCREL_SDATA4: u8 = 0x1b;
    let version = memory::read::<u8>(header.start)?;
    let encoding = memory::read::<u8>(header.start + 1)?;
    if version != 1 || encoding != PCREL_SDATA4 {
        return None;
    }
    let offset = memory::read::<u32>(header.start + 4)? as i32;
    (header.start + 4).checked_add_signed(offset as isize)
}

/// The end of the frame section in `range`: its terminator, or the last whole
/// entry.
pub fn end_of_frames(range: &Range<usize>) -> Option<usize> {
    let mut at = range.start;
    while at + 4 <= range.end {
        match memory::read::<u32>(at)? {
            0 => return Some(at + 4),
            // 64-bit entries have no place in x86-64's tables.
            u32::MAX => break,
            len if at + 4 + len as usize > range.end => break,
            len => at += 4 + len as usize,
        }
    }
    (at > range.start).then_some(at)
}

impl UnwindSections {
    fn frames(&self) -> EhFrame<Slice<'_>> {
        EhFrame::new(&self.frames, NativeEndian)
    }

    /// The bases that encoded pointers in the tables are relative to.
    pub fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.frames_address as u64)
            .set_eh_frame_hdr(self.header_address as u64)
    }
}

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
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let start = entry.initial_address() as usize;
        let end = start + entry.len() as usize;
        if end <= address {
            gap.start = gap.start.max(end);
        } else if start > address {
            gap.end = gap.end.min(start);
        }
    }
    Some(Described {
        range: gap,
        frame_size: None,
    })
}

/// Where a function keeps its caller's rbx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In rbx.
    Same,
    /// At this distance from the end of its frame.
    At(isize),
}

/// Where the code at `address` keeps its caller's rbx. Allocates nothing.
pub fn rbx_rule<S: UnwindContextStorage<usize>>(
    sections: &UnwindSections,
    address: usize,
    context: &mut UnwindContext<usize, S>,
) -> Option<Kept> {
    let bases = sections.bases();
    let frames = sections.frames();
    let header = EhFrameHdr::new(&sections.header, NativeEndian)
        .parse(&bases, 8)
        .ok()?;
    let row = header
        .table()?
        .unwind_info_for_address(
            &frames,
            &bases,
            context,
            address as u64,
            EhFrame::cie_from_offset,
        )
        .ok()?;
    match row.register(RBX) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(Kept::Same),
        Some(RegisterRule::Offset(offset)) => isize::try_from(offset).ok().map(Kept::At),
        _ => None,
    }
}

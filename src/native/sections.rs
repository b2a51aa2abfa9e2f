//! The unwind sections of a module (`.eh_frame` and its header), copied.
//!
//! Knows: where they begin and end. Must not know: what their entries say
//! (`tables`), or whose they are (`modules`).

use crate::memory;
use gimli::{BaseAddresses, EhFrame, EndianSlice, NativeEndian};
use std::ops::Range;
use std::sync::Arc;

/// A section's bytes, as gimli reads them.
pub type Slice<'a> = EndianSlice<'a, NativeEndian>;

/// Copies of a module's unwind sections: they stay whole when the module goes.
#[derive(Clone, Debug)]
pub struct UnwindSections {
    /// Address of `.eh_frame_hdr`.
    pub header_address: usize,
    /// Its bytes.
    pub header: Arc<[u8]>,
    /// Address of `.eh_frame`.
    pub frames_address: usize,
    /// Its bytes.
    pub frames: Arc<[u8]>,
}

impl UnwindSections {
    /// Copies the section of the header at `header` and of the frames that begin
    /// `frames`, which ends where its segment does.
    pub fn copy(header: Range<usize>, frames: Range<usize>) -> Option<UnwindSections> {
        let end = end_of_frames(&frames)?;
        Some(UnwindSections {
            header_address: header.start,
            header: bytes(header)?,
            frames_address: frames.start,
            frames: bytes(frames.start..end)?,
        })
    }
}

fn bytes(range: Range<usize>) -> Option<Arc<[u8]>> {
    let mut copy = vec![0; range.len()];
    memory::copy(&mut copy, range.start).then(|| copy.into())
}

impl UnwindSections {
    /// The entries, for gimli.
    pub fn frames(&self) -> EhFrame<Slice<'_>> {
        EhFrame::new(&self.frames, NativeEndian)
    }

    /// The bases that encoded pointers in the tables are relative to.
    pub fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.frames_address as u64)
            .set_eh_frame_hdr(self.header_address as u64)
    }
}

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

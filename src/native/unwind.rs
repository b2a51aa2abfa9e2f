//! Walks native frames.
//!
//! Knows: how to get from a frame to its caller, through framehop, which was
//! taken because it unwinds from unwind tables without allocating, caches what
//! it has found out about an address, and reads the stack through a function of
//! ours. Must not know: what a frame means, LuaJIT's own frames.
//!
//! Runs in the signal handler: nothing here allocates after [`Unwinder::new`].

use super::modules::Module;
use super::sections::UnwindSections;
use super::tables;
use crate::memory;
use crate::registers::Registers;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _,
};
use std::sync::Arc;

/// A native frame: where it is to go on, and the two registers that lead to its
/// caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The next instruction: a return address, but in the innermost frame.
    pub ip: usize,
    /// Stack pointer.
    pub sp: usize,
    /// rbp.
    pub bp: usize,
    /// Whether this is the interrupted frame itself.
    pub innermost: bool,
}

impl NativeFrame {
    /// An address inside the instruction that the frame is at.
    pub fn lookup_address(&self) -> usize {
        if self.innermost {
            self.ip
        } else {
            self.ip.wrapping_sub(1)
        }
    }
}

/// What a step towards the caller came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller.
    To(NativeFrame),
    /// There is none: this was the thread's first function.
    Root,
    /// No table describes this code, or its stack could not be read.
    Lost,
}

/// Room for the rows and registers of one table entry, as gimli wants it where
/// nothing may be allocated.
struct Room;

impl gimli::UnwindContextStorage<usize> for Room {
    type Rules = [(gimli::Register, gimli::RegisterRule<usize>); 32];
    type Stack = [gimli::UnwindTableRow<usize, Self>; 4];
}

/// Where a module is, and what is needed of it besides framehop's tables.
struct Extent {
    start: usize,
    end: usize,
    number: u32,
    bias: usize,
    unwind: Option<UnwindSections>,
}

impl Extent {
    fn holds(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A place in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The module's number.
    pub module: u32,
    /// The address as the module's file numbers it.
    pub address: usize,
}

/// The unwind tables of a set of modules, ready for use in a signal handler.
pub struct Unwinder {
    tables: UnwinderX86_64<Arc<[u8]>, MustNotAllocateDuringUnwind>,
    cache: CacheX86_64<MustNotAllocateDuringUnwind>,
    /// The modules, ascending by address.
    extents: Vec<Extent>,
    /// The one that the last step was in: the next one mostly is, too.
    recent: usize,
    room: Box<gimli::UnwindContext<usize, Room>>,
}

impl Unwinder {
    /// Makes ready to unwind through `modules`, which ascend by address.
    pub fn new<'m>(modules: impl Iterator<Item = &'m Module>) -> Unwinder {
        let mut tables = UnwinderX86_64::new();
        let mut extents = Vec::new();
        for module in modules {
            extents.push(Extent {
                start: module.range.start,
                end: module.range.end,
                number: module.number,
                bias: module.bias,
                unwind: module.unwind.clone(),
            });
            let Some(unwind) = &module.unwind else {
                continue;
            };
            let in_file = |address: usize, len: usize| {
                let start = address.wrapping_sub(module.bias) as u64;
                start..start + len as u64
            };
            tables.add_module(framehop::Module::new(
                module.path.clone(),
                module.range.start as u64..module.range.end as u64,
                module.bias as u64,
                ExplicitModuleSectionInfo {
                    eh_frame_svma: Some(in_file(unwind.frames_address, unwind.frames.len())),
                    eh_frame: Some(unwind.frames.clone()),
                    eh_frame_hdr_svma: Some(in_file(unwind.header_address, unwind.header.len())),
                    eh_frame_hdr: Some(unwind.header.clone()),
                    ..ExplicitModuleSectionInfo::default()
                },
            ));
        }
        Unwinder {
            tables,
            cache: CacheX86_64::new_in(),
            extents,
            recent: 0,
            room: Box::new(gimli::UnwindContext::new_in()),
        }
    }

    fn index_of(&self, address: usize) -> Option<usize> {
        let after = (self.extents).partition_point(|extent| extent.start <= address);
        let index = after.checked_sub(1)?;
        self.extents[index].holds(address).then_some(index)
    }

    #[inline]
    fn extent_of(&self, address: usize) -> Option<&Extent> {
        self.index_of(address).map(|index| &self.extents[index])
    }

    /// The number of the module that `address` lies in.
    #[inline]
    pub fn module_of(&self, address: usize) -> Option<u32> {
        self.extent_of(address).map(|extent| extent.number)
    }

    /// What `address` is called in its module's own terms.
    pub fn locate(&self, address: usize) -> Option<Place> {
        self.extent_of(address).map(|extent| Place {
            module: extent.number,
            address: address.wrapping_sub(extent.bias),
        })
    }

    /// The caller of `frame`.
    #[inline]
    pub fn step(&mut self, frame: NativeFrame) -> Step {
        // Of code in no module framehop would guess.
        let within = (self.extents.get(self.recent)).is_some_and(|extent| extent.holds(frame.ip));
        if !within {
            match self.index_of(frame.ip) {
                Some(index) => self.recent = index,
                None if frame.ip == 0 => return Step::Root,
                None => return Step::Lost,
            }
        }
        let address = if frame.innermost {
            FrameAddress::from_instruction_pointer(frame.ip as u64)
        } else {
            match FrameAddress::from_return_address(frame.ip as u64) {
                Some(address) => address,
                None => return Step::Root,
            }
        };
        let mut registers =
            UnwindRegsX86_64::new(frame.ip as u64, frame.sp as u64, frame.bp as u64);
        let caller =
            self.tables
                .unwind_frame(address, &mut registers, &mut self.cache, &mut |at| {
                    memory::read::<u64>(at as usize).ok_or(())
                });
        match caller {
            Ok(Some(ip)) => {
                let sp = registers.sp() as usize;
                // A stack that does not grow towards the root is none.
                if sp <= frame.sp {
                    return Step::Lost;
                }
                Step::To(NativeFrame {
                    ip: ip as usize,
                    sp,
                    bp: registers.bp() as usize,
                    innermost: false,
                })
            }
            Ok(None) => Step::Root,
            Err(_) => Step::Lost,
        }
    }

    /// rbx, which functions must give back to their callers, as it was in the
    /// first frame outwards whose address is `wanted`. framehop follows the
    /// registers only that lead to callers.
    pub fn rbx_at(
        &mut self,
        registers: &Registers,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        const MOST_FRAMES: usize = 64;
        let mut frame = NativeFrame {
            ip: registers.rip,
            sp: registers.rsp,
            bp: registers.rbp,
            innermost: true,
        };
        let mut rbx = registers.rbx;
        for _ in 0..MOST_FRAMES {
            if wanted(frame.ip) {
                return Some(rbx);
            }
            let address = frame.lookup_address();
            let index = self.index_of(address)?;
            let sections = self.extents[index].unwind.as_ref()?;
            let rule = tables::rbx_rule(sections, address, &mut self.room);
            let Step::To(caller) = self.step(frame) else {
                return None;
            };
            rbx = match rule? {
                tables::Kept::Same => rbx,
                // Counted from where the caller's stack pointer is.
                tables::Kept::At(offset) => {
                    memory::read::<u64>(caller.sp.checked_add_signed(offset)?)? as usize
                }
            };
            frame = caller;
        }
        None
    }
}

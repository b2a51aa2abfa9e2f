//! Walks native frames.
//!
//! Knows: how to get from a frame to its caller, by the unwind tables of its
//! module (`rules`), which it remembers by address, or where there are none by
//! the code that leads out of it (`straight`), or by its frame pointer where that
//! can be verified (`frame_pointer`). Must not know: what a frame means, LuaJIT's
//! own frames.
//!
//! Our own and not framehop's, because that one guesses by the frame pointer
//! where no table tells, does not see that a signal's frame leads to an exact
//! place and maybe to another stack, and takes rbp's rows at their word where
//! rbp is not yet set up. The tables are read by gimli in both.
//!
//! Runs in the signal handler: nothing here allocates after [`Unwinder::new`].

use super::frame_pointer;
use super::modules::Module;
use super::rules::{self, Base, Context, Rule};
use super::sections::UnwindSections;
use super::straight;
use crate::memory::read;
use crate::registers::Registers;
use std::mem::offset_of;
use std::ops::Range;

/// A native frame: where it is to go on, and the registers that lead to its
/// caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The next instruction.
    pub ip: usize,
    /// Stack pointer.
    pub sp: usize,
    /// rbp.
    pub bp: usize,
    /// rbx, unless a frame further in has saved it.
    pub bx: usize,
    /// Where that frame has saved it, or 0.
    pub bx_at: usize,
    /// How many native frames lie further in, up to one that was interrupted.
    pub callees: u32,
}

impl NativeFrame {
    /// A frame that is the caller of something else than native code.
    pub fn caller_of_other(ip: usize, sp: usize, bp: usize) -> NativeFrame {
        NativeFrame {
            ip,
            sp,
            bp,
            bx: 0,
            bx_at: 0,
            callees: u32::MAX,
        }
    }

    /// The frame that was interrupted at `registers`.
    pub fn interrupted(registers: &Registers) -> NativeFrame {
        NativeFrame {
            ip: registers.rip,
            sp: registers.rsp,
            bp: registers.rbp,
            bx: registers.rbx,
            bx_at: 0,
            callees: 0,
        }
    }

    /// rbx, if it is known.
    pub fn rbx(&self) -> Option<usize> {
        match self.bx_at {
            // Only what was interrupted has told.
            0 => (self.callees != u32::MAX).then_some(self.bx),
            saved => read::<u64>(saved).map(|rbx| rbx as usize),
        }
    }

    /// Whether `ip` is where the frame was interrupted, not a return address.
    pub fn is_interrupted(&self) -> bool {
        self.callees == 0
    }

    /// An address inside the instruction that the frame is at.
    pub fn lookup_address(&self) -> usize {
        if self.is_interrupted() {
            self.ip
        } else {
            self.ip.wrapping_sub(1)
        }
    }

    /// Its caller, if it ends at `end`.
    #[inline(always)]
    fn caller(self, end: usize, rbp: rules::Saved, rbx: rules::Saved) -> Option<NativeFrame> {
        let at = |offset: i16| end.wrapping_add_signed(isize::from(offset));
        Some(NativeFrame {
            ip: read::<u64>(at(-8))? as usize,
            sp: end,
            bp: match rbp {
                None => self.bp,
                Some(offset) => read::<u64>(at(offset))? as usize,
            },
            bx: self.bx,
            bx_at: rbx.map_or(self.bx_at, at),
            callees: self.callees.saturating_add(1),
        })
    }

    /// What a signal interrupted whose handler returns to this frame: the kernel
    /// has put all registers on the handler's stack.
    fn interrupted_by_signal(self) -> Option<NativeFrame> {
        let registers = self.sp
            + offset_of!(libc::ucontext_t, uc_mcontext)
            + offset_of!(libc::mcontext_t, gregs);
        let at = |register: i32| registers + 8 * register as usize;
        let register = |number| read::<u64>(at(number)).map(|value| value as usize);
        Some(NativeFrame {
            ip: register(libc::REG_RIP)?,
            sp: register(libc::REG_RSP)?,
            bp: register(libc::REG_RBP)?,
            bx: 0,
            bx_at: at(libc::REG_RBX),
            callees: 0,
        })
    }
}

/// What a step towards the caller came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller.
    To(NativeFrame),
    /// The frame is being taken down: the program is to go on by an instruction.
    Between,
    /// There is none: this was the first function of a thread, or of a stack
    /// that the program has made.
    Root,
    /// The code is that of no known module.
    UnknownCode,
    /// No table describes this code, and its frame pointer proves nothing.
    NoTable,
    /// Its stack could not be read, or is none.
    Broken,
}

/// `ret`: where it is the next instruction, it takes its address from the top.
const RET: u8 = 0xc3;

/// Where a module is, and its tables.
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

/// Rules by address: a table with one place for each of some bits of it.
struct Rules(Box<[(usize, Rule)]>);

impl Rules {
    const PLACES: usize = 4096;

    fn new() -> Rules {
        Rules(vec![(0, Rule::Unknown); Rules::PLACES].into())
    }

    #[inline(always)]
    fn place(&mut self, address: usize) -> &mut (usize, Rule) {
        let bits = address ^ (address >> 12);
        &mut self.0[bits & (Rules::PLACES - 1)]
    }
}

/// The unwind tables of a set of modules, ready for use in a signal handler.
pub struct Unwinder {
    /// The modules, ascending by address.
    extents: Vec<Extent>,
    /// The library that unwinds exceptions, as C++ and LuaJIT have it done.
    exceptions: Range<usize>,
    /// What was found in their tables.
    rules: Rules,
    context: Box<Context>,
}

impl Unwinder {
    /// Makes ready to unwind through `modules`, which ascend by address.
    pub fn new<'m>(modules: impl Iterator<Item = &'m Module>) -> Unwinder {
        let mut exceptions = 0..0;
        let extents = modules.map(|module| {
            if module.file_name().starts_with("libgcc_s") {
                exceptions = module.range.clone();
            }
            Extent {
                start: module.range.start,
                end: module.range.end,
                number: module.number,
                bias: module.bias,
                unwind: module.unwind.clone(),
            }
        });
        straight::prepare();
        Unwinder {
            extents: extents.collect(),
            exceptions,
            rules: Rules::new(),
            context: Box::new(Context::new_in()),
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

    /// Whether `address` lies in the library that unwinds exceptions.
    pub fn is_exceptions(&self, address: usize) -> bool {
        self.exceptions.contains(&address)
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
        let address = frame.lookup_address();
        let place = self.rules.place(address);
        let rule = if place.0 == address {
            place.1
        } else {
            let Some(index) = self.index_of(address) else {
                return match frame.ip {
                    0 => Step::Root,
                    _ => Step::UnknownCode,
                };
            };
            let rule = match &self.extents[index].unwind {
                // No call returns to the start of a function, unless it was the
                // end of another: somebody has put the address there, the kernel
                // for a signal handler or a library for a fiber's first function.
                Some(sections)
                    if rules::start_of(sections, address).is_none()
                        && rules::start_of(sections, frame.ip) == Some(frame.ip) =>
                {
                    match rules::rule(sections, frame.ip, &mut self.context) {
                        Rule::Signal => Rule::Signal,
                        _ => Rule::Root,
                    }
                }
                Some(sections) => rules::rule(sections, address, &mut self.context),
                None => Rule::Unknown,
            };
            let rule = match rule {
                Rule::Unknown => {
                    straight::rule(frame.ip, frame.is_interrupted()).unwrap_or(Rule::Unknown)
                }
                told => told,
            };
            *self.rules.place(address) = (address, rule);
            rule
        };
        let caller = match rule {
            Rule::Frame {
                base: Base::Stack,
                size,
                rbp,
                rbx,
            } => frame.caller(frame.sp.wrapping_add_signed(size as isize), rbp, rbx),
            // Its own frame is being filled with another one's registers, by
            // itself or by what it has called.
            Rule::Frame {
                base: Base::Handover,
                ..
            } if frame.callees <= 1 => return Step::Between,
            Rule::Frame {
                base: Base::Frame | Base::Handover,
                size,
                rbp,
                rbx,
            } => match self.without_frame(frame) {
                Some(bare) => bare,
                None => frame.caller(frame.bp.wrapping_add_signed(size as isize), rbp, rbx),
            },
            Rule::Frame {
                base: Base::Kept,
                size,
                rbp,
                rbx,
            } => frame
                .rbx()
                .and_then(|base| frame.caller(base.wrapping_add_signed(size as isize), rbp, rbx)),
            Rule::Expression => self
                .end_by_expression(frame)
                .and_then(|end| frame.caller(end, None, None)),
            Rule::Transient if frame.is_interrupted() => return Step::Between,
            Rule::Signal => frame.interrupted_by_signal(),
            Rule::Root => return Step::Root,
            Rule::Transient | Rule::Unknown => {
                return match self.by_frame_pointer(frame) {
                    Some(caller) => Step::To(caller),
                    None => Step::NoTable,
                };
            }
        };
        match caller {
            Some(caller) if caller.ip == 0 => Step::Root,
            // A stack that does not grow towards its root is none.
            Some(caller) if caller.sp > frame.sp || rule == Rule::Signal => Step::To(caller),
            _ => Step::Broken,
        }
    }

    fn end_by_expression(&mut self, frame: NativeFrame) -> Option<usize> {
        let address = frame.lookup_address();
        let sections = self.extents[self.index_of(address)?].unwind.as_ref()?;
        let registers = [frame.ip, frame.sp, frame.bp];
        rules::end(sections, address, &mut self.context, registers, read)
    }

    /// The caller of an interrupted frame whose table counts from rbp, where rbp
    /// is not its own yet, or no longer: such tables, written by hand, leave out
    /// what is true for an instruction only.
    fn without_frame(&self, frame: NativeFrame) -> Option<Option<NativeFrame>> {
        const PUSH_RBP: u8 = 0x55;
        if !frame.is_interrupted() {
            return None;
        }
        let next = read::<u8>(frame.ip)?;
        if next == RET {
            return Some(frame.caller(frame.sp + 8, None, None));
        }
        let start = rules::start_of(self.extent_of(frame.ip)?.unwind.as_ref()?, frame.ip)?;
        match frame.ip - start {
            0 if next == PUSH_RBP => Some(frame.caller(frame.sp + 8, None, None)),
            1 if read::<u8>(start)? == PUSH_RBP => {
                Some(frame.caller(frame.sp + 16, Some(-16), None))
            }
            _ => None,
        }
    }

    fn by_frame_pointer(&self, frame: NativeFrame) -> Option<NativeFrame> {
        let extent = self.extent_of(frame.lookup_address())?;
        let described = |address| {
            (extent.unwind.as_ref()).is_some_and(|u| rules::start_of(u, address).is_some())
        };
        let module = extent.start..extent.end;
        frame_pointer::is_set_up(frame, module, described)
            .then(|| frame.caller(frame.bp + 16, Some(-16), None))?
            .filter(|caller| caller.sp > frame.sp)
    }
}

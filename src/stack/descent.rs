//! The way down the stack: from native code to the VM's, and on.
//!
//! Knows: that native frames lead to a C frame of the VM or to compiled code, and
//! the stretch there back to native frames. Must not know: which calls a stretch
//! has (`stretch`), where in a trace it is (`compiled`).

use super::doing::Doing;
use super::frame::{Extent, RawFrame};
use super::stretch::Entry;
use super::walk::{Stop, Walk};
use crate::memory;
use crate::native::unwind::{NativeFrame, Step};
use crate::registers::Registers;
use crate::vm::objects::CFrame;
use crate::vm::place::{self, Entry as VmEntry, Place, Top};
use ljp::{Mark, Reason, VmState};

impl Walk<'_> {
    /// Shows all that is wanted of the stack that `registers` are the innermost of.
    pub(super) fn run(&mut self, doing: Doing, registers: &Registers) -> Result<(), Stop> {
        let mut at = NativeFrame::interrupted(registers);
        self.in_trace = self.jit_base().is_some_and(|base| base != 0);
        let interpreter = self.layout.interpreter.clone();
        if interpreter.contains(&at.ip) {
            let cframe = match doing {
                Doing::Trace(_) => self.trace(doing, at)?,
                Doing::Other(VmState::Exit) if self.jit_base() != Some(0) => {
                    self.trace(doing, at)?
                }
                _ => match place::interpreter(self.layout, registers) {
                    Place::At(top) => match self.stretch(top, doing) {
                        // What looked like a frame led nowhere: it was none.
                        Err(Stop::Failed(_)) => return Err(Stop::Moving),
                        shown => shown?,
                    },
                    Place::Moving => return Err(Stop::Moving),
                },
            };
            at = self.below(cframe)?;
        }
        // Compiled code says that it runs a few instructions after it has begun.
        if at.is_interrupted()
            && !matches!(doing, Doing::Trace(_))
            && self.may_be_trace()
            && self.unwinder.module_of(at.ip).is_none()
        {
            return Err(Stop::Moving);
        }
        loop {
            at = self.native(at)?;
            let cframe = if interpreter.contains(&at.ip) {
                self.vm_frame(doing, at)?
            } else {
                self.trace(doing, at)?
            };
            at = self.below(cframe)?;
        }
    }

    /// Follows native frames to the VM's code, or to compiled code.
    fn native(&mut self, mut at: NativeFrame) -> Result<NativeFrame, Stop> {
        loop {
            if self.layout.interpreter.contains(&at.ip) {
                return Ok(at);
            }
            if self.may_be_trace() && self.unwinder.module_of(at.ip).is_none() {
                return Ok(at);
            }
            self.push_native(RawFrame::Native {
                address: at.lookup_address(),
            })?;
            self.native_frames += 1;
            let caller = match self.unwinder.step(at) {
                Step::To(caller) => caller,
                Step::Between => return Err(Stop::Moving),
                Step::UnknownCode if place::is_callback(self.layout, at.ip) => {
                    return Err(Stop::Moving);
                }
                end => return self.native_end(at, end),
            };
            if self.native_frames == 1 {
                self.first_caller = caller.ip;
            }
            at = caller;
        }
    }

    /// No caller of `at` is known. If Lua is below, it is where the VM's own
    /// chain of C frames says.
    fn native_end(&mut self, at: NativeFrame, step: Step) -> Result<NativeFrame, Stop> {
        let outer = match self.last_cframe {
            Some(inner) => inner.previous(self.layout).map(CFrame),
            // The running thread of Lua may have been left for another stack.
            None if step == Step::Root => None,
            None => (self.running_cframe()).filter(|cframe| same_stack(at.sp, cframe.0)),
        };
        let outer = outer.filter(|cframe| cframe.0 != 0);
        let mark = match step {
            Step::To(_) | Step::Between => return Err(Stop::Moving),
            Step::Root if outer.is_none() => return Err(Stop::Enough),
            Step::Root => Mark::OwnStack,
            Step::NoTable => Mark::NoTable,
            Step::Broken => Mark::Broken,
            Step::UnknownCode => {
                *self.unknown_code = true;
                Mark::UnknownCode
            }
        };
        self.push_native(RawFrame::Mark(mark))?;
        let cframe = outer.ok_or(Stop::Enough)?;
        let vm = self.layout.interpreter.start;
        Ok(NativeFrame::caller_of_other(vm, cframe.0, 0))
    }

    /// Whether native code above is at unwinding an error.
    fn unwinds(&self) -> bool {
        /// LuaJIT's part in it, and that of the C++ runtime.
        const MOST: usize = 6;
        (self.frames.as_slice().iter().take(MOST)).any(|frame| match frame {
            RawFrame::Native { address } => self.unwinder.is_exceptions(*address),
            _ => false,
        })
    }

    /// The native frames above have led to a return address in the VM's code.
    fn vm_frame(&mut self, doing: Doing, at: NativeFrame) -> Result<CFrame, Stop> {
        let first = self.top.is_none() && self.carried.is_none();
        let mut cframe = CFrame(at.sp);
        // An error is about to go on in the VM: the unwinder has changed where
        // its outer function returns to, but not yet the stack pointer.
        if first && self.native_frames <= 2 && !self.may_be_trace() && !self.is_newest(cframe) {
            return Err(Stop::Moving);
        }
        let Some(thread) = cframe.thread(self.layout) else {
            // Not a C frame: a part of the VM that compiled code has called.
            if self.may_be_trace() {
                return self.trace(doing, at);
            }
            // Or the exit from a trace, which has registers to save: the C frame
            // is further out.
            let inconsistent = || Stop::Failed(Reason::Inconsistent);
            let outer = match self.last_cframe {
                Some(inner) => inner.previous(self.layout).map(CFrame),
                None => self.running_cframe(),
            };
            cframe = outer
                .filter(|cframe| cframe.0 != 0)
                .ok_or_else(inconsistent)?;
            let top = match self.carried {
                Some((thread, base)) => place::below_boundary(self.layout, cframe, thread, base),
                None => place::called_from(self.layout, cframe, 0, 0, || None),
            };
            // Where the frames are made that the interpreter goes on with, and the
            // position is theirs already.
            let entry = Entry {
                ancestor: true,
                left: self.left(doing),
                ..Entry::default()
            };
            return self.walk(top.ok_or_else(inconsistent)?, entry);
        };
        let top = match self.carried {
            Some((carried, base)) if carried == thread => {
                place::below_boundary(self.layout, cframe, thread, base)
            }
            _ if first => place::called_from(self.layout, cframe, at.ip, at.bp, || at.rbx()),
            _ => (thread.base(self.layout))
                .and_then(|base| place::below_boundary(self.layout, cframe, thread, base)),
        };
        let top = top.ok_or(Stop::Failed(Reason::Unreadable))?;
        // Where the native stack was lost, so was rbx.
        let entry = if !first || at.callees == u32::MAX {
            VmEntry::Made
        } else if self.is_newest(cframe) && !(self.unwinds() && place::is_left(self.layout, top)) {
            place::entry(self.layout, top, at.ip, at.rbx().unwrap_or(0))
        } else {
            // An error is unwinding the stack: its frames are gone already.
            VmEntry::Pending
        };
        if entry == VmEntry::Callback
            && doing == (Doing::Running { in_c: false })
            && place::is_stale(self.layout, top)
        {
            return Err(Stop::Moving);
        }
        let owns = entry != VmEntry::Pending
            && place::owns_frames(self.layout, cframe, top.stack, top.base)
                .ok_or(Stop::Failed(Reason::Unreadable))?;
        if owns {
            return self.stretch(top, doing);
        }
        self.carried = Some((thread, top.base));
        self.last_cframe = Some(cframe);
        Ok(cframe)
    }

    /// Shows the calls of the stretch that begins at `top`.
    fn stretch(&mut self, top: Top, doing: Doing) -> Result<CFrame, Stop> {
        // While a trace is left its innermost frames are put back one by one.
        let entry = Entry {
            ancestor: self.leaving(doing),
            left: self.left(doing),
            ..Entry::default()
        };
        self.walk(top, entry)
    }

    /// The caller of the VM.
    fn below(&mut self, cframe: CFrame) -> Result<NativeFrame, Stop> {
        if matches!(self.extent, Extent::State | Extent::Leaf) && self.top.is_some() {
            return Err(Stop::Enough);
        }
        let unreadable = || Stop::Failed(Reason::Unreadable);
        Ok(NativeFrame::caller_of_other(
            cframe.return_address(self.layout).ok_or_else(unreadable)?,
            cframe.end(self.layout),
            cframe.saved_rbp(self.layout).ok_or_else(unreadable)?,
        ))
    }
}

/// Whether `inner` and `outer` are places on one native stack, as far as the
/// memory tells: it is there all the way.
fn same_stack(inner: usize, outer: usize) -> bool {
    const PAGE: usize = 4096;
    const MOST: usize = 512 * PAGE;
    inner < outer
        && outer - inner <= MOST
        && (inner..outer)
            .step_by(PAGE)
            .all(|address| memory::read::<u8>(address).is_some())
}

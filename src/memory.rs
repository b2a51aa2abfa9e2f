//! Reading memory that may not be there.
//!
//! Knows: how to load from any address without crashing, and whose fault a
//! SIGSEGV or SIGBUS is. Must not know: what the bytes mean.
//!
//! Every load of the host's memory is one of a few kinds of fixed instruction
//! below, and each place that such an instruction was compiled into is in a
//! table: the instruction's address, and where to go on if it faults. The fault
//! handler looks the faulting instruction up there and resumes where the load is
//! known to have failed. Any other fault belongs to the host and is passed on to
//! whoever was there before us.

use std::sync::atomic::{AtomicU64, Ordering};

/// Faults that were caught here since the library was loaded.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The number of faults that reads through this module ran into so far.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Plain numbers that can be read from foreign memory: any bytes are valid.
pub trait Word: Copy + private::Sealed {
    #[doc(hidden)]
    fn load(address: usize) -> Option<Self>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// Reads a number at `address`, which need be neither mapped nor aligned.
#[inline]
pub fn read<T: Word>(address: usize) -> Option<T> {
    T::load(address)
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod imp {
    use super::{FAULTS, Word};
    use std::sync::atomic::Ordering;

    /// Where one load is, and where it goes on after a fault; both relative to
    /// the place that they are written in, as the code is relocated.
    #[repr(C)]
    struct Fixup {
        load: i32,
        resume: i32,
    }

    unsafe extern "C" {
        // The linker's bounds of the section that the loads below write to.
        #[link_name = "__start_sysprof_fixups"]
        static FIXUPS: Fixup;
        #[link_name = "__stop_sysprof_fixups"]
        static FIXUPS_END: Fixup;
    }

    /// The entry of the load at label 2, which goes on at label 3.
    macro_rules! fixup {
        () => {
            concat!(
                ".pushsection sysprof_fixups, \"aR\", @progbits\n",
                ".balign 4\n",
                ".long 2b - .\n",
                ".long 3b - .\n",
                ".popsection",
            )
        };
    }

    macro_rules! word {
        ($ty:ty, $instruction:literal) => {
            impl Word for $ty {
                #[inline(always)]
                fn load(address: usize) -> Option<$ty> {
                    let value: u64;
                    let failed: u64;
                    // SAFETY: one load from `address`, which the fault handler
                    // steps over by the table; registers as declared.
                    unsafe {
                        std::arch::asm!(
                            "mov {failed:e}, 1",
                            concat!("2: ", $instruction),
                            "xor {failed:e}, {failed:e}",
                            "3:",
                            fixup!(),
                            value = out(reg) value,
                            failed = out(reg) failed,
                            address = in(reg) address,
                            options(nostack, readonly),
                        );
                    }
                    (failed == 0).then_some(value as $ty)
                }
            }
        };
    }
    word!(u64, "mov {value}, [{address}]");
    word!(u32, "mov {value:e}, [{address}]");
    word!(u16, "movzx {value:e}, word ptr [{address}]");
    word!(u8, "movzx {value:e}, byte ptr [{address}]");

    /// Copies `to.len()` bytes from `from`; false if not all could be read.
    pub fn copy(to: &mut [u8], from: usize) -> bool {
        let left: usize;
        // SAFETY: the destination is ours and large enough; the source may
        // fault, which ends the copy early.
        unsafe {
            std::arch::asm!(
                "2: rep movsb",
                "3:",
                fixup!(),
                inout("rcx") to.len() => left,
                inout("rdi") to.as_mut_ptr() => _,
                inout("rsi") from => _,
                options(nostack),
            );
        }
        left == 0
    }

    /// Where the load at `rip` goes on after a fault, if there is a load.
    fn resume(rip: usize) -> Option<usize> {
        let mut entry = &raw const FIXUPS;
        while entry < &raw const FIXUPS_END {
            // SAFETY: within the section's bounds, which holds such entries.
            let fixup = unsafe { &*entry };
            let at =
                |offset: &i32| (&raw const *offset as usize).wrapping_add_signed(*offset as isize);
            if at(&fixup.load) == rip {
                return Some(at(&fixup.resume));
            }
            entry = entry.wrapping_add(1);
        }
        None
    }

    /// If the fault in `context` is that of a load of this module, makes the
    /// load fail and returns true: the signal handler is to return at once.
    ///
    /// # Safety
    /// `context` is the third argument of a SIGSEGV or SIGBUS handler.
    pub unsafe fn absorb_fault(context: *mut libc::ucontext_t) -> bool {
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let rip = registers[libc::REG_RIP as usize] as usize;
        let Some(resume) = resume(rip) else {
            return false;
        };
        FAULTS.fetch_add(1, Ordering::Relaxed);
        registers[libc::REG_RIP as usize] = resume as i64;
        true
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod imp {
    use super::Word;

    macro_rules! word {
        ($($ty:ty)*) => {$(
            impl Word for $ty {
                fn load(_address: usize) -> Option<$ty> { None }
            }
        )*};
    }
    word!(u64 u32 u16 u8);

    /// Reads nothing on a platform that the recorder does not know.
    pub fn copy(_to: &mut [u8], _from: usize) -> bool {
        false
    }
}

pub use imp::*;

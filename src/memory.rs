//! Reading memory that may not be there.
//!
//! Knows: how to load from any address without crashing, and whose fault a
//! SIGSEGV or SIGBUS is. Must not know: what the bytes mean.
//!
//! Every load of the host's memory goes through a handful of fixed
//! instructions below. When one of them faults, the fault handler finds the
//! faulting address of *code* between two labels and resumes at the label that
//! reports failure. Any other fault belongs to the host and is passed on to
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

    // Value in rax, 1 in edx for success. `sysprof_loads` to `sysprof_loads_end`
    // holds nothing that can fault but loads from the address in rdi.
    std::arch::global_asm!(
        ".pushsection .text.sysprof_loads,\"ax\",@progbits",
        ".hidden sysprof_load64",
        ".hidden sysprof_load32",
        ".hidden sysprof_load16",
        ".hidden sysprof_load8",
        ".hidden sysprof_copy",
        ".hidden sysprof_loads",
        ".hidden sysprof_loads_end",
        ".hidden sysprof_load_failed",
        ".globl sysprof_load64, sysprof_load32, sysprof_load16, sysprof_load8, sysprof_copy",
        ".globl sysprof_loads, sysprof_loads_end, sysprof_load_failed",
        ".balign 16",
        "sysprof_loads:",
        "sysprof_load64:",
        "mov rax, [rdi]",
        "mov edx, 1",
        "ret",
        ".balign 16",
        "sysprof_load32:",
        "mov eax, [rdi]",
        "mov edx, 1",
        "ret",
        ".balign 16",
        "sysprof_load16:",
        "movzx eax, word ptr [rdi]",
        "mov edx, 1",
        "ret",
        ".balign 16",
        "sysprof_load8:",
        "movzx eax, byte ptr [rdi]",
        "mov edx, 1",
        "ret",
        ".balign 16",
        // rdi: to, rsi: from, rdx: length. Only the source can fault.
        "sysprof_copy:",
        "mov rcx, rdx",
        "rep movsb",
        "mov edx, 1",
        "ret",
        "sysprof_loads_end:",
        "sysprof_load_failed:",
        "xor eax, eax",
        "xor edx, edx",
        "ret",
        ".popsection",
    );

    #[repr(C)]
    struct Loaded {
        value: u64,
        ok: u64,
    }

    unsafe extern "C" {
        fn sysprof_load64(address: usize) -> Loaded;
        fn sysprof_load32(address: usize) -> Loaded;
        fn sysprof_load16(address: usize) -> Loaded;
        fn sysprof_load8(address: usize) -> Loaded;
        fn sysprof_copy(to: *mut u8, from: usize, len: usize) -> Loaded;
        static sysprof_loads: u8;
        static sysprof_loads_end: u8;
        static sysprof_load_failed: u8;
    }

    macro_rules! word {
        ($ty:ty, $load:ident) => {
            impl Word for $ty {
                #[inline]
                fn load(address: usize) -> Option<$ty> {
                    // SAFETY: the routine loads from `address` and touches
                    // nothing else; a fault makes it return `ok == 0`.
                    let loaded = unsafe { $load(address) };
                    (loaded.ok != 0).then_some(loaded.value as $ty)
                }
            }
        };
    }
    word!(u64, sysprof_load64);
    word!(u32, sysprof_load32);
    word!(u16, sysprof_load16);
    word!(u8, sysprof_load8);

    /// Copies `to.len()` bytes from `from`; false if not all could be read.
    pub fn copy(to: &mut [u8], from: usize) -> bool {
        // SAFETY: the destination is ours and large enough; the source may
        // fault, which the routine reports.
        unsafe { sysprof_copy(to.as_mut_ptr(), from, to.len()).ok != 0 }
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
        let loads = &raw const sysprof_loads as usize..&raw const sysprof_loads_end as usize;
        if !loads.contains(&rip) {
            return false;
        }
        FAULTS.fetch_add(1, Ordering::Relaxed);
        registers[libc::REG_RIP as usize] = &raw const sysprof_load_failed as i64;
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

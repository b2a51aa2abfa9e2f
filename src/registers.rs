//! The registers of the interrupted thread that the recorder looks at.
//!
//! Knows: where the kernel keeps them in a signal's context. Must not know:
//! what LuaJIT keeps in them.

/// General-purpose registers of x86-64 at the interrupted instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the register of its name")]
pub struct Registers {
    pub rip: usize,
    pub rsp: usize,
    pub rbp: usize,
    pub rax: usize,
    pub rbx: usize,
    pub rcx: usize,
    pub rdx: usize,
    pub r12: usize,
    pub r13: usize,
    pub r14: usize,
    pub r15: usize,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Registers {
    /// The registers of the code that a signal interrupted.
    pub fn of(context: &libc::ucontext_t) -> Registers {
        let register = |number: i32| context.uc_mcontext.gregs[number as usize] as usize;
        Registers {
            rip: register(libc::REG_RIP),
            rsp: register(libc::REG_RSP),
            rbp: register(libc::REG_RBP),
            rax: register(libc::REG_RAX),
            rbx: register(libc::REG_RBX),
            rcx: register(libc::REG_RCX),
            rdx: register(libc::REG_RDX),
            r12: register(libc::REG_R12),
            r13: register(libc::REG_R13),
            r14: register(libc::REG_R14),
            r15: register(libc::REG_R15),
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
impl Registers {
    /// Nothing: the recorder refuses to start on this platform.
    pub fn of(_context: &libc::ucontext_t) -> Registers {
        Registers::default()
    }
}

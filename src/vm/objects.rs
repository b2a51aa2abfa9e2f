//! Typed views of LuaJIT's objects.
//!
//! Knows: which field of which object says what. Must not know: where an
//! object is found, or why it is looked at.
//!
//! A view is an address that was checked once for the object's type number. All
//! its fields are read through `memory`: what has gone in the meantime reads as
//! `None`.

use super::layout::{Family, Layout, gct};
use crate::memory::read;

/// Bytes of a stack slot (`TValue`).
pub const SLOT: usize = 8;

fn type_of(layout: &Layout, object: usize) -> Option<u8> {
    // What looks like an object's address may be anything.
    read(object.wrapping_add(layout.at.gct))
}

/// A thread of Lua: the main one, or a coroutine (`lua_State`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(usize);

impl Thread {
    /// The thread at `address`, if it is one of this VM.
    #[inline]
    pub fn at(layout: &Layout, address: usize) -> Option<Thread> {
        (type_of(layout, address)? == gct::THREAD
            && layout.reference(address + layout.at.state_glref)? == layout.global)
            .then_some(Thread(address))
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0
    }

    /// Base of the function that left for C last.
    pub fn base(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.at.state_base).map(|base| base as usize)
    }

    /// The first free slot above it.
    pub fn top(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.at.state_base + SLOT).map(|top| top as usize)
    }

    /// Its newest C frame, without the flags in its low bits; 0 if none.
    pub fn cframe(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.at.state_cframe).map(|frame| frame as usize & !3)
    }

    /// First and last slot of its stack (`stack`, `maxstack`).
    pub fn stack(self, layout: &Layout) -> Option<Stack> {
        Some(Stack {
            low: layout.reference(self.0 + layout.at.state_stack)?,
            high: layout.reference(self.0 + layout.at.state_maxstack)?,
        })
    }
}

/// The extent of a thread's stack, in addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Address of the first slot.
    pub low: usize,
    /// Address of the last slot that a frame may reach.
    pub high: usize,
}

impl Stack {
    /// Whether a frame's base can be at `base`. Functions may run a few slots
    /// above the last one (`LJ_STACK_EXTRA`).
    #[inline]
    pub fn holds(&self, layout: &Layout, base: usize) -> bool {
        const EXTRA: usize = 8 * SLOT;
        base.is_multiple_of(SLOT)
            && base >= self.low + layout.at.frame_slots * SLOT
            && base <= self.high + EXTRA
    }

    /// Base of the dummy frame at the bottom.
    pub fn bottom(&self, layout: &Layout) -> usize {
        self.low + layout.at.frame_slots * SLOT
    }
}

/// What stands in the function slot of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function of any kind.
    Function(Function),
    /// The thread itself: a frame that was made for an error message, or the
    /// bottom of the stack.
    Dummy,
}

impl Callee {
    /// Reads the function slot of the frame at `base`.
    #[inline]
    pub fn of(layout: &Layout, base: usize) -> Option<Callee> {
        Callee::at(layout, Callee::address(layout, base)?)
    }

    /// The address in that slot, of a function or a thread if it is a frame's.
    #[inline(always)]
    pub fn address(layout: &Layout, base: usize) -> Option<usize> {
        match layout.family {
            Family::Gc64 => {
                let word = read::<u64>(base - 2 * SLOT)?;
                let tagged = word >> TAG_SHIFT;
                (tagged == tag(!gct::FUNCTION) || tagged == tag(!gct::THREAD))
                    .then_some(word as usize & ((1 << TAG_SHIFT) - 1))
            }
            Family::Gc32 => read::<u32>(base - SLOT).map(|word| word as usize),
        }
    }

    /// What an address from such a slot is that of.
    pub fn at(layout: &Layout, address: usize) -> Option<Callee> {
        match type_of(layout, address)? {
            gct::FUNCTION => Some(Callee::Function(Function(address))),
            gct::THREAD => Some(Callee::Dummy),
            _ => None,
        }
    }
}

/// With 64-bit references, values carry their type in the bits above this one.
const TAG_SHIFT: u32 = 47;

/// A type number, complemented, as those bits have it.
const fn tag(itype: u8) -> u64 {
    itype as u64 | ((1 << (64 - TAG_SHIFT)) - 1) & !0xff
}

/// A function (`GCfunc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(usize);

/// What a function is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytecode.
    Lua(Proto),
    /// A C function that a program or library registered.
    C,
    /// A function of LuaJIT's own libraries ("fast function"), with its number.
    Builtin(u8),
}

impl Kind {
    /// LuaJIT's number of a built-in, 1 for other C functions; none for Lua's.
    pub fn number(self) -> Option<u8> {
        match self {
            Kind::Lua(_) => None,
            Kind::C => Some(1),
            Kind::Builtin(ffid) => Some(ffid),
        }
    }
}

impl Function {
    /// The function at `address`, of which it is known that there is one.
    pub(super) fn known(address: usize) -> Function {
        Function(address)
    }

    /// The function at `address`, if there is one.
    pub fn at(layout: &Layout, address: usize) -> Option<Function> {
        (type_of(layout, address)? == gct::FUNCTION).then_some(Function(address))
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0
    }

    /// What it is made of.
    #[inline]
    pub fn kind(self, layout: &Layout) -> Option<Kind> {
        match read::<u8>(self.0 + layout.at.func_ffid)? {
            0 => {
                let bytecode = self.header(layout)?;
                Proto::at(layout, bytecode.checked_sub(layout.at.proto_size)?).map(Kind::Lua)
            }
            1 => Some(Kind::C),
            ffid => Some(Kind::Builtin(ffid)),
        }
    }

    /// Address of its first bytecode: the header instruction.
    pub fn header(self, layout: &Layout) -> Option<usize> {
        layout.reference(self.0 + layout.at.func_pc)
    }

    /// Whether it is a built-in that LuaJIT has no machine code of its own for but
    /// C: all of those share one header, in `global_State` (`bc_cfunc_int`).
    pub fn is_builtin_in_c(self, layout: &Layout) -> bool {
        matches!(self.kind(layout), Some(Kind::Builtin(_)))
            && self
                .header(layout)
                .is_some_and(|header| (layout.global..layout.dispatch).contains(&header))
    }

    /// The machine code of a C function or built-in (`GCfuncC.f`).
    pub fn code(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.at.func_c).map(|code| code as usize)
    }
}

/// A prototype: what closures of one piece of source share (`GCproto`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proto(usize);

/// What tells a prototype from another one that came to lie at the same address
/// after it was collected: its chunk's name, its lines and its size, folded into
/// one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity(u64);

impl Proto {
    /// The prototype at `address`, if there is one.
    #[inline]
    pub fn at(layout: &Layout, address: usize) -> Option<Proto> {
        (type_of(layout, address)? == gct::PROTO).then_some(Proto(address))
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0
    }

    /// Address of its first bytecode instruction.
    pub fn bytecode(self, layout: &Layout) -> usize {
        self.0 + layout.at.proto_size
    }

    /// Number of bytecode instructions.
    pub fn sizebc(self, layout: &Layout) -> Option<u32> {
        read(self.0 + layout.at.proto_sizebc)
    }

    /// The constants, between the numbers and the objects.
    pub fn constants(self, layout: &Layout) -> Option<usize> {
        layout.reference(self.0 + layout.at.proto_k)
    }

    /// Whether `pc`, the address of the next instruction, lies in it.
    #[inline]
    pub fn holds(self, layout: &Layout, pc: usize) -> Option<bool> {
        Some(self.spans(layout, self.sizebc(layout)?, pc))
    }

    /// The same, if it has `sizebc` instructions.
    #[inline]
    pub fn spans(self, layout: &Layout, sizebc: u32, pc: usize) -> bool {
        let first = self.bytecode(layout);
        pc > first && pc <= first + 4 * sizebc as usize
    }

    /// What tells it from others at the same address.
    #[inline]
    pub fn identity(self, layout: &Layout) -> Option<Identity> {
        let chunkname = layout.reference(self.0 + layout.at.proto_chunkname)?;
        // The hash of the name, before the length in every layout: the name
        // itself may have been collected, too.
        let chunk = read::<u32>(chunkname + layout.string.len - 4)?;
        let lines = read::<u64>(self.0 + layout.at.proto_firstline)?;
        let size = self.sizebc(layout)?;
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let folded = (u64::from(chunk) << 32 | u64::from(size)).wrapping_mul(ODD);
        Some(Identity((folded.rotate_left(29) ^ lines).wrapping_mul(ODD)))
    }

    /// Line of its definition.
    pub fn first_line(self, layout: &Layout) -> Option<u32> {
        read(self.0 + layout.at.proto_firstline)
    }

    /// How many lines it goes over, the first not counted.
    pub fn line_count(self, layout: &Layout) -> Option<u32> {
        read(self.0 + layout.at.proto_numline)
    }

    /// The name of its chunk.
    pub fn chunkname(self, layout: &Layout) -> Option<Text> {
        Text::at(
            layout,
            layout.reference(self.0 + layout.at.proto_chunkname)?,
        )
    }
}

/// The text of a string object (`GCstr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Address of its first byte.
    pub address: usize,
    /// Bytes.
    pub len: usize,
}

impl Text {
    /// The text of the string object at `address`.
    pub fn at(layout: &Layout, address: usize) -> Option<Text> {
        (type_of(layout, address)? == gct::STRING).then_some(Text {
            address: address + layout.string.text,
            len: read::<u32>(address + layout.string.len)? as usize,
        })
    }

    /// Copies as much as `to` takes and returns that.
    pub fn copy_to<'a>(&self, to: &'a mut [u8]) -> Option<&'a [u8]> {
        let len = self.len.min(to.len());
        crate::memory::copy(&mut to[..len], self.address).then_some(&to[..len])
    }
}

/// A C frame of the VM, named by its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CFrame(pub usize);

impl CFrame {
    /// The thread that it runs.
    pub fn thread(self, layout: &Layout) -> Option<Thread> {
        Thread::at(layout, layout.reference(self.0 + layout.at.cframe_l)?)
    }

    /// The bytecode position that was saved before the VM left for C.
    pub fn pc(self, layout: &Layout) -> Option<usize> {
        layout.reference(self.0 + layout.at.cframe_pc)
    }

    /// The number of results wanted; negative in a frame of `lua_cpcall`, where
    /// it is minus the height in bytes of the Lua stack at the call.
    pub fn results(self, layout: &Layout) -> Option<i32> {
        read::<u32>(self.0 + layout.at.cframe_nres).map(|results| results as i32)
    }

    /// The C frame before it of the same thread, without flags; 0 if none.
    pub fn previous(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.at.cframe_prev).map(|frame| frame as usize & !3)
    }

    /// Where it returns to.
    pub fn return_address(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.cframe_size - 8).map(|address| address as usize)
    }

    /// The caller's rbp.
    pub fn saved_rbp(self, layout: &Layout) -> Option<usize> {
        read::<u64>(self.0 + layout.cframe_size - 16).map(|address| address as usize)
    }

    /// The caller's stack pointer after the return.
    pub fn end(self, layout: &Layout) -> usize {
        self.0 + layout.cframe_size
    }
}

//! The fixed sets of small numbers that the format uses, each as an enum.
//!
//! Knows which number means what and how it is called. Knows no layout of
//! records. Uses `core` only.

/// Declares one such set: the enum, all its values in numeric order, their
/// names, and the way back from the number.
macro_rules! vocabulary {
    (
        $(#[$doc:meta])*
        $name:ident {
            $( $(#[$vdoc:meta])* $variant:ident = $number:literal => $text:literal, )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $( $(#[$vdoc])* $variant = $number, )+
        }

        impl $name {
            /// Every value, in the order of their numbers, which begin at 0
            /// and have no gap: `ALL[n]` is number `n`.
            pub const ALL: [$name; [$($number),+].len()] = [$($name::$variant),+];

            /// How many values there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name as reports show it.
            pub const fn name(self) -> &'static str {
                match self {
                    $( $name::$variant => $text, )+
                }
            }

            /// The value with this number, `None` if there is none.
            pub const fn from_number(number: u64) -> Option<$name> {
                match number {
                    $( $number => Some($name::$variant), )+
                    _ => None,
                }
            }

            /// The number that stands for the value in a stream.
            pub const fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

vocabulary! {
    /// What the VM was doing when a sample was taken.
    VmState {
        /// The interpreter's own code, between functions.
        Interp = 0 => "INTERP",
        /// An interpreted Lua function.
        Lfunc = 1 => "LFUNC",
        /// A built-in of the VM.
        Ffunc = 2 => "FFUNC",
        /// A C function.
        Cfunc = 3 => "CFUNC",
        /// The garbage collector.
        Gc = 4 => "GC",
        /// Leaving a trace.
        Exit = 5 => "EXIT",
        /// Recording a trace.
        Record = 6 => "RECORD",
        /// Optimising a trace.
        Opt = 7 => "OPT",
        /// Assembling a trace.
        Asm = 8 => "ASM",
        /// Machine code of a trace.
        Trace = 9 => "TRACE",
    }
}

vocabulary! {
    /// Why a sample carries no stack.
    Reason {
        /// The mode records no stacks.
        Mode = 0 => "mode",
        /// The interpreter did not reach a known place within the step limit.
        Unsettled = 1 => "unsettled",
        /// Memory on the way could not be read.
        Unreadable = 2 => "unreadable",
        /// What was read does not hold together.
        Inconsistent = 3 => "inconsistent",
        /// A stack larger than the tables, or an output that did not keep up.
        Full = 4 => "full",
        /// The handler was already at work on another sample.
        Busy = 5 => "busy",
    }
}

vocabulary! {
    /// Where a prototype's name comes from.
    NameKind {
        /// It has none.
        None = 0 => "none",
        /// The global that it was assigned to.
        Global = 1 => "global",
        /// The local that it was assigned to.
        Local = 2 => "local",
        /// The method that it was defined as.
        Method = 3 => "method",
        /// The field that it was assigned to.
        Field = 4 => "field",
        /// The upvalue that it was assigned to.
        Upvalue = 5 => "upvalue",
        /// It is the main chunk of its source.
        Main = 6 => "main chunk",
    }
}

vocabulary! {
    /// What a function that is not written in Lua is.
    FuncKind {
        /// A C function that was registered with Lua.
        C = 0 => "C function",
        /// A built-in of the VM.
        Builtin = 1 => "built-in",
    }
}

vocabulary! {
    /// A frame that stands for no function but says something of the stack.
    Mark {
        /// Older frames were left out because the stack was deeper than asked for.
        Cut = 0 => "[older frames left out]",
        /// No unwind table leads on from the code above.
        NoTable = 1 => "[native stack ends: no unwind table]",
        /// The VM's own code.
        Vm = 2 => "[vm]",
        /// The code above is that of no module known at the time.
        UnknownCode = 3 => "[native stack ends: unknown module]",
        /// The stack below could not be read, or does not hold together.
        Broken = 4 => "[native stack ends: unreadable]",
        /// The function above is the first one of a stack that is not its
        /// caller's.
        OwnStack = 5 => "[native stack of its own]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_the_value_and_back() {
        for (number, state) in VmState::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.number()), number);
            assert_eq!(VmState::from_number(number as u64), Some(state));
        }
        assert_eq!(VmState::from_number(10), None);
        assert_eq!(Reason::from_number(u64::MAX), None);
        assert_eq!((VmState::COUNT, Reason::COUNT), (10, 6));
    }
}

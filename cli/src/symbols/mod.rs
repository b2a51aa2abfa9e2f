//! Names of native code.
//!
//! Says what can be asked, so that what shows a profile does not depend on the
//! files of a machine. [`files`] answers from those.

mod files;
mod table;

pub use files::Files;
pub use table::demangled;

use ljp::decode::Module;

/// Answers what native code is called.
pub trait Symbols {
    /// What lies at an address of a module, in the numbering of its file.
    fn at(&mut self, module: &Module, address: u64) -> Code;

    /// Whether the module contains LuaJIT.
    fn is_luajit(&mut self, module: &Module) -> bool;

    /// What to tell the user of modules for which nothing could be answered,
    /// a sentence each.
    fn complaints(&self) -> Vec<String>;
}

/// What lies at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// Where the function begins that contains the address, which may have no name.
    pub start: Option<u64>,
    /// The function and what is inlined into it there, outermost first; empty
    /// if its name is not known.
    pub functions: Vec<Function>,
}

/// One native function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled.
    pub name: String,
    /// `file:line` of the address, or of the call that was inlined there.
    pub place: Option<String>,
}

//! The LuaJIT that is run, and where its code is.
//!
//! Knows: files, and the symbols in them. Must not know: processes.

use object::{Object, ObjectSymbol, SymbolKind};
use std::path::{Path, PathBuf};

/// The build whose VM the cases name places in: it is not stripped.
const BUILD: &str = "210.7.4-gc64";

/// The folder of that build.
fn build() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("build/luajit")
        .join(BUILD)
}

/// The program, with no link on its way: the kernel names it so, too.
pub fn luajit() -> PathBuf {
    let path = build().join("bin/luajit");
    path.canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}; `make luajit` builds it", path.display()))
}

/// The value of LUA_PATH with which it finds the recorder's Lua side and its
/// own modules.
pub fn lua_path() -> String {
    let recorder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua/?.lua");
    format!("{recorder};{}/share/lua/5.1/?.lua", build().display())
}

/// The recorder as cargo has built it for these tests: next to their program.
pub fn recorder() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    test.with_file_name("libsysprof.so")
}

/// A function in a file.
struct Function {
    name: String,
    address: u64,
}

/// The functions of one file, by their addresses in its own numbering.
pub struct Symbols(Vec<Function>);

impl Symbols {
    /// Reads those of the file at `path`: all that it has left.
    pub fn of(path: &Path) -> Symbols {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = object::File::parse(&*bytes).expect("an object file");
        let mut functions: Vec<Function> = (file.symbols().chain(file.dynamic_symbols()))
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
            .filter_map(|symbol| {
                Some(Function {
                    name: symbol.name().ok()?.to_owned(),
                    address: symbol.address(),
                })
            })
            .collect();
        functions.sort_by_key(|function| function.address);
        Symbols(functions)
    }

    /// Where the function `name` begins.
    pub fn address(&self, name: &str) -> u64 {
        (self.0.iter().find(|function| function.name == name))
            .unwrap_or_else(|| panic!("no function {name}"))
            .address
    }

    /// The function that `address` lies in, or the last one before it.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = (self.0).partition_point(|function| function.address <= address);
        Some(&self.0[after.checked_sub(1)?].name)
    }
}

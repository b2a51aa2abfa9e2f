//! Names of the functions in a module, for streams that carry them.
//!
//! Knows: symbol tables of files, and of the vDSO in memory. Must not know: how
//! a stream has them.
//!
//! Not for signal handlers: files are read.

use super::modules::Module;
use crate::memory;
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSymbol, SymbolKind};
use std::fs::File;

/// A function's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, which is not empty.
    pub name: Vec<u8>,
    /// Bytes of its code, 0 if the table doesn't say.
    pub size: u64,
}

/// The functions of `module` by the address where each begins in memory, the
/// first one of several names. None, where it has no file that can be read.
pub fn functions(module: &Module) -> Vec<(u64, Symbol)> {
    if let Ok(file) = File::open(&module.path) {
        return of(&ReadCache::new(file), module.bias as u64);
    }
    // The vDSO is no file, but an image of one.
    // The tables of its sections come after what its segment covers, in its pages.
    const PAGE: usize = 4096;
    let mut image = vec![0; module.range.len().next_multiple_of(PAGE).min(1 << 20)];
    if module.path == "[vdso]" && memory::copy(&mut image, module.range.start) {
        return of(&image[..], module.bias as u64);
    }
    Vec::new()
}

fn of<'d>(data: impl ReadRef<'d>, bias: u64) -> Vec<(u64, Symbol)> {
    let Ok(file) = object::File::parse(data) else {
        return Vec::new();
    };
    let mut functions: Vec<(u64, Symbol)> = (file.symbols().chain(file.dynamic_symbols()))
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| {
            let address = bias.wrapping_add(symbol.address());
            let (name, size) = (symbol.name_bytes().ok()?.to_vec(), symbol.size());
            Some((address, Symbol { name, size }))
        })
        .filter(|(_, symbol)| !symbol.name.is_empty())
        .collect();
    functions.sort_by_key(|function| function.0);
    functions.dedup_by_key(|function| function.0);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::modules::Catalogue;

    #[test]
    fn a_function_is_found_where_it_is_in_memory() {
        let catalogue = Catalogue::new();
        let address = libc::getpid as *const () as u64;
        let found = catalogue.loaded().any(|module| {
            (functions(module).iter())
                .any(|(start, symbol)| *start == address && symbol.name.ends_with(b"getpid"))
        });
        assert!(found);
    }

    #[test]
    fn the_vdso_has_names_and_no_file() {
        let catalogue = Catalogue::new();
        let vdso = catalogue.loaded().find(|module| module.path == "[vdso]");
        let names = functions(vdso.expect("x86-64 Linux has one"));
        let clock = names
            .iter()
            .any(|(_, symbol)| symbol.name.ends_with(b"clock_gettime"));
        assert!(clock, "{names:?}");
    }
}

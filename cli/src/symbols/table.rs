//! The functions of one file by address.
//!
//! Knows ELF symbol tables as the object crate gives them, and unwind tables
//! (`.eh_frame`), which a stripped file still has: they say where functions begin
//! and end that have no symbol. Nothing of debug information.

use std::ops::Range;

use addr2line::demangle_auto;
use addr2line::gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

/// A function's symbol.
#[derive(Debug)]
pub(super) struct Symbol {
    pub(super) start: u64,
    /// The address after its last byte; `start` for a label without a size until
    /// the table is finished.
    end: u64,
    /// The end of its section, where a label without a size ends at the latest.
    limit: u64,
    /// Its name as the file has it.
    name: String,
}

impl Symbol {
    /// Its name for people.
    pub(super) fn demangled(&self) -> String {
        demangled(&self.name)
    }
}

/// Functions in the order of their addresses, one at each.
#[derive(Debug, Default)]
pub(super) struct Table {
    symbols: Vec<Symbol>,
    /// What the unwind tables describe.
    described: Vec<Range<u64>>,
}

impl Table {
    /// Adds the symbols of a file, of both its tables, and what it says of
    /// functions without.
    pub(super) fn add<'data>(&mut self, file: &impl Object<'data>) {
        self.add_described(file);
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let section = symbol
                .section_index()
                .and_then(|index| file.section_by_index(index).ok());
            let Some(section) = section else { continue };
            // Hand-written assembler has no types, only labels in the code.
            let code = match symbol.kind() {
                SymbolKind::Text => true,
                SymbolKind::Unknown => section.kind() == SectionKind::Text,
                _ => false,
            };
            if !code || !symbol.is_definition() {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            if name.is_empty() {
                continue;
            }
            self.symbols.push(Symbol {
                start: symbol.address(),
                end: symbol.address().saturating_add(symbol.size()),
                limit: section.address().saturating_add(section.size()),
                name: name.to_owned(),
            });
        }
    }

    fn add_described<'data>(&mut self, file: &impl Object<'data>) {
        let section = file.section_by_name(".eh_frame");
        let Some((section, Ok(data))) =
            section.map(|section| (section.address(), section.uncompressed_data()))
        else {
            return;
        };
        let bases = BaseAddresses::default().set_eh_frame(section);
        let frames = EhFrame::new(&data, LittleEndian);
        let mut entries = frames.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
            {
                let start = entry.initial_address();
                self.described
                    .push(start..start.saturating_add(entry.len()));
            }
        }
    }

    /// Makes it ready to be asked.
    pub(super) fn finish(&mut self) {
        self.described.sort_by_key(|code| code.start);
        self.described.dedup_by_key(|code| code.start);
        // Of several names for one address the one with a size is right, and the
        // shortest of those is what people know it by.
        self.symbols.sort_by(|a, b| {
            let key = |s: &Symbol| (s.start, u64::MAX - s.end, s.name.len());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        self.symbols.dedup_by_key(|symbol| symbol.start);
        // A label without a size reaches to the next symbol of its section.
        let mut next = u64::MAX;
        for symbol in self.symbols.iter_mut().rev() {
            if symbol.end == symbol.start {
                symbol.end = symbol.limit.min(next);
            }
            next = symbol.start;
        }
    }

    /// The symbol that contains the address.
    pub(super) fn at(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|s| s.start <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        (address < symbol.end).then_some(symbol)
    }

    /// Where the function begins that contains the address, whatever it is called.
    pub(super) fn start_of(&self, address: u64) -> Option<u64> {
        if let Some(symbol) = self.at(address) {
            return Some(symbol.start);
        }
        let after = self.described.partition_point(|code| code.start <= address);
        let code = &self.described[after.checked_sub(1)?];
        code.contains(&address).then_some(code.start)
    }

    /// Whether a function with this name is defined.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.symbols.iter().any(|symbol| symbol.name == name)
    }
}

/// A symbol's name as its language has it.
pub fn demangled(name: &str) -> String {
    demangle_auto(name.into(), None).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64, name: &str) -> Symbol {
        Symbol {
            start,
            end: start + size,
            limit: 0x348,
            name: name.to_owned(),
        }
    }

    #[test]
    fn an_address_is_in_one_symbol_or_none() {
        let mut table = Table {
            symbols: vec![
                symbol(0x300, 0, "label"),
                symbol(0x100, 0x10, "__alias_of_f"),
                symbol(0x100, 0x10, "f"),
                symbol(0x340, 4, "g"),
                symbol(0x344, 0, "last"),
            ],
            described: vec![0x110..0x180, 0x100..0x110, 0x108..0x110],
        };
        table.finish();
        let name = |address| table.at(address).map(|s| s.name.as_str());
        assert_eq!(name(0xff), None);
        assert_eq!(name(0x100), Some("f"));
        assert_eq!(name(0x10f), Some("f"));
        assert_eq!(name(0x110), None);
        assert_eq!(name(0x33f), Some("label"));
        assert_eq!(name(0x343), Some("g"));
        assert_eq!(name(0x347), Some("last"));
        assert_eq!(name(0x348), None);
        assert!(table.defines("g") && !table.defines("h"));
        assert_eq!(table.start_of(0x10f), Some(0x100), "a symbol's");
        assert_eq!(table.start_of(0x17f), Some(0x110), "without a symbol");
        assert_eq!(table.start_of(0x180), None);
    }

    #[test]
    fn names_are_demangled() {
        let rust = symbol(0, 1, "_ZN4core3fmt5write17h0123456789abcdefE");
        assert_eq!(rust.demangled(), "core::fmt::write");
        assert_eq!(symbol(0, 1, "_ZN3foo3barEi").demangled(), "foo::bar(int)");
        assert_eq!(symbol(0, 1, "lj_gc_step").demangled(), "lj_gc_step");
    }
}

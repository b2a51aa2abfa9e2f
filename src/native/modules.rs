//! The modules (program, libraries, vDSO) that are loaded in this process.
//!
//! Knows: program headers. Must not know: what unwind tables mean, symbols.
//!
//! Not for signal handlers: the dynamic linker's lock is taken.

use super::sections::{self, UnwindSections};
use crate::memory;
use std::ffi::CStr;
use std::ops::Range;

/// A loaded module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its number in the [`Catalogue`].
    pub number: u32,
    /// The file that it was loaded from, `[vdso]` for the kernel's.
    pub path: String,
    /// GNU build id, empty if it has none.
    pub build_id: Vec<u8>,
    /// What was added to the addresses in its file.
    pub bias: usize,
    /// Addresses from its lowest to its highest segment.
    pub range: Range<usize>,
    /// Its unwind tables, if it has any.
    pub unwind: Option<UnwindSections>,
}

/// All modules that a session has met, numbered in the order in which it did.
pub struct Catalogue {
    all: Vec<Module>,
    /// Numbers of those that are loaded now, by ascending address.
    loaded: Vec<u32>,
    generation: u64,
}

impl Catalogue {
    /// The modules that are loaded now.
    pub fn new() -> Catalogue {
        let mut catalogue = Catalogue {
            all: Vec::new(),
            loaded: Vec::new(),
            generation: 0,
        };
        catalogue.refresh();
        catalogue
    }

    /// Bytes that looking at the modules takes at the most: all the unwind tables
    /// are copied, one of them twice. An entry of the header, 8 bytes, stands for
    /// a function's description, which is hardly ever longer than 64.
    pub fn memory() -> usize {
        let mut headers = 0usize;
        // SAFETY: the callback adds to `headers`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add_headers), (&raw mut headers).cast()) };
        (1 << 20) + 2 * headers * (1 + 64 / 8)
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Module] {
        &self.all
    }

    /// Those that are loaded now, by ascending address.
    pub fn loaded(&self) -> impl Iterator<Item = &Module> {
        self.loaded.iter().map(|&number| &self.all[number as usize])
    }

    /// Looks again; returns whether anything has changed.
    pub fn refresh(&mut self) -> bool {
        let generation = generation();
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        let before = std::mem::take(&mut self.loaded);
        for module in loaded() {
            let known = before.iter().find(|&&number| {
                let known = &self.all[number as usize];
                known.range == module.range && known.path == module.path
            });
            let number = known.copied().unwrap_or(self.all.len() as u32);
            if known.is_none() {
                self.all.push(Module { number, ..module });
            }
            self.loaded.push(number);
        }
        true
    }
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue::new()
    }
}

/// All modules, by ascending address.
fn loaded() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `visit` gets the pointer to `modules`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut modules).cast()) };
    modules.sort_by_key(|module| module.range.start);
    modules
}

/// How many modules have been loaded and unloaded so far: it changes whenever
/// [`loaded`] would say something new.
fn generation() -> u64 {
    let mut generation = 0u64;
    // SAFETY: the callback writes to `generation`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut generation).cast()) };
    generation
}

unsafe extern "C" fn count(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: the linker's argument, and the pointer that `generation` gave.
    unsafe { *data.cast::<u64>() = (*info).dlpi_adds + (*info).dlpi_subs };
    1
}

unsafe extern "C" fn add_headers(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: the linker's argument with its program headers, and the pointer
    // that `Catalogue::memory` gave.
    unsafe {
        let headers =
            std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
        let unwinding = (headers.iter()).filter(|header| header.p_type == libc::PT_GNU_EH_FRAME);
        *data.cast::<usize>() += unwinding
            .map(|header| header.p_memsz as usize)
            .sum::<usize>();
    }
    0
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: the pointer that `loaded` gave; the linker's argument is valid
    // during the call.
    let (modules, info) = unsafe { (&mut *data.cast::<Vec<Module>>(), &*info) };
    // SAFETY: the linker's name is a C string or null.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    // SAFETY: the linker says how many program headers there are.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    if let Some(module) = Module::read(name, info.dlpi_addr as usize, headers, modules.is_empty()) {
        modules.push(module);
    }
    0
}

impl Module {
    /// The last part of its path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn read(
        name: Option<&CStr>,
        bias: usize,
        headers: &[libc::Elf64_Phdr],
        is_program: bool,
    ) -> Option<Module> {
        let extent = |header: &libc::Elf64_Phdr| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        };
        let of_type = move |kind: u32| headers.iter().filter(move |header| header.p_type == kind);
        let low = of_type(libc::PT_LOAD).map(|h| extent(h).start).min()?;
        let high = of_type(libc::PT_LOAD).map(|h| extent(h).end).max()?;
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        let path = if name.starts_with("linux-vdso") {
            "[vdso]".to_owned()
        } else if name.is_empty() && is_program {
            std::fs::read_link("/proc/self/exe")
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default()
        } else if name.contains('/') && !name.starts_with('/') {
            // It was found by a path that began in the folder of that moment.
            mapped_file(low).unwrap_or(name.into_owned())
        } else {
            name.into_owned()
        };
        Some(Module {
            number: 0,
            path,
            build_id: of_type(libc::PT_NOTE)
                .find_map(|header| build_id(extent(header)))
                .unwrap_or_default(),
            bias,
            range: low..high,
            unwind: of_type(libc::PT_GNU_EH_FRAME).next().and_then(|header| {
                let header = extent(header);
                let frames = sections::frames_address(&header)?;
                let segment = of_type(libc::PT_LOAD)
                    .map(extent)
                    .find(|segment| segment.contains(&frames))?;
                UnwindSections::copy(header, frames..segment.end)
            }),
        })
    }
}

/// The file that is mapped at `address`.
fn mapped_file(address: usize) -> Option<String> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    String::from_utf8_lossy(&maps).lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|bound| usize::from_str_radix(bound, 16));
        let path = &rest[rest.find('/')?..];
        (start.ok()?..end.ok()?)
            .contains(&address)
            .then(|| path.to_owned())
    })
}

/// The build id in a note segment.
fn build_id(notes: Range<usize>) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut at = notes.start;
    while at + 12 <= notes.end {
        let word = |offset: usize| memory::read::<u32>(at + offset);
        let (name, desc) = (word(0)? as usize, word(4)? as usize);
        let desc_at = at + 12 + name.next_multiple_of(4);
        if word(8)? == NT_GNU_BUILD_ID && name == 4 && word(12)? == u32::from_ne_bytes(*b"GNU\0") {
            let mut id = vec![0; desc.min(64)];
            return memory::copy(&mut id, desc_at).then_some(id);
        }
        at = desc_at + desc.next_multiple_of(4);
    }
    None
}

//! Names of native code from the files of this machine.
//!
//! Knows where a module's symbols and debug information are, and that a file
//! must be the one that was recorded: its build id says so.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use ljp::decode::Module;
use object::{Object, ReadCache};

use super::table::Table;
use super::{Code, Function, Symbols};

/// Where distributions put debug information by build id.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug/.build-id";

/// A function that every LuaJIT defines and nothing else does.
const LUAJIT_MARK: &str = "luaJIT_setmode";

/// Reads each module's file once, when it is first asked for.
#[derive(Default)]
pub struct Files {
    modules: HashMap<Module, Contents>,
    complaints: Vec<String>,
}

/// What the files of one module say.
#[derive(Default)]
struct Contents {
    table: Table,
    debug: Option<Loader>,
}

impl Symbols for Files {
    fn at(&mut self, module: &Module, address: u64) -> Code {
        let contents = self.contents(module);
        let symbol = contents.table.at(address);
        let mut functions = contents.inlined(address);
        if functions.is_empty() {
            functions.extend(symbol.map(|symbol| Function {
                name: symbol.demangled(),
                place: None,
            }));
        }
        Code {
            start: contents.table.start_of(address),
            functions,
        }
    }

    fn is_luajit(&mut self, module: &Module) -> bool {
        self.contents(module).table.defines(LUAJIT_MARK)
    }

    fn complaints(&self) -> Vec<String> {
        self.complaints.clone()
    }
}

impl Files {
    fn contents(&mut self, module: &Module) -> &Contents {
        if !self.modules.contains_key(module) {
            let contents = self.read(module);
            self.modules.insert(module.clone(), contents);
        }
        &self.modules[module]
    }

    fn read(&mut self, module: &Module) -> Contents {
        let mut contents = Contents::default();
        let path = Path::new(OsStr::from_bytes(&module.path));
        // What the kernel maps into every process has a name but no file.
        if !path.is_absolute() {
            return contents;
        }
        let debug = debug_file(&module.build_id).filter(|path| path.exists());
        if let Some(debug) = &debug
            && contents.add(debug, &module.build_id).is_ok()
        {
            contents.debug = Loader::new(debug).ok();
        }
        match contents.add(path, &module.build_id) {
            Ok(()) if contents.debug.is_none() => contents.debug = Loader::new(path).ok(),
            Ok(()) => {}
            // With the debug file alone the names are complete.
            Err(_) if contents.debug.is_some() => {}
            Err(why) => self.complaints.push(format!(
                "{}: {why}; its functions have no names",
                path.display()
            )),
        }
        contents.table.finish();
        contents
    }
}

impl Contents {
    /// Adds the symbols of a file if it is the right one.
    fn add(&mut self, path: &Path, build_id: &[u8]) -> Result<(), String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache)
            .map_err(|error| format!("cannot be read as a native file ({error})"))?;
        let found = object.build_id().ok().flatten().unwrap_or_default();
        if !build_id.is_empty() && found != build_id {
            return Err("is not the file that was recorded (another build id)".to_owned());
        }
        self.table.add(&object);
        Ok(())
    }

    /// The functions at an address as the debug information has them, outermost
    /// first.
    fn inlined(&self, address: u64) -> Vec<Function> {
        let mut functions = Vec::new();
        let frames = self.debug.as_ref().map(|debug| debug.find_frames(address));
        let Some(Ok(mut frames)) = frames else {
            return functions;
        };
        while let Ok(Some(frame)) = frames.next() {
            let Some(Ok(name)) = frame.function.as_ref().map(|name| name.demangle()) else {
                continue;
            };
            let place = frame.location.and_then(|location| {
                let (file, line) = location.file.zip(location.line)?;
                let file = file.rsplit('/').next().unwrap_or(file);
                Some(format!("{file}:{line}"))
            });
            functions.push(Function {
                name: name.into_owned(),
                place,
            });
        }
        functions.reverse();
        functions
    }
}

fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(DEBUG_DIRECTORY).join(format!("{first:02x}/{rest}.debug")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This very test, as a module.
    fn own() -> Module {
        let path = std::env::current_exe().unwrap();
        let data = std::fs::read(&path).unwrap();
        let object = object::File::parse(&data[..]).unwrap();
        Module {
            path: path.as_os_str().as_bytes().to_vec(),
            build_id: object.build_id().unwrap().unwrap_or_default().to_vec(),
            bias: 0,
            low: 0,
            end: 0,
        }
    }

    /// Where in its file the function with this symbol is.
    fn address_of(name: &str) -> u64 {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let object = object::File::parse(&data[..]).unwrap();
        let symbol = object.symbol_by_name(name).unwrap();
        object::ObjectSymbol::address(&symbol)
    }

    #[test]
    fn code_of_this_program_has_its_name() {
        let mut files = Files::default();
        let start = address_of("main");
        let code = files.at(&own(), start + 1);
        assert_eq!(code.start, Some(start));
        assert_eq!(code.functions[0].name, "main");
        assert!(!files.is_luajit(&own()));
        assert!(files.complaints().is_empty());
    }

    #[test]
    fn another_file_is_not_believed() {
        let mut module = own();
        module.build_id = vec![1, 2, 3];
        let mut files = Files::default();
        assert_eq!(files.at(&module, address_of("main")), Code::default());
        files.at(&module, 0);
        let complaints = files.complaints();
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].contains("another build id"), "{complaints:?}");

        module.path = b"/nowhere/lib.so".to_vec();
        files.at(&module, 0);
        assert!(files.complaints()[1].starts_with("/nowhere/lib.so: No such file"));
    }

    #[test]
    fn debug_files_are_found_by_build_id() {
        assert_eq!(debug_file(&[]), None);
        assert_eq!(
            debug_file(&[0xab, 0x01, 0xcd]).unwrap(),
            Path::new("/usr/lib/debug/.build-id/ab/01cd.debug")
        );
    }
}

//! The LuaJITs that tests run in, and the modules that they load.
//!
//! Knows: where `make luajit` and `make matrix` put the hosts. Must not know:
//! what is tested.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the source tree.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A LuaJIT that was built out of `luajit-src`.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name in `scripts/luajit.sh`.
    pub name: String,
    folder: PathBuf,
}

impl Host {
    /// The host that `make` builds by default, or the one that `HOST` names.
    pub fn default() -> Host {
        let name = std::env::var("HOST").unwrap_or_else(|_| "210.7.4-gc64".to_owned());
        let wanted = Host::all().into_iter().find(|host| host.name == name);
        wanted.unwrap_or_else(|| panic!("no LuaJIT {name} in build/luajit: run `make luajit`"))
    }

    /// All hosts that were built.
    pub fn all() -> Vec<Host> {
        let folder = root().join("build/luajit");
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut hosts: Vec<Host> = entries
            .map(|entry| Host {
                name: entry.file_name().to_string_lossy().into_owned(),
                folder: entry.path(),
            })
            .filter(|host| host.program().is_file())
            .collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(
            !hosts.is_empty(),
            "no LuaJIT in build/luajit: run `make luajit`"
        );
        hosts
    }

    /// Its executable.
    pub fn program(&self) -> PathBuf {
        self.folder.join("bin/luajit")
    }

    /// A command that runs it, with the modules at hand.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        let lua = root().join("lua");
        let own = self.folder.join("share/lua/5.1");
        command
            .current_dir(root())
            .env(
                "LUA_PATH",
                format!("{}/?.lua;{}/?.lua;;", lua.display(), own.display()),
            )
            .env("LUA_CPATH", format!("{}/?.so;;", modules().display()));
        command
    }
}

/// The folder with the C modules, built for release: what is tested is what is
/// shipped.
pub fn modules() -> &'static Path {
    static MODULES: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    MODULES.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .current_dir(root())
            .args([
                "build",
                "--quiet",
                "--release",
                "-p",
                "sysprof",
                "-p",
                "sysprof-stepper",
            ])
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "the C modules did not build"
        );
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root().join("target"), |target| root().join(target));
        let folder = target.join("test-modules");
        std::fs::create_dir_all(&folder).expect("a folder for modules");
        for (library, module) in [
            ("libsysprof.so", "sysprof_core.so"),
            ("libsysprof_stepper.so", "sysprof_stepper.so"),
        ] {
            let temporary = folder.join(format!("{module}.{}", std::process::id()));
            std::fs::copy(target.join("release").join(library), &temporary).expect("a module");
            // Another test may be loading the one that is there.
            std::fs::rename(&temporary, folder.join(module)).expect("a module in its place");
        }
        folder
    })
}

//! Which native code is not worth showing to somebody who looks at a Lua
//! program, by the names of functions and files.

/// Whether a file of this name is LuaJIT and nothing else. Other programs may
/// merely contain it.
pub(super) fn is_luajit_file(name: &str) -> bool {
    name.starts_with("luajit") || name.starts_with("libluajit")
}

/// Whether LuaJIT names its own functions like this.
pub(super) fn is_luajit_name(name: &str) -> bool {
    ["lj_", "lua_", "luaL_", "luaJIT_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether this is what the C library starts a program or a thread with.
pub(super) fn starts_program(name: &str) -> bool {
    matches!(name, "_start" | "start_thread" | "clone" | "clone3")
        || name.starts_with("__clone")
        || name.starts_with("__libc_start")
        || name.starts_with("__libc_init_first")
}

/// A built-in's name from that of the function that it is made of, as LuaJIT
/// names them: `lj_ff_math_sin` is `math.sin`.
pub(super) fn builtin(symbol: &str) -> Option<String> {
    let name = ["lj_ff_", "lj_cf_"]
        .iter()
        .find_map(|prefix| symbol.strip_prefix(prefix))?;
    Some(name.replacen('_', ".", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_whose() {
        assert!(is_luajit_file("luajit-2.1") && is_luajit_file("libluajit-5.1.so.2"));
        assert!(!is_luajit_file("nginx") && !is_luajit_file("resty-luajit-host"));
        assert!(is_luajit_name("lua_pcall") && !is_luajit_name("luaopen_cjson"));
        assert!(starts_program("__libc_start_main_impl") && !starts_program("main"));
        assert_eq!(builtin("lj_ff_math_sin").unwrap(), "math.sin");
        assert_eq!(builtin("lj_cf_print").unwrap(), "print");
        assert_eq!(builtin("work"), None);
    }
}

//! Link options of the cdylib.

fn main() {
    // Signal handlers and exit handlers point into the library: it must stay
    // mapped after a VM that loaded it has closed it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}

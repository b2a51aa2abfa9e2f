//! A Rust library between C and Lua: closures and iterators call back.

#![crate_type = "staticlib"]

use std::ffi::c_void;

type Callback = unsafe extern "C-unwind" fn(*mut c_void);

/// Calls `call` twice, from inside a closure.
///
/// # Safety
/// `data` is what `call` takes.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C-unwind" fn native_rust_twice(call: Callback, data: *mut c_void) {
    let mut calls = Vec::with_capacity(2);
    // SAFETY: the caller's promise.
    each(2, &mut |number| {
        unsafe { call(data) };
        calls.push(number);
    });
    assert_eq!(calls, [0, 1]);
}

#[inline(never)]
fn each(count: usize, visit: &mut dyn FnMut(usize)) {
    for number in 0..count {
        visit(number);
    }
}

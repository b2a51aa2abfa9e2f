//! What a VM's heap holds.
//!
//! Knows: that all objects but strings hang in one list, whose first one is the
//! newest (`GCState.root`, `GCHeader.nextgc`). Must not know: what is wanted of
//! them.
//!
//! Not for signal handlers: the list is whole only between two allocations.

use super::layout::{Family, Layout, gct};
use super::objects::Proto;
use crate::memory::read;
use mlua::ffi;
use std::ops::Range;

/// Bytes of `global_State` in which the head of the list is looked for.
const REACH: usize = 1536;

/// The most objects that are looked at.
const MOST: usize = 1 << 26;

/// All prototypes of the VM, or none if its list of objects was not found: they
/// are known as soon as they are met, too.
///
/// # Safety
/// `state` is a live `lua_State` of the calling thread, with room for a value,
/// in a protected call. Its stack is left as it was.
pub unsafe fn prototypes(state: *mut ffi::lua_State, layout: &Layout) -> Vec<Proto> {
    // SAFETY: the caller's promise, here and below.
    let first = unsafe { heads(state, layout) };
    // SAFETY: as above.
    let second = unsafe { heads(state, layout) };
    let mut both = first.iter().filter(|field| second.contains(field));
    let (Some(&head), None) = (both.next(), both.next()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut next = layout.reference(head);
    for _ in 0..MOST {
        let Some(object) = next.filter(|&object| object != 0) else {
            break;
        };
        if read::<u8>(object + layout.at.gct) == Some(gct::PROTO) {
            found.extend(Proto::at(layout, object));
        }
        next = layout.reference(object);
    }
    found
}

/// Where `global_State` refers to an object that was made just now.
unsafe fn heads(state: *mut ffi::lua_State, layout: &Layout) -> Vec<usize> {
    // SAFETY: the caller's promise.
    let newest = unsafe {
        ffi::lua_createtable(state, 0, 0);
        let newest = ffi::lua_topointer(state, -1) as usize;
        ffi::lua_settop(state, -2);
        newest
    };
    let fields: Range<usize> = layout.global..layout.global + REACH;
    let size = match layout.family {
        Family::Gc64 => 8,
        Family::Gc32 => 4,
    };
    fields
        .step_by(size)
        .filter(|&field| layout.reference(field) == Some(newest))
        .collect()
}

//! Any bytes, read as a profile: no panic, no hang, no more memory than a
//! profile of that size is worth, and what was good before the fault stays.
//!
//! Knows the decoder's promises only. The same are held in CI, over the corpus,
//! by `ljp/tests/hostile.rs`.

#![no_main]

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use ljp::decode::Error;
use ljp::profile::{Profile, Reading};
use std::alloc::System;

/// What reading a file of up to 1 MiB may take. One allocation beyond it fails,
/// and that ends the fuzzer.
const MEMORY: usize = 64 << 20;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY);

fuzz_target!(|bytes: &[u8]| {
    let Ok(Reading { profile, fault }) = Profile::read(bytes) else {
        return;
    };
    let seen = (profile.by_state, profile.records, profile.frames.len());
    drop(profile);
    let Some(Error::Truncated { good }) = fault else {
        return;
    };
    // The whole records say the same without the piece of one after them.
    let whole = &bytes[..good as usize];
    let again = Profile::read(whole).expect("it could be read with more behind it");
    let profile = again.profile;
    assert_eq!(
        seen,
        (profile.by_state, profile.records, profile.frames.len())
    );
    assert!(matches!(again.fault, Some(Error::Truncated { good }) if good == whole.len() as u64));
});

//! Whether there is memory for what a session lays out.
//!
//! Knows: that Rust's collections end the process when there is none, and that a
//! limit (`RLIMIT_AS`) or a strict kernel says so to whoever asks for it in one
//! piece. Must not know: what the memory is for.
//!
//! Another thread may take what was found here: this is for a process that has
//! little left, not for one that has nothing.

use std::ptr;

/// Finds out whether `bytes` can be had.
///
/// # Errors
/// The errno of `mmap(2)`.
pub fn find(bytes: usize) -> Result<(), i32> {
    // SAFETY: a new mapping that is not written to, and given back.
    unsafe {
        let room = libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if room == libc::MAP_FAILED {
            return Err(crate::signal::errno());
        }
        libc::munmap(room, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_a_little_and_not_for_everything() {
        assert_eq!(find(1 << 20), Ok(()));
        assert_eq!(find(1 << 60), Err(libc::ENOMEM));
    }
}

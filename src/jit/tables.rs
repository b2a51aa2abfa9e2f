//! The line tables of all traces of a VM, by number.
//!
//! Knows: that the VM's thread makes and frees them, and the signal handler on
//! that thread looks into them. Must not know: how they are made.
//!
//! The handler interrupts whoever changes a table, never the other way round:
//! one that was taken out of its place is free to go, unless it was another
//! thread that took it out.

use super::lines::Lines;
use crate::memory;
use crate::vm::trace::Trace;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// Trace numbers have 16 bits.
const MOST: usize = 1 << 16;

/// Line tables by trace number.
pub struct Tables {
    places: Box<[AtomicPtr<Lines>]>,
    /// One past the highest number in use.
    end: AtomicUsize,
    /// Whether a trace is being recorded.
    recording: AtomicBool,
    /// Where the VM keeps the number of the trace that was left last.
    left: Option<usize>,
    /// The thread that is sampled.
    sampled: ThreadId,
    /// What another thread took out, until the end.
    #[expect(clippy::vec_box, reason = "the handler may still look into one")]
    retired: Mutex<Vec<Box<Lines>>>,
}

impl Tables {
    /// No tables, for a VM whose traces run on the calling thread, and which keeps
    /// at `left` the number of the trace that was left last.
    pub fn new(left: Option<usize>) -> Tables {
        Tables {
            places: (0..MOST).map(|_| AtomicPtr::default()).collect(),
            end: AtomicUsize::new(0),
            recording: AtomicBool::new(false),
            left,
            sampled: std::thread::current().id(),
            retired: Mutex::default(),
        }
    }

    /// Says whether a trace is being recorded from now on.
    pub fn set_recording(&self, recording: bool) {
        self.recording.store(recording, Ordering::Relaxed);
    }

    /// Whether a trace is being recorded.
    pub fn recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// The number of the trace that was left last, if that can be told. For the
    /// signal handler as well.
    pub fn left(&self) -> Option<u32> {
        memory::read::<u32>(self.left?)
    }

    /// Puts in the table of trace `number`, for that which was there.
    pub fn put(&self, number: u32, lines: Option<Lines>) {
        let Some(place) = self.places.get(number as usize) else {
            return;
        };
        let new = lines.map_or(ptr::null_mut(), |lines| Box::into_raw(Box::new(lines)));
        self.end.fetch_max(number as usize + 1, Ordering::Relaxed);
        let old = place.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        // SAFETY: made by Box::into_raw above, and no longer in its place.
        let old = unsafe { Box::from_raw(old) };
        if std::thread::current().id() != self.sampled {
            let retired = self.retired.lock();
            retired.unwrap_or_else(PoisonError::into_inner).push(old);
        }
    }

    /// Takes all tables out.
    pub fn clear(&self) {
        for number in 0..self.end.swap(0, Ordering::Relaxed) {
            self.put(number as u32, None);
        }
        self.end.store(0, Ordering::Relaxed);
    }

    /// The table of trace `number`, if `address` lies in that.
    ///
    /// For the signal handler on the sampled thread.
    pub fn get(&self, number: u32, address: usize) -> Option<&Lines> {
        let place = self.places.get(number as usize)?.load(Ordering::Acquire);
        // SAFETY: what is in a place is alive; it is taken out by this thread,
        // which is in the handler, or kept until nobody samples any more.
        unsafe { place.as_ref() }.filter(|lines| lines.covers(address))
    }

    /// The table of `trace`. For the signal handler as well.
    pub fn of(&self, trace: Trace) -> Option<&Lines> {
        let place = self.places.get(trace.number() as usize)?;
        // SAFETY: as in `get`.
        let lines = unsafe { place.load(Ordering::Acquire).as_ref() };
        lines.filter(|lines| lines.trace() == trace)
    }

    /// The table that `address` lies in. Bounded by the highest trace number.
    pub fn covering(&self, address: usize) -> Option<&Lines> {
        let end = self.end.load(Ordering::Relaxed) as u32;
        (0..end).find_map(|number| self.get(number, address))
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.clear();
    }
}

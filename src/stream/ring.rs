//! A ring of bytes between one producer, who may be a signal handler, and one
//! consumer.
//!
//! Knows: how to hand bytes over without locks. Must not know: what they are.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Ring {
    bytes: Box<[UnsafeCell<u8>]>,
    /// Bytes put in since the start, as far as the consumer may see them.
    put: AtomicUsize,
    /// Bytes taken out since the start.
    taken: AtomicUsize,
}

// SAFETY: the producer writes only to bytes that the consumer has taken, and
// publishes them through `put`; the consumer reads only published bytes, and
// gives them back through `taken`.
unsafe impl Sync for Ring {}
// SAFETY: it owns its bytes.
unsafe impl Send for Ring {}

/// Puts bytes in.
pub struct Producer {
    ring: Arc<Ring>,
    /// Bytes put in, those that are not yet published included.
    put: usize,
}

/// Takes bytes out.
pub struct Consumer {
    ring: Arc<Ring>,
}

/// A ring that holds at least `capacity` bytes.
pub fn ring(capacity: usize) -> (Producer, Consumer) {
    let ring = Arc::new(Ring {
        bytes: std::iter::repeat_with(|| UnsafeCell::new(0))
            .take(capacity.next_power_of_two())
            .collect(),
        put: AtomicUsize::new(0),
        taken: AtomicUsize::new(0),
    });
    let consumer = Consumer { ring: ring.clone() };
    (Producer { ring, put: 0 }, consumer)
}

impl Producer {
    /// Bytes that there is room for.
    pub fn room(&self) -> usize {
        let taken = self.ring.taken.load(Ordering::Acquire);
        self.ring.bytes.len() - self.put.wrapping_sub(taken)
    }

    /// Bytes that the ring holds when it is full.
    pub fn capacity(&self) -> usize {
        self.ring.bytes.len()
    }

    /// Puts `bytes` in, if there is room for all of them. They are not seen
    /// before [`Producer::publish`].
    pub fn put(&mut self, bytes: &[u8]) -> bool {
        if self.room() < bytes.len() {
            return false;
        }
        let mask = self.ring.bytes.len() - 1;
        let start = self.put & mask;
        let until_end = bytes.len().min(self.ring.bytes.len() - start);
        let (first, rest) = bytes.split_at(until_end);
        // SAFETY: there is room, so the consumer does not look at these bytes;
        // both pieces lie within the ring.
        unsafe {
            let ring = self.ring.bytes.as_ptr().cast::<u8>().cast_mut();
            std::ptr::copy_nonoverlapping(first.as_ptr(), ring.add(start), first.len());
            std::ptr::copy_nonoverlapping(rest.as_ptr(), ring, rest.len());
        }
        self.put = self.put.wrapping_add(bytes.len());
        true
    }

    /// Shows the consumer all that was put in.
    pub fn publish(&mut self) {
        self.ring.put.store(self.put, Ordering::Release);
    }

    /// Takes back what was put in since the last [`Producer::publish`].
    pub fn retract(&mut self) {
        self.put = self.ring.put.load(Ordering::Relaxed);
    }
}

impl Consumer {
    /// The published bytes up to the end of the ring's memory; call again after
    /// [`Consumer::take`] for those that begin at its start.
    pub fn published(&self) -> &[u8] {
        let taken = self.ring.taken.load(Ordering::Relaxed);
        let len = self.ring.put.load(Ordering::Acquire).wrapping_sub(taken);
        let start = taken & (self.ring.bytes.len() - 1);
        let len = len.min(self.ring.bytes.len() - start);
        // SAFETY: published bytes are not written to before they are taken, for
        // which this borrow must have ended.
        unsafe { std::slice::from_raw_parts(self.ring.bytes.as_ptr().cast::<u8>().add(start), len) }
    }

    /// Gives `count` of the published bytes back.
    pub fn take(&mut self, count: usize) {
        self.ring.taken.fetch_add(count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_end() {
        let (mut producer, mut consumer) = ring(16);
        let mut out = Vec::new();
        for round in 0..10u8 {
            assert!(producer.put(&[round; 11]));
            assert!(!producer.put(&[0; 6]), "no room for more");
            producer.publish();
            while !consumer.published().is_empty() {
                let some = consumer.published().to_vec();
                consumer.take(some.len());
                out.extend(some);
            }
        }
        let expected: Vec<u8> = (0..10u8).flat_map(|round| [round; 11]).collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn what_is_not_published_is_not_seen_and_can_be_retracted() {
        let (mut producer, consumer) = ring(16);
        producer.put(b"lost");
        assert!(consumer.published().is_empty());
        producer.retract();
        producer.put(b"kept");
        producer.publish();
        assert_eq!(consumer.published(), b"kept");
    }
}

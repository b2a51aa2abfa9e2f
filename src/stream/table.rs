//! A hash table of fixed size that is emptied in no time.
//!
//! Knows: keys and numbers. Must not know: what they stand for.
//!
//! All memory is laid out by [`Table::new`]. Entries carry the epoch that they
//! were made in; a new epoch makes all of them old at once.

use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;

/// Numbers keys from 0 in the order in which they are met.
pub struct Table<K> {
    /// The epoch of each entry; 0 is never a current one.
    epochs: Vec<u32>,
    entries: Vec<MaybeUninit<(K, u32)>>,
    epoch: u32,
    used: usize,
}

/// Where a key stands, or would.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It has this value.
    Known(u32),
    /// It has none; [`Table::insert`] takes this place.
    Unknown(Place),
}

/// A free place for the key that was looked up.
#[derive(Debug, PartialEq, Eq)]
pub struct Place(usize);

impl<K: Copy + Eq + Hash> Table<K> {
    /// A table with `capacity` places, a power of two.
    pub fn new(capacity: usize) -> Table<K> {
        let capacity = capacity.next_power_of_two();
        let mut entries = Vec::with_capacity(capacity);
        // SAFETY: uninitialised is a valid state of MaybeUninit.
        unsafe { entries.set_len(capacity) };
        Table {
            epochs: vec![0; capacity],
            entries,
            epoch: 1,
            used: 0,
        }
    }

    /// Entries of this epoch.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether this epoch has no entries.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether there is room for `more` keys while lookups stay short.
    pub fn has_room(&self, more: usize) -> bool {
        self.used + more <= self.epochs.len() / 4 * 3
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.used = 0;
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // After 2^32 epochs the old ones would come back to life.
            self.epochs.fill(0);
            self.epoch = 1;
        }
    }

    /// Looks `key` up.
    #[inline]
    pub fn look_up(&self, key: &K) -> Lookup {
        let mask = self.epochs.len() - 1;
        let mut hasher = Fold(0);
        key.hash(&mut hasher);
        let mut place = hasher.finish() as usize & mask;
        // Ends: `has_room` keeps a quarter of the places free.
        while self.epochs[place] == self.epoch {
            // SAFETY: the entry was written in this epoch.
            let (known, value) = unsafe { self.entries[place].assume_init_ref() };
            if known == key {
                return Lookup::Known(*value);
            }
            place = (place + 1) & mask;
        }
        Lookup::Unknown(Place(place))
    }

    /// Gives the key that was looked up last a value.
    pub fn insert(&mut self, Place(place): Place, key: K, value: u32) {
        self.entries[place].write((key, value));
        self.epochs[place] = self.epoch;
        self.used += 1;
    }
}

/// A hasher of whole words: fast, allocation-free, and good enough for
/// addresses and small numbers that nobody chooses with malice.
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = u128::from(self.0.rotate_left(23) ^ number) * u128::from(ODD);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(table: &mut Table<u64>, key: u64) -> u32 {
        match table.look_up(&key) {
            Lookup::Known(value) => value,
            Lookup::Unknown(place) => {
                let value = table.len() as u32;
                table.insert(place, key, value);
                value
            }
        }
    }

    #[test]
    fn keys_keep_their_numbers_until_the_epoch_ends() {
        let mut table = Table::new(1024);
        let first: Vec<u32> = (0..700).map(|key| number(&mut table, key * 8)).collect();
        assert_eq!(first, (0..700).collect::<Vec<u32>>());
        let again: Vec<u32> = (0..700).map(|key| number(&mut table, key * 8)).collect();
        assert_eq!(again, first);
        assert!(table.has_room(68) && !table.has_room(69));
        table.clear();
        assert!(table.is_empty());
        assert_eq!(number(&mut table, 8 * 699), 0);
    }

    #[test]
    fn old_entries_stay_dead_when_epochs_wrap() {
        let mut table = Table::new(8);
        number(&mut table, 42);
        table.epoch = u32::MAX;
        table.clear();
        assert_eq!(table.epoch, 1);
        assert!(matches!(table.look_up(&42), Lookup::Unknown(_)));
    }
}

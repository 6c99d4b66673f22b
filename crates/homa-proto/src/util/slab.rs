//! A slab with generations, and the hash of maps into it.
//!
//! Invariants: a slot's generation changes with each user, so a stale handle is refused. Maps are
//! never iterated, and their hash is keyed by the configuration's seed, so that a peer cannot
//! choose ids that collide.

use crate::event::RpcHandle;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

/// The last generation; the first follows it. One bit short, so that an environment can encode in
/// 64 bits whether a handle is a client's or a server's.
const LAST_GENERATION: u32 = u32::MAX >> 1;

const fn next_generation(generation: u32) -> u32 {
    if generation == LAST_GENERATION { 0 } else { generation + 1 }
}

/// A slab whose slots remember how often they were used.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
    /// Free, but not to be reused before the environment has seen the events about them.
    retired: Vec<u32>,
}

/// Begins a cache line, and the first fields of its user fill it.
#[derive(Debug)]
#[repr(C, align(64))]
struct SlabSlot<T> {
    generation: u32,
    /// Tick of the slot's entry in the timing wheel; 0: none. It is the slot's, and stays when the
    /// user changes.
    armed: u64,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), retired: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> RpcHandle {
        // The slot used last is likely in the cache.
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return RpcHandle { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        self.slots.push(SlabSlot { generation: 0, value: Some(value), armed: 0 });
        RpcHandle { index, generation: 0 }
    }

    /// A handle that names nothing and never will: for a message that ends as it begins.
    pub(crate) fn reserve(&mut self) -> RpcHandle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlabSlot { generation: 0, value: None, armed: 0 });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation;
        // The next user of the slot must not be found by this handle.
        slot.generation = next_generation(generation);
        self.retired.push(index);
        RpcHandle { index, generation }
    }

    /// The tick at which a live entry's slot is checked.
    pub(crate) fn armed(&mut self, r: RpcHandle) -> Option<&mut u64> {
        let slot = self.slots.get_mut(r.index as usize)?;
        (slot.generation == r.generation).then_some(&mut slot.armed)
    }

    /// The wheel reached an entry: returns the slot's user, if the entry was the slot's last.
    pub(crate) fn disarm(&mut self, index: u32, tick: u64) -> Option<RpcHandle> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.armed == tick)?;
        slot.armed = 0;
        slot.value.is_some().then_some(RpcHandle { index, generation: slot.generation })
    }

    /// Removes the slot's user, which must exist.
    pub(crate) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_some());
        slot.value = None;
        slot.generation = next_generation(slot.generation);
        self.retired.push(index);
    }

    /// Frees the slots of users that were removed.
    pub(crate) fn reclaim(&mut self) {
        self.free.append(&mut self.retired);
    }

    pub(crate) fn get(&self, r: RpcHandle) -> Option<&T> {
        let slot = self.slots.get(r.index as usize)?;
        if slot.generation == r.generation { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, r: RpcHandle) -> Option<&mut T> {
        let slot = self.slots.get_mut(r.index as usize)?;
        if slot.generation == r.generation { slot.value.as_mut() } else { None }
    }

    /// All live entries in slot order, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// All live entries in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RpcHandle, &T)> + '_ {
        self.slots.iter().enumerate().filter_map(|(i, s)| {
            let handle = RpcHandle { index: i as u32, generation: s.generation };
            s.value.as_ref().map(|value| (handle, value))
        })
    }
}

/// A keyed multiply-and-fold hasher for small integer keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    seed: u64,
}

impl Keyed {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(self.seed)
    }
}

/// State of [`Keyed`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHasher(u64);

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_reference_never_reaches_the_next_user() {
        let mut table = Slab::new();
        let first = table.insert("first");
        table.remove(first.index);
        table.reclaim();
        let second = table.insert("second");
        assert_eq!(first.index, second.index);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&"second"));
        assert_eq!(table.iter().count(), 1);
    }

    #[test]
    fn generations_keep_to_31_bits() {
        let mut table = Slab::new();
        let first = table.insert(());
        table.slots[0].generation = LAST_GENERATION;
        let last = RpcHandle { generation: LAST_GENERATION, ..first };
        assert!(table.get(last).is_some());
        table.remove(0);
        table.reclaim();
        assert_eq!((table.insert(()), table.get(last)), (first, None));
        table.remove(0);
        table.reclaim();
        table.slots[0].generation = LAST_GENERATION;
        assert_eq!(table.reserve(), last);
        table.reclaim();
        assert_eq!(table.insert(()).generation, 0);
    }
}

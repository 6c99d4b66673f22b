//! A table whose slots count their users, so that a stale key is refused.

/// Names an entry of a [`KeyedTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Index of the slot.
    pub slot: u32,
    /// How many entries the slot had before.
    pub generation: u32,
}

#[derive(Debug)]
struct TableSlot<T> {
    generation: u32,
    value: Option<T>,
}

/// See the module's description.
#[derive(Debug)]
pub struct KeyedTable<T> {
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
}

impl<T> Default for KeyedTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> KeyedTable<T> {
    /// The key that the next [`KeyedTable::insert`] will give.
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&slot) => Key { slot, generation: self.slots[slot as usize].generation },
            None => Key { slot: self.slots.len() as u32, generation: 0 },
        }
    }

    /// Adds an entry.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize].value = Some(value),
            None => self.slots.push(TableSlot { generation: 0, value: Some(value) }),
        }
        key
    }

    /// The entry of a key that is still valid.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.slot as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// The same, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// The key of the entry in a slot, if the slot is used.
    #[inline]
    pub fn key_at(&self, slot: u32) -> Option<Key> {
        let found = self.slots.get(slot as usize)?;
        found.value.as_ref().map(|_| Key { slot, generation: found.generation })
    }

    /// Removes an entry and returns it.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        slot.value.take()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, in order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.slots).filter_map(|(slot, entry)| {
            let key = Key { slot, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outlives_its_entry_and_is_refused() {
        let mut table = KeyedTable::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!((table.remove(a), table.get(a)), (None, None));
        let foreseen = table.next_key();
        let c = table.insert('c');
        assert_eq!((c, c.slot), (foreseen, a.slot), "the slot is used again");
        assert_eq!((table.get(a), table.get(c), table.get(b)), (None, Some(&'c'), Some(&'b')));
        assert_eq!(table.key_at(c.slot), Some(c));
        assert_eq!(table.len(), 2);
    }
}

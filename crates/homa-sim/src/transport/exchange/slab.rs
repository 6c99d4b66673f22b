//! A table with entries named by index and generation, so that the name of a removed entry is
//! refused and never mistaken for a later one.
//!
//! A freed slot is reused only after [`Slab::reclaim`], so that the application learns that a name
//! is free before it can see the name again.

/// Names an entry of a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref {
    /// Index of the slot.
    pub index: u32,
    /// How many entries the slot had before.
    pub generation: u32,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    freed: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), freed: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an entry; `make` gets its name.
    pub fn insert_with(&mut self, make: impl FnOnce(Ref) -> T) -> Ref {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let name = Ref { index, generation: slot.0 };
        slot.1 = Some(make(name));
        name
    }

    /// The entry, if it still exists.
    #[inline]
    pub fn get(&self, name: Ref) -> Option<&T> {
        let slot = self.slots.get(name.index as usize)?;
        slot.1.as_ref().filter(|_| slot.0 == name.generation)
    }

    /// The same, mutable.
    #[inline]
    pub fn get_mut(&mut self, name: Ref) -> Option<&mut T> {
        let slot = self.slots.get_mut(name.index as usize)?;
        slot.1.as_mut().filter(|_| slot.0 == name.generation)
    }

    /// Removes an entry and returns it.
    pub fn remove(&mut self, name: Ref) -> Option<T> {
        let slot = self.slots.get_mut(name.index as usize)?;
        if slot.0 != name.generation {
            return None;
        }
        let value = slot.1.take()?;
        slot.0 += 1;
        self.freed.push(name.index);
        Some(value)
    }

    /// Makes the slots freed until now available again.
    pub fn reclaim(&mut self) {
        self.free.append(&mut self.freed);
    }

    /// Every entry, in order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Ref, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, (generation, value))| {
            Some((Ref { index, generation: *generation }, value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_what_is_gone_is_refused() {
        let mut slab = Slab::default();
        let first = slab.insert_with(|_| 'a');
        assert_eq!(slab.remove(first), Some('a'));
        let early = slab.insert_with(|_| 'b');
        assert_ne!(early.index, first.index, "not reclaimed yet");
        slab.reclaim();
        let again = slab.insert_with(|_| 'c');
        assert_eq!(again.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(again), slab.get(early)), (Some(&'c'), Some(&'b')));
        assert_eq!(slab.iter().count(), 2);
    }
}

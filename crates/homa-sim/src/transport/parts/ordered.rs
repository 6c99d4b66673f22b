//! A list ordered by key, least first; for example, of messages that are ready to be sent.
//!
//! The message that is being sent is often the first and becomes shorter with every packet. The
//! first entry therefore stays outside the tree, so that most changes cost a comparison.

use std::collections::BTreeSet;

use crate::transport::exchange::Ref;

/// The list. Each entry stores its current key, so that it can be found again.
#[derive(Clone, Debug)]
pub struct Ordered<T = Ref> {
    first: Option<(u64, T)>,
    /// The others; no key is less than that of `first`.
    rest: BTreeSet<(u64, T)>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { first: None, rest: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Ordered<T> {
    /// Lists an entry under `key`, or removes it (`None`); `place` is the entry's record of its
    /// key.
    #[inline]
    pub fn set(&mut self, place: &mut Option<u64>, entry: T, key: Option<u64>) {
        if *place == key {
            return;
        }
        if let Some(old) = std::mem::replace(place, key) {
            if let Some(new) = key
                && self.first == Some((old, entry))
                && self.rest.first().is_none_or(|&next| (new, entry) < next)
            {
                self.first = Some((new, entry));
                return;
            }
            self.remove((old, entry));
        }
        if let Some(new) = key {
            self.insert((new, entry));
        }
    }

    fn insert(&mut self, new: (u64, T)) {
        match self.first {
            Some(first) if first < new => {
                self.rest.insert(new);
            }
            first => {
                self.rest.extend(first);
                self.first = Some(new);
            }
        }
    }

    fn remove(&mut self, old: (u64, T)) {
        if self.first == Some(old) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(&old);
        }
    }

    /// The first entry.
    #[inline]
    pub fn first(&self) -> Option<T> {
        self.first.map(|(_, entry)| entry)
    }

    /// The key of the first entry.
    #[inline]
    pub fn key(&self) -> Option<u64> {
        self.first.map(|(key, _)| key)
    }

    /// Removes the first entry, which no longer exists.
    pub fn drop_first(&mut self) {
        self.first = self.rest.pop_first();
    }

    /// True if it lists nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[cfg(test)]
mod tests {
    use homa_workload::rng::Rng;

    use super::*;

    #[test]
    fn it_behaves_as_a_sorted_set() {
        let mut rng = Rng::stream(3, "shortest");
        let (mut list, mut model) = (Ordered::default(), BTreeSet::new());
        let mut places = [None; 12];
        for _ in 0..20_000 {
            let entry = rng.uniform_below(12) as usize;
            let key = rng.chance(0.8).then(|| u64::from(rng.uniform_below(40)));
            if let Some(old) = places[entry] {
                model.remove(&(old, entry));
            }
            model.extend(key.map(|key| (key, entry)));
            list.set(&mut places[entry], entry, key);
            let first = model.first().copied();
            assert_eq!((list.key(), list.first()), (first.map(|it| it.0), first.map(|it| it.1)));
            assert_eq!((places[entry], list.is_empty()), (key, model.is_empty()));
            if rng.chance(0.02) && !list.is_empty() {
                list.drop_first();
                let (_, gone) = model.pop_first().unwrap();
                places[gone] = None;
            }
        }
    }
}

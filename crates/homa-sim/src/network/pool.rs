//! Values at stable `u32` indices: a packet is moved once and then named by its number.
//!
//! Invariant: an index is either live or in the free list. Nothing is allocated once the pool has
//! grown to the largest number of values alive at a time.

/// See the module's description.
#[derive(Debug)]
pub struct Pool<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Pool<T> {
    /// Stores a value and names it.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(value);
                index
            }
            None => {
                self.slots.push(Some(value));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The value at `index`; `None` when it was taken.
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    /// Removes the value at `index`.
    pub fn take(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    /// Number of live values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_reused_only_after_it_was_taken() {
        let mut pool = Pool::default();
        let (a, b) = (pool.insert('a'), pool.insert('b'));
        assert_ne!(a, b);
        assert_eq!(pool.take(a), Some('a'));
        assert_eq!(pool.take(a), None);
        assert_eq!(pool.insert('c'), a);
        assert_eq!((pool.get(a), pool.get(b), pool.len()), (Some(&'c'), Some(&'b'), 2));
    }
}

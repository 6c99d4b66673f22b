//! What a host knows about its peers in one role, for example as senders.

use std::collections::BTreeMap;

use crate::topology::HostId;

/// The peers of one role. The index of a peer is looked up by its host for each packet that arrives
/// and each message that is sent. Other state has the index.
#[derive(Clone, Debug)]
pub struct Peers<T> {
    index: BTreeMap<u32, u32>,
    all: Vec<T>,
}

impl<T> Default for Peers<T> {
    fn default() -> Self {
        Self { index: BTreeMap::new(), all: Vec::new() }
    }
}

impl<T> Peers<T> {
    /// The index of a peer; `make` makes its state if it is new.
    pub fn index(&mut self, host: HostId, make: impl FnOnce() -> T) -> u32 {
        let next = self.all.len() as u32;
        let index = *self.index.entry(host.0).or_insert(next);
        if index == next {
            self.all.push(make());
        }
        index
    }

    /// The peer with this index, if there is one.
    pub fn get(&mut self, index: u32) -> Option<&mut T> {
        self.all.get_mut(index as usize)
    }
}

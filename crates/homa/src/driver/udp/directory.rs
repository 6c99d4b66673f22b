//! The directory of a shard group: the engine at which each client was last validated.
//!
//! It is used when a client is validated, which happens once, not for each request. It is bounded
//! by the clients that the engines remember: when an engine forgets a client, it removes the entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homa_proto::ClientDirectory;

/// Engines by client, which is a token and an epoch.
type EngineOfClient = HashMap<(u64, u32), u16>;

/// Clients that left an engine for another.
#[derive(Debug, Default)]
struct Departures {
    /// Read without the lock.
    any: AtomicBool,
    names: Mutex<Vec<(u64, u32)>>,
}

/// An engine's view of the directory.
#[derive(Clone, Debug)]
pub struct ShardDirectory {
    known: Arc<Mutex<EngineOfClient>>,
    left: Arc<[Departures]>,
    number: u16,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShardDirectory {
    /// The views of a group of `engines`.
    pub fn all(engines: usize) -> impl Iterator<Item = Self> {
        let known = Arc::<Mutex<EngineOfClient>>::default();
        let left: Arc<[Departures]> = (0..engines).map(|_| Departures::default()).collect();
        let place = move |number| Self { known: known.clone(), left: left.clone(), number };
        (0..engines as u16).map(place)
    }
}

impl ClientDirectory for ShardDirectory {
    fn claim(&mut self, token: u64, epoch: u32) -> bool {
        let before = lock(&self.known).insert((token, epoch), self.number);
        let Some(before) = before.filter(|number| *number != self.number) else { return false };
        let left = &self.left[usize::from(before)];
        let mut names = lock(&left.names);
        names.push((token, epoch));
        left.any.store(true, Ordering::Release);
        true
    }

    #[inline]
    fn next_departed(&mut self) -> Option<(u64, u32)> {
        let left = &self.left[usize::from(self.number)];
        if !left.any.load(Ordering::Acquire) {
            return None;
        }
        let mut names = lock(&left.names);
        loop {
            let name = names.pop();
            left.any.store(!names.is_empty(), Ordering::Release);
            // A client that has come back since is an entry of this engine.
            if lock(&self.known).get(&name?) != Some(&self.number) {
                return name;
            }
        }
    }

    fn forget(&mut self, token: u64, epoch: u32) {
        let mut known = lock(&self.known);
        if known.get(&(token, epoch)) == Some(&self.number) {
            known.remove(&(token, epoch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_belongs_to_the_engine_that_validated_it_last() {
        let mut engines: Vec<_> = ShardDirectory::all(2).collect();
        assert!(!engines[0].claim(7, 1) && !engines[0].claim(7, 1));
        assert!(!engines[1].claim(7, 2), "another of its lives is another client");
        assert!(engines[1].claim(7, 1));
        assert_eq!([engines[0].next_departed(), engines[0].next_departed()], [Some((7, 1)), None]);
        assert_eq!(engines[1].next_departed(), None);
        assert!(engines[0].claim(7, 1));
        engines[1].forget(7, 1);
        assert!(engines[1].claim(7, 1), "the other still knows it");
        engines[1].forget(7, 1);
        assert!(!engines[0].claim(7, 1));
    }
}

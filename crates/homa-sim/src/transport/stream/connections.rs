//! The choice of the connection that carries a message, and the name that identifies a connection
//! at both ends.
//!
//! A client sends requests and one-way messages. It opens connections and names them; a name is
//! never reused. A server remembers the latest name of each slot of a client, so that a late copy
//! of the packet that opened an old connection does not open it again. This costs as many entries
//! as the client had connections at the same time.

use std::collections::BTreeMap;

use homa_workload::rng::Rng;

use super::table::Key;

/// How many connections there are between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPolicy {
    /// Permanent connections, opened when they are first needed.
    Pool {
        /// How many per server (and per priority class, if messages have classes); at least 1.
        size: u32,
        /// The choice of one of them for a message.
        pick: Pick,
    },
    /// A new one for each RPC or one-way message.
    PerMessage,
}

impl ConnectionPolicy {
    /// One permanent connection per client and server.
    pub const ONE: Self = Self::Pool { size: 1, pick: Pick::Random };
    /// Permanent connections with one message at a time each; another is opened if all are busy.
    pub const IDLE: Self = Self::Pool { size: u32::MAX, pick: Pick::Idle };
}

/// The choice of a connection from a pool for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A random one, all equally likely.
    Random,
    /// One that has nothing to send and waits for no response; a random one if all are busy.
    Idle,
}

/// The identity of a connection at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionName {
    /// The client's life, incremented at each restart.
    pub life: u32,
    /// The key in the client's table.
    pub key: Key,
}

/// A client's permanent connections.
#[derive(Debug)]
pub struct Pools {
    /// By server and class.
    pools: BTreeMap<(u32, u8), Vec<Option<Key>>>,
    rng: Rng,
}

impl Pools {
    /// No connections yet. `rng` makes random choices among connections.
    pub fn new(rng: Rng) -> Self {
        Self { pools: BTreeMap::new(), rng }
    }

    /// Chooses the connection of the next message: its index in the pool, and the connection there.
    pub fn choose(
        &mut self,
        (server, class): (u32, u8),
        (size, pick): (u32, Pick),
        is_idle: impl Fn(Key) -> bool,
    ) -> (usize, Option<Key>) {
        let pool = self.pools.entry((server, class)).or_default();
        let size = size.max(1) as usize;
        if pick == Pick::Idle {
            let usable = |key: &Option<Key>| key.is_none_or(&is_idle);
            if let Some(index) = pool.iter().position(usable) {
                return (index, pool[index]);
            }
            if pool.len() < size {
                pool.push(None);
                return (pool.len() - 1, None);
            }
        } else {
            pool.resize(size, None);
        }
        let index = match pool.len() {
            1 => 0,
            several => self.rng.uniform_below(several as u32) as usize,
        };
        (index, pool[index])
    }

    /// Puts a connection in its place.
    pub fn set(&mut self, (server, class): (u32, u8), index: usize, key: Key) {
        let place = self.pools.get_mut(&(server, class)).and_then(|pool| pool.get_mut(index));
        if let Some(place) = place {
            *place = Some(key);
        }
    }

    /// Removes a connection that is gone.
    pub fn forget(&mut self, (server, class): (u32, u8), key: Key) {
        let pool = self.pools.get_mut(&(server, class)).into_iter().flatten();
        pool.filter(|place| **place == Some(key)).for_each(|place| *place = None);
    }
}

/// A server's state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It belongs to this connection.
    Open(Key),
    /// It was closed, or is older than the latest in the same slot.
    Over,
    /// It is new. If a connection holds its slot, that connection is over.
    New(Option<Key>),
}

/// A server's connections by their names.
#[derive(Debug, Default)]
pub struct ConnectionNames {
    /// By client and slot in the client's table.
    latest: BTreeMap<(u32, u32), (ConnectionName, Option<Key>)>,
}

impl ConnectionNames {
    /// Looks up a name.
    pub fn find(&self, client: u32, name: ConnectionName) -> Served {
        match self.latest.get(&(client, name.key.slot)) {
            None => Served::New(None),
            Some(&(latest, key)) if name > latest => Served::New(key),
            Some(&(latest, Some(key))) if name == latest => Served::Open(key),
            Some(_) => Served::Over,
        }
    }

    /// Records an open connection.
    pub fn open(&mut self, client: u32, name: ConnectionName, key: Key) {
        self.latest.insert((client, name.key.slot), (name, Some(key)));
    }

    /// Records that a connection is over.
    pub fn close(&mut self, client: u32, name: ConnectionName) {
        if let Some((latest, key)) = self.latest.get_mut(&(client, name.key.slot))
            && *latest == name
        {
            *key = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32, generation: u32) -> Key {
        Key { slot, generation }
    }

    #[test]
    fn a_name_opens_a_connection_only_once() {
        let name = |life, generation| ConnectionName { life, key: key(7, generation) };
        let mut names = ConnectionNames::default();
        assert_eq!(names.find(3, name(0, 0)), Served::New(None));
        names.open(3, name(0, 0), key(1, 1));
        assert_eq!(names.find(3, name(0, 0)), Served::Open(key(1, 1)));
        assert_eq!(names.find(4, name(0, 0)), Served::New(None), "another client");
        names.close(3, name(0, 0));
        assert_eq!(names.find(3, name(0, 0)), Served::Over);
        assert_eq!(names.find(3, name(0, 1)), Served::New(None));
        names.open(3, name(0, 1), key(2, 2));
        assert_eq!(names.find(3, name(0, 0)), Served::Over);
        assert_eq!(names.find(3, name(1, 0)), Served::New(Some(key(2, 2))), "the client restarted");
    }

    #[test]
    fn an_idle_connection_is_preferred_and_all_in_a_pool_are_used() {
        let mut pools = Pools::new(Rng::stream(1, "pools"));
        let two = (2, Pick::Idle);
        assert_eq!(pools.choose((5, 0), two, |_| true), (0, None));
        pools.set((5, 0), 0, key(0, 0));
        assert_eq!(pools.choose((5, 0), two, |_| true), (0, Some(key(0, 0))));
        assert_eq!(pools.choose((5, 0), two, |_| false), (1, None));
        pools.set((5, 0), 1, key(1, 0));
        let mut used = [0; 2];
        for _ in 0..100 {
            used[pools.choose((5, 0), two, |_| false).0] += 1;
        }
        assert!(used[0] > 25 && used[1] > 25, "{used:?}");
        assert_eq!(pools.choose((5, 1), two, |_| true), (0, None), "another class");
        pools.forget((5, 0), key(1, 0));
        assert_eq!(pools.choose((5, 0), two, |k| k.slot == 1), (1, None));
    }
}

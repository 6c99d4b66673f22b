//! The sessions of an engine: by the key id under which datagrams arrive, and by the way that
//! datagrams leave.
//!
//! Invariants: a key id belongs to one session, or to one handshake, and is random. There are at
//! most `max` sessions, and a few of each peer; for a new session an idle one is forgotten. A
//! session is found for a datagram only by its key id, so the caller must compare the address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::config::random;
use crate::secure::{PeerIdentity, SecureSession};

/// Sessions of one peer. Both ends may open one at the same time, and open others after a restart.
const OF_PEER: usize = 4;

/// The way to a peer, as trains name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Way {
    /// The peer.
    pub to: SocketAddr,
    /// The number of the driver's socket.
    pub socket: usize,
    /// The local address, if the socket has several and the peer called one of them.
    pub source: Option<IpAddr>,
}

/// What the peer of a session has yet to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It has not confirmed our handshake with this id.
    Confirm(u64),
    /// The same, and it may have answered early data without having verified us: only its
    /// confirmation counts.
    Complete(u64),
    /// It has not shown that it receives at its address, in its handshake with this id. Nothing is
    /// received by the session.
    Prove(u64),
}

impl Unfinished {
    /// True if it has not confirmed our handshake with this id.
    pub fn is_ours(self, id: u64) -> bool {
        [Self::Confirm(id), Self::Complete(id)].contains(&self)
    }
}

/// A session and how it is used.
pub struct Entry {
    /// The keys.
    pub session: SecureSession,
    /// The key id of datagrams from the peer.
    pub ours: u32,
    /// The key id of datagrams to the peer.
    pub theirs: u32,
    /// The way to the peer.
    pub way: Way,
    /// The peer, as verified.
    pub identity: Arc<PeerIdentity>,
    /// What the peer has yet to do.
    pub unfinished: Option<Unfinished>,
    /// A datagram was opened since the peer was last in doubt.
    pub heard: bool,
    /// Used since the clock hand last passed.
    used: bool,
}

impl Entry {
    /// A session that was not used.
    pub fn new(session: SecureSession, (ours, theirs): (u32, u32), way: Way) -> Self {
        let identity = Arc::new(session.identity().clone());
        Self { session, ours, theirs, way, identity, unfinished: None, heard: false, used: true }
    }

    fn is_unvalidated(&self) -> bool {
        matches!(self.unfinished, Some(Unfinished::Prove(_)))
    }
}

/// What a key id of ours belongs to.
enum KeyUse {
    Session(usize),
    Handshake,
}

/// The table of sessions.
pub struct Sessions {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    by_key: HashMap<u32, KeyUse>,
    /// The sessions of each way, newest last.
    by_way: HashMap<Way, Vec<usize>>,
    /// The last results of both look-ups.
    last_key: Option<(u32, usize)>,
    last_way: Option<(Way, usize)>,
    hand: usize,
    max: usize,
}

impl Sessions {
    /// A table of at most `max` sessions.
    pub fn new(max: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            by_way: HashMap::new(),
            last_key: None,
            last_way: None,
            hand: 0,
            max: max.max(1) as usize,
        }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Reserves a key id for a handshake.
    pub fn reserve(&mut self) -> u32 {
        loop {
            let key = random() as u32;
            if key != 0 && !self.by_key.contains_key(&key) {
                self.by_key.insert(key, KeyUse::Handshake);
                return key;
            }
        }
    }

    /// Releases the key id of a handshake that has ended without a session.
    pub fn release(&mut self, key: u32) {
        if let Some(KeyUse::Handshake) = self.by_key.get(&key) {
            self.by_key.remove(&key);
        }
    }

    /// True if a key id belongs to a handshake in progress.
    pub fn is_reserved(&self, key: u32) -> bool {
        matches!(self.by_key.get(&key), Some(KeyUse::Handshake))
    }

    /// Adds a session; datagrams leave by it from now on.
    pub fn add(&mut self, entry: Entry) {
        if self.len() >= self.max {
            self.evict();
        }
        self.last_way = None;
        let (key, way, unvalidated) = (entry.ours, entry.way, entry.is_unvalidated());
        let index = self.free.pop().unwrap_or(self.entries.len());
        match self.entries.get_mut(index) {
            Some(free) => *free = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        if !unvalidated {
            self.by_key.insert(key, KeyUse::Session(index));
        }
        let of_peer = self.by_way.entry(way).or_default();
        of_peer.push(index);
        let oldest = (of_peer.len() > OF_PEER).then(|| of_peer[0]);
        oldest.into_iter().for_each(|oldest| self.remove(oldest));
    }

    /// True if a way has a session.
    pub fn has(&self, way: &Way) -> bool {
        self.by_way.contains_key(way)
    }

    /// The newest session of a way.
    pub fn to(&mut self, way: &Way) -> Option<&mut Entry> {
        let index = match self.last_way {
            Some((last, index)) if last == *way => index,
            _ => {
                let index = *self.by_way.get(way)?.last()?;
                self.last_way = Some((*way, index));
                index
            }
        };
        let entry = self.entries[index].as_mut()?;
        entry.used = true;
        Some(entry)
    }

    /// The session for a datagram under a key id.
    pub fn with_key(&mut self, key: u32) -> Option<&mut Entry> {
        let index = match self.last_key {
            Some((last, index)) if last == key => index,
            _ => match self.by_key.get(&key)? {
                KeyUse::Session(index) => {
                    self.last_key = Some((key, *index));
                    *index
                }
                KeyUse::Handshake => return None,
            },
        };
        let entry = self.entries[index].as_mut()?;
        entry.used = true;
        Some(entry)
    }

    /// The peer has confirmed our handshake.
    pub fn confirmed(&mut self, way: &Way, id: u64) {
        for index in self.by_way.get(way).into_iter().flatten() {
            let entry = self.entries[*index].as_mut();
            let ours = |of: &mut Unfinished| of.is_ours(id);
            entry.into_iter().for_each(|entry| _ = entry.unfinished.take_if(ours));
        }
    }

    /// The client of a handshake was verified: datagrams are received by its session from now on.
    pub fn note_validated(&mut self, way: &Way, id: u64) {
        for &index in self.by_way.get(way).into_iter().flatten() {
            if let Some(entry) = &mut self.entries[index]
                && entry.unfinished == Some(Unfinished::Prove(id))
            {
                entry.unfinished = None;
                self.by_key.insert(entry.ours, KeyUse::Session(index));
            }
        }
    }

    /// Puts the session of a way under a key id of the peer's in doubt: [`Entry::heard`]. False if
    /// there is none.
    pub fn doubt(&mut self, way: &Way, theirs: u32) -> bool {
        for index in self.by_way.get(way).into_iter().flatten() {
            if let Some(entry) = self.entries[*index].as_mut().filter(|e| e.theirs == theirs) {
                entry.heard = false;
                return true;
            }
        }
        false
    }

    /// Forgets the sessions of a way for which `ends` is true.
    pub fn end(&mut self, way: &Way, ends: impl Fn(&Entry) -> bool) {
        for index in self.by_way.get(way).cloned().unwrap_or_default() {
            if self.entries[index].as_ref().is_some_and(&ends) {
                self.remove(index);
            }
        }
    }

    /// Forgets the sessions of a socket that is closed.
    pub fn unbind(&mut self, socket: usize) {
        for index in 0..self.entries.len() {
            if self.entries[index].as_ref().is_some_and(|entry| entry.way.socket == socket) {
                self.remove(index);
            }
        }
    }

    /// Forgets a session that was not used since the clock hand last passed.
    fn evict(&mut self) {
        // The first look at an entry may only clear its mark.
        for _ in 0..=2 * self.entries.len() {
            self.hand = (self.hand + 1) % self.entries.len();
            match &mut self.entries[self.hand] {
                Some(entry) if entry.is_unvalidated() => {}
                Some(entry) if entry.used => entry.used = false,
                Some(_) => return self.remove(self.hand),
                None => {}
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let Some(entry) = self.entries[index].take() else { return };
        self.free.push(index);
        self.by_key.remove(&entry.ours);
        (self.last_key, self.last_way) = (None, None);
        if let Some(of_peer) = self.by_way.get_mut(&entry.way) {
            of_peer.retain(|other| *other != index);
            if of_peer.is_empty() {
                self.by_way.remove(&entry.way);
            }
        }
    }
}

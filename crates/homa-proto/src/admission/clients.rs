//! Clients by their own account, and what of their requests was executed.
//!
//! Bounded: where there are too many, those that were not active of late are forgotten, and this
//! server gets another boot id for it.

use crate::executed::Epoch;
use crate::packet::PeerId;
use crate::random::Random;
use crate::table::{Keyed, Ref};
use alloc::vec::Vec;

/// Clients whose executions are remembered.
const MAX_CLIENTS: usize = 1 << 16;

/// A client, and what of its requests was executed.
#[derive(Debug)]
pub(super) struct Client {
    token: u64,
    pub(super) epoch: Epoch,
    /// Where it named itself, or had something executed, last.
    pub(super) peer: PeerId,
    /// It had something executed since the hand last passed.
    pub(super) used: bool,
    /// Of its place in the table.
    generation: u32,
}

/// A client that named itself.
pub(super) struct Named {
    pub(super) client: Ref,
    /// Entries that its record begins with; 0 where there was one.
    pub(super) begun: usize,
    /// Whom it was forgotten for: that one's token, and what it had executed.
    pub(super) forgotten: Option<(u64, Epoch)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clients {
    random: Random,
    /// Our boot id, never 0.
    pub(super) boot: u64,
    all: Vec<Client>,
    /// Places in it of clients that were disowned.
    free: Vec<u32>,
    by_name: hashbrown::HashMap<(u64, u32), u32, Keyed>,
    hand: usize,
}

impl Clients {
    pub(super) fn new(seed: u64, hash: Keyed) -> Self {
        let mut random = Random::new(seed);
        let boot = random.next() | 1;
        let by_name = hashbrown::HashMap::with_hasher(hash);
        Self { random, boot, all: Vec::new(), free: Vec::new(), by_name, hand: 0 }
    }

    pub(super) fn get(&self, who: Ref) -> Option<&Client> {
        self.all.get(who.index as usize).filter(|client| client.generation == who.generation)
    }

    pub(super) fn get_mut(&mut self, who: Ref) -> Option<&mut Client> {
        self.all.get_mut(who.index as usize).filter(|client| client.generation == who.generation)
    }

    /// The record of a client that named itself at `peer`, new if need be: then nothing from
    /// `first` on was executed.
    pub(super) fn named(&mut self, (token, epoch): (u64, u32), first: u32, peer: PeerId) -> Named {
        if let Some(&index) = self.by_name.get(&(token, epoch)) {
            let client = &mut self.all[index as usize];
            client.peer = peer;
            let generation = client.generation;
            return Named { client: Ref { index, generation }, begun: 0, forgotten: None };
        }
        let executed = Epoch::beginning_at(epoch, first);
        let begun = executed.entries();
        let mut client = Client { token, epoch: executed, peer, used: false, generation: 0 };
        let mut forgotten = None;
        let index = match self.free.pop() {
            None if self.all.len() < MAX_CLIENTS => {
                self.all.push(client);
                self.all.len() - 1
            }
            free => {
                let index = free.map_or_else(|| self.advance(), |index| index as usize);
                client.generation = self.all[index].generation.wrapping_add(1);
                let old = core::mem::replace(&mut self.all[index], client);
                if free.is_none() {
                    self.by_name.remove(&(old.token, old.epoch.number()));
                    self.boot = self.random.next() | 1;
                    forgotten = Some((old.token, old.epoch));
                }
                index
            }
        };
        self.by_name.insert((token, epoch), index as u32);
        let generation = self.all[index].generation;
        Named { client: Ref { index: index as u32, generation }, begun, forgotten }
    }

    /// Forgets a client, which goes on elsewhere: here it is a stranger. Yields what it had
    /// executed.
    pub(super) fn disown(&mut self, token: u64, epoch: u32) -> Option<Epoch> {
        let index = self.by_name.remove(&(token, epoch))?;
        self.free.push(index);
        let client = &mut self.all[index as usize];
        client.generation = client.generation.wrapping_add(1);
        Some(core::mem::replace(&mut client.epoch, Epoch::beginning_at(epoch, 0)))
    }

    /// Moves the hand to a client that was not active since it last passed, and yields its place.
    fn advance(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.all.len();
            if !core::mem::take(&mut self.all[self.hand].used) {
                return self.hand;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(0);

    #[test]
    fn whoever_is_idle_is_forgotten_first_and_that_is_known() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let busy = clients.named((1, 5), 0, PEER).client;
        let idle = clients.named((2, 5), 0, PEER).client;
        let boot = clients.boot;
        for token in 3..=MAX_CLIENTS as u64 {
            assert!(clients.named((token, 5), 0, PEER).forgotten.is_none());
        }
        assert_eq!(clients.boot, boot);
        let mut forgotten = 0;
        for token in 0..2 * MAX_CLIENTS as u64 {
            if let Some(client) = clients.get_mut(busy) {
                client.used = true;
            }
            forgotten +=
                u32::from(clients.named((1 << 40 | token, 5), 0, PEER).forgotten.is_some());
        }
        assert_eq!(forgotten, 2 * MAX_CLIENTS as u32);
        assert!(clients.get(busy).is_some() && clients.get(idle).is_none());
        assert_eq!(clients.by_name.len(), MAX_CLIENTS);
        assert_ne!(clients.boot, boot);
    }

    #[test]
    fn a_client_that_comes_again_is_the_same_by_name_only() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let first = clients.named((9, 5), 100, PEER).client;
        let of = |clients: &Clients, who, counter| {
            clients.get(who).map(|client| client.epoch.contains(counter))
        };
        assert_eq!((of(&clients, first, 99), of(&clients, first, 100)), (Some(true), Some(false)));
        let _ = clients.get_mut(first).map(|client| client.epoch.remember(100, false));
        let again = clients.named((9, 5), 0, PEER).client;
        assert_eq!(of(&clients, again, 100), Some(true));
        let other = clients.named((8, 5), 0, PEER).client;
        assert_eq!(of(&clients, other, 100), Some(false));
    }

    #[test]
    fn the_place_of_a_disowned_client_is_the_next_ones_and_nobody_is_forgotten_for_it() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let first = clients.named((1, 5), 70, PEER).client;
        for token in 2..=MAX_CLIENTS as u64 {
            clients.named((token, 5), 0, PEER);
        }
        let boot = clients.boot;
        assert_eq!(clients.disown(1, 5).map(|executed| executed.contains(69)), Some(true));
        assert!(clients.disown(1, 5).is_none() && clients.get(first).is_none());
        let again = clients.named((1, 5), 100, PEER);
        assert!(again.forgotten.is_none() && clients.boot == boot);
        assert!(clients.get(again.client).is_some() && clients.get(first).is_none());
        assert!(clients.named((1 << 40, 5), 0, PEER).forgotten.is_some(), "the table is full");
    }
}

//! Clients by their own account, and what of their requests was executed.
//!
//! Bounded: where there are too many, those that were not active of late are forgotten, and this
//! server gets another boot id for it.

use crate::executed::Epoch;
use crate::table::{Keyed, Ref, SplitMix};
use alloc::vec::Vec;

/// Clients whose executions are remembered.
const MAX_CLIENTS: usize = 1 << 16;

/// A client, and what of its requests was executed.
#[derive(Debug)]
pub(super) struct Client {
    token: u64,
    pub(super) epoch: Epoch,
    /// It had something executed since the hand last passed.
    pub(super) used: bool,
    /// Of its place in the table.
    generation: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clients {
    random: SplitMix,
    /// Our boot id, never 0.
    pub(super) boot: u64,
    all: Vec<Client>,
    by_name: hashbrown::HashMap<(u64, u32), u32, Keyed>,
    hand: usize,
}

impl Clients {
    pub(super) fn new(seed: u64, hash: Keyed) -> Self {
        let mut random = SplitMix(seed);
        let boot = random.next() | 1;
        let by_name = hashbrown::HashMap::with_hasher(hash);
        Self { random, boot, all: Vec::new(), by_name, hand: 0 }
    }

    pub(super) fn get(&self, who: Ref) -> Option<&Client> {
        self.all.get(who.index as usize).filter(|client| client.generation == who.generation)
    }

    pub(super) fn get_mut(&mut self, who: Ref) -> Option<&mut Client> {
        self.all.get_mut(who.index as usize).filter(|client| client.generation == who.generation)
    }

    /// The record of a client, new if need be: then nothing from `first` on was executed. Also
    /// yields what was forgotten for it: another's token, and what that client had executed.
    pub(super) fn named(
        &mut self,
        token: u64,
        epoch: u32,
        first: u32,
    ) -> (Ref, Option<(u64, Epoch)>) {
        if let Some(&index) = self.by_name.get(&(token, epoch)) {
            let generation = self.all[index as usize].generation;
            return (Ref { index, generation }, None);
        }
        let epoch_of = Epoch::beginning_at(epoch, first);
        let mut client = Client { token, epoch: epoch_of, used: false, generation: 0 };
        let (index, forgotten) = match self.all.len() < MAX_CLIENTS {
            true => {
                self.all.push(client);
                (self.all.len() - 1, None)
            }
            false => {
                self.advance();
                client.generation = self.all[self.hand].generation.wrapping_add(1);
                let old = core::mem::replace(&mut self.all[self.hand], client);
                self.by_name.remove(&(old.token, old.epoch.number()));
                self.boot = self.random.next() | 1;
                (self.hand, Some((old.token, old.epoch)))
            }
        };
        self.by_name.insert((token, epoch), index as u32);
        (Ref { index: index as u32, generation: self.all[index].generation }, forgotten)
    }

    /// Whoever names itself so is nobody known.
    pub(super) fn disown(&mut self, token: u64, epoch: u32) {
        if let Some(index) = self.by_name.remove(&(token, epoch)) {
            let client = &mut self.all[index as usize];
            // Its place is taken when the hand comes by; nobody goes by this name.
            (client.token, client.used) = (0, false);
            client.generation = client.generation.wrapping_add(1);
        }
    }

    /// Moves the hand to a client that was not active since it last passed.
    fn advance(&mut self) {
        loop {
            self.hand = (self.hand + 1) % self.all.len();
            if !core::mem::take(&mut self.all[self.hand].used) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_idle_is_forgotten_first_and_that_is_known() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let (busy, _) = clients.named(1, 5, 0);
        let (idle, _) = clients.named(2, 5, 0);
        let boot = clients.boot;
        for token in 3..=MAX_CLIENTS as u64 {
            assert!(clients.named(token, 5, 0).1.is_none());
        }
        assert_eq!(clients.boot, boot);
        let mut forgotten = 0;
        for token in 0..2 * MAX_CLIENTS as u64 {
            if let Some(client) = clients.get_mut(busy) {
                client.used = true;
            }
            forgotten += u32::from(clients.named(1 << 40 | token, 5, 0).1.is_some());
        }
        assert_eq!(forgotten, 2 * MAX_CLIENTS as u32);
        assert!(clients.get(busy).is_some() && clients.get(idle).is_none());
        assert_eq!(clients.by_name.len(), MAX_CLIENTS);
        assert_ne!(clients.boot, boot);
    }

    #[test]
    fn a_client_that_comes_again_is_the_same_by_name_only() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let (first, _) = clients.named(9, 5, 100);
        let of = |clients: &Clients, who, counter| {
            clients.get(who).map(|client| client.epoch.contains(counter))
        };
        assert_eq!((of(&clients, first, 99), of(&clients, first, 100)), (Some(true), Some(false)));
        let _ = clients.get_mut(first).map(|client| client.epoch.remember(100, false));
        let (again, _) = clients.named(9, 5, 0);
        assert_eq!(of(&clients, again, 100), Some(true));
        let (other, _) = clients.named(8, 5, 0);
        assert_eq!(of(&clients, other, 100), Some(false));
    }
}

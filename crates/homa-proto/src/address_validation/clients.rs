//! Clients by the token that they identify themselves with, and which of their requests were
//! executed.
//!
//! Invariant: bounded. If there are too many clients, the host with the most loses one (`quotas`),
//! and this server takes another boot id because of that.

use super::quotas::{HostQuotas, Stay};
use crate::completion::replay_window::ClientEpoch;
use crate::packet::PeerId;
use crate::util::random::Random;
use crate::util::slab::Keyed;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most clients whose executions are remembered.
pub(super) const MAX_CLIENTS: usize = 1 << 16;
/// Forgotten clients whose names are kept. If more are forgotten between a challenge and its
/// answer, the challenge is void.
const FORGOTTEN_MAX: usize = 1024;
/// The host of clients that were taken over and have not identified themselves here.
const NOWHERE: u64 = 0;

/// A place in the table of clients, and the generation of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientRef {
    index: u32,
    generation: u32,
}

/// A client, and which of its requests were executed.
#[derive(Debug)]
pub(super) struct KnownClient {
    token: u64,
    pub(super) epoch: ClientEpoch,
    /// The peer from which it identified itself, or had a request executed, last.
    pub(super) peer: PeerId,
    /// The host from which it identified itself last.
    pub(super) host: u64,
    /// It had a request executed since it was last spared.
    pub(super) used: bool,
    /// The generation of its place in the table.
    generation: u32,
    /// The number of its stay at a host, among the stays of clients at this place.
    stay: u32,
}

impl KnownClient {
    /// Token and epoch.
    pub(super) const fn name(&self) -> (u64, u32) {
        (self.token, self.epoch.number())
    }
}

/// A client that identified itself.
pub(super) struct Registered {
    pub(super) client: ClientRef,
    /// Token and epoch of the client that was forgotten for it.
    pub(super) forgotten: Option<(u64, u32)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clients {
    random: Random,
    /// Our boot id, never 0.
    pub(super) boot: u64,
    all: Vec<KnownClient>,
    /// Free places in `all`.
    free: Vec<u32>,
    by_name: hashbrown::HashMap<(u64, u32), u32, Keyed>,
    /// Token and epoch of the clients that were forgotten last, and how many were in all.
    forgotten: VecDeque<(u64, u32)>,
    forgotten_count: u64,
    pub(super) quotas: HostQuotas,
}

impl Clients {
    pub(super) fn new(seed: u64, hash: Keyed) -> Self {
        let mut random = Random::new(seed);
        let boot = random.next() | 1;
        let by_name = hashbrown::HashMap::with_hasher(hash);
        let quotas = HostQuotas::new(hash);
        let (all, free, forgotten, forgotten_count) = Default::default();
        Self { random, boot, all, free, by_name, forgotten, forgotten_count, quotas }
    }

    pub(super) fn get(&self, client_ref: ClientRef) -> Option<&KnownClient> {
        self.all
            .get(client_ref.index as usize)
            .filter(|client| client.generation == client_ref.generation)
    }

    /// The record of a client that identified itself at a peer of a host. A new record says that
    /// nothing from `first` on was executed.
    pub(super) fn register(
        &mut self,
        name: (u64, u32),
        first: u32,
        at: (PeerId, u64),
    ) -> Registered {
        if let Some(&index) = self.by_name.get(&name) {
            return Registered { client: self.arrived(index, at), forgotten: None };
        }
        let forgotten =
            if self.by_name.len() == MAX_CLIENTS { self.forget_for(at.1) } else { None };
        let (token, epoch) = name;
        let ((peer, host), epoch) = (at, ClientEpoch::beginning_at(epoch, first));
        let used = false;
        let mut client = KnownClient { token, epoch, peer, host, used, generation: 0, stay: 0 };
        let index = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(index as usize) {
            Some(free) => {
                (client.generation, client.stay) = (free.generation, free.stay);
                *free = client;
            }
            None => self.all.push(client),
        }
        self.by_name.insert(name, index);
        Registered { client: self.join(index), forgotten }
    }

    /// How many clients were forgotten to make room for others.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten_count
    }

    /// True if a client was, or may have been, forgotten after the first `count` others, and did
    /// not identify itself since.
    pub(super) fn is_forgotten_since(&self, count: u64, name: (u64, u32)) -> bool {
        let since = self.forgotten_count - count;
        let latest = self.forgotten.iter().rev().take(usize::try_from(since).unwrap_or(usize::MAX));
        let may_have_been =
            since > FORGOTTEN_MAX as u64 || latest.into_iter().any(|of| *of == name);
        may_have_been && !self.by_name.contains_key(&name)
    }

    /// All clients: token, and what was executed.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &ClientEpoch)> {
        // A free place has the name of a client that is gone, which may have another place by now.
        let used = |index: usize, client: &KnownClient| {
            self.by_name.get(&client.name()) == Some(&(index as u32))
        };
        let places = self.all.iter().enumerate();
        let clients = places.filter(move |(index, client)| used(*index, client));
        clients.map(|(_, client)| (client.token, &client.epoch))
    }

    /// Takes over the record of a client that identified itself to another endpoint. It is at no
    /// host before it identifies itself here.
    pub(super) fn restore(&mut self, token: u64, epoch: ClientEpoch) {
        let name = (token, epoch.number());
        let client = self.register(name, 0, (PeerId(u32::MAX), NOWHERE)).client;
        let known = &mut self.all[client.index as usize];
        let more = epoch.entries() as isize - known.epoch.entries() as isize;
        known.epoch = epoch;
        self.quotas.charge(NOWHERE, more);
    }

    /// A known client identified itself again, perhaps from another host.
    fn arrived(&mut self, index: u32, (peer, host): (PeerId, u64)) -> ClientRef {
        let client = &mut self.all[index as usize];
        client.peer = peer;
        // Nearly always: it identified itself from another port, or again.
        if client.host == host {
            return ClientRef { index, generation: client.generation };
        }
        let entries = client.epoch.entries();
        let left = core::mem::replace(&mut client.host, host);
        self.leave(index, left, entries);
        self.join(index)
    }

    /// A client counts for the host at which it is.
    fn join(&mut self, index: u32) -> ClientRef {
        let client = &self.all[index as usize];
        let client_ref = ClientRef { index, generation: client.generation };
        self.quotas.charge(client.host, client.epoch.entries() as isize);
        let stay = Stay { client: index, number: client.stay };
        self.quotas.add(client.host, stay, |stay| is_current(&self.all, stay));
        client_ref
    }

    /// A client with this many entries no longer counts for a host.
    fn leave(&mut self, index: u32, host: u64, entries: usize) {
        let client = &mut self.all[index as usize];
        // Entries for this stay are left in the host's list, and become invalid.
        client.stay = client.stay.wrapping_add(1);
        self.quotas.charge(host, -(entries as isize));
        self.quotas.remove(host, |stay| is_current(&self.all, stay));
    }

    /// Forgets a client to make room for another one of a host.
    fn forget_for(&mut self, host: u64) -> Option<(u64, u32)> {
        let all = &mut self.all;
        let evicted = self.quotas.evict(host, |stay| {
            let here = is_current(all, stay);
            here.then(|| core::mem::take(&mut all[stay.client as usize].used))
        });
        let client = &self.all[evicted?.client as usize];
        let name = client.name();
        self.remove(name);
        // Clients that are challenged from now on declare only requests that began since.
        self.boot = self.random.next() | 1;
        if self.forgotten.len() == FORGOTTEN_MAX {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back(name);
        self.forgotten_count += 1;
        Some(name)
    }

    /// Forgets a client: it is not validated here any more.
    pub(super) fn remove(&mut self, name: (u64, u32)) {
        let Some(index) = self.by_name.remove(&name) else { return };
        self.free.push(index);
        let client = &mut self.all[index as usize];
        client.generation = client.generation.wrapping_add(1);
        let executed = core::mem::replace(&mut client.epoch, ClientEpoch::beginning_at(name.1, 0));
        let host = client.host;
        self.leave(index, host, executed.entries());
    }

    /// A request of a client at a peer is executed.
    pub(super) fn remember(&mut self, client_ref: ClientRef, counter: u32, peer: PeerId) {
        let Some(client) = self.all.get_mut(client_ref.index as usize) else { return };
        if client.generation != client_ref.generation {
            return;
        }
        (client.used, client.peer) = (true, peer);
        let crowded = self.quotas.has_its_share(client.host);
        let more = client.epoch.remember(counter, crowded);
        self.quotas.charge(client.host, more);
    }
}

/// True if a client is still at the host where it was listed.
fn is_current(all: &[KnownClient], stay: Stay) -> bool {
    all[stay.client as usize].stay == stay.number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer, and its host.
    const AT: (PeerId, u64) = (PeerId(0), 0);

    /// `count` more clients identify themselves at a host, with tokens from `first` on. Returns the
    /// tokens of those that were forgotten.
    fn name(clients: &mut Clients, host: u64, first: u64, count: usize) -> Vec<u64> {
        let tokens = first..first + count as u64;
        let register =
            tokens.map(|token| clients.register((token, 5), 0, (PeerId(0), host)).forgotten);
        register.flatten().map(|(token, _)| token).collect()
    }

    #[test]
    fn idle_clients_are_forgotten_first_under_a_new_boot_id() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let busy = clients.register((1, 5), 0, AT).client;
        let idle = clients.register((2, 5), 0, AT).client;
        let boot = clients.boot;
        assert!(name(&mut clients, 0, 3, MAX_CLIENTS - 2).is_empty());
        assert_eq!(clients.boot, boot);
        for token in 0..2 * MAX_CLIENTS as u64 {
            clients.remember(busy, 1, AT.0);
            assert_eq!(name(&mut clients, 0, 1 << 40 | token, 1).len(), 1);
        }
        assert!(clients.get(busy).is_some() && clients.get(idle).is_none());
        assert_eq!(clients.by_name.len(), MAX_CLIENTS);
        assert_ne!(clients.boot, boot);
    }

    #[test]
    fn a_host_with_many_names_loses_its_own() {
        let mut clients = Clients::new(1, Keyed::new(7));
        assert!(name(&mut clients, 1, 0, 10).is_empty());
        assert!(name(&mut clients, 2, 100, 10).is_empty());
        // Its last clients are active, which takes nothing from hosts that have fewer.
        let of_many = |token: &u64| (1_000..1 << 40).contains(token);
        let lost = name(&mut clients, 3, 1_000, 2 * MAX_CLIENTS);
        assert_eq!(lost.len(), MAX_CLIENTS + 20);
        assert!(lost.iter().all(of_many));
        for (&(token, _), &index) in &clients.by_name.clone() {
            let generation = clients.all[index as usize].generation;
            clients.remember(ClientRef { index, generation }, token as u32, AT.0);
        }
        assert!(name(&mut clients, 3, 1_000_000, 1_000).iter().all(of_many));
        // Other hosts, known and new, get places of this one.
        assert!(name(&mut clients, 1, 200, 10).iter().all(of_many));
        assert!(name(&mut clients, 4, 300, 10_000).iter().all(of_many));
        assert_eq!(clients.by_name.len(), MAX_CLIENTS);
    }

    #[test]
    fn a_host_with_the_most_clients_loses_its_own() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let half = MAX_CLIENTS / 2;
        name(&mut clients, 1, 0, half);
        name(&mut clients, 2, 1 << 20, half);
        let lost = name(&mut clients, 1, 1 << 40, 1_000);
        assert!(lost.iter().all(|token| *token < 1 << 20), "{lost:?}");
        let lost = name(&mut clients, 2, 1 << 41, 1_000);
        assert!(lost.iter().all(|token| *token >= 1 << 20), "{lost:?}");
    }

    #[test]
    fn of_hosts_with_one_name_each_those_stay_that_are_active() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let at = |host: u64| (PeerId(0), host);
        let busy: Vec<ClientRef> =
            (0..100).map(|n| clients.register((n, 5), 0, at(n)).client).collect();
        for n in 100..3 * MAX_CLIENTS as u64 {
            if n % 100 == 0 {
                busy.iter().for_each(|&client_ref| clients.remember(client_ref, n as u32, AT.0));
            }
            clients.register((n, 5), 0, at(n));
        }
        assert!(busy.iter().all(|&client_ref| clients.get(client_ref).is_some()));
        assert_eq!(clients.by_name.len(), MAX_CLIENTS);
    }

    #[test]
    fn a_client_counts_at_its_last_host() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let moves = clients.register((1, 5), 0, AT).client;
        clients.remember(moves, 1_000, AT.0);
        for host in 1..1_000 {
            assert_eq!(clients.register((1, 5), 0, (PeerId(0), host % 2)).client, moves);
        }
        assert_eq!((clients.quotas.entries_of(0), clients.quotas.entries_of(1)), (0, 1));
        name(&mut clients, 0, 10, MAX_CLIENTS - 1);
        // It is the only client at the other host by now.
        let lost = name(&mut clients, 0, 1_000_000, MAX_CLIENTS);
        assert!(clients.get(moves).is_some() && !lost.contains(&1));
        assert_eq!(clients.quotas.places(), MAX_CLIENTS);
    }

    #[test]
    fn a_client_that_moves_without_end_takes_one_place() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let at = |host: u64| (PeerId(0), host);
        for host in 0..2 {
            clients.register((host, 5), 0, at(host));
        }
        for n in 0..10_000 {
            clients.register((9, 5), 0, at(n % 2));
        }
        assert!(clients.quotas.places() < 100, "{} places of 3 clients", clients.quotas.places());
        // All of them move to a third host, and leave nothing behind.
        name(&mut clients, 0, 100, 10_000);
        for token in 100..10_100 {
            clients.register((token, 5), 0, at(3));
        }
        assert!(clients.quotas.places() < 10_100, "{} places", clients.quotas.places());
    }

    #[test]
    fn a_client_that_comes_again_is_the_same_by_name_only() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let first = clients.register((9, 5), 100, AT).client;
        let of = |clients: &Clients, client_ref, counter| {
            clients.get(client_ref).map(|client| client.epoch.contains(counter))
        };
        assert_eq!((of(&clients, first, 99), of(&clients, first, 100)), (Some(true), Some(false)));
        clients.remember(first, 100, AT.0);
        let again = clients.register((9, 5), 0, AT).client;
        assert_eq!(of(&clients, again, 100), Some(true));
        let other = clients.register((8, 5), 0, AT).client;
        assert_eq!(of(&clients, other, 100), Some(false));
    }

    #[test]
    fn the_place_of_a_removed_client_is_reused_first() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let first = clients.register((1, 5), 70, AT).client;
        name(&mut clients, 0, 2, MAX_CLIENTS - 1);
        let boot = clients.boot;
        clients.remove((1, 5));
        clients.remove((1, 5));
        assert!(clients.get(first).is_none());
        let again = clients.register((1, 5), 100, AT);
        assert!(again.forgotten.is_none() && clients.boot == boot);
        assert!(clients.get(again.client).is_some() && clients.get(first).is_none());
        assert!(clients.register((1 << 40, 5), 0, AT).forgotten.is_some(), "the table is full");
    }

    #[test]
    fn a_host_that_leaves_gaps_pays_for_them_itself() {
        let mut clients = Clients::new(1, Keyed::new(7));
        let honest = clients.register((1, 5), 0, (PeerId(0), 1)).client;
        let gaps = || (0..1_000).map(|n| 200 * n);
        gaps().for_each(|counter| clients.remember(honest, counter, AT.0));
        for token in 0..1_000 {
            let greedy = clients.register((1_000 + token, 5), 0, (PeerId(0), 2)).client;
            for n in 0..2_000 {
                clients.remember(greedy, 200 * n, AT.0);
            }
        }
        for n in 1_000..1_100 {
            clients.remember(honest, 200 * n, AT.0);
        }
        let honest = clients.get(honest).map(|client| &client.epoch);
        assert_eq!(honest.map(|epoch| epoch.contains(200 * 3 + 1)), Some(false));
        assert!(
            clients.quotas.entries_of(2) < crate::completion::replay_window::MAX_ENTRIES * 3 / 4
        );
    }
}

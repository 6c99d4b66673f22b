//! From an id to an RPC, without hashing if the id is our own or the peer keeps sending about one
//! RPC.

use super::state::Rpc;
use crate::event::RpcHandle;
use crate::packet::{PeerId, RpcId};
use crate::util::slab::{Keyed, Slab};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// A map from an id, hashed with a seeded function.
type IdMap<K> = hashbrown::HashMap<K, RpcHandle, Keyed>;

/// RPCs and one-way messages that we began. Ids count up, so a ring holds them by their low bits.
/// If the place of a new RPC is taken and the ring is large enough, the older RPC moves to a map.
#[derive(Debug)]
pub(super) struct ClientRpcs {
    /// Entries of RPCs that ended stay until their place is needed.
    ring: Vec<RpcHandle>,
    long_lived: IdMap<u64>,
    len: usize,
}

impl ClientRpcs {
    const SMALLEST: usize = 64;
    /// A ring with more places per RPC than this does not grow.
    const AMPLE: usize = 4;

    pub(super) fn new(hash: Keyed) -> Self {
        let ring = alloc::vec![RpcHandle::NONE; Self::SMALLEST];
        Self { ring, long_lived: IdMap::with_hasher(hash), len: 0 }
    }

    /// RPCs in progress.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The RPC with this (even) id.
    pub(super) fn find(&self, rpcs: &Slab<Rpc>, id: RpcId) -> Option<RpcHandle> {
        let handle = self.ring[Self::place(id, self.ring.len())];
        if Self::is(rpcs, handle, id) {
            return Some(handle);
        }
        // Nearly always empty, so that no hash is needed.
        if self.long_lived.is_empty() { None } else { self.long_lived.get(&id.0).copied() }
    }

    /// The RPC at an id's place, whether it has this id or not.
    pub(super) fn guess(&self, id: RpcId) -> RpcHandle {
        self.ring[Self::place(id, self.ring.len())]
    }

    pub(super) fn insert(&mut self, rpcs: &Slab<Rpc>, id: RpcId, handle: RpcHandle) {
        self.len += 1;
        self.place_at(rpcs, id, handle);
    }

    /// The RPC `handle`, which had the id `old`, has the id that `rpcs` says.
    pub(super) fn rename(&mut self, rpcs: &Slab<Rpc>, old: RpcId, handle: RpcHandle) {
        let at = Self::place(old, self.ring.len());
        if self.ring[at] == handle {
            self.ring[at] = RpcHandle::NONE;
        }
        self.long_lived.remove(&old.0);
        if let Some(rpc) = rpcs.get(handle) {
            self.place_at(rpcs, rpc.id, handle);
        }
    }

    fn place_at(&mut self, rpcs: &Slab<Rpc>, id: RpcId, handle: RpcHandle) {
        loop {
            let at = Self::place(id, self.ring.len());
            let older = self.ring[at];
            match rpcs.get(older).filter(|rpc| rpc.state.is_client()) {
                // Two live RPCs share a place because the ring is small.
                Some(_) if self.ring.len() < Self::AMPLE * self.len => self.grow(rpcs),
                // The older one lives long: it leaves the ring, so that one old RPC does not make
                // it grow.
                Some(rpc) => {
                    self.long_lived.insert(rpc.id.0, older);
                    self.ring[at] = handle;
                    return;
                }
                None => {
                    self.ring[at] = handle;
                    return;
                }
            }
        }
    }

    /// The RPC with this id ended.
    pub(super) fn remove(&mut self, id: RpcId) {
        self.len -= 1;
        if !self.long_lived.is_empty() {
            self.long_lived.remove(&id.0);
        }
    }

    fn grow(&mut self, rpcs: &Slab<Rpc>) {
        let size = self.ring.len() * 2;
        let old = core::mem::replace(&mut self.ring, alloc::vec![RpcHandle::NONE; size]);
        for handle in old {
            // Entries of RPCs that ended are left behind.
            if let Some(rpc) = rpcs.get(handle).filter(|rpc| rpc.state.is_client()) {
                self.ring[Self::place(rpc.id, size)] = handle;
            }
        }
    }

    fn is(rpcs: &Slab<Rpc>, handle: RpcHandle, id: RpcId) -> bool {
        rpcs.get(handle).is_some_and(|rpc| rpc.id == id && rpc.state.is_client())
    }

    /// `size` is a power of two.
    fn place(id: RpcId, size: usize) -> usize {
        (id.0 >> 1) as usize & (size - 1)
    }
}

/// A client's RPC at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerKey(pub(super) PeerId, pub(super) RpcId);

impl Hash for ServerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // One after the other: an attacker that chooses ids could make a combination of both
        // collide.
        state.write_u64(self.1.0);
        state.write_u32(self.0.0);
    }
}

/// RPCs and one-way messages that peers began.
pub(super) type ServerRpcs = IdMap<ServerKey>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::RpcState;
    use crate::units::Time;
    use std::collections::BTreeMap;

    #[test]
    fn ids_cannot_be_chosen_so_that_peers_collide() {
        use core::hash::BuildHasher;
        let hash = Keyed::new(7);
        let chosen = (0..1_000u32).map(|peer| {
            let id = RpcId(0x8765_4321_0000_0042 ^ u64::from(peer).rotate_right(8));
            hash.hash_one(ServerKey(PeerId(peer), id))
        });
        let distinct: std::collections::BTreeSet<u64> = chosen.collect();
        assert_eq!(distinct.len(), 1_000);
    }

    #[test]
    fn the_ring_agrees_with_a_map_however_long_some_rpcs_live() {
        arbtest::arbtest(|u| {
            let mut rpcs = Slab::new();
            let mut ours = ClientRpcs::new(Keyed::new(7));
            let mut model: BTreeMap<u64, RpcHandle> = BTreeMap::new();
            for n in 0..u.int_in_range(1..=600u64)? {
                let id = RpcId((5 << 32) + 2 * n);
                let rpc = Rpc::new(Time::ZERO, RpcState::ClientOutgoing, id, PeerId(0), (1, 2));
                let handle = rpcs.insert(rpc);
                ours.insert(&rpcs, id, handle);
                model.insert(id.0, handle);
                if u.ratio(1, 8)? {
                    let (&old, &handle) = model.iter().nth(u.choose_index(model.len())?).unwrap();
                    let new = RpcId((6 << 32) + 2 * n);
                    rpcs.get_mut(handle).unwrap().id = new;
                    ours.rename(&rpcs, RpcId(old), handle);
                    model.remove(&old);
                    model.insert(new.0, handle);
                }
                // Most end at once, some never do.
                while model.len() > 3 && u.ratio(4, 5)? {
                    let (&id, &handle) = model.iter().nth(u.choose_index(model.len())?).unwrap();
                    rpcs.remove(handle.index);
                    rpcs.reclaim();
                    ours.remove(RpcId(id));
                    model.remove(&id);
                }
                let probe = RpcId((5 << 32) + 2 * u.int_in_range(0..=n)?);
                for id in [probe, RpcId(probe.0 + (1 << 32))] {
                    assert_eq!(ours.find(&rpcs, id), model.get(&id.0).copied());
                }
                assert_eq!(ours.len(), model.len());
            }
            Ok(())
        });
    }
}

//! All RPCs of an endpoint, by handle and by id, and the ports at which it serves.
//!
//! Invariants: an RPC is in the slab and in one of the two indexes, or in neither; a handle of an
//! RPC that ended is refused (generations).

use super::by_id::{ClientRpcs, ServerKey, ServerRpcs};
use super::id::RpcIds;
use super::state::{EndedRpc, Rpc, RpcState};
use crate::event::RpcHandle;
use crate::packet::{PeerId, RpcId};
use crate::units::Time;
use crate::util::slab::{Keyed, Slab};
use alloc::collections::{BTreeMap, BTreeSet};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RpcTable {
    rpcs: Slab<Rpc>,
    clients: ClientRpcs,
    servers: ServerRpcs,
    ids: RpcIds,
    listening: BTreeSet<u16>,
    /// Ports whose requests are read while they arrive, with the window of each.
    early: BTreeMap<u16, u32>,
    /// Requests to a port, or responses, are or were read while they arrive.
    reads_early: bool,
}

impl RpcTable {
    /// An empty table; the first id follows from `seed`.
    pub(crate) fn new(hash: Keyed, seed: u64, unguessable_ids: bool) -> Self {
        Self {
            rpcs: Slab::new(),
            clients: ClientRpcs::new(hash),
            servers: ServerRpcs::with_hasher(hash),
            ids: RpcIds::new(seed, unguessable_ids),
            listening: BTreeSet::new(),
            early: BTreeMap::new(),
            reads_early: false,
        }
    }

    #[inline]
    pub(crate) fn get(&self, handle: RpcHandle) -> Option<&Rpc> {
        self.rpcs.get(handle)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: RpcHandle) -> Option<&mut Rpc> {
        self.rpcs.get_mut(handle)
    }

    /// All RPCs in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RpcHandle, &Rpc)> + '_ {
        self.rpcs.iter()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Rpc> + '_ {
        self.rpcs.values_mut()
    }

    /// RPCs that this endpoint began, one-way messages included.
    pub(crate) const fn clients(&self) -> usize {
        self.clients.len()
    }

    /// RPCs that peers began.
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn next_id(&mut self) -> RpcId {
        self.ids.next()
    }

    /// The epoch of our ids, and the counter of the next one.
    pub(crate) const fn upcoming_id(&self) -> (u32, u32) {
        self.ids.upcoming()
    }

    pub(super) fn insert_client(&mut self, rpc: Rpc) -> RpcHandle {
        let id = rpc.id;
        let handle = self.rpcs.insert(rpc);
        self.clients.insert(&self.rpcs, id, handle);
        handle
    }

    pub(super) fn insert_server(&mut self, rpc: Rpc) -> RpcHandle {
        let key = ServerKey(rpc.peer, rpc.id);
        let handle = self.rpcs.insert(rpc);
        self.servers.insert(key, handle);
        handle
    }

    /// Gives a client's RPC another id: to its server it is another one, which begins now.
    pub(super) fn renumber(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let old = core::mem::replace(&mut rpc.id, self.ids.next());
        rpc.start_again(now);
        self.clients.rename(&self.rpcs, old, handle);
    }

    /// Removes an RPC that ends. Its slot is used again after [`Self::reclaim`].
    pub(super) fn remove(&mut self, handle: RpcHandle, ended: &EndedRpc) {
        self.rpcs.remove(handle.index);
        if ended.state.is_client() {
            self.clients.remove(ended.id);
        } else {
            self.servers.remove(&ServerKey(ended.peer, ended.id));
        }
    }

    /// A handle of nothing: for a message that ends as it begins.
    pub(crate) fn reserve(&mut self) -> RpcHandle {
        self.rpcs.reserve()
    }

    /// The environment has seen the events of the RPCs that ended.
    #[inline]
    pub(crate) fn reclaim(&mut self) {
        self.rpcs.reclaim();
    }

    /// The tick at which an RPC's slot is checked, for the timing wheel.
    pub(crate) fn armed(&mut self, handle: RpcHandle) -> Option<&mut u64> {
        self.rpcs.armed(handle)
    }

    /// The wheel reached an entry: the RPC in its slot, if the entry was the slot's last.
    pub(crate) fn disarm(&mut self, index: u32, tick: u64) -> Option<RpcHandle> {
        self.rpcs.disarm(index, tick)
    }

    /// The client RPC of an id.
    pub(super) fn client(&self, id: RpcId) -> Option<RpcHandle> {
        self.clients.find(&self.rpcs, id.client())
    }

    /// The server RPC of a peer with an id; `recent` is looked at first.
    pub(super) fn server(&self, peer: PeerId, id: RpcId, recent: RpcHandle) -> Option<RpcHandle> {
        let is = |rpc: &Rpc| rpc.id == id && rpc.peer == peer && !rpc.state.is_client();
        match self.rpcs.get(recent) {
            // A peer mostly sends several packets of one request in a row.
            Some(rpc) if is(rpc) => Some(recent),
            _ => self.servers.get(&ServerKey(peer, id)).copied(),
        }
    }

    /// The client RPC that an id probably has, for prefetching.
    #[inline]
    pub(crate) fn guess_client(&self, id: RpcId) -> RpcHandle {
        self.clients.guess(id.client())
    }

    pub(crate) fn listen(&mut self, port: u16) {
        self.listening.insert(port);
    }

    pub(crate) fn unlisten(&mut self, port: u16) {
        self.listening.remove(&port);
        self.early.remove(&port);
    }

    /// Requests to a port are read while they arrive, through a window of bytes.
    pub(crate) fn listen_early(&mut self, port: u16, window: u32) {
        self.early.insert(port, window);
        self.reads_early = true;
    }

    /// The response to a call is read while it arrives.
    pub(crate) fn read_response(&mut self, handle: RpcHandle, window: u32) {
        if let Some(rpc) = self.rpcs.get_mut(handle).filter(|rpc| rpc.state.is_client()) {
            rpc.set_response_window(window);
            self.reads_early = true;
        }
    }

    /// The window through which requests to a port are read while they arrive; 0: they are not.
    pub(crate) fn early_window(&self, port: u16) -> u32 {
        self.early.get(&port).copied().unwrap_or(0)
    }

    /// The window through which the message that an RPC receives is read; 0: it is taken whole.
    pub(crate) fn window_of(&self, rpc: &Rpc) -> u32 {
        match rpc.state {
            RpcState::ServerIncoming => self.early_window(rpc.ports().0),
            _ => rpc.response_window(),
        }
    }

    /// True if messages are, or were, read while they arrive: some may still arrive.
    #[inline]
    pub(crate) const fn reads_early(&self) -> bool {
        self.reads_early
    }

    pub(crate) fn is_listening(&self, port: u16) -> bool {
        self.listening.contains(&port)
    }
}

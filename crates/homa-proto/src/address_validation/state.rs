//! The state of address validation: of the endpoint, and of each peer in both roles.

use super::clients::{ClientRef, Clients};
use super::directory::ClientDirectory;
use crate::event::RpcHandle;
use crate::units::Time;
use crate::util::random::Random;
use crate::util::slab::Keyed;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Requests that wait for validation have one part in this many of the RPCs and of the memory.
pub(super) const SHARE: u32 = 8;

/// What the endpoint keeps.
#[derive(Debug)]
pub(crate) struct AddressValidation {
    pub(super) random: Random,
    pub(super) clients: Clients,
    /// Which of the endpoints at our address each client identified itself to.
    pub(super) directory: Option<Box<dyn ClientDirectory>>,
    /// Requests that wait for validation, oldest first, and some that no longer do.
    pub(super) pending: VecDeque<RpcHandle>,
    /// How many do, and the memory that they count for.
    pub(super) pending_count: usize,
    memory: u64,
}

impl AddressValidation {
    pub(crate) fn new(seed: u64, hash: Keyed) -> Self {
        let mut random = Random::new(seed);
        let clients = Clients::new(random.next(), hash);
        Self {
            random,
            clients,
            directory: None,
            pending: VecDeque::new(),
            pending_count: 0,
            memory: 0,
        }
    }

    /// True if the share of `budget` that is left for waiting requests is less than `bytes`.
    pub(crate) const fn is_short(&self, bytes: u32, budget: u64) -> bool {
        self.memory + bytes as u64 > budget / SHARE as u64
    }

    /// A waiting request counts for more memory.
    pub(crate) fn charge(&mut self, bytes: u32) {
        self.memory += u64::from(bytes);
    }

    /// A request no longer waits, which counted for `reserved` bytes.
    pub(crate) fn release(&mut self, reserved: u32) {
        self.pending_count -= 1;
        self.memory -= u64::from(reserved);
    }
}

/// The part of a peer's state that each packet reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerValidation {
    /// It answered a challenge, or is called by us: packets to it are not limited.
    validated: bool,
    /// It answered a challenge.
    answered: bool,
}

impl PeerValidation {
    pub(crate) const fn new(validated: bool) -> Self {
        Self { validated, answered: validated }
    }

    #[inline]
    pub(crate) const fn is_validated(self) -> bool {
        self.validated
    }

    pub(super) const fn has_answered(self) -> bool {
        self.answered
    }

    /// We call the peer, so packets to it are not limited.
    pub(super) fn note_called(&mut self) {
        self.validated = true;
    }

    pub(super) fn note_answered(&mut self) {
        *self = Self { validated: true, answered: true };
    }
}

/// The rest of a peer's state.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    /// Its host, for records that outlive its peers.
    pub(super) host_key: u64,
    /// The peer as client: the id of the challenge that waits for an answer; 0: none does.
    pub(super) challenge: u64,
    /// The id of the challenge answered last, whose answer may come twice.
    pub(super) answered: u64,
    /// When it answered last.
    pub(super) answered_at: Option<Time>,
    pub(super) challenged: Option<Time>,
    /// How many clients had been forgotten when its id was drawn.
    pub(super) challenged_after: u64,
    /// Bytes that may be sent to it before it answers.
    pub(super) send_allowance: u32,
    /// Its requests that wait, and some that no longer do.
    pub(super) pending: VecDeque<RpcHandle>,
    /// The clients that it identified itself as, with the epochs of their ids.
    pub(super) clients: Vec<(u32, ClientRef)>,
    /// It answers without identifying itself.
    pub(super) anonymous: bool,
    /// The peer as server: our token there; 0: none yet.
    pub(super) token: u64,
    /// Its boot id as it said last; 0: never.
    pub(super) boot: u64,
    /// No RPC of ours with an id below is in progress there.
    pub(super) first: u64,
    /// It named another boot id since the oldest call in progress there was made.
    pub(super) restarted: bool,
    /// Then a challenge costs a search; until this time, no other is looked at.
    pub(super) searched: Time,
}

impl Validation {
    pub(crate) fn new(host_key: u64) -> Self {
        Self { host_key, ..Self::default() }
    }

    /// The peer shares its quotas with all peers of the same host.
    pub(crate) fn set_host_key(&mut self, host_key: u64) {
        self.host_key = host_key;
    }

    /// The client whose ids have this epoch, if the peer identified itself as such.
    pub(super) fn client(&self, epoch: u32) -> Option<ClientRef> {
        self.clients.iter().find(|(of, _)| *of == epoch).map(|(_, client)| *client)
    }
}

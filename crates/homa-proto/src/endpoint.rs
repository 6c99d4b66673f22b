//! The endpoint: owns the tables and routes each input to the module of its rule. No policy lives
//! here.

use crate::address_validation::AddressValidation;
use crate::config::{Config, Overcommitment, ValidConfig};
use crate::counters::Counters;
use crate::coverage::{Coverage, EndpointInput};
use crate::event::{DropReason, Event, Receipt, RpcHandle, Submit, SubmitError, Submitted};
use crate::grant::IncomingTotals;
use crate::grant::scheduler::{Scheduler, UNLIMITED};
use crate::link::{LinkTable, Links};
use crate::loss::HOST_STALL;
use crate::packet::{Body, Packet, PeerId};
use crate::peer::Peer;
use crate::priority::Levels;
use crate::receive::Overflows;
use crate::rpc::Rpc;
use crate::rpc::id::RpcIds;
use crate::rpc::table::{ClientRpcs, ServerRpcs};
use crate::send::SendQueue;
use crate::units::Time;
use crate::util::random::Random;
use crate::util::slab::{Keyed, Slab};
use crate::util::timer::Wheel;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// What the environment knows about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Peers on one host share this number (overcommitment counts sender hosts, Homa §3.5).
    pub host: u32,
    /// Message bytes that fit in one DATA packet to this peer, at least 1.
    pub max_payload: u32,
}

/// A control packet that waits for the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    /// The latest grant of a message, read when it leaves.
    Grant(RpcHandle),
    /// The RESENDs of a message follow: it may be asked for again.
    Resends(RpcHandle),
    /// NEED_ACK, unless the RPC is acknowledged before it leaves.
    NeedAck(RpcHandle),
    Packet(Packet),
}

/// Control packets that wait for the link above which those that only answer a peer's are dropped:
/// whoever sends faster than our link answers gets fewer answers, not our memory.
const MAX_WAITING: usize = 4_096;

/// Messages whose RESENDs or NEED_ACKs wait for the link above which no more are asked for by
/// timers: answers have not been read either, and questions would be what keeps us from it.
const MAX_QUEUED_RESENDS: u32 = 256;

/// One host's side of the protocol. See the crate's documentation for the calling contract.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: ValidConfig,
    /// Of the last input.
    pub(crate) now: Time,
    pub(crate) counters: Counters,
    pub(crate) coverage: Coverage,
    pub(crate) ids: RpcIds,
    pub(crate) rpcs: Slab<Rpc>,
    pub(crate) client_rpcs: ClientRpcs,
    pub(crate) server_rpcs: ServerRpcs,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) overflows: Overflows,
    pub(crate) listening: BTreeSet<u16>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) control: VecDeque<Control>,
    /// RESENDs and NEED_ACKs among it, by message.
    pub(crate) resends_queued: u32,
    pub(crate) sender: SendQueue,
    pub(crate) scheduler: Scheduler,
    pub(crate) incoming: IncomingTotals,
    pub(crate) levels: Levels,
    pub(crate) links: LinkTable,
    pub(crate) timers: Wheel,
    pub(crate) last_local_port: u16,
    pub(crate) validation: AddressValidation,
    due: Vec<u32>,
    /// Peers with more acks waiting than an ACK packet's worth, and when they are sent.
    pub(crate) late_acks: Vec<PeerId>,
    pub(crate) acks_due: Time,
    /// Since when nothing that peers did was forgotten.
    memory_complete_since: Option<Time>,
}

impl Endpoint {
    /// An endpoint without peers.
    pub fn new(config: ValidConfig) -> Self {
        let mut random = Random::new(config.seed);
        let hash = Keyed::new(random.next() | 1);
        let levels = Levels::new(&config);
        let incoming = IncomingTotals::new(&config);
        let mut endpoint = Self {
            now: Time::ZERO,
            counters: Counters::default(),
            coverage: Coverage::default(),
            ids: RpcIds::new(random.next(), config.unguessable_ids),
            rpcs: Slab::new(),
            client_rpcs: ClientRpcs::new(hash),
            server_rpcs: ServerRpcs::with_hasher(hash),
            peers: Vec::new(),
            overflows: Overflows::default(),
            listening: BTreeSet::new(),
            events: VecDeque::new(),
            control: VecDeque::new(),
            resends_queued: 0,
            sender: SendQueue::new(config.fifo_permille),
            scheduler: Scheduler::new(
                if config.overcommitment == Overcommitment::Unlimited { UNLIMITED } else { 1 },
                config.one_message_per_sender,
                config.fifo_permille > 0,
            ),
            incoming,
            levels,
            links: LinkTable::new(&config),
            timers: Wheel::new(),
            last_local_port: 0,
            validation: AddressValidation::new(random.next(), hash),
            due: Vec::new(),
            late_acks: Vec::new(),
            acks_due: Time::MAX,
            memory_complete_since: None,
            config,
        };
        endpoint.scheduler.set_degree(endpoint.degree());
        endpoint
    }

    /// Accepts requests addressed to a Homa port (not 0).
    pub fn listen(&mut self, port: u16) {
        self.listening.insert(port);
    }

    /// Refuses new requests to a Homa port; those in progress go on.
    pub fn unlisten(&mut self, port: u16) {
        self.listening.remove(&port);
    }

    /// Application in: see [`Submit`].
    pub fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.begin(now);
        match what {
            Submit::Request(request) => self.submit_request(now, &request),
            Submit::Response { rpc, length } => {
                self.cover(Some(rpc), EndpointInput::Response);
                self.submit_response(now, rpc, length)
            }
            Submit::OneWay { peer, length, cookie } => {
                self.submit_one_way(now, peer, length, cookie)
            }
            Submit::Cancel { rpc } => {
                self.cover(Some(rpc), EndpointInput::Cancel);
                self.cancel(rpc)
            }
        }
    }

    /// Network in. After [`Receipt::Placement`], copy the bytes before draining events.
    pub fn receive(&mut self, now: Time, packet: &Packet) -> Receipt {
        self.begin(now);
        let Some(peer) = self.peer_mut(packet.peer) else {
            return self.dropped(DropReason::UnknownPeer);
        };
        let answered = core::mem::take(&mut peer.resend_until) != Time::ZERO;
        peer.last_heard = now;
        if !peer.validated {
            self.grow_send_allowance(packet);
        }
        let receipt = self.dispatch(now, packet);
        self.resume_granting();
        if answered {
            self.next_resend(now, packet.peer);
        }
        receipt
    }

    fn dispatch(&mut self, now: Time, packet: &Packet) -> Receipt {
        let outcome = match &packet.body {
            Body::Data(data) => {
                let handle = self.find(packet);
                if let (Some(recent_rpc), false) = (handle, packet.id.from_server()) {
                    self.note_recent_rpc(packet.peer, recent_rpc);
                }
                self.cover(handle, EndpointInput::Data);
                return match self.on_data(now, packet, data, handle) {
                    Ok(place) => Receipt::Place(place),
                    Err(reason) => self.dropped(reason),
                };
            }
            _ => self.on_control(now, packet),
        };
        match outcome {
            Ok(()) => Receipt::Consumed,
            Err(reason) => self.dropped(reason),
        }
    }

    fn on_control(&mut self, now: Time, packet: &Packet) -> Result<(), DropReason> {
        self.levels.record_control();
        let handle = self.find(packet);
        self.cover(handle, EndpointInput::of(&packet.body));
        if let Some(rpc) = handle.and_then(|handle| self.rpcs.get_mut(handle)) {
            rpc.seen_by_peer = true;
        }
        let known = || handle.ok_or_else(|| self.unknown_or_foreign(packet));
        match packet.body {
            Body::Data(_) | Body::Freeze => {}
            Body::Grant { offset, priority } => {
                let handle = known()?;
                self.on_grant(now, handle, offset, priority)?;
            }
            Body::Resend { offset, length, priority } => match handle {
                Some(handle) => self.on_resend(now, handle, (offset, length), priority),
                None => self.on_resend_unknown(now, packet),
            },
            Body::RpcUnknown { remembered, no_server } => {
                let handle = known()?;
                self.counters.unknowns_received += 1;
                if packet.id.from_server() {
                    self.on_unknown_at_client(now, handle, remembered, no_server);
                } else {
                    self.end_server_rpc(handle);
                }
            }
            Body::Busy => {
                let handle = known()?;
                self.on_busy(now, handle);
            }
            Body::Cutoffs { cutoffs, version, limits } => {
                // Anybody can speak about nothing, or about a request that it made up itself.
                let validated =
                    |handle: &RpcHandle| self.rpcs.get(*handle).is_some_and(|rpc| !rpc.unvalidated);
                let handle = handle.filter(validated);
                if handle.is_none() && self.validates_addresses() {
                    return Err(DropReason::UnknownRpc);
                }
                self.on_cutoffs(packet.peer, handle, cutoffs, version, limits);
            }
            Body::NeedAck if packet.id.from_server() => self.on_need_ack(now, packet, handle),
            Body::Challenge { boot, remembered } if packet.id.from_server() => {
                self.on_challenge(now, packet, (boot, remembered));
            }
            Body::NeedAck | Body::Challenge { .. } => return Err(DropReason::WrongState),
            Body::Ack(acks) if !packet.id.from_server() => {
                self.on_ack(packet.peer, packet.id, &acks);
                let _ = self.on_proof(now, packet, None);
            }
            Body::Proof(proof) if !packet.id.from_server() => {
                self.on_proof(now, packet, Some(proof))?;
            }
            Body::Ack(_) | Body::Proof(_) => return Err(DropReason::WrongState),
        }
        Ok(())
    }

    /// Clock in: acts on everything due at `now`. Idempotent; stale wake-ups are legal. Call it
    /// once when the endpoint is made, too: from its first input on it vouches for what was
    /// executed.
    pub fn expire(&mut self, now: Time) {
        self.begin(now);
        let mut due = core::mem::take(&mut self.due);
        while let Some(tick) = self.timers.fire(now, &mut due) {
            for &index in &due {
                if let Some(handle) = self.rpcs.disarm(index, tick) {
                    self.cover(Some(handle), EndpointInput::Timer);
                    self.check(now, handle);
                }
            }
        }
        self.due = due;
        self.expire_grants(now);
        self.resume_granting();
        self.expire_acks(now);
    }

    /// Clock out: when to call `expire` next.
    pub fn deadline(&self) -> Option<Time> {
        let wheel = self.timers.deadline().unwrap_or(Time::MAX);
        let grants = self.scheduler.next_due().unwrap_or(Time::MAX);
        Some(wheel.min(grants).min(self.acks_due)).filter(|&at| at != Time::MAX)
    }

    /// Network out: the next packet, chosen now. Call when the link can take one; `None` when
    /// nothing may be sent. Control packets go first (Homa §3.2).
    pub fn transmit(&mut self, now: Time) -> Option<Packet> {
        self.transmit_by(now, Links::ALL)
    }

    pub(crate) fn next_packet(&mut self, now: Time, links: Links) -> Option<Packet> {
        while let Some(control) = self.control.pop_front() {
            match control {
                Control::Packet(packet) => {
                    if self.may_send_to(&packet) {
                        return Some(packet);
                    }
                }
                Control::Grant(handle) => {
                    if let Some(packet) = self.grant_packet(now, handle) {
                        return Some(packet);
                    }
                }
                Control::Resends(handle) => {
                    self.resends_queued -= 1;
                    if let Some(rpc) = self.rpcs.get_mut(handle) {
                        rpc.resends_queued = false;
                    }
                }
                Control::NeedAck(handle) => {
                    self.resends_queued -= 1;
                    if let Some(packet) = self.need_ack_packet(handle) {
                        return Some(packet);
                    }
                }
            }
        }
        self.next_data(now, links)
    }

    /// False when `transmit` would yield nothing (true may still mean nothing: a message just
    /// ended).
    pub fn has_packet(&self) -> bool {
        !self.control.is_empty() || self.sender.has_packet()
    }

    /// Control packets that wait for the link: many when `transmit` is called too seldom for what
    /// arrives. From 4,096 on, packets that ask for an answer get none
    /// ([`Counters::answers_withheld`]).
    pub fn waiting_control(&self) -> usize {
        self.control.len()
    }

    /// Application out: the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Environment in: bytes of incoming messages (received or granted, not delivered; of peers
    /// with an account, requests not [`request_accepted`](Self::request_accepted), too) that may be
    /// held. Lowering it withholds grants and drops unscheduled data, to be asked for again later.
    pub fn limit_memory(&mut self, now: Time, bytes: u64) {
        self.begin(now);
        self.set_memory_budget(bytes);
    }

    /// Tells servers at once which RPCs completed, instead of with the next DATA: before a
    /// shutdown.
    pub fn flush_acks(&mut self) {
        self.flush_pending_acks();
    }

    /// RPCs in progress as client and as server.
    pub fn rpcs(&self) -> (usize, usize) {
        (self.client_rpcs.len(), self.server_rpcs.len())
    }

    /// RPCs in progress as server of a local port: takes a look at every RPC.
    pub fn requests_at(&self, port: u16) -> usize {
        let at = |rpc: &Rpc| rpc.local_port == port && !rpc.state.is_client();
        self.rpcs.iter().filter(|(_, rpc)| at(rpc)).count()
    }

    /// An RPC in progress at a local port: `known`, as long as it lasts, spares a search.
    pub fn rpc_at(&self, port: u16, known: Option<RpcHandle>) -> Option<RpcHandle> {
        let lasts = known.filter(|&rpc| self.rpcs.get(rpc).is_some());
        let search = || self.rpcs.iter().find(|(_, rpc)| rpc.local_port == port);
        lasts.or_else(|| search().map(|(handle, _)| handle))
    }

    /// RTTbytes of a peer as estimated now.
    pub fn rtt_bytes(&self, peer: PeerId) -> Option<u32> {
        self.peer(peer).map(|p| p.rtt_bytes)
    }

    /// The cutoffs (largest message per level) that we ask senders to use, and their version.
    pub fn cutoffs(&self) -> ([u32; crate::LEVELS], u16) {
        self.levels.cutoffs()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// For drops decided outside (undecodable packets).
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// How often each input met each state.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Something that was executed here is forgotten.
    pub(crate) fn note_forgotten(&mut self, now: Time) {
        self.memory_complete_since = Some(now);
    }

    /// Since when this endpoint vouches for what was executed: never before its first input.
    pub(crate) fn memory_complete_from(&self) -> Time {
        self.memory_complete_since.unwrap_or(Time::MAX)
    }

    /// Since when nothing that was executed here was forgotten.
    pub(crate) fn memory_complete_since(&self) -> Time {
        self.memory_complete_since.unwrap_or(self.now)
    }

    pub(crate) fn begin(&mut self, now: Time) {
        // Nobody looked at the clock since then: neither at a timer, nor to bring anything.
        let awaited = self.timers.deadline().unwrap_or(Time::MAX).max(self.now);
        if now.since(awaited) >= HOST_STALL {
            self.compensate_stall(now, now.since(awaited));
        }
        self.now = now;
        if self.memory_complete_since.is_none() {
            self.memory_complete_since = Some(now);
            for peer in self.peers.iter_mut().flatten() {
                peer.cold.executed.since = now;
            }
        }
        if self.events.is_empty() {
            self.rpcs.reclaim();
        }
    }

    fn dropped(&mut self, reason: DropReason) -> Receipt {
        self.counters.drop_packet(reason);
        Receipt::Dropped(reason)
    }

    fn cover(&mut self, handle: Option<RpcHandle>, input: EndpointInput) {
        self.coverage.mark(handle.and_then(|w| self.rpcs.get(w)).map(|r| r.state), input);
    }

    /// The RPC a packet belongs to.
    pub(crate) fn find(&self, packet: &Packet) -> Option<RpcHandle> {
        if packet.id.from_server() {
            self.find_client(packet.peer, packet.id)
        } else {
            self.find_server(packet.peer, packet.id)
        }
    }

    /// The peer's next packet is likely of the same RPC.
    fn note_recent_rpc(&mut self, peer: PeerId, handle: RpcHandle) {
        if let Some(peer) = self.peer_mut(peer) {
            peer.recent_rpc = handle;
        }
    }

    /// Why `find` found nothing.
    pub(crate) fn unknown_or_foreign(&self, packet: &Packet) -> DropReason {
        let foreign = packet.id.from_server()
            && self.client_rpcs.find(&self.rpcs, packet.id.client()).is_some();
        if foreign { DropReason::WrongPeer } else { DropReason::UnknownRpc }
    }

    pub(crate) fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(peer.0 as usize)?.as_mut()
    }

    /// A control packet about an RPC to its peer.
    pub(crate) fn control_packet(&self, handle: RpcHandle, body: Body) -> Option<Packet> {
        self.rpcs.get(handle).map(|r| r.control(self.levels.top(), body))
    }

    /// True when there is room for one more answer to a peer's packet.
    pub(crate) fn may_answer(&mut self) -> bool {
        let may = self.control.len() < MAX_WAITING;
        self.counters.answers_withheld += u64::from(!may);
        may
    }

    /// True when timers may ask for more.
    pub(crate) fn may_send_resend(&self) -> bool {
        self.resends_queued < MAX_QUEUED_RESENDS
    }

    pub(crate) fn queue_control(&mut self, handle: RpcHandle, body: Body) {
        if let Some(packet) = self.control_packet(handle, body) {
            self.control.push_back(Control::Packet(packet));
        }
    }
}

//! The endpoint: owns the parts and routes each input to the folder of its rule. It has no rule
//! itself.

use crate::address_validation::state::AddressValidation;
use crate::completion::acks::{AckTimer, ExecutionMemory, RecentAcks};
use crate::config::{Config, ValidConfig};
use crate::counters::Counters;
use crate::coverage::{Coverage, EndpointInput};
use crate::event::{DropReason, Event, Receipt, RpcHandle, Submit, SubmitError, Submitted};
use crate::grant::degree;
use crate::grant::totals::Grants;
use crate::link::{LinkTable, Links};
use crate::loss::RpcTimers;
use crate::packet::{Body, Packet, PeerId, RpcId};
use crate::peer::Peer;
use crate::priority::Levels;
use crate::receive::Overflows;
use crate::rpc::Rpc;
use crate::rpc::room::ReturnTimes;
use crate::rpc::table::RpcTable;
use crate::send::control::{Control, ControlQueue};
use crate::send::queues::SendQueue;
use crate::units::Time;
use crate::util::random::Random;
use crate::util::slab::Keyed;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// One host's side of the protocol. See the crate's documentation for the calling contract.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: ValidConfig,
    /// The time of the last input.
    pub(crate) now: Time,
    pub(crate) counters: Counters,
    coverage: Coverage,
    pub(crate) rpcs: RpcTable,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) events: VecDeque<Event>,
    /// Control packets that wait for the link.
    pub(crate) control: ControlQueue,
    /// Messages that may send.
    pub(crate) send_queue: SendQueue,
    pub(crate) grants: Grants,
    pub(crate) overflows: Overflows,
    pub(crate) levels: Levels,
    pub(crate) links: LinkTable,
    pub(crate) timers: RpcTimers,
    pub(crate) acks: AckTimer,
    pub(crate) recent_acks: RecentAcks,
    pub(crate) return_times: ReturnTimes,
    pub(crate) memory: ExecutionMemory,
    /// There is no room for another request.
    pub(crate) postpones_requests: bool,
    pub(crate) validation: AddressValidation,
}

impl Endpoint {
    /// An endpoint without peers.
    pub fn new(config: ValidConfig) -> Self {
        let mut random = Random::new(config.seed);
        let hash = Keyed::new(random.next());
        let levels = Levels::new(&config);
        Self {
            now: Time::ZERO,
            counters: Counters::default(),
            coverage: Coverage::default(),
            rpcs: RpcTable::new(hash, random.next(), config.unguessable_ids),
            peers: Vec::new(),
            events: VecDeque::new(),
            control: ControlQueue::default(),
            send_queue: SendQueue::new(config.fifo_permille),
            grants: Grants::new(&config, degree(config.overcommitment, levels.scheduled_levels())),
            overflows: Overflows::default(),
            links: LinkTable::new(&config),
            timers: RpcTimers::new(),
            acks: AckTimer::NEW,
            recent_acks: RecentAcks::default(),
            return_times: ReturnTimes::default(),
            memory: ExecutionMemory::default(),
            postpones_requests: false,
            validation: AddressValidation::new(random.next(), hash),
            levels,
            config,
        }
    }

    /// Accepts requests addressed to a Homa port (not 0).
    pub fn listen(&mut self, port: u16) {
        self.rpcs.listen(port);
    }

    /// Refuses new requests to a Homa port; those in progress are not affected.
    pub fn unlisten(&mut self, port: u16) {
        self.rpcs.unlisten(port);
    }

    /// From now on there is no room for another request, because the application that serves next
    /// will have it: clients are asked to come back (BUSY), and nothing of the request is recorded.
    pub fn postpone_requests(&mut self) {
        self.postpones_requests = true;
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
            Submit::Refuse { rpc, reason } => {
                self.cover(Some(rpc), EndpointInput::Cancel);
                self.refuse_request(rpc, reason)
            }
        }
    }

    /// Network in. After [`Receipt::Place`], copy the bytes before draining events.
    pub fn receive(&mut self, now: Time, packet: &Packet) -> Receipt {
        self.receive_packet(now, packet, false)
    }

    #[inline]
    fn receive_packet(&mut self, now: Time, packet: &Packet, idempotent: bool) -> Receipt {
        self.begin(now);
        let Some(peer) = self.peer_mut(packet.peer) else {
            return self.dropped(DropReason::UnknownPeer);
        };
        let answered = peer.loss.heard(now);
        // RFC 9000 §8.1: until then, it is sent at most three times what it sent.
        if !peer.validation.is_validated() {
            self.grow_send_allowance(packet);
        }
        let receipt = self.dispatch(now, packet, idempotent);
        self.resume_granting();
        // Its answer shows that it is alive, so another RPC may ask.
        if answered {
            self.next_resend(now, packet.peer);
        }
        receipt
    }

    /// Network in: as [`Self::receive`], for a packet with a whole request that its client allows
    /// to be executed more than once. It is executed even if its client has not shown yet that it
    /// receives at its address. The environment vouches that the packet is no copy, and limits what
    /// is sent to the address until the client has answered the challenge that the environment
    /// sends ([`Self::note_challenged`]). The execution is not remembered. The request ends if the
    /// client does not answer within a second.
    pub fn receive_idempotent(&mut self, now: Time, packet: &Packet) -> Receipt {
        self.receive_packet(now, packet, true)
    }

    #[inline]
    fn dispatch(&mut self, now: Time, packet: &Packet, idempotent: bool) -> Receipt {
        let outcome = match &packet.body {
            Body::Data(data) => {
                let handle = self.find(packet);
                // Packets of one request mostly come in a row, so the next needs no search.
                if let (Some(recent), false) = (handle, packet.id.from_server())
                    && let Some(peer) = self.peer_mut(packet.peer)
                {
                    peer.note_recent_rpc(recent);
                }
                self.cover(handle, EndpointInput::Data);
                return match self.on_data(now, packet, data, handle, idempotent) {
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
        // Homa §3.4: control packets take a part of the highest level.
        self.levels.record_control();
        let handle = self.find(packet);
        self.cover(handle, EndpointInput::of(&packet.body));
        if let Some(rpc) = handle.and_then(|handle| self.rpcs.get_mut(handle)) {
            rpc.note_seen_by_peer();
        }
        let known = || handle.ok_or_else(|| self.unknown_or_foreign(packet));
        match packet.body {
            // FREEZE stops the kernel module's tracing, and we have none.
            Body::Data(_) | Body::Freeze => {}
            Body::StartMsg { length } => self.on_start_msg(now, packet, handle, length)?,
            Body::Grant { offset, priority } => {
                let handle = known()?;
                self.on_grant(now, handle, offset, priority)?;
            }
            Body::Resend { offset, length, priority } => match handle {
                Some(handle) => self.on_resend(now, handle, (offset, length), priority),
                None => self.on_resend_unknown(now, packet),
            },
            Body::RpcUnknown { remembered, no_server, reason } => {
                let handle = known()?;
                self.counters.unknowns_received += 1;
                if packet.id.from_server() {
                    self.on_unknown_at_client(now, handle, (remembered, no_server), reason);
                } else {
                    // The request ends, because its client does not know the RPC any more.
                    self.end_server_rpc(handle);
                }
            }
            Body::Busy { come_back } => {
                let handle = known()?;
                self.on_busy(now, handle, come_back);
            }
            Body::Cutoffs { cutoffs, version, limits } => {
                // An attacker can name no RPC, or one that it began itself: only an RPC of a
                // validated peer shows who sent this.
                let validated = |handle: &RpcHandle| {
                    self.rpcs.get(*handle).is_some_and(|rpc| !rpc.is_unvalidated())
                };
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
            // Only servers ask for an ACK.
            Body::NeedAck | Body::Challenge { .. } => return Err(DropReason::WrongState),
            Body::Ack(acks) if !packet.id.from_server() => {
                self.on_ack(packet.peer, packet.id, &acks);
                // Peers without the extension answer a challenge with an ACK of its id.
                let _ = self.on_proof(now, packet, None);
            }
            Body::Proof(proof) if !packet.id.from_server() => {
                self.on_proof(now, packet, Some(proof))?;
            }
            // Only clients acknowledge.
            Body::Ack(_) | Body::Proof(_) => return Err(DropReason::WrongState),
        }
        Ok(())
    }

    /// Clock in: acts on everything that is due at `now`. Idempotent; calls that are too early are
    /// legal. It should be called once when the endpoint is created, too: from its first input on
    /// it vouches for its record of executed requests.
    pub fn expire(&mut self, now: Time) {
        self.begin(now);
        self.expire_rpcs(now);
        self.expire_grants(now);
        self.resume_granting();
        self.expire_acks(now);
    }

    /// Clock out: when to call `expire` next.
    pub fn deadline(&self) -> Option<Time> {
        let rpcs = self.timers.deadline().unwrap_or(Time::MAX);
        let grants = self.grants.next_due().unwrap_or(Time::MAX);
        Some(rpcs.min(grants).min(self.acks.due())).filter(|&at| at != Time::MAX)
    }

    /// Network out: the next packet, chosen now. Call when the link can take one; `None` if nothing
    /// may be sent. Control packets go first (Homa §3.2).
    pub fn transmit(&mut self, now: Time) -> Option<Packet> {
        self.transmit_by(now, Links::ALL)
    }

    pub(crate) fn next_packet(&mut self, now: Time, links: Links) -> Option<Packet> {
        // Homa §3.2: control packets leave before all DATA.
        while let Some(control) = self.control.pop() {
            let packet = match control {
                Control::Packet(packet) => self.may_send_to(&packet).then_some(packet),
                Control::Grant(handle) => self.grant_packet(now, handle),
                // A marker without a packet: RESENDs of this RPC may be queued again.
                Control::Resends(handle) => {
                    if let Some(rpc) = self.rpcs.get_mut(handle) {
                        rpc.loss.resends_left();
                    }
                    None
                }
                Control::NeedAck(handle) => self.need_ack_packet(handle),
            };
            if packet.is_some() {
                return packet;
            }
        }
        self.next_data(now, links)
    }

    /// False if `transmit` would return nothing (true may still mean nothing: a message just
    /// ended).
    pub fn has_packet(&self) -> bool {
        !self.control.is_empty() || self.send_queue.has_packet()
    }

    /// Control packets that wait for the link: many if `transmit` is called too rarely for what
    /// arrives. From 4,096 on, packets that ask for an answer get none
    /// ([`Counters::answers_withheld`]).
    pub fn waiting_control(&self) -> usize {
        self.control.len()
    }

    /// Application out: the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Environment in: sets how many bytes of incoming messages may be held. They count when they
    /// are received or granted, until the message is delivered; requests of peers with an account
    /// count until [`request_accepted`](Self::request_accepted). Lowering the limit withholds
    /// grants and drops unscheduled DATA, which is asked for again later.
    pub fn limit_memory(&mut self, now: Time, bytes: u64) {
        self.begin(now);
        self.set_memory_budget(bytes);
    }

    /// RPCs in progress as client and as server.
    pub fn rpcs(&self) -> (usize, usize) {
        (self.rpcs.clients(), self.rpcs.servers())
    }

    /// RPCs in progress as server at a local port. Looks at every RPC.
    pub fn requests_at(&self, port: u16) -> usize {
        let at = |rpc: &Rpc| rpc.ports().0 == port && !rpc.state.is_client();
        self.rpcs.iter().filter(|(_, rpc)| at(rpc)).count()
    }

    /// An RPC in progress at a local port. `known` saves a search as long as that one lasts.
    pub fn rpc_at(&self, port: u16, known: Option<RpcHandle>) -> Option<RpcHandle> {
        let lasts = known.filter(|&rpc| self.rpcs.get(rpc).is_some());
        let search = || self.rpcs.iter().find(|(_, rpc)| rpc.ports().0 == port);
        lasts.or_else(|| search().map(|(handle, _)| handle))
    }

    /// The peer of an RPC in progress.
    pub fn peer_of(&self, rpc: RpcHandle) -> Option<PeerId> {
        self.rpcs.get(rpc).map(|rpc| rpc.peer)
    }

    /// The number of an RPC in progress (client's form).
    pub fn id_of(&self, rpc: RpcHandle) -> Option<RpcId> {
        self.rpcs.get(rpc).map(|rpc| rpc.id)
    }

    /// RTTbytes of a peer as estimated now.
    pub fn rtt_bytes(&self, peer: PeerId) -> Option<u32> {
        self.peer(peer).map(|peer| peer.rtt_bytes())
    }

    /// The cutoffs (largest message per level) that we ask senders to use, and their version.
    pub fn cutoffs(&self) -> ([u32; crate::LEVELS], u16) {
        self.levels.cutoffs()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// For drops that the environment decides (packets that cannot be decoded).
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

    /// The time of the last input.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Due first with each input.
    pub(crate) fn begin(&mut self, now: Time) {
        self.detect_stall(now);
        self.now = now;
        // Nothing can be said about the time before the first input.
        if self.memory.start(now) {
            for peer in self.peers.iter_mut().flatten() {
                peer.cold.executed.restart(now);
            }
        }
        // Slots wait for the events to be read, because those still name their RPCs.
        if self.events.is_empty() {
            self.rpcs.reclaim();
        }
    }

    fn dropped(&mut self, reason: DropReason) -> Receipt {
        self.counters.drop_packet(reason);
        Receipt::Dropped(reason)
    }

    /// Notes that an input met the state of an RPC.
    pub(crate) fn cover(&mut self, handle: Option<RpcHandle>, input: EndpointInput) {
        let rpc = handle.and_then(|handle| self.rpcs.get(handle));
        self.coverage.mark(rpc.map(|rpc| rpc.state), input);
    }

    /// The RPC that a packet is about.
    pub(crate) fn find(&self, packet: &Packet) -> Option<RpcHandle> {
        if packet.id.from_server() {
            self.find_client(packet.peer, packet.id)
        } else {
            self.find_server(packet.peer, packet.id)
        }
    }

    pub(crate) fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(peer.0 as usize)?.as_mut()
    }

    /// A control packet about an RPC to its peer.
    pub(crate) fn control_packet(&self, handle: RpcHandle, body: Body) -> Option<Packet> {
        self.rpcs.get(handle).map(|rpc| rpc.control(self.levels.top(), body))
    }

    /// True if there is room for one more answer to a peer's packet.
    pub(crate) fn may_answer(&mut self) -> bool {
        let may = self.control.may_answer();
        self.counters.answers_withheld += u64::from(!may);
        may
    }

    pub(crate) fn queue_control(&mut self, handle: RpcHandle, body: Body) {
        if let Some(packet) = self.control_packet(handle, body) {
            self.control.push(packet);
        }
    }

    /// Queues a control packet from `ports.0` to `ports.1`; the RPC need not be known here.
    pub(crate) fn queue_control_to(
        &mut self,
        peer: PeerId,
        ports: (u16, u16),
        id: RpcId,
        body: Body,
    ) {
        let priority = self.levels.top();
        let (local_port, remote_port) = ports;
        self.control.push(Packet { peer, priority, local_port, remote_port, id, body });
    }
}

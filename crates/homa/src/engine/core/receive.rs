//! The state that a received packet can change: the protocol machine, message bytes, peers, and
//! events for the application. It is separate from the driver, whose buffers hold the packet in the
//! meantime.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
#[cfg(feature = "encryption")]
use std::sync::Arc;

use hashbrown::HashMap;
use homa_proto::wire::datagram;
use homa_proto::{
    Body, Delivered, DropReason, Endpoint, Event, MessageKind, Packet, PeerId, Receipt,
    RefusalReason, RpcError, RpcHandle, Submit, Time,
};

use super::context::RequestContext;
use super::dialect::UnknownTypes;
#[cfg(feature = "encryption")]
use super::encrypted_peers::EncryptedPeers;
use super::event::{EngineEvent, Partial, QueuedRequest};
use super::messages::Messages;
use super::peers::Peers;
use crate::config::Config;
use crate::driver::{ChallengedClient, Driver, Encapsulation, ReceivedTrain, Rejection};
use crate::engine::fairness::accounts::AccountId;
use crate::engine::net::links::LinkBudgets;
use crate::engine::net::pmtu::PathTable;
use crate::engine::net::shard_group::ShardGroup;
use crate::engine::probes;
use crate::error::CallError;
use crate::message::Message;
use crate::metrics::{EngineCounters, Latencies, RpcOutcome};
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;

/// The priority of received packets. No rule uses it, and reading it from the kernel costs time.
pub(super) const UNASKED: u8 = 0;

/// The state that a received packet can change.
pub struct EngineState {
    /// The protocol machine.
    pub endpoint: Endpoint,
    /// Bytes of messages in progress.
    pub messages: Messages,
    /// Addresses of peers.
    pub peers: Peers,
    /// Send budgets of the links.
    pub links: LinkBudgets,
    /// Paths whose MTU is in question.
    pub paths: PathTable,
    /// Events that the application has not taken.
    pub ready: VecDeque<EngineEvent>,
    /// Bytes of responses that the application has not taken.
    pub waiting: u64,
    /// The value of `waiting` when the protocol's memory limit was last set.
    pub(super) limited_at: u64,
    /// The format of the driver's datagrams.
    encapsulation: Encapsulation,
    /// The engine's configuration.
    pub config: Config,
    /// The engine's counters.
    pub counters: EngineCounters,
    /// Latency histograms.
    pub latencies: Latencies,
    /// Requests whose reply was refused as too long: its bytes, and the limit.
    pub too_long: HashMap<RpcHandle, (usize, u32)>,
    /// A server of this engine reads requests while they arrive.
    pub reads_early: bool,
    /// Packets of unknown types that servers sent.
    pub unknown_types: UnknownTypes,
    /// The reason why calls end now, if their packets were rejected.
    pub rejection: Option<Rejection>,
    /// The verified sender of the packets that are being received.
    #[cfg(feature = "encryption")]
    pub sender_identity: Option<Arc<PeerIdentity>>,
    /// The packets that are being received are early data: whole requests that may be executed more
    /// than once.
    pub is_early_data: bool,
    /// Handshakes of peers that encrypt, although we have no keys.
    #[cfg(feature = "encryption")]
    pub encrypted_peers: EncryptedPeers,
}

impl EngineState {
    /// The state of an engine that has not received anything.
    pub fn new(
        mut endpoint: Endpoint,
        config: Config,
        driver: &dyn Driver,
        shard_group: Option<ShardGroup>,
    ) -> Self {
        let (encapsulation, routes) = (driver.encapsulation(), driver.routes());
        let largest = config.largest_packet(driver.good_mtu());
        let mut peers = Peers::new(config.max_peers, largest, encapsulation, routes);
        peers.set_overhead(driver.overhead());
        Self {
            links: LinkBudgets::new(&config, routes.is_some(), shard_group, &mut endpoint),
            endpoint,
            messages: Messages::new(config.protocol.memory_budget),
            peers,
            paths: PathTable::default(),
            ready: VecDeque::new(),
            waiting: 0,
            limited_at: 0,
            encapsulation,
            config,
            counters: EngineCounters::default(),
            latencies: Latencies::default(),
            too_long: HashMap::new(),
            reads_early: false,
            unknown_types: UnknownTypes::default(),
            rejection: None,
            #[cfg(feature = "encryption")]
            sender_identity: None,
            is_early_data: false,
            #[cfg(feature = "encryption")]
            encrypted_peers: EncryptedPeers::default(),
        }
    }

    /// The peer to call at an address; `None` if the table is full and no other peer can be
    /// forgotten.
    pub fn server(&mut self, now: Time, address: SocketAddr) -> Option<PeerId> {
        let endpoint = &mut self.endpoint;
        let mut found = self.peers.find(now, address, None, endpoint);
        // A call may search the whole table, because its caller waits for it.
        if found.is_none() {
            self.peers.make_room(now, endpoint);
            found = self.peers.find(now, address, None, endpoint);
        }
        self.links.refresh(now, &mut self.endpoint);
        self.prepare(now, found?);
        found
    }

    /// Looks up the link and the MTU of the route to a peer, unless that was done. Call it before a
    /// message to the peer is submitted.
    fn prepare(&mut self, now: Time, peer: PeerId) {
        let answer = self.links.generation();
        if self.peers.measure(peer, answer, &mut self.endpoint)
            && let Some(path) = self.peers.path(peer)
        {
            self.paths.narrow(now, peer, path);
        }
        self.peers.find_link(peer, &mut self.links, &mut self.endpoint);
    }

    /// A message of `length` bytes to a peer was submitted. If larger packets are possible, they
    /// are probed.
    pub fn submitted(&mut self, now: Time, peer: PeerId, length: u32) {
        // `fills_packets` stays true, so that nothing has to be computed again.
        if !self.peers.fills_packets(peer) {
            let in_progress = self.endpoint.rpcs_with(peer);
            self.peers.note_submitted(peer, length, in_progress);
        }
        if let Some(path) = self.peers.wider(peer, length) {
            self.paths.wanted(now, peer, path);
        }
    }

    /// The account to which the reply to a request is charged; `None` if the request has ended.
    pub fn account_of(&self, rpc: RpcHandle) -> Option<AccountId> {
        self.endpoint.peer_of(rpc).map(|peer| self.peers.account(peer))
    }

    /// Receives one datagram of a train.
    pub fn receive(&mut self, now: Time, train: &ReceivedTrain<'_>, bytes: &[u8], port: u16) {
        if self.encapsulation == Encapsulation::Ip {
            return self.receive_packet(now, train, bytes, port);
        }
        if train.from.port() == 0 {
            // UDP allows port 0 for senders that want no answer, so nothing can be sent there.
            return self.endpoint.counters_mut().drop_packet(DropReason::UnknownPeer);
        }
        let datagram = match datagram::decode(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => return self.endpoint.counters_mut().drop_packet(reason),
        };
        self.counters.unknown_extensions += u64::from(datagram.unknown_extensions);
        // The first packet shows whether the sender is a server or a client, and thus which peer it
        // is.
        let mut peers = [None; 2];
        let mut packets = datagram.packets(PeerId(0), UNASKED);
        while let Some(decoded) = packets.next() {
            let mut decoded = match decoded {
                Ok(decoded) => decoded,
                Err(reason) => {
                    self.drop_unread(train, bytes, reason);
                    continue;
                }
            };
            // Only a well-formed packet may add a peer. A server is one peer, no matter which of
            // our addresses it answers.
            let from_server = decoded.packet.id.from_server();
            // A datagram may hold packets of both roles, which are two peers.
            let peer = &mut peers[usize::from(from_server)];
            if peer.is_none() {
                let source = if from_server { None } else { train.to };
                *peer = self.sender(now, train.from, source, &decoded.packet);
            }
            let Some(peer) = *peer else { continue };
            decoded.packet.peer = peer;
            // Homa's ports repeat those of UDP, and the kernel's are authoritative.
            decoded.packet.local_port = port;
            decoded.packet.remote_port = train.from.port();
            self.notice(now, &decoded.packet);
            let receipt = match self.is_early_data && decoded.idempotent {
                true => self.endpoint.receive_idempotent(now, &decoded.packet),
                false => self.endpoint.receive(now, &decoded.packet),
            };
            match receipt {
                Receipt::Place(place) => {
                    self.latencies.stages.arrived(now, place.message, &decoded.packet);
                    self.messages.place(place, decoded.payload);
                    if decoded.empty {
                        self.messages.note_empty(place.message);
                    }
                    if packets.has_request_extensions() {
                        self.messages.note(
                            place.message,
                            RequestContext::from_extensions(now, &packets.request_extensions()),
                        );
                    }
                }
                Receipt::Consumed | Receipt::Dropped(_) => {}
            }
            self.drain_events();
        }
    }

    /// Receives one packet that was the payload of an IP packet.
    fn receive_packet(&mut self, now: Time, train: &ReceivedTrain<'_>, bytes: &[u8], port: u16) {
        let mut decoded = match self.decode_native(now, train, bytes) {
            Ok(decoded) => decoded,
            Err(reason) => return self.endpoint.counters_mut().drop_packet(reason),
        };
        // A server that asks about the port of a process that is gone uses the address that it asks
        // at.
        let ours = decoded.packet.local_port == port;
        let source = if decoded.packet.id.from_server() && ours { None } else { train.to };
        let Some(peer) = self.sender(now, train.from, source, &decoded.packet) else { return };
        decoded.packet.peer = peer;
        self.notice(now, &decoded.packet);
        match self.endpoint.receive(now, &decoded.packet) {
            Receipt::Place(place) => {
                self.latencies.stages.arrived(now, place.message, &decoded.packet);
                self.messages.place(place, decoded.payload);
                if decoded.empty {
                    self.messages.note_empty(place.message);
                }
            }
            Receipt::Consumed | Receipt::Dropped(_) => {}
        }
        self.note_dialect(peer);
        self.drain_events();
    }

    /// The peer that sent a packet. A sender that is not in the table is added only if its packet
    /// needs an answer; other packets cannot belong to an RPC of ours.
    fn sender(
        &mut self,
        now: Time,
        from: SocketAddr,
        source: Option<IpAddr>,
        packet: &Packet,
    ) -> Option<PeerId> {
        let known = self.peers.of(from, source);
        if known.is_some() {
            return known;
        }
        let wants = matches!(
            packet.body,
            Body::Data(_)
                | Body::StartMsg { .. }
                | Body::Resend { .. }
                | Body::NeedAck
                | Body::Challenge { .. }
        );
        let reason = match wants {
            true => {
                let peer = self.peers.find_unvalidated(now, from, source, &mut self.endpoint);
                if peer.is_some() {
                    return peer;
                }
                DropReason::TooManyRpcs
            }
            false => {
                // The answer to a probe may come from an address that is stored as another peer:
                // the client.
                self.paths.answered(now, packet, self.peers.of_peer(from));
                DropReason::UnknownRpc
            }
        };
        self.endpoint.counters_mut().drop_packet(reason);
        None
    }

    /// A client got a challenge in its handshake, and is verified.
    pub fn note_challenged(&mut self, now: Time, client: &ChallengedClient) {
        let &ChallengedClient { from, to, id, boot } = client;
        let known = self.peers.of(from, to);
        // It is verified, so it may become a peer before its first packet.
        let peer = known.or_else(|| self.peers.find_unvalidated(now, from, to, &mut self.endpoint));
        if let Some(peer) = peer {
            self.endpoint.note_challenged(now, peer, (id, boot));
        }
    }

    /// Packets show that the peer is alive, and control packets also whether the path works.
    fn notice(&mut self, now: Time, packet: &Packet) {
        self.paths.heard(packet.peer);
        // DATA has arrived, so it shows nothing more about the path.
        if matches!(packet.body, Body::Data(_)) {
            return;
        }
        probes::control(packet);
        self.latencies.stages.control(now, packet);
        // Loss has nothing to do with size if all packets were short; an ACK may answer a probe.
        if let Some(path) = self.peers.path(packet.peer)
            && (self.peers.fills_packets(packet.peer) || matches!(packet.body, Body::Ack(_)))
        {
            self.paths.notice(now, packet, path, &self.endpoint);
        }
    }

    /// Handles the events of the protocol; call it after every input.
    pub fn drain_events(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Started { rpc, total, .. } => self.follow(rpc, total),
                Event::Readable { rpc, message, kind, offset, cookie } => {
                    self.announce(Partial { rpc, message, kind, cookie, offset });
                }
                // The application was told of it with its first bytes.
                Event::Delivered(delivered) if self.is_announced(&delivered) => {
                    self.complete(&delivered);
                }
                Event::Delivered(delivered) => self.deliver(&delivered),
                Event::Failed { rpc, cookie, error } => {
                    let ended = self.ended(rpc, RpcOutcome::of(error), 0);
                    // Without an answer, a refusal of our own system is the better explanation.
                    let silent =
                        matches!(error, RpcError::DeadlineExceeded | RpcError::PeerUnreachable);
                    let reason = ended.filter(|_| silent).and_then(|(began, peer)| {
                        let refused = self.peers.refusal_since(began, peer);
                        let refused = refused.map(|errno| CallError::SendRefused { errno });
                        let unread = self.unknown_types.since(began, peer);
                        refused.or(unread.map(|kind| CallError::NewerPeer { kind }))
                    });
                    let result = Err(reason.unwrap_or_else(|| self.why(error)));
                    self.ready.push_back(EngineEvent::Response { rpc, cookie, result, lent: 0 });
                }
                Event::Cancelled { rpc } => {
                    // No reply to it will be tried again.
                    self.too_long.remove(&rpc);
                    self.ended(rpc, RpcOutcome::Cancelled, 0);
                    self.ready.push_back(EngineEvent::Cancelled { rpc });
                }
                Event::Release { message } => {
                    self.latencies.stages.released(message);
                    self.messages.release(message);
                }
            }
        }
    }

    /// More of a message is readable. If the last event announced the same message and was not
    /// taken yet, it is updated.
    fn announce(&mut self, partial: Partial) {
        self.messages.readable(partial.message, partial.rpc, partial.offset);
        if self.reads_early && self.announce_request(&partial) {
            return;
        }
        // The application sees only the latest prefix, so events do not pile up.
        if let Some(EngineEvent::Readable(last)) = self.ready.back_mut()
            && last.rpc == partial.rpc
        {
            *last = partial;
            return;
        }
        self.ready.push_back(EngineEvent::Readable(partial));
    }

    fn deliver(&mut self, delivered: &Delivered) {
        let (bytes, lent, context) = self.messages.take(delivered.message);
        let context = self.attributed(context);
        let bytes = Message::from(bytes);
        let rpc = delivered.rpc;
        match delivered.kind {
            MessageKind::Request if context.until <= self.endpoint.now() => {
                let now = self.endpoint.now();
                self.begin_request(now, delivered);
                let account = self.peers.account(delivered.peer);
                // Its memory counts for its host until it is accepted.
                self.accept(QueuedRequest { bytes, early: false, account });
                self.expire(rpc);
            }
            MessageKind::Request => {
                let account = self.peers.account(delivered.peer);
                self.queue_request(
                    delivered,
                    QueuedRequest { bytes, early: false, account },
                    context,
                );
            }
            MessageKind::Response => {
                probes::response_delivered(delivered);
                let cookie = delivered.cookie;
                self.ended(rpc, RpcOutcome::Ok, delivered.length);
                // A response counts as memory until the application takes it.
                self.waiting += bytes.len() as u64;
                let result = Ok(bytes);
                self.ready.push_back(EngineEvent::Response { rpc, cookie, result, lent });
            }
            // These have no wire format.
            MessageKind::OneWay => {}
        }
    }

    /// Passes a request on to the application.
    #[inline]
    pub(super) fn queue_request(
        &mut self,
        delivered: &Delivered,
        bytes: QueuedRequest,
        context: RequestContext,
    ) {
        let &Delivered { rpc, id, peer, local_port: port, .. } = delivered;
        let now = self.endpoint.now();
        self.prepare(now, peer);
        let Some(known) = self.peers.get(peer) else { return };
        let mut from = known.address;
        // Over raw IP a peer is a host, so the port is that of the request.
        from.set_port(delivered.remote_port);
        self.begin_request(now, delivered);
        self.ready.push_back(EngineEvent::Request { rpc, from, port, bytes, id, context });
    }

    /// The application accepts a request.
    pub fn accept(&mut self, request: QueuedRequest) -> Message {
        let QueuedRequest { bytes, early, account } = request;
        if !early {
            // An empty message took one byte of padding.
            self.endpoint.request_accepted(account, bytes.len().max(1) as u32);
        }
        bytes
    }

    /// Drops a request whose deadline has passed, before it is started.
    pub fn expire(&mut self, rpc: RpcHandle) {
        self.ended(rpc, RpcOutcome::Deadline, 0);
        self.counters.requests_expired += 1;
        // This fails if the client has ended it in the meantime.
        let refusal = Submit::Refuse { rpc, reason: RefusalReason::DeadlinePassed };
        let _ = self.endpoint.submit(self.endpoint.now(), refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::memory::{MemoryNetwork, NetworkFaults};

    #[test]
    fn a_datagram_from_port_0_is_dropped_and_counted() {
        let config = Config::default();
        let endpoint = Endpoint::new(config.complete(1 << 20, Encapsulation::Datagram).unwrap());
        let network = MemoryNetwork::new(1, NetworkFaults::NONE);
        let driver = network.driver(SocketAddr::from(([127, 0, 0, 1], 4000))).unwrap();
        let mut state = EngineState::new(endpoint, config, &driver, None);
        let from = SocketAddr::from(([127, 0, 0, 1], 0));
        let bytes = [0; 100];
        let train = ReceivedTrain { from, socket: 0, to: None, datagram: 100, bytes: &bytes };
        state.receive(Time::ZERO, &train, &bytes, 4000);
        assert_eq!(state.endpoint.counters().dropped(DropReason::UnknownPeer), 1);
        assert_eq!(state.peers.count().0, 0);
    }
}

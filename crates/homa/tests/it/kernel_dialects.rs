//! Kernel peers whose wire differs from the module's: packets of types that we do not know, and
//! messages that are announced with START_MSG. The peer is this test, which writes and reads the
//! bytes of packets; the network is in memory and carries them as raw IP would.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::driver::{
    Driver, Encapsulation, Gather, Outbox, ReceivedTrain, Train, TrainPiece, UnreachableReport,
};
use homa::metrics::DriverCounters;
use homa::proto::{
    Acks, Body, Data, DataLayout, DropReason, LinkId, MessageId, Packet, PeerId, RpcId, Span,
    StartMsg, wire,
};
use homa::{CallError, CallOptions, Config, Engine};

use crate::common::{echo, message};
use crate::datagram;

/// A packet type that no packet of the module has.
const OPCODE: u8 = 0x19;
const OURS: &str = "10.0.0.1:4000";
const KERNEL: &str = "10.0.0.2:33000";
/// Bytes of a message in one packet, as at an MTU of 1500.
const PAYLOAD: u32 = 1_424;
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Carries packets in memory as a driver of raw IP does: peers are hosts, and ports are in packets.
struct Native(Box<dyn Driver>);

impl Native {
    fn at(network: &MemoryNetwork, at: &str) -> Box<dyn Driver> {
        Box::new(Self(Box::new(network.driver(at.parse().unwrap()).unwrap())))
    }
}

impl Driver for Native {
    fn encapsulation(&self) -> Encapsulation {
        Encapsulation::Ip
    }

    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.0.bind(at)
    }

    fn unbind(&mut self, socket: usize) {
        self.0.unbind(socket);
    }

    fn local(&self) -> &[SocketAddr] {
        self.0.local()
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.0.reaches(socket, to)
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        let Outbox { bytes, pieces, trains } = outbox;
        let addressed = |train: &Train| {
            let TrainPiece::Buffered(header) = &pieces[train.pieces.start] else { panic!() };
            let port = bytes[header.start + 2..].first_chunk().unwrap();
            let to = SocketAddr::new(train.to.ip(), u16::from_be_bytes(*port));
            Train { to, ..train.clone() }
        };
        let trains = trains.iter().map(addressed).collect();
        let outbox = Outbox { bytes: bytes.clone(), pieces: pieces.clone(), trains };
        self.0.send(&outbox, messages);
    }

    fn receive(&mut self, expected: bool) -> usize {
        self.0.receive(expected)
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        self.0.received(index)
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.0.unreachable()
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        self.0.queued(link)
    }

    fn receive_buffer(&self) -> u32 {
        self.0.receive_buffer()
    }

    fn unread(&self) -> u64 {
        self.0.unread()
    }

    fn handles(&self) -> Vec<RawFd> {
        self.0.handles()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.0.first_handle()
    }

    fn counters(&self) -> &DriverCounters {
        self.0.counters()
    }
}

/// The kernel host, with one port.
struct Kernel {
    driver: Box<dyn Driver>,
    layout: Option<DataLayout>,
}

impl Kernel {
    fn new(network: &MemoryNetwork, at: &str, layout: Option<DataLayout>) -> Self {
        Self { driver: Box::new(network.driver(at.parse().unwrap()).unwrap()), layout }
    }

    fn start_msg(&self) -> StartMsg {
        StartMsg { opcode: OPCODE, layout: self.layout.unwrap_or(DataLayout::Reserved) }
    }

    fn say(&mut self, id: RpcId, body: Body, payload: &[u8]) {
        let (to, own): (SocketAddr, _) = (OURS.parse().unwrap(), self.driver.local()[0]);
        let (local_port, remote_port) = (own.port(), to.port());
        let packet = Packet { peer: PeerId(0), priority: 0, local_port, remote_port, id, body };
        let mut bytes = vec![0; 80];
        let speaks = self.layout.is_some();
        let len = wire::encode_for(&packet, self.start_msg(), speaks, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(payload);
        datagram::send(&mut *self.driver, to, bytes);
    }

    /// Packets that arrived, with their payload; waits for at least one.
    fn hear(&mut self) -> Vec<(Packet, Vec<u8>)> {
        let end = Instant::now() + GIVE_UP;
        loop {
            let n = self.driver.receive(true);
            let read = |index| {
                let bytes = self.driver.received(index).bytes;
                let speaks = self.layout.is_some();
                let read = wire::decode_from(bytes, PeerId(0), 0, self.start_msg(), speaks);
                let read = read.unwrap();
                (read.packet, read.payload.to_vec())
            };
            let all: Vec<_> = (0..n).map(read).collect();
            if !all.is_empty() {
                return all;
            }
            assert!(Instant::now() < end, "nothing came");
            thread::yield_now();
        }
    }

    /// Sends the bytes of a request from `from` to `to`.
    fn send(&mut self, id: RpcId, request: &[u8], from: u32, to: u32) {
        let length = request.len() as u32;
        for offset in (from..to).step_by(PAYLOAD as usize) {
            let end = (offset + PAYLOAD).min(to);
            let span = Span { message: MessageId(0), offset, len: end - offset };
            let incoming = if self.layout.is_some() { 0 } else { length.min(40_000) };
            let data = Data {
                span,
                message_length: length,
                incoming,
                ack: None,
                cutoff_version: 0,
                retransmit: false,
                incast: None,
            };
            self.say(id, Body::Data(data), &request[offset as usize..end as usize]);
        }
    }

    /// Calls an echo server: returns the response, and the bodies of its packets but DATA.
    fn call(&mut self, id: RpcId, request: &[u8]) -> (Vec<u8>, Vec<Body>) {
        let length = request.len() as u32;
        let (mut sent, mut response, mut left) = (0, vec![0; request.len()], request.len());
        let mut bodies = Vec::new();
        match self.layout {
            Some(_) => self.say(id, Body::StartMsg { length }, &[]),
            None => {
                sent = length.min(40_000);
                self.send(id, request, 0, sent);
            }
        }
        while left > 0 {
            for (packet, payload) in self.hear() {
                match packet.body {
                    Body::Grant { offset, .. } if offset > sent => {
                        self.send(id, request, sent, offset.min(length));
                        sent = offset.min(length);
                    }
                    Body::Data(data) => {
                        let at = data.span.offset as usize;
                        response[at..at + payload.len()].copy_from_slice(&payload);
                        left -= payload.len();
                        let offset = data.span.offset + data.span.len + 40_000;
                        self.say(id, Body::Grant { offset, priority: 0 }, &[]);
                    }
                    Body::StartMsg { length } => {
                        let offset = 40_000.min(length);
                        self.say(id, Body::Grant { offset, priority: 0 }, &[]);
                    }
                    _ => {}
                }
                if !matches!(packet.body, Body::Data(_)) {
                    bodies.push(packet.body);
                }
            }
        }
        self.say(id, Body::Ack(Acks::default()), &[]);
        (response, bodies)
    }
}

#[test]
fn packets_of_unknown_types_are_named_in_the_error_of_a_call() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let engine = Engine::with_driver(Native::at(&network, OURS), Config::linux()).unwrap();
    let mut kernel = Kernel::new(&network, KERNEL, Some(DataLayout::Reserved));
    let (client, to) = (engine.client(), KERNEL.parse().unwrap());
    let mut ends = |answers: bool, deadline| {
        let client = client.clone();
        let options = CallOptions::deadline(Duration::from_millis(deadline));
        let call = thread::spawn(move || client.call_with(to, "hello", &options));
        let id = kernel.hear()[0].0.id.server();
        if answers {
            kernel.say(id, Body::StartMsg { length: 100_000 }, &[]);
        }
        let error = call.join().unwrap().unwrap_err();
        // What it still asked.
        while kernel.driver.receive(true) > 0 {}
        error
    };
    // By the silence of the profile, and by the deadline.
    for deadline in [5_000, 50] {
        assert_eq!(ends(true, deadline), CallError::NewerPeer { kind: OPCODE });
    }
    assert_eq!(engine.metrics().protocol.dropped(DropReason::UnknownType), 2);
    assert_eq!(ends(false, 5_000), CallError::Unreachable);
    assert_eq!(ends(false, 50), CallError::DeadlineExceeded);
    let words = CallError::NewerPeer { kind: OPCODE }.to_string();
    assert!(words.contains("0x19") && words.contains("the peer speaks a newer Homa"), "{words}");
}

#[test]
fn each_kernel_host_is_answered_in_its_own_wire() {
    for layout in [DataLayout::Reserved, DataLayout::Removed] {
        let network = MemoryNetwork::new(1, NetworkFaults::NONE);
        let config = Config::linux().start_msg(OPCODE, layout);
        let engine = Engine::with_driver(Native::at(&network, OURS), config).unwrap();
        let serving = echo(engine.serve().unwrap());
        let request = message(100_000, 1);
        for (n, wire) in [None, Some(layout), None, Some(layout)].into_iter().enumerate() {
            let host = format!("10.0.0.{}:33000", 2 + u8::from(wire.is_some()));
            let mut kernel = Kernel::new(&network, &host, wire);
            let (response, bodies) = kernel.call(RpcId(8 + 2 * n as u64), &request);
            assert!(response == request[..], "{wire:?}");
            let announced = bodies.contains(&Body::StartMsg { length: 100_000 });
            assert_eq!(announced, wire.is_some(), "{wire:?}: {bodies:?}");
            let grants = bodies.iter().filter(|body| matches!(body, Body::Grant { .. }));
            assert!(grants.count() > 0, "{wire:?}: nothing beyond the unscheduled bytes");
        }
        engine.drain(GIVE_UP).unwrap();
        serving.join().unwrap();
    }
}

//! The wire with START_MSG, behind its option: the rules of public forks of the kernel module, as
//! far as they are known.

use std::cell::RefCell;
use std::rc::Rc;

use homa_proto::wire::{self, decode_from, encode_for};
use homa_proto::{
    Body, Config, Data, DataLayout, DropReason, Duration, MessageId, Packet, PeerId, Receipt,
    ResendLength, RpcId, Span, StartMsg,
};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

const OPCODE: u8 = 0x19;
const LONG: u32 = 100_000;
const PEER: PeerId = PeerId(0);

fn forks() -> Config {
    Config::linux().start_msg(OPCODE, DataLayout::Reserved)
}

/// A pair that is known to each other to have START_MSG, and what each sends.
fn acquainted() -> (ClientAndServer, Rc<RefCell<Vec<(usize, Packet)>>>) {
    let mut pair = ClientAndServer::new(forks(), forks());
    for end in [CLIENT, SERVER] {
        // Of an RPC that does not exist, and of one whose port is closed.
        let id = if end == CLIENT { RpcId(9).server() } else { RpcId(8) };
        let (local_port, remote_port) = (1, 2);
        let body = Body::StartMsg { length: LONG };
        let packet = Packet { peer: PEER, priority: 0, local_port, remote_port, id, body };
        assert!(matches!(pair.ends[end].receive(pair.now, &packet), Receipt::Dropped(_)));
        assert!(pair.ends[end].speaks_start_msg(PEER));
    }
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = sent.clone();
    pair.lose = Box::new(move |from, packet, _| {
        seen.borrow_mut().push((from, *packet));
        false
    });
    (pair, sent)
}

fn begins(sent: &[(usize, Packet)], from: usize) -> Body {
    let data = |body: &Body| matches!(body, Body::Data(_) | Body::StartMsg { .. });
    let of = sent.iter().filter(|(end, packet)| *end == from && data(&packet.body));
    of.map(|(_, packet)| packet.body).next().expect("it sent something")
}

#[test]
fn long_messages_wait_for_grants_and_short_ones_do_not() {
    let (mut pair, sent) = acquainted();
    pair.reply = Some((LONG, Duration::micros(1)));
    pair.call(LONG, 1);
    pair.run_for(Duration::millis(4));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, LONG)], "{}", pair.transcript);
    for end in [CLIENT, SERVER] {
        assert_eq!(begins(&sent.borrow(), end), Body::StartMsg { length: LONG });
    }
    let unsaid = |packet: &Packet| matches!(packet.body, Body::Data(data) if data.incoming > 0);
    assert!(!sent.borrow().iter().any(|(_, packet)| unsaid(packet)), "incoming is reserved");
    sent.borrow_mut().clear();
    pair.reply = Some((40_000, Duration::micros(1)));
    pair.call(40_000, 2);
    pair.run_for(Duration::millis(4));
    assert_eq!(pair.seen[CLIENT].len(), 2);
    let announced = |(_, packet): &(usize, Packet)| matches!(packet.body, Body::StartMsg { .. });
    let granted = |(_, packet): &(usize, Packet)| matches!(packet.body, Body::Grant { .. });
    assert!(!sent.borrow().iter().any(|packet| announced(packet) || granted(packet)));
    pair.run_for(Duration::millis(60));
    pair.assert_clean();
}

#[test]
fn a_lost_announcement_is_repeated() {
    for end in [CLIENT, SERVER] {
        let (mut pair, _) = acquainted();
        let mut lost = 0;
        pair.lose = Box::new(move |from, packet, _| {
            let lose = from == end && matches!(packet.body, Body::StartMsg { .. }) && lost < 2;
            lost += u32::from(lose);
            lose
        });
        pair.reply = Some((LONG, Duration::micros(1)));
        pair.call(LONG, 1);
        pair.run_for(Duration::millis(30));
        assert_eq!(pair.seen[CLIENT], [Observed::Response(1, LONG)], "{}", pair.transcript);
        assert_eq!(pair.executions(), 1);
        pair.run_for(Duration::millis(60));
        pair.assert_clean();
    }
}

#[test]
fn a_peer_that_never_sent_start_msg_gets_the_modules_wire() {
    for server in [forks(), Config::linux()] {
        let mut pair = ClientAndServer::new(forks(), server);
        pair.reply = Some((LONG, Duration::micros(1)));
        pair.lose = Box::new(|_, packet, _| {
            assert!(!matches!(packet.body, Body::StartMsg { .. }), "{packet:?}");
            assert!(!matches!(packet.body, Body::Data(data) if data.incoming == 0));
            false
        });
        pair.call(LONG, 1);
        pair.run_for(Duration::millis(4));
        assert_eq!(pair.seen[CLIENT], [Observed::Response(1, LONG)]);
    }
}

#[test]
fn a_peer_is_known_by_what_it_sends_last() {
    let (mut pair, _) = acquainted();
    // It says how much comes unasked, so it has the older wire.
    let body = Body::Data(data(0, 1_000, 40_000));
    let (remote_port, local_port) = (PORTS[CLIENT], PORTS[SERVER]);
    let packet = Packet { peer: PEER, priority: 0, local_port, remote_port, id: RpcId(8), body };
    assert!(matches!(pair.ends[SERVER].receive(pair.now, &packet), Receipt::Place(_)));
    assert!(!pair.ends[SERVER].speaks_start_msg(PEER));
    // Without the option it is an unknown type.
    let mut linux = ClientAndServer::new(Config::linux(), Config::linux());
    let packet = Packet { body: Body::StartMsg { length: LONG }, ..packet };
    let dropped = linux.ends[SERVER].receive(linux.now, &packet);
    assert_eq!(dropped, Receipt::Dropped(DropReason::UnknownType));
}

#[test]
fn data_without_incoming_comes_whole() {
    let mut pair = ClientAndServer::new(forks(), forks());
    let (remote_port, local_port, id) = (PORTS[CLIENT], PORTS[SERVER], RpcId(8));
    for offset in (0..LONG).step_by(1_000).filter(|offset| *offset != 7_000) {
        let body = Body::Data(data(offset, 1_000, 0));
        let packet = Packet { peer: PEER, priority: 0, local_port, remote_port, id, body };
        assert!(matches!(pair.ends[SERVER].receive(pair.now, &packet), Receipt::Place(_)));
    }
    let mut asked = Vec::new();
    for _ in 0..8 {
        pair.now += Duration::millis(1);
        pair.ends[SERVER].expire(pair.now);
        while let Some(packet) = pair.ends[SERVER].transmit(pair.now) {
            asked.push(packet.body);
        }
    }
    asked.retain(|body| !matches!(body, Body::Cutoffs { .. }));
    let [Body::Resend { offset: 7_000, length: ResendLength::Bytes(1_000), .. }] = asked[..] else {
        panic!("no grant, and a RESEND for what is missing: {asked:?}");
    };
}

fn data(offset: u32, len: u32, incoming: u32) -> Data {
    Data {
        span: Span { message: MessageId(0), offset, len },
        message_length: LONG,
        incoming,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        incast: None,
    }
}

#[test]
fn both_layouts_of_data_are_written_and_read() {
    let packet = |body| Packet {
        peer: PEER,
        priority: 5,
        local_port: 40_000,
        remote_port: 4_000,
        id: RpcId(0x1234),
        body,
    };
    for (layout, header) in [(DataLayout::Reserved, 56), (DataLayout::Removed, 52)] {
        let start_msg = StartMsg { opcode: OPCODE, layout };
        for (speaks, len) in [(true, header), (false, 56)] {
            let sent = packet(Body::Data(data(3_000, 4, 0)));
            let mut bytes = [0; 60];
            assert_eq!(encode_for(&sent, start_msg, speaks, &mut bytes), Ok(len));
            bytes[len..len + 4].copy_from_slice(b"abcd");
            let read = decode_from(&bytes[..len + 4], PEER, 5, start_msg, speaks).unwrap();
            assert_eq!((read.packet.body, read.payload), (sent.body, &b"abcd"[..]));
            assert_eq!((read.packet.local_port, read.packet.remote_port), (4_000, 40_000));
            // Whatever is cut off is an error and no panic.
            for short in 0..len + 1 {
                assert!(decode_from(&bytes[..short], PEER, 5, start_msg, speaks).is_err());
            }
        }
        let sent = packet(Body::StartMsg { length: LONG });
        let mut bytes = [0; 32];
        assert_eq!(encode_for(&sent, start_msg, true, &mut bytes), Ok(32));
        assert_eq!(wire::decode(&bytes, PEER, 5), Err(DropReason::UnknownType));
        let read = decode_from(&bytes, PEER, 5, start_msg, false).unwrap().packet;
        assert_eq!((read.body, read.id), (sent.body, sent.id));
    }
}

#[test]
fn the_option_belongs_to_profile_linux_and_to_a_free_type() {
    assert!(forks().validate().is_ok());
    let taken = Config::linux().start_msg(wire::kind::ACK, DataLayout::Reserved);
    let users = Config::for_users(None).start_msg(OPCODE, DataLayout::Reserved);
    for refused in [taken, users] {
        assert_eq!(refused.validate().unwrap_err().field, "start_msg");
    }
}

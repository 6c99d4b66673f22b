//! The rules of a flow one at a time, without a network; for losses see `transport/tests.rs`.

use homa_proto::{PeerId, Submit};

use super::*;

const CONFIG: PFabricConfig = PFabricConfig {
    wire: WireFormat::ethernet(1_500, 40, 40),
    initial_window: 4,
    max_window: 6,
    timeout: Duration::micros(45),
    probe_after: 5,
};
const TIMEOUT: u64 = CONFIG.timeout.0;

fn sender(packets: &[u32]) -> PFabric {
    let mut sender = PFabric::new(CONFIG, 0);
    for &packets in packets {
        start(&mut sender, packets * CONFIG.wire.payload);
    }
    sender
}

fn start(sender: &mut PFabric, length: u32) {
    let what = Submit::OneWay { peer: PeerId(1), length, cookie: 0 };
    sender.submit(Time::ZERO, what).unwrap();
}

/// Serials and numbers of the packets that it sends now.
fn sends(sender: &mut PFabric, now: u64) -> Vec<(u32, u32)> {
    let packets = std::iter::from_fn(|| sender.transmit(Time(now)));
    let number = |packet: PFabricPacket| match packet.body {
        PFabricBody::Data { piece, .. } => (packet.head.serial, piece.packet),
        PFabricBody::Probe { .. } => (packet.head.serial, PROBE),
        other => panic!("{other:?}"),
    };
    packets.map(number).collect()
}

const PROBE: u32 = u32::MAX;

fn ack(sender: &mut PFabric, now: u64, serial: u32, (prefix, packet): (u32, u32)) {
    let head = Head {
        id: homa_proto::RpcId(u64::from(serial) * 2 + 2),
        to: HostId(0),
        serial,
        from_port: 0,
        to_port: 0,
        epoch: 0,
    };
    let body = PFabricBody::Ack { prefix, packet: Some(packet) };
    let arrival = crate::transport::tests::arrival(1);
    let _ = sender.receive(Time(now), &PFabricPacket { head, body }, arrival);
}

#[test]
fn a_flow_starts_with_a_window_that_grows_per_acknowledgement() {
    let mut sender = sender(&[20]);
    assert_eq!(sends(&mut sender, 0), [(0, 0), (0, 1), (0, 2), (0, 3)]);
    ack(&mut sender, 10, 0, (1, 0));
    assert_eq!(sends(&mut sender, 10), [(0, 4), (0, 5)], "the window grew to 5");
    ack(&mut sender, 20, 0, (2, 1));
    ack(&mut sender, 20, 0, (3, 2));
    assert_eq!(sends(&mut sender, 20), [(0, 6), (0, 7), (0, 8)], "and stays at 6");
    // A later packet is acknowledged, so the window does not move.
    ack(&mut sender, 30, 0, (3, 5));
    assert_eq!(sends(&mut sender, 30), []);
}

#[test]
fn the_flow_with_the_fewest_unacknowledged_bytes_goes_first() {
    let mut sender = sender(&[4, 3]);
    assert_eq!(sender.transmit(Time(0)).map(|p| p.head.serial), Some(1));
    let rest = sends(&mut sender, 0);
    assert_eq!(rest, [(1, 1), (1, 2), (0, 0), (0, 1), (0, 2), (0, 3)]);
    // A packet that was sent still counts, because the rank counts acknowledged bytes.
    start(&mut sender, 2 * CONFIG.wire.payload + 1);
    let next = sender.transmit(Time(0)).unwrap();
    assert_eq!(next.head.serial, 2);
    let PFabricBody::Data { left, resent, .. } = next.body else { panic!("{next:?}") };
    assert_eq!((left, resent), (2 * CONFIG.wire.payload + 1, false));
}

#[test]
fn the_rank_of_a_packet_is_the_remaining_size_of_its_flow() {
    let mut sender = sender(&[]);
    start(&mut sender, 5 * CONFIG.wire.payload + 100);
    sends(&mut sender, 0);
    ack(&mut sender, 5, 0, (1, 0));
    ack(&mut sender, 5, 0, (1, 3));
    let next = sender.transmit(Time(5)).unwrap();
    let PFabricBody::Data { left, piece, .. } = next.body else { panic!("{next:?}") };
    assert_eq!((piece.packet, left), (4, 3 * CONFIG.wire.payload + 100));
    ack(&mut sender, 6, 0, (1, 5));
    let (key, _) = (sender.ready.first(), sends(&mut sender, 6));
    assert_eq!(key, None, "all has been sent");
}

#[test]
fn after_a_timeout_missing_packets_go_singly_then_in_pairs() {
    let mut sender = sender(&[20]);
    sends(&mut sender, 0);
    ack(&mut sender, 10, 0, (0, 1));
    ack(&mut sender, 10, 0, (0, 3));
    assert_eq!(sends(&mut sender, 10), [(0, 4), (0, 5)], "the window is 6, from packet 0");
    sender.expire(Time(TIMEOUT - 1));
    assert_eq!(sends(&mut sender, TIMEOUT - 1), [], "only cumulative progress restarts the timer");
    sender.expire(Time(TIMEOUT));
    assert_eq!(sends(&mut sender, TIMEOUT), [(0, 0)]);
    ack(&mut sender, TIMEOUT + 10, 0, (2, 0));
    assert_eq!(
        sends(&mut sender, TIMEOUT + 10),
        [(0, 2)],
        "of packets 2 and 3, the latter is there"
    );
    ack(&mut sender, TIMEOUT + 20, 0, (4, 2));
    assert_eq!(sends(&mut sender, TIMEOUT + 20), [(0, 4), (0, 5), (0, 6)]);
    // From half of six on, the window grows by one per window.
    ack(&mut sender, TIMEOUT + 30, 0, (5, 4));
    assert_eq!(sends(&mut sender, TIMEOUT + 30), [(0, 7)]);
}

#[test]
fn after_five_timeouts_a_flow_probes_until_it_is_answered() {
    let mut sender = sender(&[3]);
    sends(&mut sender, 0);
    for n in 1..5 {
        sender.expire(Time(n * TIMEOUT));
        assert_eq!(sends(&mut sender, n * TIMEOUT), [(0, 0)], "timeout {n}");
    }
    for n in 5..8 {
        sender.expire(Time(n * TIMEOUT));
        assert_eq!(sends(&mut sender, n * TIMEOUT), [(0, PROBE)], "timeout {n}");
    }
    ack(&mut sender, 8 * TIMEOUT, 0, (0, PROBE));
    assert_eq!(sends(&mut sender, 8 * TIMEOUT), [(0, 0)]);
    ack(&mut sender, 8 * TIMEOUT + 1, 0, (3, 0));
    assert!(matches!(sender.event(), Some(Event::Release { .. })));
    assert_eq!((sender.in_flight(), sender.has_packet()), ((0, 0), false));
}

#[test]
fn a_flow_that_waits_for_its_hosts_link_does_not_time_out() {
    let mut sender = sender(&[9, 3]);
    assert_eq!(sender.transmit(Time(0)).map(|p| p.head.serial), Some(1));
    sender.expire(Time(10 * TIMEOUT));
    // Only the packet that was sent is repeated.
    assert_eq!(sends(&mut sender, 10 * TIMEOUT)[..2], [(1, 0), (0, 0)]);
}

#[test]
fn while_data_is_paused_acks_leave_and_probes_do_not_pile_up() {
    let mut host = sender(&[20]);
    host.pause(Time::ZERO, 1 << DATA);
    let head = Head {
        id: homa_proto::RpcId(2),
        to: HostId(0),
        serial: 0,
        from_port: 0,
        to_port: 0,
        epoch: 0,
    };
    let piece = CONFIG.wire.piece(0, 3_000);
    let body = PFabricBody::Data { piece, left: 3_000, resent: false };
    let arrival = crate::transport::tests::arrival(1);
    let _ = host.receive(Time::ZERO, &PFabricPacket { head, body }, arrival);
    let sent = host.transmit(Time::ZERO).map(|packet| packet.body);
    assert!(matches!(sent, Some(PFabricBody::Ack { .. })), "{sent:?}");
    assert_eq!(host.transmit(Time::ZERO), None, "data is paused");

    // A probing flow sends one probe after the pause, rather than one for each timeout.
    host.pause(Time::ZERO, 0);
    assert_eq!(sends(&mut host, 0).len(), 4);
    for n in 1..=5 {
        host.expire(Time(n * TIMEOUT));
        assert_eq!(sends(&mut host, n * TIMEOUT).len(), 1);
    }
    host.pause(Time::ZERO, 1 << DATA);
    for n in 6..=20 {
        host.expire(Time(n * TIMEOUT));
    }
    assert_eq!(sends(&mut host, 20 * TIMEOUT), []);
    host.pause(Time::ZERO, 0);
    host.expire(Time(21 * TIMEOUT));
    assert_eq!(sends(&mut host, 21 * TIMEOUT), [(0, PROBE)]);
}

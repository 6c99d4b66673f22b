//! Packet sizes, and the level of each packet.

use super::{FIRST_BYTES, SCHEDULED, UNSCHEDULED, data, endpoint, simulator, submit};
use homa_proto::{
    Body, Config, GrantWindow, GrantedLevel, Packet, PeerId, RpcId, Time, UnscheduledLevel,
    UnscheduledLimit,
};

/// Gives `sender` a GRANT for the message with that id.
fn grant(sender: &mut homa_proto::Endpoint, id: RpcId, offset: u32, priority: u8) {
    let body = Body::Grant { offset, priority };
    let id = id.server();
    let peer = PeerId(0);
    let packet = Packet { peer, priority: 7, local_port: 0, remote_port: 0, id, body };
    let _ = sender.receive(Time(0), &packet);
}

/// The id of the first message of an endpoint.
fn first_id(config: Config) -> RpcId {
    let mut twin = endpoint(config, 1);
    submit(&mut twin, 0, 1);
    twin.transmit(Time(0)).expect("its only packet").id
}

#[test]
fn unscheduled_bytes_rise_in_level_as_fewer_are_left() {
    let mut sender = endpoint(simulator(), 1);
    submit(&mut sender, 0, 40_000);
    let full = UNSCHEDULED;
    let expected: Vec<_> = (0..6).map(|n| (n * full, full, 4, true)).collect();
    let sent = data(&mut sender, 0);
    assert_eq!(sent[..6], expected);
    assert_eq!(sent[6..], [(6 * full, 676, 4, true)], "9,328 bytes: 10,000 on the wire");
    submit(&mut sender, 0, 9_000);
    let levels: Vec<u8> = data(&mut sender, 0).iter().map(|p| p.2).collect();
    // 9,000, 7,558, 6,116, 4,674, 3,232, 1,790 and 348 bytes left; cutoffs 433, 2,339, 6,756.
    assert_eq!(levels, [4, 4, 5, 5, 5, 6, 7]);
}

#[test]
fn by_message_length_all_unscheduled_bytes_have_one_level() {
    let config = simulator().unscheduled_level(UnscheduledLevel::MessageLength);
    let mut sender = endpoint(config, 1);
    submit(&mut sender, 0, 6_000);
    assert!(data(&mut sender, 0).iter().all(|p| p.2 == 5));
}

#[test]
fn scheduled_packets_hold_fourteen_bytes_more() {
    let mut sender = endpoint(simulator(), 1);
    submit(&mut sender, 0, FIRST_BYTES + SCHEDULED + 1);
    assert_eq!(data(&mut sender, 0).len(), 7);
    grant(&mut sender, first_id(simulator()), FIRST_BYTES + SCHEDULED, 2);
    assert_eq!(data(&mut sender, 0), [(FIRST_BYTES, SCHEDULED, 2, false)]);
    grant(&mut sender, first_id(simulator()), FIRST_BYTES + SCHEDULED + 1, 3);
    assert_eq!(data(&mut sender, 0), [(FIRST_BYTES + SCHEDULED, 1, 3, false)]);
    assert_eq!(sender.rpcs(), (0, 0), "a one-way message that was sent is forgotten");
}

#[test]
fn each_grant_gives_its_level_to_the_bytes_it_allowed() {
    let ends: Vec<u32> = (1..=6).map(|n| FIRST_BYTES + n * SCHEDULED).collect();
    let levels = |granted_level| {
        let config = simulator().granted_level(granted_level);
        let mut sender = endpoint(config.clone(), 1);
        submit(&mut sender, 0, 100_000);
        let _ = data(&mut sender, 0);
        for (&end, level) in ends.iter().zip([0, 0, 3, 1, 1, 6]) {
            grant(&mut sender, first_id(config.clone()), end, level);
        }
        data(&mut sender, 0).iter().map(|p| p.2).collect::<Vec<u8>>()
    };
    assert_eq!(levels(GrantedLevel::OwnBytes), [0, 0, 3, 1, 1, 6]);
    assert_eq!(levels(GrantedLevel::AllUnsent), [6; 6]);
}

#[test]
fn the_unscheduled_limit_is_a_choice_down_to_one_byte() {
    for limit in [1, 500, 1_442, 9_328, 18_656] {
        let config = simulator().unscheduled(UnscheduledLimit::Fixed(limit));
        let mut sender = endpoint(config, 1);
        submit(&mut sender, 0, 100_000);
        let sent = data(&mut sender, 0);
        assert_eq!(sent.iter().map(|p| p.1).sum::<u32>(), limit);
        assert!(sent.iter().all(|p| p.3 && p.1 <= UNSCHEDULED));
    }
}

#[test]
fn windows_follow_rtt_bytes_of_another_network() {
    let config = simulator().with_rtt_wire_bytes(4 * 1_538);
    assert_eq!(config.unscheduled, UnscheduledLimit::Fixed(4 * UNSCHEDULED));
    assert_eq!(config.window, GrantWindow::WireBytes(4 * 1_538));
    assert_eq!(config.tail_boost, 4 * 1_538);
}

//! The automatic priority allocation of Homa §3.4 on measured traffic, compared with Figure 4
//! (workload W2): about 80 % of the bytes are unscheduled, so they get 6 of the 8 levels, and the
//! highest level is for messages up to 280 bytes.

use homa_proto::{
    Body, Config, Data, Duration, Endpoint, MessageId, Packet, PeerId, PeerInfo, Rate, RpcId, Span,
    Time,
};
use homa_workload::sizes::Workload;

const PAYLOAD: u32 = 1442;
const RTT_BYTES: u32 = 10_000;

/// Feeds a receiver the first packets of `messages` messages whose lengths cover the distribution
/// evenly. It also gets the grants for the same number of messages that it sends, because traffic
/// is the same in both directions. Returns the cutoffs after every thousand messages.
fn allocations(workload: &str, messages: u64) -> Vec<[u32; 8]> {
    let sizes = Workload::parse(workload).unwrap().sizes().unwrap();
    // Long messages never complete, because only their first packet is sent. Limits on incomplete
    // messages must therefore not decide which ones are counted.
    let config = Config::sigcomm18(Rate::gbps(10)).max_rpcs(1 << 24).memory_budget(1 << 60);
    let mut endpoint = Endpoint::new(config.validate().unwrap());
    let peer = PeerId(0);
    endpoint.open_peer(peer, PeerInfo { host: 0, max_payload: PAYLOAD });
    endpoint.listen(4000);
    let packet = |id, body| Packet {
        peer,
        priority: 7,
        local_port: 0,
        remote_port: 40_000,
        id: RpcId(id * 2),
        body,
    };
    let (mut now, mut seen) = (Time::ZERO, Vec::new());
    for i in 1..=messages {
        now += Duration::micros(1);
        // Every 2^20 successive draws take one value from each 2^20th of the unit interval, in
        // mixed order. The longest messages, two in a million, therefore occur as often as they
        // should.
        let u = ((i * 650_011 % (1 << 20)) as f64 + 0.5) / f64::from(1 << 20);
        let length = sizes.quantile(u);
        let span = Span { message: MessageId(0), offset: 0, len: length.min(PAYLOAD) };
        let data = Data {
            span,
            message_length: length,
            incoming: length.min(RTT_BYTES),
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            incast: None,
        };
        let _ = endpoint.receive(now, &packet(i, Body::Data(data)));
        for _ in 0..length.saturating_sub(RTT_BYTES).div_ceil(1456) {
            let grant = Body::Grant { offset: length, priority: 0 };
            let _ = endpoint.receive(now, &packet(i, grant));
        }
        while endpoint.event().is_some() {}
        while endpoint.transmit(now).is_some() {}
        if i % 1_000 == 0 {
            seen.push(endpoint.cutoffs().0);
        }
    }
    seen
}

fn unscheduled(cutoffs: &[u32; 8]) -> usize {
    cutoffs.iter().filter(|&&cutoff| cutoff > 0).count()
}

/// W2's share is 6.46 of 8 levels and swings around 6.5 whenever one of the longest messages
/// arrives. The split should not swing with it: if there are six unscheduled levels, a seventh is
/// added only at 6.75.
#[test]
fn w2_gets_six_unscheduled_levels_and_280_bytes_at_the_top() {
    let seen = allocations("w2", 1 << 20);
    let splits: Vec<_> = seen.iter().map(unscheduled).collect();
    // After 65,000 messages the measurement window is full.
    assert!(splits[65..].iter().all(|&split| split == 6), "{splits:?}");
    assert!(seen[65..].iter().all(|cutoffs| cutoffs[7].abs_diff(280) <= 28), "{seen:?}");
}

#[test]
fn short_messages_get_nearly_all_levels_and_long_ones_few() {
    let of = |w| allocations(w, 20_000).last().map_or(0, unscheduled);
    assert_eq!((of("w1"), of("w4"), of("w5")), (7, 1, 1));
    assert!((2..=3).contains(&of("w3")));
}

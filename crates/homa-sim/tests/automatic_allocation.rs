//! The automatic rule of Homa §3.4 on measured traffic, against Figure 4 (workload W2): about 80 %
//! of the bytes are unscheduled, 6 of 8 levels are theirs, and the highest is for messages up to
//! 280 bytes.

use homa_proto::{
    Body, Config, Data, Duration, Endpoint, MessageId, Packet, PeerId, PeerInfo, Rate, RpcId, Span,
    Time,
};
use homa_workload::sizes::Workload;

const PAYLOAD: u32 = 1442;
const RTT_BYTES: u32 = 10_000;

/// Feeds a receiver the first packets of `messages` messages whose lengths cover the distribution
/// evenly, and the grants of as many messages that it sends: traffic is the same in both
/// directions.
fn allocation(workload: &str, messages: u64) -> [u32; 8] {
    let sizes = Workload::parse(workload).unwrap().sizes().unwrap();
    let mut endpoint = Endpoint::new(Config::sigcomm18(Rate::gbps(10)).validate().unwrap());
    let peer = PeerId(0);
    endpoint.open_peer(peer, PeerInfo { host: 0, max_payload: PAYLOAD });
    endpoint.listen(4000);
    let packet = |id, body| Packet {
        peer,
        priority: 7,
        local_port: 4000,
        remote_port: 40_000,
        id: RpcId(id * 2),
        body,
    };
    let mut now = Time::ZERO;
    for i in 1..=messages {
        now += Duration::micros(1);
        // Every 4096 successive draws are one from each 4096th of the unit interval, in mixed
        // order, so that rare long messages come as often as they should.
        let (round, k) = (i / 4096, i * 2531 % 4096);
        let u = (k as f64 + (round as f64 * 0.618_033_988_749_894_9).fract() + 1e-9) / 4096.0;
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
    }
    endpoint.cutoffs().0
}

#[test]
fn w2_gets_six_unscheduled_levels_and_280_bytes_at_the_top() {
    let cutoffs = allocation("w2", 200_000);
    let unscheduled = cutoffs.iter().filter(|&&c| c > 0).count();
    assert_eq!(unscheduled, 6, "{cutoffs:?}");
    assert!(cutoffs[7].abs_diff(280) <= 28, "{cutoffs:?}");
}

#[test]
fn short_messages_get_nearly_all_levels_and_long_ones_nearly_none() {
    let of = |w| allocation(w, 20_000).iter().filter(|&&c| c > 0).count();
    assert_eq!((of("w1"), of("w4"), of("w5")), (7, 1, 1));
    assert!((2..=3).contains(&of("w3")));
}

//! Properties of any exchange: SRPT order at the sender, conservation of credit at the receiver,
//! and that every call ends under any loss, with nothing left behind.

use homa_proto::{
    Body, Config, Data, Duration, Endpoint, GrantWindow, GrantedLevel, Granting, MessageId,
    Overcommitment, Packet, PeerId, PeerInfo, Rate, Request, RpcId, Span, Submit, Time,
    UnscheduledLevel,
};
use std::collections::BTreeMap;

use crate::common::{CLIENT, ClientAndServer, Observed};

const PEER: PeerId = PeerId(0);
const PAYLOAD: u32 = 1400;

fn endpoint(config: Config) -> Endpoint {
    let mut endpoint = Endpoint::new(config.validate().unwrap());
    endpoint.open_peer(PEER, PeerInfo { host: 0, max_payload: PAYLOAD });
    endpoint.listen(4000);
    endpoint
}

fn packet(id: RpcId, body: Body) -> Packet {
    Packet { peer: PEER, priority: 7, local_port: 4000, remote_port: 40_000, id, body }
}

#[test]
fn data_always_comes_from_a_shortest_message_that_may_send() {
    arbtest::arbtest(|u| {
        let mut sender = endpoint(Config::sigcomm18(Rate::gbps(10)));
        // id -> (length, sent, granted)
        let mut messages: BTreeMap<u64, (u32, u32, u32)> = BTreeMap::new();
        let mut unseen = Vec::new();
        for step in 0..u.int_in_range(1..=80u64)? {
            let now = Time(step * 1000);
            match u.int_in_range(0..=3u8)? {
                0 => {
                    let length = u.int_in_range(1..=40_000)?;
                    let request = Request {
                        peer: PEER,
                        local_port: 4000,
                        remote_port: 40_000,
                        length,
                        deadline: Time::MAX,
                        idempotent: false,
                        head: 0,
                        cookie: 0,
                    };
                    sender.submit(now, Submit::Request(request)).unwrap();
                    unseen.push(length);
                }
                1 if !messages.is_empty() => {
                    let ids: Vec<u64> = messages.keys().copied().collect();
                    let id = *u.choose(&ids)?;
                    let entry = messages.get_mut(&id).unwrap();
                    let offset = u.int_in_range(0..=entry.0)?;
                    entry.2 = entry.2.max(offset);
                    let grant = Body::Grant { offset, priority: 0 };
                    let _ = sender.receive(now, &packet(RpcId(id).server(), grant));
                }
                _ => {
                    let Some(sent) = sender.transmit(now) else { continue };
                    let Body::Data(data) = sent.body else { continue };
                    let length = data.message_length;
                    if data.span.offset == 0 {
                        let at = unseen.iter().position(|&l| l == length).unwrap();
                        unseen.remove(at);
                        messages.insert(sent.id.0, (length, 0, length.min(10_000)));
                    }
                    let chosen = length - data.span.offset;
                    let waiting = messages
                        .values()
                        .filter(|m| m.1 < m.2)
                        .map(|m| m.0 - m.1)
                        .chain(unseen.iter().copied())
                        .min();
                    assert!(chosen < waiting.unwrap_or(u32::MAX).saturating_add(16));
                    messages.get_mut(&sent.id.0).unwrap().1 = data.span.offset + data.span.len;
                }
            }
        }
        Ok(())
    });
}

#[test]
fn at_most_rtt_bytes_of_a_message_are_outstanding() {
    arbtest::arbtest(|u| {
        let mut receiver = endpoint(Config::sigcomm18(Rate::gbps(10)));
        // id -> (length, received, granted, next packet)
        let mut messages: Vec<(u32, u32, u32, u32)> = Vec::new();
        for _ in 0..u.int_in_range(1..=12)? {
            let length = u.int_in_range(12_000..=60_000)?;
            messages.push((length, 0, 10_000, 0));
        }
        for step in 0..400u64 {
            let now = Time(step * 1000);
            let may: Vec<usize> =
                (0..messages.len()).filter(|&i| messages[i].3 < messages[i].2).collect();
            if may.is_empty() {
                break;
            }
            let at = *u.choose(&may)?;
            let (length, received, _, offset) = messages[at];
            let len = PAYLOAD.min(length - offset);
            let data = Data {
                span: Span { message: MessageId(0), offset, len },
                message_length: length,
                incoming: 10_000,
                ack: None,
                cutoff_version: 0,
                retransmit: false,
                incast: None,
            };
            let id = RpcId((at as u64 + 1) * 2);
            let _ = receiver.receive(now, &packet(id, Body::Data(data)));
            messages[at].1 = received + len;
            messages[at].3 = offset + len;
            while receiver.event().is_some() {}
            while let Some(sent) = receiver.transmit(now) {
                let Body::Grant { offset, .. } = sent.body else { continue };
                let m = &mut messages[(sent.id.client().0 / 2 - 1) as usize];
                assert!(offset >= m.2, "grants only grow");
                m.2 = offset;
                assert!(m.2 <= m.0 && m.2 - m.1 <= 10_000, "{m:?}");
            }
        }
        Ok(())
    });
}

/// Profile `default` with the options that the paper's simulations vary.
fn varied(u: &mut arbtest::arbitrary::Unstructured<'_>) -> arbtest::arbitrary::Result<Config> {
    let granting = *u.choose(&[
        Granting::PerMessage { least_packets: 1 },
        Granting::Ahead { packets: 5 },
        Granting::PerSender,
    ])?;
    let unlimited = granting != Granting::PerSender && u.arbitrary()?;
    let overcommitment =
        if unlimited { Overcommitment::Unlimited } else { Overcommitment::Fixed(2) };
    Ok(Config::for_users(Rate::gbps(1))
        .granting(granting)
        .overcommitment(overcommitment)
        .window(*u.choose(&[GrantWindow::RttBytes, GrantWindow::WireBytes(10_000)])?)
        .tail_boost(*u.choose(&[0, 10_000])?)
        .scheduled_extra(*u.choose(&[0, 14])?)
        .network_levels(u.int_in_range(1..=8)?)
        .granted_level(*u.choose(&[GrantedLevel::OwnBytes, GrantedLevel::AllUnsent])?)
        .unscheduled_level(
            *u.choose(&[UnscheduledLevel::BytesLeft, UnscheduledLevel::MessageLength])?,
        )
        .memory_budget(*u.choose(&[40_000, 1 << 28])?))
}

#[test]
fn every_call_ends_and_nothing_is_left_under_any_loss() {
    arbtest::arbtest(|u| {
        let config = match u.int_in_range(0..=2u8)? {
            0 => Config::for_users(Rate::gbps(1)),
            1 => Config::linux(),
            _ => varied(u)?,
        };
        let mut pair = ClientAndServer::new(config.clone(), config);
        let pattern: u64 = u.arbitrary()?;
        let lossy = u.ratio(3, 4)?;
        pair.lose = Box::new(move |from, _, n| {
            lossy && n < 400 && (pattern.rotate_left((n as u32 * 7 + from as u32) % 64) & 3) == 0
        });
        let calls = u.int_in_range(1..=8u64)?;
        for cookie in 0..calls {
            let length = *u.choose(&[1, 100, 1400, 1401, 5_000, 20_000, 120_000])?;
            pair.reply =
                Some((*u.choose(&[1, 300, 9_000, 80_000])?, Duration::micros(cookie * 50)));
            pair.call(length, cookie);
            pair.run_for(Duration::micros(u.int_in_range(0..=3000)?));
        }
        pair.run_for(Duration::secs(30));
        let mut ended: Vec<u64> = pair.seen[CLIENT]
            .iter()
            .map(|s| match s {
                Observed::Response(cookie, _) | Observed::Failed(cookie, _) => *cookie,
                other => panic!("a client sees no {other:?}"),
            })
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..calls).collect::<Vec<_>>(), "each call ends once");
        assert!(pair.executions() as u64 <= calls, "executed twice");
        pair.assert_clean();
        Ok(())
    })
    .budget_ms(3_000);
}

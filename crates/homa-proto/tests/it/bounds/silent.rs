//! Hosts that answer challenges, announce messages, and do not send the granted bytes.

use super::*;

const MICRO: Duration = Duration::micros(1);
/// Delay of a link with a round trip of 20 us and 8 Gbit/s, a packet of 1,000 bytes every
/// microsecond.
const DELAY: u64 = 10;
const LASTS: u64 = 1_000_000;
const LENGTH: u32 = 1_000_000;

/// A client that has one long request in progress at any time.
#[derive(Default)]
struct SilentClient {
    request: u64,
    sent: u32,
    granted: u32,
}

impl SilentClient {
    fn next(&mut self) -> Option<Packet> {
        if self.sent == 0 {
            self.request += 1;
            self.granted = 50_000;
        }
        if self.sent >= self.granted {
            return None;
        }
        let packet = with_incoming(data(RpcId(2 * self.request), self.sent, LENGTH), 50_000);
        self.sent = (self.sent + 1_000) % LENGTH;
        Some(packet)
    }
}

fn with_incoming(packet: Packet, incoming: u32) -> Packet {
    let Body::Data(data) = packet.body else { panic!("it is DATA") };
    Packet { body: Body::Data(Data { incoming, ..data }), ..packet }
}

/// Bytes of a client that arrive beside `hosts` silent hosts. Each sends the first packets of
/// `at_once` messages; then one of them, in turns, sends the first packet of another after each
/// `every` microseconds. The packets announce `incoming` unscheduled bytes.
fn arrived_beside(config: Config, hosts: u32, (at_once, every): (u32, u64), incoming: u32) -> u64 {
    let mut server = endpoint(config);
    for host in 1..=hosts {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
        server.set_account(PeerId(host), host, u64::from(host));
    }
    let mut client = SilentClient::default();
    let mut announced = vec![0; hosts as usize + 1];
    let mut announce = |server: &mut Endpoint, now, host: u32| {
        announced[host as usize] += 1;
        let first = with_incoming(data(RpcId(2 * announced[host as usize]), 0, 100_000), incoming);
        let _ = server.receive(now, &Packet { peer: PeerId(host), ..first });
    };
    for _ in 0..at_once {
        (1..=hosts).for_each(|host| announce(&mut server, START, host));
    }
    let (mut under_way, mut grants) = (Vec::new(), Vec::new());
    let mut arrived = 0;
    for micro in 0..LASTS {
        let now = START + Duration(MICRO.0 * micro);
        if micro % every == 0 {
            announce(&mut server, now, 1 + (micro / every) as u32 % hosts);
        }
        under_way.extend(client.next().map(|packet| (micro + DELAY, packet)));
        if under_way.first().is_some_and(|(at, _)| *at == micro) {
            let (_, packet): (u64, Packet) = under_way.remove(0);
            if let Receipt::Place(place) = server.receive(now, &packet) {
                arrived += u64::from(place.len);
            }
        }
        if server.deadline().is_some_and(|at| at <= now) {
            server.expire(now);
        }
        while let Some(packet) = server.transmit(now) {
            if let Body::Grant { offset, .. } = packet.body
                && packet.peer == PEER
            {
                grants.push((micro + DELAY, packet.id.client().0 / 2, offset));
            }
        }
        while server.event().is_some() {}
        grants.retain(|&(at, request, offset)| {
            if at == micro && request == client.request {
                client.granted = client.granted.max(offset);
            }
            at > micro
        });
    }
    arrived
}

#[test]
fn hosts_that_waste_grants_take_little_from_others() {
    // They announce the bytes of the packet alone, or as many as may come unscheduled.
    for incoming in [1_000, 50_000] {
        let arrived = arrived_beside(users(), 8, (500, 2_000), incoming);
        assert!(arrived >= LASTS * 1_000 / 100 * 80, "{incoming}: {arrived} in {LASTS} us");
    }
}

#[test]
fn silent_senders_make_room_without_one_resend_per_peer() {
    let loss = users().loss;
    let config = users().loss(loss.one_resend_per_peer(false));
    let arrived = arrived_beside(config, 8, (1, LASTS), 50_000);
    assert!(arrived >= LASTS * 1_000 / 100 * 80, "{arrived} in {LASTS} us");
}

//! Requests that are complete and that the application does not accept.

use super::*;
use std::collections::BTreeMap;

const BUDGET: u64 = 16_000_000;
/// Unscheduled bytes.
const UNASKED: u32 = 10_000;
/// Hosts with more requests than there is memory for, as many as are granted at a time.
const GREEDY: u32 = 8;
const REQUESTS: u64 = 300;
const LENGTH: u32 = 100_000;
/// Another host, whose requests are longer, so that SRPT does not help it.
const MODEST: u32 = 9;
const LONGER: u32 = 110_000;

/// A request at its client.
struct ClientHost {
    length: u32,
    sent: u32,
    granted: u32,
}

/// A server, and clients on separate hosts that send as they are granted.
struct Overload {
    server: Endpoint,
    sending: BTreeMap<(u32, u64), ClientHost>,
    /// Complete requests: their hosts and lengths.
    whole: Vec<(u32, u32)>,
    untaken: u64,
    /// Packets that the server sent.
    said: u32,
}

impl Overload {
    fn new() -> Self {
        let mut server = endpoint(users().memory_budget(BUDGET));
        for host in 1..=MODEST {
            server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
            server.set_account(PeerId(host), host, u64::from(host));
        }
        Self { server, sending: BTreeMap::new(), whole: Vec::new(), untaken: 0, said: 0 }
    }

    fn request(&mut self, host: u32, number: u64, length: u32) {
        let sending = ClientHost { length, sent: 0, granted: UNASKED };
        self.sending.insert((host, 2 * number), sending);
    }

    /// Runs until no packet is left. `takes`: the application accepts complete requests.
    fn run(&mut self, takes: bool) {
        loop {
            let mut sent = false;
            for ((host, id), one) in &mut self.sending {
                if one.sent >= one.granted.min(one.length) {
                    continue;
                }
                let Body::Data(data) = data(RpcId(*id), one.sent, one.length).body else {
                    panic!()
                };
                let body = Body::Data(Data { incoming: UNASKED, ..data });
                let packet = Packet { peer: PeerId(*host), ..packet(RpcId(*id), body) };
                // A dropped packet comes again later.
                if let Receipt::Place(_) = self.server.receive(START, &packet) {
                    (one.sent, sent) = (one.sent + data.span.len, true);
                }
            }
            self.turn(takes);
            let held = self.server.credit().memory + self.untaken;
            assert!(held <= BUDGET + u64::from(LENGTH), "{held} bytes are held");
            if !sent {
                return;
            }
        }
    }

    fn turn(&mut self, takes: bool) {
        while let Some(event) = self.server.event() {
            if let Event::Delivered(whole) = event {
                let host = whole.peer.0;
                self.whole.push((host, whole.length));
                self.sending.remove(&(host, whole.id.client().0));
                self.untaken += u64::from(whole.length);
                if takes {
                    self.take(host, whole.length);
                }
            }
        }
        while let Some(packet) = self.server.transmit(START) {
            self.said += 1;
            let one = self.sending.get_mut(&(packet.peer.0, packet.id.client().0));
            match (packet.body, one) {
                (Body::Grant { offset, .. }, Some(one)) => one.granted = one.granted.max(offset),
                (Body::Resend { offset: 0, .. }, Some(one)) => one.sent = 0,
                _ => {}
            }
        }
    }

    fn take(&mut self, host: u32, length: u32) {
        self.server.request_accepted(host, length);
        self.untaken -= u64::from(length);
    }

    fn arrived(&self, host: u32) -> usize {
        self.whole.iter().filter(|(from, _)| *from == host).count()
    }
}

#[test]
fn unaccepted_requests_leave_memory_for_other_hosts() {
    let mut rack = Overload::new();
    for host in 1..=GREEDY {
        (0..REQUESTS).for_each(|number| rack.request(host, number, LENGTH));
    }
    rack.run(false);
    assert!(rack.sending.len() > 100 && rack.untaken > 0, "{:?}", rack.server.credit());
    rack.request(MODEST, 1, LONGER);
    rack.run(false);
    assert_eq!(rack.arrived(MODEST), 1, "{:?}", rack.server.credit());

    // Accepted requests make room for more.
    for (host, length) in rack.whole.clone() {
        rack.take(host, length);
    }
    rack.run(true);
    for host in 1..=GREEDY {
        assert_eq!(rack.arrived(host), REQUESTS as usize, "{:?}", rack.server.credit());
    }
    assert_eq!((rack.untaken, rack.server.credit().memory), (0, 0));
}

#[test]
fn a_lone_host_leaves_half_of_the_memory() {
    let mut rack = Overload::new();
    (0..REQUESTS).for_each(|number| rack.request(1, number, LENGTH));
    rack.run(false);
    let held = rack.server.credit().memory + rack.untaken;
    assert!(held < BUDGET / 2 + 2 * u64::from(LENGTH), "{held} bytes are held");
    for (host, length) in rack.whole.clone() {
        rack.take(host, length);
    }
    let (before, said) = (rack.whole.len(), rack.said);
    rack.turn(false);
    assert!(rack.said > said, "those that waited for memory hear of it at once");
    // Its requests are shorter, so it is first again, whichever hosts send.
    (2..=MODEST).for_each(|host| rack.request(host, 1, LONGER));
    rack.run(true);
    assert_eq!(rack.whole[before].0, 1);
    assert_eq!(rack.arrived(1), REQUESTS as usize);
    // Requests that were accepted no longer count.
    (2..REQUESTS).for_each(|number| rack.request(MODEST, number, LONGER));
    rack.run(false);
    let before = rack.arrived(1);
    rack.request(1, REQUESTS, LENGTH);
    rack.run(false);
    assert_eq!(rack.arrived(1), before + 1);
}

/// Hosts that have begun a request each.
const HOSTS: u32 = 3_000;
/// Another host, which has sent little of a longer request.
const LITTLE: u32 = HOSTS + 1;

fn of(host: u32, packet: Packet) -> Packet {
    Packet { peer: PeerId(host), ..packet }
}

/// A server of these hosts whose memory is full of requests that are not accepted, each host with
/// as much as it may have. Returns their hosts and lengths, too.
fn full() -> (Endpoint, Vec<(u32, u32)>) {
    let mut server = endpoint(users().memory_budget(BUDGET));
    for host in 1..=LITTLE + 50 {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
        server.set_account(PeerId(host), host, u64::from(host));
    }
    for host in 1..=HOSTS {
        let begun = server.receive(START, &of(host, data(RpcId(2), 0, LENGTH)));
        assert!(matches!(begun, Receipt::Place(_)));
    }
    let Body::Data(first) = data(RpcId(2), 0, LONGER).body else { panic!() };
    let span = Span { len: 100, ..first.span };
    let little = packet(RpcId(2), Body::Data(Data { span, incoming: 100, ..first }));
    let _ = server.receive(START, &of(LITTLE, little));
    let (mut whole, mut id) = (Vec::new(), 2);
    for host in LITTLE + 1..=LITTLE + 50 {
        while let Receipt::Place(_) = server.receive(START, &of(host, data(RpcId(id), 0, 1_000))) {
            whole.push((host, 1_000));
            id += 2;
        }
    }
    (server, whole)
}

#[test]
fn no_packet_checks_all_hosts_that_have_their_share() {
    let (mut server, mut whole) = full();
    let (mut most, mut refused) = (0, server.counters().memory_refusals);
    let mut look = |server: &Endpoint| {
        let before = std::mem::replace(&mut refused, server.counters().memory_refusals);
        most = most.max(refused - before);
    };
    // Those that were granted bytes send them, and give up.
    let gone =
        packet(RpcId(2), Body::RpcUnknown { remembered: None, no_server: false, reason: None });
    for _ in 0..100 {
        while let Some(granted) = server.transmit(START) {
            let Body::Grant { offset: end, .. } = granted.body else { continue };
            for offset in (1_000..end).step_by(1_000) {
                let part = data(RpcId(2), offset, LENGTH);
                let _ = server.receive(START, &Packet { peer: granted.peer, ..part });
                look(&server);
            }
            let _ = server.receive(START, &Packet { peer: granted.peer, ..gone });
            look(&server);
        }
        if let Some((host, length)) = whole.pop() {
            server.request_accepted(host, length);
            look(&server);
        }
    }
    assert!(most > 0, "the memory is not full");
    assert!(most <= 200, "{most} messages that may not be granted more were looked at at once");
}

#[test]
fn a_host_below_its_share_is_found_behind_many_others() {
    let (mut server, _) = full();
    let granted = |server: &mut Endpoint| {
        let all: Vec<_> = std::iter::from_fn(|| server.transmit(START)).collect();
        all.into_iter().filter(|packet| matches!(packet.body, Body::Grant { .. }))
    };
    if let Some(one) = granted(&mut server).next() {
        let Body::Grant { offset: end, .. } = one.body else { panic!("it is a GRANT") };
        for offset in (1_000..end).step_by(1_000) {
            let _ = server.receive(START, &of(one.peer.0, data(RpcId(2), offset, LENGTH)));
        }
    }
    let mut found = |n: u32| {
        let _ = server.receive(START, &of(n, packet(RpcId(2), Body::Busy { come_back: None })));
        granted(&mut server).any(|packet| packet.peer == PeerId(LITTLE))
    };
    assert!((1..=100).any(&mut found), "{:?}", server.credit());
}

/// If messages wait for memory (profile `linux`), those that need least are asked for first.
#[test]
fn requests_behind_a_host_with_its_share_are_asked_for() {
    let mut server = endpoint(Config::linux().memory_budget(100_000));
    for host in 1..=4 {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
        server.set_account(PeerId(host), host, u64::from(host));
    }
    let part = |host, id, offset, length| {
        let Body::Data(data) = data(RpcId(id), offset, length).body else { panic!("it is DATA") };
        of(host, packet(RpcId(id), Body::Data(Data { incoming: length, ..data })))
    };
    for (host, length) in [(1, 60_000), (3, 15_000), (4, 10_000)] {
        for offset in (0..length - 1_000).step_by(1_000) {
            let placed = server.receive(START, &part(host, 2, offset, length));
            assert!(matches!(placed, Receipt::Place(_)), "{placed:?}");
        }
    }
    let waits = Receipt::Dropped(DropReason::NoMemory);
    for n in 2..100 {
        assert_eq!(server.receive(START, &part(1, 2 * n, 0, 1_000)), waits);
    }
    assert_eq!(server.receive(START, &part(2, 2, 0, 20_000)), waits);
    while server.transmit(START).is_some() {}
    for (host, length) in [(3, 15_000), (4, 10_000)] {
        let _ = server.receive(START, &part(host, 2, length - 1_000, length));
        server.request_accepted(host, length);
    }
    let mut asked = false;
    for n in 100..120 {
        // Others come and go.
        let _ = server.receive(START, &part(3, 2 * n, 0, 1_000));
        server.request_accepted(3, 1_000);
        while let Some(packet) = server.transmit(START) {
            let whole = matches!(packet.body, Body::Resend { length: ResendLength::All, .. });
            asked |= whole && packet.peer == PeerId(2);
        }
    }
    assert!(asked, "{:?}", server.credit());
}

//! Tests of the budgets of several links in virtual time. The protocol has packets for each link.

use super::*;

use homa_proto::{PeerId, PeerInfo, Submit};
use netlink_packet_route::link::LinkMessage;

const SLOW: Rate = Rate::mbps(1);
const FAST: Rate = Rate::gbps(10);

/// Creates an engine's budgets for interfaces 1, 2, … with these rates. Behind each interface is
/// one peer with the same number. Links are numbered from 0.
fn links(rates: &[LinkRate]) -> (LinkBudgets, Endpoint) {
    budgets_of(rates, &Config::default())
}

fn budgets_of(rates: &[LinkRate], config: &Config) -> (LinkBudgets, Endpoint) {
    budgets_beside(rates, config, None)
}

fn budgets_beside(
    rates: &[LinkRate],
    config: &Config,
    shard_group: Option<ShardGroup>,
) -> (LinkBudgets, Endpoint) {
    let mut endpoint =
        Endpoint::new(config.complete(1 << 20, crate::driver::Encapsulation::Datagram).unwrap());
    let mut links = LinkBudgets::new(config, false, shard_group, &mut endpoint);
    for (index, &rate) in (1..).zip(rates) {
        let mut message = LinkMessage::default();
        message.header.index = index;
        links.interfaces.add(&message);
        let (interface, because) = (format!("eth{index}"), String::new());
        let egress = Egress { index, interface, kind: "physical".into(), rate, because };
        let link = links.link_of(egress, &mut endpoint);
        endpoint.open_peer(PeerId(index), PeerInfo { host: index, max_payload: 1_400 });
        endpoint.set_route(PeerId(index), link);
    }
    (links, endpoint)
}

fn send(endpoint: &mut Endpoint, peer: u32, length: u32) {
    let one_way = Submit::OneWay { peer: PeerId(peer), length, cookie: 0 };
    endpoint.submit(Time(1), one_way).unwrap();
}

/// Starts a short call to peer 1.
fn request(endpoint: &mut Endpoint) {
    let request = homa_proto::Request {
        peer: PeerId(1),
        local_port: 9,
        remote_port: 7,
        length: 100,
        deadline: Time(10_000_000_000),
        idempotent: false,
        head: 0,
        cookie: 0,
    };
    endpoint.submit(Time(1), Submit::Request(request)).unwrap();
}

/// Sends the packets for which there is budget at `now`. Returns how many left to each peer.
fn transmit(links: &mut LinkBudgets, endpoint: &mut Endpoint, now: Time, sent: &mut [u32]) {
    while let Some(budget) = links.send_budget(now, endpoint, Links::NONE, |_| None) {
        let mut left = budget.bytes;
        while left >= FULL_FRAME {
            let Some(packet) = endpoint.transmit_by(now, budget.links) else { break };
            sent[packet.peer.0 as usize] += 1;
            left -= FULL_FRAME;
        }
        links.sent(now, budget.link, budget.bytes - left, |_| None);
    }
}

#[test]
fn a_full_link_holds_back_no_packet_of_another() {
    let (mut links, mut endpoint) = links(&[LinkRate::Known(SLOW), LinkRate::Known(FAST)]);
    for _ in 0..100 {
        // The shortest messages all leave by the slow link.
        send(&mut endpoint, 1, 2_800);
        send(&mut endpoint, 2, 5_600);
    }
    let (mut sent, mut now) = ([0; 3], Time(1_000));
    // 400 full packets keep the fast link busy for half a millisecond.
    while now < Time(1_000_000) {
        transmit(&mut links, &mut endpoint, now, &mut sent);
        let wake = links.wake(&endpoint, Links::NONE).expect("the slow link is full");
        assert!(wake > now);
        now = wake.min(now + Duration::micros(1));
    }
    assert_eq!(sent[2], 400);
    assert!((1..=3).contains(&sent[1]), "{} packets of 12 ms each", sent[1]);
}

/// Returns how many packets each engine of a group sends in a millisecond of the fast link if the
/// first `busy` engines have something to send.
fn sent_by_group(engines: usize, busy: usize) -> Vec<u32> {
    let opened = ShardGroup::all(engines).map(|shard_group| {
        let config = Config::default();
        let mut all = budgets_beside(&[LinkRate::Known(FAST)], &config, Some(shard_group));
        (0..400).for_each(|_| send(&mut all.1, 1, 5_600));
        (all, [0; 2])
    });
    let (mut engines, mut now): (Vec<_>, _) = (opened.collect(), Time(1_000));
    while now < Time(1_001_000) {
        let mut wake = Time::MAX;
        for ((links, endpoint), sent) in &mut engines[..busy] {
            transmit(links, endpoint, now, sent);
            wake = wake.min(links.wake(endpoint, Links::NONE).expect("there is more to send"));
        }
        now = wake.max(now + Duration(1));
    }
    engines.iter().map(|(_, sent)| sent[1]).collect()
}

#[test]
fn shards_share_a_link_while_they_send_and_one_alone_has_all() {
    let possible = (FAST.bytes_in(Duration::millis(1)) / u64::from(FULL_FRAME)) as u32;
    for (engines, busy) in [(1, 1), (2, 1), (2, 2), (8, 3), (8, 8)] {
        let sent = sent_by_group(engines, busy);
        let all: u32 = sent.iter().sum();
        let most = possible + 3 * engines as u32;
        assert!((possible - 2..=most).contains(&all), "{sent:?} of {possible}");
        let share = possible / busy as u32;
        assert!(
            sent[..busy].iter().all(|&sent| sent.abs_diff(share) <= share / 20 + 3),
            "{sent:?}"
        );
    }
}

/// Receives a message from peer 1.
fn arrive(endpoint: &mut Endpoint, length: u32) {
    let (_, mut sender) = links(&[LinkRate::Known(FAST)]);
    send(&mut sender, 1, length);
    while let Some(packet) = sender.transmit(Time(1)) {
        let _ = endpoint.receive(Time(1), &packet);
        while endpoint.event().is_some() {}
    }
}

#[test]
fn a_new_link_publishes_no_bytes_of_another() {
    let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
    let (one, two) = (&[LinkRate::Known(FAST)], &[LinkRate::Known(FAST), LinkRate::Known(SLOW)]);
    let (mut links, mut endpoint) = budgets_beside(one, &Config::default(), Some(a));
    let (mut others, mut other) = budgets_beside(two, &Config::default(), Some(b));
    arrive(&mut endpoint, 5_600);
    links.publish(&endpoint);
    let egress = others.links[1].egress.clone().unwrap();
    let link = links.link_of(egress, &mut endpoint);
    assert_eq!((link, endpoint.received_by(link)), (LinkId(1), 0));
    links.publish(&endpoint);
    others.refresh_siblings(&mut other);
    let seen = |at: usize| others.links[at].share.as_ref().unwrap().seen();
    assert_eq!([seen(0), seen(1)], [endpoint.received_by(LinkId(0)), 0]);
    assert!(seen(0) > 5_600);
}

#[test]
fn engines_of_several_processes_have_fixed_parts() {
    let mut config = Config::default();
    config.protocol.sharing = 4;
    let (mut links, mut endpoint) = budgets_of(&[LinkRate::Known(FAST)], &config);
    (0..400).for_each(|_| send(&mut endpoint, 1, 5_600));
    let (mut sent, mut now) = ([0; 2], Time(1_000));
    while now < Time(1_001_000) {
        transmit(&mut links, &mut endpoint, now, &mut sent);
        let wake = links.wake(&endpoint, Links::NONE).expect("there is more to send");
        now = wake.max(now + Duration(1));
    }
    let share = FAST.bytes_in(Duration::millis(1)) / 4 / u64::from(FULL_FRAME);
    assert!(u64::from(sent[1]).abs_diff(share) <= 3, "{} of {share}", sent[1]);
}

#[test]
fn control_packets_wait_for_no_link() {
    let (mut links, mut endpoint) = links(&[LinkRate::Known(SLOW)]);
    request(&mut endpoint);
    let mut sent = [0; 2];
    transmit(&mut links, &mut endpoint, Time(1), &mut sent);
    // No response arrived, so a RESEND is due while another message fills the link.
    let mut now = Time(1);
    while endpoint.waiting_control() == 0 {
        now = endpoint.deadline().expect("a response is owed");
        endpoint.expire(now);
    }
    send(&mut endpoint, 1, 1_000_000);
    links.sent(now, LinkId(0), 10_000, |_| None);
    let before = sent[1];
    assert_eq!(
        links.wake(&endpoint, Links::NONE),
        Some(Time::ZERO),
        "a control packet waits for nothing"
    );
    transmit(&mut links, &mut endpoint, now, &mut sent);
    assert_eq!((sent[1] - before, endpoint.waiting_control()), (1, 0));
    assert!(
        links.wake(&endpoint, Links::NONE).is_some_and(|wake| wake > now),
        "data waits for room"
    );
}

#[test]
fn links_with_room_take_turns() {
    let (mut links, mut endpoint) =
        links(&[LinkRate::Unlimited, LinkRate::Unlimited, LinkRate::Known(FAST)]);
    for peer in 1..=3 {
        send(&mut endpoint, peer, 1_000_000);
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        let budget =
            links.send_budget(Time(1), &endpoint, Links::NONE, |_| None).expect("all have room");
        served.push(budget.link.0);
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn the_protocol_never_learns_a_guessed_rate() {
    let patience = |rate| {
        let (_, mut endpoint) = links(&[rate]);
        request(&mut endpoint);
        loop {
            let now = endpoint.deadline().expect("a response is owed");
            endpoint.expire(now);
            while let Some(packet) = endpoint.transmit(now) {
                if matches!(packet.body, homa_proto::Body::Resend { .. }) {
                    return now;
                }
            }
        }
    };
    let unknown = patience(LinkRate::Unknown);
    assert_eq!(patience(LinkRate::Guess(SLOW)), unknown);
    assert!(patience(LinkRate::Known(SLOW)) > unknown);
}

#[test]
fn a_queue_of_one_link_of_unknown_rate_slows_no_other() {
    let (mut links, mut endpoint) = links(&[LinkRate::Unknown, LinkRate::Unknown]);
    for _ in 0..200 {
        send(&mut endpoint, 1, 2_800);
        send(&mut endpoint, 2, 5_600);
    }
    // Everything sent by the first link stays queued there. The second link sends at once.
    let (mut sent, mut below) = ([0; 3], 0);
    let mut now = Time(1_000);
    while now < Time(1_000_000) {
        let queued = |below| move |link| Some(if link == LinkId(0) { below } else { 0 });
        while let Some(budget) = links.send_budget(now, &endpoint, Links::NONE, queued(below)) {
            let mut left = budget.bytes;
            while left >= FULL_FRAME {
                let Some(packet) = endpoint.transmit_by(now, budget.links) else { break };
                sent[packet.peer.0 as usize] += 1;
                left -= FULL_FRAME;
            }
            if budget.link == LinkId(0) {
                below += budget.bytes - left;
            }
            links.sent(now, budget.link, budget.bytes - left, queued(below));
        }
        now += Duration::micros(10);
    }
    assert_eq!(sent[2], 800);
    assert!((1..=8).contains(&sent[1]), "{} packets for a link that takes none", sent[1]);
}

#[test]
fn only_control_packets_leave_by_a_link_with_a_backlog() {
    let (mut links, mut endpoint) = links(&[LinkRate::Known(FAST), LinkRate::Known(FAST)]);
    send(&mut endpoint, 1, 2_800);
    let backlogged = Links::only(LinkId(0));
    assert!(links.send_budget(Time(1), &endpoint, backlogged, |_| None).is_none());
    assert_eq!(links.wake(&endpoint, backlogged), None, "only the backlog needs a wake-up");
    send(&mut endpoint, 2, 2_800);
    let budget = links.send_budget(Time(1), &endpoint, backlogged, |_| None);
    assert!(budget.is_some_and(|budget| budget.link == LinkId(1)));
    // No response arrived, so a RESEND is due.
    request(&mut endpoint);
    while endpoint.transmit(Time(1)).is_some() {}
    let mut now = Time(1);
    while endpoint.waiting_control() == 0 {
        now = endpoint.deadline().expect("a response is owed");
        endpoint.expire(now);
    }
    let budget =
        links.send_budget(now, &endpoint, backlogged, |_| None).expect("it waits for nothing");
    assert_eq!(endpoint.transmit_by(now, budget.links).map(|packet| packet.peer), Some(PeerId(1)));
}

//! Two of our endpoints, each before the judge, through a network that loses and delays. Exchanges
//! that no capture shows (several messages at once, gaps, lost GRANTs and ACKs) must follow the
//! rules, too.

use super::stage::{SentPacket, Stage};
use homa_proto::{Config, wire};
use std::collections::BTreeMap;

const PAYLOAD: u32 = 1_424;
/// 1 Gbit/s.
const BYTES_PER_US: u64 = 125;
const PORTS: (u16, u16) = (40_000, 4_000);

/// DATA waits in the card for the link, control packets overtake it: the judge sees each packet as
/// its endpoint decides on it.
struct LiveNetwork {
    hosts: [Stage; 2],
    free: [u64; 2],
    wire: BTreeMap<(u64, u64), (usize, SentPacket)>,
    count: u64,
    replies: BTreeMap<(u64, u64), (usize, homa_proto::RpcHandle, u32)>,
    answers: u64,
}

impl LiveNetwork {
    fn new() -> Self {
        let host = |seed| {
            let config = Config::linux().seed(seed);
            let mut stage = Stage::new(PAYLOAD, 2, config);
            stage.endpoint.listen(PORTS.1);
            stage
        };
        Self {
            hosts: [host(1), host(2)],
            free: [0; 2],
            wire: BTreeMap::new(),
            count: 0,
            replies: BTreeMap::new(),
            answers: 0,
        }
    }

    fn next(&self) -> u64 {
        let timers = self.hosts.iter().filter_map(Stage::deadline);
        let wire = self.wire.keys().next().map(|key| key.0);
        let replies = self.replies.keys().next().map(|key| key.0);
        timers.chain(wire).chain(replies).min().unwrap_or(u64::MAX)
    }

    /// Runs to `end`; `lost` decides each packet's fate.
    fn run(&mut self, mut now: u64, end: u64, lost: &mut dyn FnMut() -> bool) {
        loop {
            for host in 0..2 {
                while let Some(sent) = self.hosts[host].pull(now) {
                    let mut arrives = now;
                    if sent.bytes[11] == wire::kind::DATA {
                        let time = (sent.bytes.len() as u64 + 60) / BYTES_PER_US;
                        self.free[host] = self.free[host].max(now) + time;
                        arrives = self.free[host];
                    }
                    self.count += 1;
                    if !lost() {
                        self.wire.insert((arrives + 5, self.count), (host, sent));
                    }
                }
                self.hear(now, host);
            }
            now = self.next().max(now);
            if now > end {
                return;
            }
            while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= now) {
                let (from, sent) = entry.remove();
                let bytes = (&sent.bytes[..], sent.bytes.len());
                self.hosts[1 - from].feed(now, from, sent.level, bytes);
            }
            while let Some(entry) = self.replies.first_entry().filter(|e| e.key().0 <= now) {
                let (host, rpc, length) = entry.remove();
                self.hosts[host].reply(now, rpc, length);
            }
            for host in &mut self.hosts {
                if host.deadline().is_some_and(|at| at <= now) {
                    host.expire(now);
                }
            }
        }
    }

    /// Echo, after a time that depends on the length.
    fn hear(&mut self, now: u64, host: usize) {
        for message in std::mem::take(&mut self.hosts[host].arrived) {
            if message.is_request {
                let length = message.content.len() as u32;
                let after = u64::from(length % 7) * 4_000;
                self.count += 1;
                self.replies.insert((now + after, self.count), (host, message.rpc, length));
            } else {
                self.answers += 1;
            }
        }
    }
}

#[test]
fn two_of_our_hosts_keep_the_kernels_rules_under_loss() {
    let mut answered = 0;
    arbtest::arbtest(|u| {
        let mut network = LiveNetwork::new();
        let mut state: u64 = u.arbitrary::<u64>()? | 1;
        let percent = *u.choose(&[0, 1, 5, 20])?;
        let mut lost = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 100 < percent
        };
        let mut now = 1_000;
        for cookie in 0..u.int_in_range(1..=12u64)? {
            let from = usize::from(u.arbitrary::<bool>()?);
            let length = *u.choose(&[1, 100, 1_424, 5_000, 39_999, 40_001, 150_000, 1_000_000])?;
            network.hosts[from].call(now, 1 - from, PORTS, length, cookie);
            let later = now + u.int_in_range(0..=3_000u64)?;
            network.run(now, later, &mut lost);
            now = later + 1;
        }
        network.run(now, now + 15_000_000, &mut lost);
        for host in &network.hosts {
            assert!(host.judge.faults.is_empty(), "{}", host.judge.faults.join("\n"));
            assert_eq!(host.endpoint.rpcs(), (0, 0), "nothing remains");
        }
        answered += network.answers;
        Ok(())
    })
    .budget_ms(4_000);
    assert!(answered > 0, "the test calls");
}

#[test]
fn calls_that_are_given_up_leave_nothing_at_their_server() {
    let mut network = LiveNetwork::new();
    let mut now = 1_000;
    let mut run_for = |network: &mut LiveNetwork, time| {
        network.run(now, now + time, &mut || false);
        now += time + 1;
        now
    };
    for cookie in 0..20 {
        let now = run_for(&mut network, 20);
        network.hosts[0].call(now, 1, PORTS, 100_000, cookie);
    }
    // Requests that are being granted.
    let now = run_for(&mut network, 3_000);
    assert!(network.hosts[1].endpoint.rpcs().1 > 0);
    let given_up = (0..20).filter(|&cookie| network.hosts[0].give_up(now, cookie)).count();
    assert!(given_up >= 10, "{given_up}");
    // Less than the time after which a server forgets a silent client.
    run_for(&mut network, 50_000);
    assert_eq!(network.answers + given_up as u64, 20);
    for host in &network.hosts {
        assert!(host.judge.faults.is_empty(), "{}", host.judge.faults.join("\n"));
        assert_eq!(host.endpoint.rpcs(), (0, 0), "nothing remains");
    }
}

//! Packets grow as large as the route and the path allow, without a setting.
//!
//! Each test creates network namespaces. If the system allows none, it prints a line and passes.

use std::net::{IpAddr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homa::metrics::Metrics;
use homa::{CallOptions, Engine};

use crate::alone::is_alone;
use crate::common::{echo, message};
use crate::hosts::Host;
use crate::net::{Net, Way};

/// The length of each message.
const LENGTH: usize = 600_000;
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(30);

/// A client, and a server that echoes.
struct Ends<'a> {
    way: Way,
    /// The client's host, in which its routes are looked up.
    host: &'a Host,
    client: Engine,
    server: Engine,
    served: JoinHandle<usize>,
    calls: u64,
}

impl<'a> Ends<'a> {
    /// Opens both ends, each at its host and address and with its own MTU setting.
    fn open(way: Way, at: [(&'a Host, IpAddr); 2], [ours, theirs]: [Option<u16>; 2]) -> Self {
        let [(here, from), (there, to)] = at;
        for host in [here, there] {
            host.ip("route flush cache");
            host.ip("-6 route flush cache");
        }
        let (server, served) = there.run(|| {
            let server = way.open(SocketAddr::new(to, 4000), theirs);
            let served = echo(server.serve().unwrap());
            (server, served)
        });
        let client = here.run(|| way.open(SocketAddr::new(from, 0), ours));
        Self { way, host: here, client, server, served, calls: 0 }
    }

    fn over(net: &'a Net, way: Way, v4: bool, mtu: [Option<u16>; 2]) -> Self {
        let (from, to) = net.addresses(v4);
        Self::open(way, [(&net.client, from), (&net.server, to)], mtu)
    }

    /// Makes a call. Returns the mean payload of the packets that each end sent for it.
    fn call(&mut self) -> [u64; 2] {
        let before = self.metrics();
        self.calls += 1;
        let bytes = message(LENGTH, self.calls);
        let mut options = CallOptions::deadline(GIVE_UP);
        // At first a new router may not have found its neighbours.
        options.wait_for_ready = self.calls == 1;
        let (client, to) = (self.client.client(), self.server.local_addr());
        let answer = self.host.run(|| client.call_with(to, bytes.clone(), &options));
        assert!(answer.unwrap() == bytes[..], "{:?}", self.way);
        let after = self.metrics();
        [0, 1].map(|end| {
            let [now, then] = [&after, &before].map(|of| &of[end].protocol);
            (now.data_bytes_sent - then.data_bytes_sent) / (now.data_sent - then.data_sent)
        })
    }

    fn metrics(&self) -> [Metrics; 2] {
        [self.client.metrics(), self.server.metrics()]
    }

    /// Makes calls until the packets of both ends have the expected size.
    fn call_until(&mut self, fits: impl Fn([u64; 2]) -> bool) {
        let mut payloads = Vec::new();
        while payloads.len() < 30 {
            payloads.push(self.call());
            if payloads.last().is_some_and(|last| fits(*last)) {
                return;
            }
            // If the client was not scheduled for long, it probes again only a second later.
            thread::sleep(Duration::from_millis(200));
        }
        let engines = self.metrics().map(|end| end.engine);
        panic!("{:?}: {payloads:?} {engines:?}", self.way);
    }

    fn close(self) {
        drop(self.client);
        let _ = self.server.drain(GIVE_UP);
        drop(self.server);
        self.served.join().unwrap();
    }
}

/// True if this is the mean payload of a long message in jumbo frames instead of Ethernet's usual
/// frames.
fn is_jumbo(payload: u64) -> bool {
    (8_600..=8_950).contains(&payload)
}

fn is_usual(payload: u64) -> bool {
    (1_300..=1_450).contains(&payload)
}

#[test]
fn packets_are_as_large_as_the_route_takes_without_a_setting() {
    if !is_alone() {
        return;
    }
    let Some(net) = Net::direct() else { return };
    net.widen(9000);
    for (way, v4) in Way::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let mut ends = Ends::over(&net, way, v4, [None; 2]);
        ends.call_until(|payload| payload.into_iter().all(is_jumbo));
        ends.close();
    }
    // The MTU of a loopback interface is 65,536 bytes.
    let host = Host::new();
    for ip in ["127.0.0.1", "::1"] {
        let here = (&host, ip.parse().unwrap());
        let mut ends = Ends::open(Way::Udp, [here; 2], [None; 2]);
        ends.call_until(|payload| payload.into_iter().all(is_jumbo));
        ends.close();
    }
}

#[test]
fn a_link_that_widens_is_noticed() {
    if !is_alone() {
        return;
    }
    let Some(net) = Net::direct() else { return };
    let mut ends = Ends::over(&net, Way::Udp, true, [None; 2]);
    assert!(ends.call().into_iter().all(is_usual));
    net.widen(9000);
    ends.call_until(|payload| payload.into_iter().all(is_jumbo));
    ends.close();
}

#[test]
fn a_configured_mtu_limits_only_the_packets_of_its_host() {
    if !is_alone() {
        return;
    }
    let Some(net) = Net::direct() else { return };
    net.widen(9000);
    for way in Way::ALL {
        let mut ends = Ends::over(&net, way, true, [None, Some(1500)]);
        ends.call_until(|[ours, theirs]| is_jumbo(ours) && is_usual(theirs));
        ends.close();
        let mut ends = Ends::over(&net, way, true, [Some(1500), Some(9000)]);
        ends.call_until(|[ours, theirs]| is_usual(ours) && is_jumbo(theirs));
        ends.close();
    }
}

/// Makes calls on paths that pass no jumbo frames although the first links do. No message may be
/// sent in packets that may be too large, because the call would wait until the loss is understood.
fn no_message_is_sent_in_larger_packets(net: &Net) {
    for (way, v4) in Way::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let mut ends = Ends::over(net, way, v4, [None; 2]);
        // The calls are made before, during and after the first probes.
        while ends.calls < 20 {
            assert!(ends.call().into_iter().all(is_usual), "{way:?} v4 {v4}");
            thread::sleep(Duration::from_millis(20));
        }
        for end in ends.metrics() {
            assert_eq!(end.engine.path_mtu_lowered, 0, "{way:?} v4 {v4}: {:?}", end.engine);
        }
        ends.close();
    }
}

#[test]
fn a_router_that_reports_jumbo_frames_delays_nothing() {
    if !is_alone() {
        return;
    }
    let Some(net) = Net::routed() else { return };
    net.widen(9000);
    // The server's own system refuses its packets.
    net.set_mtu(1500);
    no_message_is_sent_in_larger_packets(&net);
}

#[test]
fn a_path_that_swallows_jumbo_frames_delays_nothing() {
    if !is_alone() {
        return;
    }
    // The host at the other end of a cable drops packets larger than its own setting.
    let Some(net) = Net::direct() else { return };
    net.client.ip("link set near mtu 9000");
    no_message_is_sent_in_larger_packets(&net);
}

#[test]
fn a_router_that_swallows_jumbo_frames_delays_nothing() {
    if !is_alone() {
        return;
    }
    let Some(net) = Net::routed() else { return };
    net.widen(9000);
    if net.swallow(1500) {
        no_message_is_sent_in_larger_packets(&net);
    }
}

//! Paths whose MTU changes while messages are in progress.
//!
//! Each test creates network namespaces. If the system allows none, it prints a line and passes.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homa::metrics::EngineCounters;
use homa::{CallOptions, Engine};

use crate::alone::is_alone;
use crate::common::{echo, message};
use crate::net::{Net, Way};

/// The number of concurrent callers, the calls that each makes before the path gets a smaller MTU
/// and at least after that, and the length of each message.
const CALLERS: u64 = 4;
const BEFORE: u64 = 5;
const AFTER: u64 = 10;
const LENGTH: usize = 200_000;
/// The time between calls that wait for the path to be probed.
const PAUSE: Duration = Duration::from_millis(20);
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(90);

impl Net {
    /// Opens a client, and a server that echoes. Returns the address of the server.
    fn ends(
        &self,
        way: Way,
        v4: bool,
        any: bool,
    ) -> (Engine, (Engine, JoinHandle<usize>), SocketAddr) {
        // Deletes the path MTUs that the kernel learned in earlier conversations.
        for host in [&self.client, &self.server] {
            host.ip("route flush cache");
            host.ip("-6 route flush cache");
        }
        let (from, to) = self.addresses(v4);
        let bound = |ip: IpAddr| match any {
            true if v4 => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => ip,
        };
        let server = self.server.run(|| {
            let engine = way.open(SocketAddr::new(bound(to), 4000), None);
            let served = echo(engine.serve().unwrap());
            (engine, served)
        });
        let client = self.client.run(|| way.open(SocketAddr::new(bound(from), 0), None));
        (client, server, SocketAddr::new(to, 4000))
    }

    /// Echoes large messages while the path's MTU shrinks, and restores the MTU after the last
    /// call. Then makes calls until both ends send larger packets again. Returns the counters of
    /// client and server before that. If `any` is set, both are bound to every address of their
    /// hosts.
    fn converse(
        &self,
        way: Way,
        v4: bool,
        (silent, any): (bool, bool),
        [wide, narrow]: [u16; 2],
        set: impl Fn(u16),
    ) -> [EngineCounters; 2] {
        let (client, (server, served), to) = self.ends(way, v4, any);
        // A server can only answer for the time since it started. On a busy machine its answer may
        // arrive later after the call than the server's age at that time. Then the client cannot
        // tell whether the call was executed.
        thread::sleep(Duration::from_secs(2));
        let (done, narrowed) = (AtomicU64::new(0), AtomicBool::new(false));
        let began = Instant::now();
        let call = |after: u64, seed: u64| {
            self.client.run(|| {
                // Over IP a server cannot tell the client that no packet of a request arrived.
                let mut options = CallOptions::deadline(Duration::from_secs(20));
                options.idempotent = way == Way::RawIp && silent;
                let (mut n, mut left) = (0, after);
                while left > 0 {
                    assert!(began.elapsed() < GIVE_UP, "{way:?} v4 {v4}");
                    left -= u64::from(narrowed.load(Ordering::Relaxed));
                    n += 1;
                    let bytes = message(LENGTH, seed << 32 | n);
                    let answer = client.client().call_with(to, bytes.clone(), &options);
                    let answer = answer.unwrap_or_else(|e| {
                        let ends = [client.metrics(), server.metrics()];
                        panic!("{way:?} v4 {v4}: {e}: {ends:?}")
                    });
                    assert!(answer == bytes[..], "{way:?} v4 {v4}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        let count = || [client.metrics().engine, server.metrics().engine];
        thread::scope(|scope| {
            let callers: Vec<_> =
                (0..CALLERS).map(|seed| scope.spawn(move || call(AFTER, seed))).collect();
            // Jumbo frames are sent once one was answered.
            let is_wide = |end: EngineCounters| wide <= 1500 || end.path_mtu_raised > 0;
            while done.load(Ordering::Relaxed) < CALLERS * BEFORE
                || !count().into_iter().all(is_wide)
            {
                thread::sleep(Duration::from_micros(100));
                assert!(!callers.iter().all(|caller| caller.is_finished()), "{way:?} v4 {v4}");
            }
            set(narrow);
            narrowed.store(true, Ordering::Relaxed);
        });
        let counted = count();
        set(wide);
        let raised = |ends: [EngineCounters; 2]| ends.map(|end| end.path_mtu_raised);
        let before = raised(counted);
        while iter::zip(raised(count()), before).any(|(now, before)| now == before) {
            call(1, 99);
            thread::sleep(PAUSE);
            assert!(began.elapsed() < GIVE_UP, "{way:?} v4 {v4}: {:?}", count());
        }
        drop(client);
        let _ = server.drain(Duration::from_secs(5));
        drop(server);
        served.join().unwrap();
        counted
    }
}

#[test]
fn a_link_that_narrows_and_widens_again_loses_no_call() {
    if !is_alone() {
        return;
    }
    // Links with an MTU of less than 1280 bytes carry no IPv6.
    for (v4, narrow) in [(false, 1300), (true, 1200)] {
        let Some(net) = Net::direct() else { return };
        for way in Way::ALL {
            for end in net.converse(way, v4, (false, false), [1500, narrow], |mtu| net.set_mtu(mtu))
            {
                assert!(end.path_mtu_lowered > 0, "{way:?} v4 {v4}: {end:?}");
            }
        }
    }
}

/// Converses over every way while a router that reports large packets gets a smaller MTU.
fn router_reports(sizes: [u16; 2]) {
    let Some(net) = Net::routed() else { return };
    net.widen(sizes[0]);
    for (way, v4) in Way::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        for end in net.converse(way, v4, (false, false), sizes, |mtu| net.set_mtu(mtu)) {
            assert!(end.path_mtu_lowered > 0, "{way:?} v4 {v4} {sizes:?}: {end:?}");
            assert_eq!(end.path_mtu_black_holes, 0, "{way:?} v4 {v4} {sizes:?}: {end:?}");
        }
    }
}

#[test]
fn a_router_that_reports_large_packets_loses_no_call() {
    if is_alone() {
        router_reports([1500, 1300]);
    }
}

#[test]
fn a_router_that_reports_large_jumbo_frames_loses_no_call() {
    if is_alone() {
        router_reports([9000, 1500]);
    }
}

/// Converses while a router begins to drop large packets without a report. Bound to every address
/// of its host, an engine learns from packets where it sends from; what it learns of sizes is the
/// same, so only half of the cases have jumbo frames.
fn router_swallows(way: Way) {
    let Some(net) = Net::routed() else { return };
    net.widen(9000);
    if !net.swallow(1500) {
        return;
    }
    let swallow = |mtu| assert!(net.swallow(mtu));
    let (usual, jumbo) = ([1500, 1300], [9000, 1500]);
    for (sizes, v4, any) in [
        (usual, false, false),
        (usual, true, false),
        (usual, false, true),
        (usual, true, true),
        (jumbo, false, false),
        (jumbo, true, true),
    ] {
        swallow(sizes[0]);
        for end in net.converse(way, v4, (true, any), sizes, swallow) {
            let lost = end.path_mtu_black_holes;
            assert!(lost > 0, "{way:?} v4 {v4} any {any} {sizes:?}: {end:?}");
        }
    }
}

// The kernel module's rules end calls after 100 ms of silence, which is too short here.

#[test]
fn a_router_that_swallows_packets_loses_no_call_over_udp() {
    if is_alone() {
        router_swallows(Way::Udp);
    }
}

#[test]
fn a_router_that_swallows_packets_loses_no_call_without_offload() {
    if is_alone() {
        router_swallows(Way::UdpWithoutOffload);
    }
}

#[test]
fn a_router_that_swallows_packets_loses_no_call_over_raw_ip() {
    if is_alone() {
        router_swallows(Way::RawIp);
    }
}

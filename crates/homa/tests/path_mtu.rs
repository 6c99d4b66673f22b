//! Paths whose MTU changes while messages are on their way.
//!
//! Each test gives itself network namespaces. Where there are none it says so and passes.

#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/hosts.rs"]
mod hosts;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use alone::is_alone;
use common::{echo, message};
use homa::driver::Driver;
use homa::driver::raw_ip::RawIpDriver;
use homa::driver::udp::UdpDriver;
use homa::metrics::EngineCounters;
use homa::{CallOptions, Config, Engine};
use hosts::Host;

/// Calls at a time, how many of them one after the other, and the bytes of each message.
const CALLERS: u64 = 4;
const CALLS: u64 = 30;
const LENGTH: usize = 200_000;

/// How an engine reaches the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Udp,
    UdpWithoutOffload,
    RawIp,
    /// With the kernel module's rules.
    Linux,
}

impl Way {
    const ALL: [Self; 4] = [Self::Udp, Self::UdpWithoutOffload, Self::RawIp, Self::Linux];

    fn open(self, at: SocketAddr) -> Engine {
        let driver: Box<dyn Driver> = match self {
            Self::Udp => Box::new(UdpDriver::new(at, 4 << 20).unwrap()),
            Self::UdpWithoutOffload => {
                Box::new(UdpDriver::new(at, 4 << 20).unwrap().without_offload())
            }
            Self::RawIp | Self::Linux => Box::new(RawIpDriver::new(at, 4 << 20).unwrap()),
        };
        let config = if self == Self::Linux { Config::linux() } else { Config::default() };
        Engine::with_driver(driver, config).unwrap()
    }
}

/// Two hosts, or two with a router between them.
struct Net {
    client: Host,
    server: Host,
    router: Option<Host>,
}

impl Net {
    fn direct() -> Option<Self> {
        let [client, server] = Host::pair()?;
        Some(Self { client, server, router: None })
    }

    fn routed() -> Option<Self> {
        let (client, server, router) = (Host::new(), Host::new(), Host::new());
        if !client.connect("near", &router, "left") || !server.connect("far", &router, "right") {
            return None;
        }
        for (host, link, net, n) in [
            (&client, "near", 8, 1),
            (&router, "left", 8, 9),
            (&server, "far", 9, 2),
            (&router, "right", 9, 9),
        ] {
            host.ip(&format!("addr add 10.{net}.0.{n}/24 dev {link}"));
            host.add_v6(&format!("fd0{net}::{n}"), link);
        }
        for (host, net) in [(&client, 8), (&server, 9)] {
            host.ip(&format!("route add default via 10.{net}.0.9"));
            host.ip(&format!("-6 route add default via fd0{net}::9"));
        }
        let forwards = router.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").is_ok()
                && std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").is_ok()
        });
        if !forwards {
            skip::test("a writable /proc/sys");
            return None;
        }
        Some(Self { client, server, router: Some(router) })
    }

    fn addresses(&self, v4: bool) -> (IpAddr, IpAddr) {
        let net = if self.router.is_some() { 9 } else { 8 };
        let [from, to] = match v4 {
            true => ["10.8.0.1".to_string(), format!("10.{net}.0.2")],
            false => ["fd08::1".to_string(), format!("fd0{net}::2")],
        };
        (from.parse().unwrap(), to.parse().unwrap())
    }

    /// Both ends of the link beside the server take packets of up to `mtu` bytes from now on.
    fn set_mtu(&self, mtu: u16) {
        match &self.router {
            Some(router) => router.ip(&format!("link set right mtu {mtu}")),
            None => self.client.ip(&format!("link set near mtu {mtu}")),
        }
        self.server.ip(&format!("link set far mtu {mtu}"));
    }

    /// The router drops packets of more than `mtu` bytes without a word; false where it cannot.
    fn swallow(&self, mtu: u16) -> bool {
        let router = self.router.as_ref().unwrap();
        let dropped = ["left", "right"].map(|link| {
            // What waits there goes, too: it would not fit, and stay at the head for ever.
            router.tc(&format!("qdisc replace dev {link} root pfifo limit 1000"));
            // An Ethernet header; the kernel rounds down a little.
            let burst = mtu + 14 + 4;
            let bucket = format!("tbf rate 2gbit burst {burst} limit 1000000");
            router.tc(&format!("qdisc replace dev {link} root {bucket}"))
        });
        if dropped != [true; 2] {
            skip::test("a token bucket (tbf), and tc (apt-get install iproute2)");
        }
        dropped == [true; 2]
    }

    /// Echoes large messages, does `narrow` when a third of the calls are done, and `widen` when
    /// they all are; then calls on until both ends send larger packets again. Returns what client
    /// and server counted before that. `any`: both are bound to every address of their hosts.
    fn converse(
        &self,
        way: Way,
        v4: bool,
        (silent, any): (bool, bool),
        narrow: impl FnOnce(),
        widen: impl FnOnce(),
    ) -> [EngineCounters; 2] {
        // What the kernel learnt in earlier conversations.
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
        let (server, served) = self.server.run(|| {
            let engine = way.open(SocketAddr::new(bound(to), 4000));
            let served = echo(engine.serve().unwrap());
            (engine, served)
        });
        let to = SocketAddr::new(to, 4000);
        let client = self.client.run(|| way.open(SocketAddr::new(bound(from), 0)));
        let done = AtomicUsize::new(0);
        let call = |calls: u64, seed: u64| {
            self.client.run(|| {
                // Over IP a server cannot say that it never had a request of which nothing arrived.
                let mut options = CallOptions::deadline(Duration::from_secs(20));
                options.idempotent = way == Way::RawIp && silent;
                for n in 0..calls {
                    let bytes = message(LENGTH, seed * 1000 + n);
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
        thread::scope(|scope| {
            let callers: Vec<_> =
                (0..CALLERS).map(|seed| scope.spawn(move || call(CALLS, seed))).collect();
            while done.load(Ordering::Relaxed) < (CALLERS * CALLS / 3) as usize {
                thread::sleep(Duration::from_micros(100));
                assert!(!callers.iter().all(|caller| caller.is_finished()), "{way:?} v4 {v4}");
            }
            narrow();
        });
        let count = || [client.metrics().engine, server.metrics().engine];
        let counted = count();
        widen();
        let began = Instant::now();
        while count().iter().any(|end| end.path_mtu_raised == 0) {
            call(1, 99);
            assert!(began.elapsed() < Duration::from_secs(90), "{way:?} v4 {v4}: {:?}", count());
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
    if !is_alone("a_link_that_narrows_and_widens_again_loses_no_call") {
        return;
    }
    // Links of less than 1280 bytes carry no IPv6.
    for (v4, mtu) in [(false, 1300), (true, 1200)] {
        let Some(net) = Net::direct() else { return };
        for way in Way::ALL {
            for end in
                net.converse(way, v4, (false, false), || net.set_mtu(mtu), || net.set_mtu(1500))
            {
                assert!(end.path_mtu_lowered > 0, "{way:?} v4 {v4}: {end:?}");
            }
        }
    }
}

#[test]
fn a_router_that_reports_large_packets_loses_no_call() {
    if !is_alone("a_router_that_reports_large_packets_loses_no_call") {
        return;
    }
    let Some(net) = Net::routed() else { return };
    for way in Way::ALL {
        for v4 in [false, true] {
            for end in
                net.converse(way, v4, (false, false), || net.set_mtu(1300), || net.set_mtu(1500))
            {
                assert!(end.path_mtu_lowered > 0, "{way:?} v4 {v4}: {end:?}");
                assert_eq!(end.path_mtu_black_holes, 0, "{way:?} v4 {v4}: {end:?}");
            }
        }
    }
}

#[test]
fn a_router_that_swallows_large_packets_loses_no_call() {
    if !is_alone("a_router_that_swallows_large_packets_loses_no_call") {
        return;
    }
    let Some(net) = Net::routed() else { return };
    if !net.swallow(1500) {
        return;
    }
    // The kernel module's rules end calls after 100 ms of silence, which may be over before.
    for way in Way::ALL.into_iter().filter(|&way| way != Way::Linux) {
        for (v4, any) in [(false, false), (true, false), (false, true), (true, true)] {
            let swallow = |mtu| assert!(net.swallow(mtu));
            for end in net.converse(way, v4, (true, any), || swallow(1300), || swallow(1500)) {
                assert!(end.path_mtu_black_holes > 0, "{way:?} v4 {v4}: {end:?}");
            }
        }
    }
}

//! Two hosts, with or without a router between them, for tests in a network namespace of their own
//! (`alone.rs`), and the drivers and profiles with which an engine uses the network.

use std::net::{IpAddr, SocketAddr};

use homa::driver::Driver;
use homa::{Config, Engine};

use crate::hosts::Host;

/// A driver and profile with which an engine uses the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Udp,
    UdpWithoutOffload,
    RawIp,
    /// UDP with the rules of the kernel module.
    Linux,
}

impl Way {
    pub const ALL: [Self; 4] = [Self::Udp, Self::UdpWithoutOffload, Self::RawIp, Self::Linux];

    /// Opens an engine with these settings and `mtu`.
    pub fn open(self, at: SocketAddr, mtu: Option<u16>) -> Engine {
        let driver = match self {
            Self::Udp => <dyn Driver>::udp(at, 4 << 20),
            Self::UdpWithoutOffload => <dyn Driver>::udp_without_offload(at, 4 << 20),
            Self::RawIp | Self::Linux => <dyn Driver>::raw_ip(at, 4 << 20),
        };
        let config = if self == Self::Linux { Config::linux() } else { Config::default() };
        Engine::with_driver(driver.unwrap(), config.mtu(mtu).plaintext()).unwrap()
    }
}

/// Two hosts, with or without a router between them.
pub struct Net {
    pub client: Host,
    pub server: Host,
    pub router: Option<Host>,
}

impl Net {
    pub fn direct() -> Option<Self> {
        let [client, server] = Host::pair()?;
        Some(Self { client, server, router: None })
    }

    pub fn routed() -> Option<Self> {
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

    pub fn addresses(&self, v4: bool) -> (IpAddr, IpAddr) {
        let net = if self.router.is_some() { 9 } else { 8 };
        let [from, to] = match v4 {
            true => ["10.8.0.1".to_string(), format!("10.{net}.0.2")],
            false => ["fd08::1".to_string(), format!("fd0{net}::2")],
        };
        (from.parse().unwrap(), to.parse().unwrap())
    }

    /// Sets the MTU at both ends of the link beside the server.
    pub fn set_mtu(&self, mtu: u16) {
        match &self.router {
            Some(router) => router.ip(&format!("link set right mtu {mtu}")),
            None => self.client.ip(&format!("link set near mtu {mtu}")),
        }
        self.server.ip(&format!("link set far mtu {mtu}"));
    }

    /// Sets the MTU of every link.
    pub fn widen(&self, mtu: u16) {
        self.client.ip(&format!("link set near mtu {mtu}"));
        if let Some(router) = &self.router {
            router.ip(&format!("link set left mtu {mtu}"));
        }
        self.set_mtu(mtu);
    }

    /// Makes the router drop packets of more than `mtu` bytes without a report. Returns false if
    /// the kernel cannot do this.
    pub fn swallow(&self, mtu: u16) -> bool {
        let router = self.router.as_ref().unwrap();
        let dropped = ["left", "right"].map(|link| {
            // Packets that wait there must go, too. They would not fit, and would stay at the head
            // for ever.
            router.tc(&format!("qdisc replace dev {link} root pfifo limit 1000"));
            // An Ethernet header. The kernel also rounds down a little.
            let burst = mtu + 14 + 4;
            let bucket = format!("tbf rate 2gbit burst {burst} limit 1000000");
            router.tc(&format!("qdisc replace dev {link} root {bucket}"))
        });
        if dropped != [true; 2] {
            skip::test("a token bucket (tbf), and tc (apt-get install iproute2)");
        }
        dropped == [true; 2]
    }
}

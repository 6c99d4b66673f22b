//! How to send frames to a destination: the interface, the Ethernet address of the next hop, and
//! the local address. The system is asked, and the answer is cached for a second.
//!
//! The first packet to a destination leaves through the system, which finds the next hop. So does
//! one packet each second, which keeps the system's entry up to date. So does every packet for
//! which frames cannot do what the system does (unreachable routers, tunnels, loopback). If links
//! or routes change, the cache is cleared.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::frame::FrameHeader;
use crate::egress::hops::Interface;
use crate::egress::kernel::Kernel;

/// Life of an entry.
const LIFE: Duration = Duration::from_secs(1);
/// Life of an entry while the system is still looking for the next hop.
const SEARCH: Duration = Duration::from_millis(5);
/// How often to check whether links or routes changed.
const CHECK: Duration = Duration::from_millis(100);
/// Most entries; if there are more, the cache is cleared.
const MOST: usize = 4096;

/// A destination, and the local address to send from if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The destination address.
    pub to: IpAddr,
    /// The scope of a link-local address.
    pub scope: u32,
    /// The local address.
    pub source: Option<IpAddr>,
}

impl Destination {
    /// The destination of packets to `to`, from a local address.
    pub fn new(to: SocketAddr, source: Option<IpAddr>) -> Self {
        let scope = match to {
            SocketAddr::V6(to) => to.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self { to: to.ip(), scope, source }
    }
}

/// How to send frames.
#[derive(Clone, Copy, Debug)]
pub struct NextHop {
    /// The interface's index in the driver's list.
    pub interface: usize,
    /// The headers of the frames.
    pub header: FrameHeader,
    /// Longest frame that the link takes, bytes.
    pub longest: usize,
}

/// A cached answer.
#[derive(Clone, Copy, Debug)]
struct CachedHop {
    until: Instant,
    /// `None`: through the system.
    next_hop: Option<NextHop>,
}

/// See the module's documentation.
pub struct NextHops {
    kernel: Kernel,
    known: HashMap<Destination, CachedHop>,
    last: Option<(Destination, CachedHop)>,
    checked: Instant,
}

impl NextHops {
    /// An empty cache.
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, known: HashMap::new(), last: None, checked: Instant::now() }
    }

    /// Clears the cache if links or routes changed, and returns true then. Call it from time to
    /// time.
    pub fn refresh(&mut self, now: Instant) -> bool {
        if now.duration_since(self.checked) < CHECK {
            return false;
        }
        self.checked = now;
        let changed = self.kernel.has_changed();
        if changed {
            self.known.clear();
            self.last = None;
        }
        changed
    }

    /// The interfaces as they are now.
    pub fn interfaces(&mut self) -> Option<Vec<Interface>> {
        self.kernel.ethernet_interfaces()
    }

    /// How to send frames to a destination by one of `devices`; `None`: through the system.
    pub fn find<'a>(
        &mut self,
        now: Instant,
        destination: Destination,
        devices: impl Iterator<Item = &'a Interface>,
    ) -> Option<NextHop> {
        if let Some((last, known)) = self.last
            && last == destination
            && now < known.until
        {
            return known.next_hop;
        }
        let known = match self.known.get(&destination) {
            Some(known) if now < known.until => *known,
            // The previous packet went through the system, which has found the next hop by now.
            Some(known) if known.next_hop.is_none() => {
                let (next_hop, life) = match self.look_up(destination, devices) {
                    Ok(next_hop) => (Some(next_hop), LIFE),
                    Err(life) => (None, life),
                };
                let known = CachedHop { until: now + life, next_hop };
                self.known.insert(destination, known);
                known
            }
            found => {
                if found.is_none() && self.known.len() >= MOST {
                    self.known.clear();
                }
                // The entry expires at once, so the next packet looks again.
                self.known.insert(destination, CachedHop { until: now, next_hop: None });
                self.last = None;
                return None;
            }
        };
        self.last = Some((destination, known));
        known.next_hop
    }

    /// Finds the next hop, or for how long it need not be looked up.
    fn look_up<'a>(
        &mut self,
        destination: Destination,
        devices: impl Iterator<Item = &'a Interface>,
    ) -> Result<NextHop, Duration> {
        let Destination { to, scope, source } = destination;
        let hop = self.kernel.hop(to, scope, source).ok_or(LIFE)?;
        let found = (0..).zip(devices).find(|(_, device)| device.index == hop.interface);
        let (interface, device) = found.ok_or(LIFE)?;
        let source = source.or(hop.source).ok_or(LIFE)?;
        let neighbour = self.kernel.neighbour(hop.interface, hop.address).ok_or(SEARCH)?;
        let header = FrameHeader::new((device.mac, neighbour), source, to).ok_or(LIFE)?;
        let longest = 14 + device.mtu as usize;
        Ok(NextHop { interface, header, longest })
    }
}

//! How frames get to a destination: the interface, the Ethernet address of the next hop and our own
//! address, asked of the system and remembered for a second.
//!
//! The first packet to a destination leaves through the system, which finds out where the next hop
//! is; so does one each second, which keeps that up to date, and every packet where frames of our
//! own could not do what the system does (routers out of reach, tunnels, loopback). A change of
//! links or routes makes all forgotten.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::frame::FrameHeader;
use crate::egress::hops::Interface;
use crate::egress::kernel::Kernel;

/// How long what was found holds.
const LIFE: Duration = Duration::from_secs(1);
/// How long it holds that the system is still looking for the next hop.
const SEARCH: Duration = Duration::from_millis(5);
/// How often it is asked whether links or routes changed.
const CHECK: Duration = Duration::from_millis(100);
/// Destinations remembered; beyond, all are forgotten.
const MOST: usize = 4096;

/// A destination, and the address of ours to send from where that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Where to.
    pub to: IpAddr,
    /// The link's number, of an address that is valid on its link only.
    pub scope: u32,
    /// Where from.
    pub source: Option<IpAddr>,
}

impl Destination {
    /// Of an address, from one of ours.
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
    /// The interface's place in the driver's list.
    pub interface: usize,
    /// What frames begin with.
    pub header: FrameHeader,
    /// Longest frame that the link takes, bytes.
    pub longest: usize,
}

/// What is known of a destination.
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
    /// Nothing is known yet.
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, known: HashMap::new(), last: None, checked: Instant::now() }
    }

    /// Forgets everything if links or routes changed; true then. To be called now and then.
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

    /// How a packet gets to a destination by one of `devices`; `None`: through the system.
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
            // The packet before this one went through the system, which knows the way now.
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
                // Nothing holds it from being asked for before the next packet.
                self.known.insert(destination, CachedHop { until: now, next_hop: None });
                self.last = None;
                return None;
            }
        };
        self.last = Some((destination, known));
        known.next_hop
    }

    /// Finds the way, or how long it need not be looked for.
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

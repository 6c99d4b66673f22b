//! The interface by which packets leave for a peer, and the rate of its link, from the kernel
//! (netlink, ethtool), through VLANs, bonds, and bridges.
//!
//! A rate is *known* if the device at the bottom negotiated it, a *guess* if there are several
//! candidates, and otherwise *unknown*, because virtual devices report arbitrary rates (for example
//! 10 Gbit/s for veth, 10 Mbit/s for tun). The protocol only learns known rates. A guess is used by
//! the pacer, which notices if it is wrong.
//!
//! Invariants: queries never block and never fail: without netlink (old sandboxes, seccomp), every
//! rate is unknown. Left out: the network beyond the first link; which port of a bridge leads to a
//! peer; the interfaces below tunnels.

#[cfg(feature = "xdp")]
pub(crate) mod hops;
mod interfaces;
pub(crate) mod kernel;

use std::net::IpAddr;

use homa_proto::Rate;

pub(crate) use interfaces::Interfaces;
use kernel::Kernel;

/// The rate of an interface's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRate {
    /// Reported by the devices below.
    Known(Rate),
    /// One of several possible rates.
    Guess(Rate),
    /// Limited only by this host's processors: loopback.
    Unlimited,
    /// Not reported, or reported by a virtual device.
    Unknown,
}

impl LinkRate {
    /// `known`, `guess`, `unlimited` or `unknown`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Known(_) => "known",
            Self::Guess(_) => "guess",
            Self::Unlimited => "unlimited",
            Self::Unknown => "unknown",
        }
    }

    /// The rate, if it is known or guessed.
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Known(rate) | Self::Guess(rate) => Some(rate),
            Self::Unlimited | Self::Unknown => None,
        }
    }
}

/// An interface that packets leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its name.
    pub interface: String,
    /// `physical`, `loopback`, or the kernel's name for the kind of device (`vlan`, `bond`, …).
    pub kind: String,
    /// The rate of its link.
    pub rate: LinkRate,
    /// The source of the rate, or the reason why it is unknown.
    pub because: String,
}

/// All interfaces of this network namespace that are up; `None` if the kernel does not answer.
pub(crate) fn interfaces() -> Option<Vec<Egress>> {
    let mut kernel = Kernel::open().ok()?;
    let interfaces = kernel.interfaces()?;
    let speed = |name: &str| kernel.speed(name);
    Some(interfaces.up().filter_map(|index| interfaces.egress(index, &speed)).collect())
}

/// The interface by which packets leave for an address; `None` without a route, or if the kernel
/// does not answer.
pub(crate) fn toward(to: IpAddr) -> Option<Egress> {
    let mut kernel = Kernel::open().ok()?;
    let index = kernel.route(to, 0, None)?;
    let interfaces = kernel.interfaces()?;
    interfaces.egress(index, &|name: &str| kernel.speed(name))
}

#[cfg(test)]
mod tests;

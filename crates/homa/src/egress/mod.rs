//! The interface by which packets leave for a peer, and the rate of its link: asked of the kernel
//! (netlink, ethtool), through VLANs, bonds and bridges.
//!
//! A rate is *known* when the device at the bottom negotiated it, a *guess* when several could be
//! meant, and else *unknown*: virtual devices say whatever they like (10 Gbit/s for veth, 10 Mbit/s
//! for tun). Only a known rate tells the protocol anything; a guess serves the pacer, which finds
//! out when it is wrong.
//!
//! Invariants: asking never blocks and never fails: without netlink (old sandboxes, seccomp) every
//! rate is unknown. Left out: what is beyond the first link; which port of a bridge leads to a
//! peer; the interfaces below tunnels.

#[cfg(feature = "xdp")]
pub(crate) mod hops;
mod interfaces;
pub(crate) mod kernel;

use std::net::IpAddr;

use homa_proto::Rate;

pub(crate) use interfaces::Interfaces;
use kernel::Kernel;

/// What is known about the rate of an interface's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRate {
    /// The devices below say so.
    Known(Rate),
    /// One of several that it could be.
    Guess(Rate),
    /// Nothing limits it but this host's processors: loopback.
    Unlimited,
    /// Nobody says, or who says it makes it up.
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

    /// The rate, known or guessed.
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
    /// Its number in this network.
    pub index: u32,
    /// Its name.
    pub interface: String,
    /// What it is: `physical`, `loopback`, or the kernel's name for the kind (`vlan`, `bond`, …).
    pub kind: String,
    /// The rate of its link.
    pub rate: LinkRate,
    /// Where the rate comes from, or why there is none.
    pub because: String,
}

/// Every interface of this network that is up; `None` when the kernel does not tell.
pub(crate) fn interfaces() -> Option<Vec<Egress>> {
    let mut kernel = Kernel::open().ok()?;
    let interfaces = kernel.interfaces()?;
    let speed = |name: &str| kernel.speed(name);
    Some(interfaces.up().filter_map(|index| interfaces.egress(index, &speed)).collect())
}

/// The interface by which packets leave for an address; `None` without a route, or when the kernel
/// does not tell.
pub(crate) fn toward(to: IpAddr) -> Option<Egress> {
    let mut kernel = Kernel::open().ok()?;
    let index = kernel.route(to, 0, None)?;
    let interfaces = kernel.interfaces()?;
    interfaces.egress(index, &|name: &str| kernel.speed(name))
}

#[cfg(test)]
mod tests;

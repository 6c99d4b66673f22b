//! Facts about this machine for diagnostic programs such as `homa doctor`: links and their rates,
//! and the capabilities that AF_XDP lacks.

use std::net::IpAddr;

use homa_proto::Rate;

use crate::egress::{self, Egress};

/// An interface, and the rate of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Name of the interface.
    pub interface: String,
    /// `physical`, `loopback`, or the kernel's name for the kind of device (`vlan`, `bond`, …).
    pub kind: String,
    /// The rate, if it is known or guessed.
    pub rate: Option<Rate>,
    /// `known`, `guess`, `unlimited` (loopback) or `unknown`.
    pub certainty: &'static str,
    /// The source of the rate, or the reason why it is unknown.
    pub because: String,
}

impl From<Egress> for Link {
    fn from(egress: Egress) -> Self {
        let Egress { interface, kind, rate, because, .. } = egress;
        Self { interface, kind, rate: rate.rate(), certainty: rate.word(), because }
    }
}

/// The links of all interfaces of this network namespace that are up; `None` if the kernel does not
/// list them.
pub fn links() -> Option<Vec<Link>> {
    Some(egress::interfaces()?.into_iter().map(Link::from).collect())
}

/// The link by which packets leave for an address; `None` without a route, or if the kernel does
/// not answer.
pub fn link_to(to: IpAddr) -> Option<Link> {
    egress::toward(to).map(Link::from)
}

/// Names of the capabilities that this process lacks for [`Engine::xdp`](crate::Engine::xdp).
#[cfg(feature = "xdp")]
pub fn missing_xdp_capabilities() -> Vec<&'static str> {
    crate::driver::xdp::missing_capabilities()
}

//! The links that packets leave by, and their rates as far as they are known.

use std::net::IpAddr;

use homa::doctor;
use serde::Serialize;

/// An interface and the rate of its link.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorLink {
    interface: String,
    kind: String,
    /// Absent rates are `null`.
    rate_gbps: Option<f64>,
    certainty: &'static str,
    because: String,
}

impl DoctorLink {
    fn new(link: doctor::Link) -> Self {
        let doctor::Link { interface, kind, rate, certainty, because, .. } = link;
        let rate_gbps = rate.map(|rate| rate.0 as f64 / 1e9);
        Self { interface, kind, rate_gbps, certainty, because }
    }

    /// Interface, kind, rate, certainty, reason.
    pub fn cells(&self) -> [String; 5] {
        let rate = self.rate_gbps.map_or_else(|| "-".into(), |rate| format!("{rate} Gbit/s"));
        [
            self.interface.clone(),
            self.kind.clone(),
            rate,
            self.certainty.into(),
            self.because.clone(),
        ]
    }

    /// True when the rate is not for sure.
    pub fn is_uncertain(&self) -> bool {
        ["unknown", "guess"].contains(&self.certainty)
    }
}

/// All that are up, or the one that packets to a peer leave by; none when the kernel does not say.
pub fn all(peer: Option<IpAddr>) -> Vec<DoctorLink> {
    let found = match peer {
        Some(peer) => doctor::link_to(peer).into_iter().collect(),
        None => doctor::links().unwrap_or_default(),
    };
    found.into_iter().map(DoctorLink::new).collect()
}

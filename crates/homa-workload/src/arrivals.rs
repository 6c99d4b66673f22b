//! Arrivals: the time, client, server and size of each RPC. Open loop: arrivals do not depend on
//! whether earlier RPCs have finished, so that every transport is offered exactly the same.
//!
//! Each host is an independent Poisson process and picks its server uniformly among the other hosts
//! (Homa §5). Gaps, sizes and peers come from separate streams per host: a higher load moves the
//! arrivals closer together and changes neither their sizes nor their peers.
//!
//! Left out: closed loops, incast bursts and responses of another size than the request.

use std::fmt;

use crate::load::{Basis, Load};
use crate::rng::Rng;
use crate::sizes::SizeDistribution;

/// One echo RPC to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in nanoseconds since the start of the run. Latency counts from here.
    pub at_ns: u64,
    /// The client: a host, 0 to hosts - 1.
    pub src: u16,
    /// The server: another host.
    pub dst: u16,
    /// Size of the request, and of the response, in bytes.
    pub bytes: u32,
}

/// The load to offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Number of hosts, at least 2.
    pub hosts: u16,
    /// Load on every host's uplink.
    pub load: Load,
    /// Length of the run in nanoseconds; arrivals lie before its end.
    pub duration_ns: u64,
    /// Everything random follows from it.
    pub seed: u64,
}

/// An offer that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OfferError {
    /// Fewer than two hosts.
    Hosts(u16),
    /// The load is not a positive, finite number.
    Load(f64),
    /// The link has no rate.
    Link,
    /// More RPCs than [`MAX_ARRIVALS`] are to be expected.
    TooMany(f64),
}

/// Most arrivals of a schedule: 1 GiB of them.
pub const MAX_ARRIVALS: usize = 1 << 26;

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(hosts) => {
                write!(f, "{hosts} hosts cannot call each other: use at least 2")
            }
            Self::Load(load) => {
                write!(
                    f,
                    "a load of {load} cannot be offered: use a share of the link, such as 0.8"
                )
            }
            Self::Link => f.write_str("the link's rate is 0: give it in bits per second"),
            Self::TooMany(expected) => write!(
                f,
                "about {expected:.2e} RPCs would arrive, and at most {MAX_ARRIVALS} are planned: \
                 choose a shorter duration, a slower link, a lower load or larger messages"
            ),
        }
    }
}

impl std::error::Error for OfferError {}

/// The arrivals of every host, each list by time. Deterministic in the offer and the sizes.
pub fn schedule(offer: &Offer, sizes: &SizeDistribution) -> Result<Vec<Vec<Arrival>>, OfferError> {
    let hosts = (0..offer.hosts.max(1)).map(|host| HostArrivals::new(offer, sizes, host));
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    let gaps = hosts.iter().map(|host| offer.duration_ns as f64 / host.mean_gap_ns);
    let expected: f64 = gaps.sum();
    if expected > MAX_ARRIVALS as f64 {
        return Err(OfferError::TooMany(expected));
    }
    let before_the_end = |a: &Arrival| a.at_ns < offer.duration_ns;
    Ok(hosts.into_iter().map(|host| host.take_while(before_the_end).collect()).collect())
}

/// The endless arrivals of one client, in the order of their times.
#[derive(Clone, Debug)]
pub struct HostArrivals<'a> {
    sizes: &'a SizeDistribution,
    host: u16,
    others: u16,
    mean_gap_ns: f64,
    now_ns: f64,
    gaps: Rng,
    lengths: Rng,
    peers: Rng,
}

impl<'a> HostArrivals<'a> {
    /// The arrivals of host number `host` of an offer.
    pub fn new(offer: &Offer, sizes: &'a SizeDistribution, host: u16) -> Result<Self, OfferError> {
        if offer.hosts < 2 {
            return Err(OfferError::Hosts(offer.hosts));
        }
        if offer.load.link_bps == 0 {
            return Err(OfferError::Link);
        }
        let fraction = offer.load.fraction;
        if !(fraction.is_finite() && fraction > 0.0) {
            return Err(OfferError::Load(fraction));
        }
        let stream = |what| Rng::stream(offer.seed, &format!("arrivals/{what}/host{host}"));
        Ok(Self {
            sizes,
            host,
            others: offer.hosts - 1,
            mean_gap_ns: 1e9 / offer.load.rpcs_per_second(sizes),
            now_ns: 0.0,
            gaps: stream("gaps"),
            lengths: stream("sizes"),
            peers: stream("peers"),
        })
    }
}

impl Iterator for HostArrivals<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.now_ns += self.gaps.exponential(self.mean_gap_ns);
        let peer = self.peers.uniform_below(u32::from(self.others)) as u16;
        Some(Arrival {
            at_ns: self.now_ns as u64,
            src: self.host,
            dst: if peer < self.host { peer } else { peer + 1 },
            bytes: self.sizes.sample(&mut self.lengths),
        })
    }
}

/// The load of a schedule on each host's uplink, as a share of its rate over `duration_ns`: its own
/// requests and its responses to others. It differs from the load asked for because arrivals are
/// random.
pub fn offered_load(schedule: &[Vec<Arrival>], load: &Load, duration_ns: u64) -> Vec<f64> {
    let mut wire_bytes = vec![0u64; schedule.len()];
    for arrival in schedule.iter().flatten() {
        let bytes = match load.basis {
            Basis::Wire => load.framing.wire_bytes(arrival.bytes),
            Basis::Payload => u64::from(arrival.bytes),
        };
        for host in [arrival.src, arrival.dst] {
            if let Some(sum) = wire_bytes.get_mut(usize::from(host)) {
                *sum += bytes;
            }
        }
    }
    let capacity = load.link_bps as f64 * duration_ns as f64 / 8e9;
    wire_bytes.into_iter().map(|bytes| bytes as f64 / capacity).collect()
}

#[cfg(test)]
mod tests;

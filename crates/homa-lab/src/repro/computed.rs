//! Numbers of the paper that follow from rules and need no simulation: frame and idle times from
//! the fabric's own links, levels and cutoffs from the protocol's own allocation.
//!
//! | name | is | unit |
//! |---|---|---|
//! | `computed.frame_us` | a full Ethernet frame at 10 Gbit/s | µs |
//! | `computed.idle_us` | the shortest frame one way, mean over all pairs of the 144 hosts | µs |
//! | `computed.rtt_us` | a grant one way and a full packet back, across racks | µs |
//! | `computed.rtt_kb` | what 10 Gbit/s carries in that time | 1000 B |
//! | `computed.overcommit_kib` | buffer that K = 7 granted messages may need beyond one | 1024 B |
//! | `computed.pfc_reaction_us`, `…_bytes` | until a pause takes effect (DeTail) | µs, B |
//! | `computed.pfc_safe_pause` | the greatest safe threshold there, 8 priorities, 128 KB | B |
//! | `computed.pfc_pause`, `computed.pfc_unpause` | those of DeTail's rule | B |
//! | `computed.tail_missed_40`, `…_400` | workers late after 10 ms at 99.9 % | – |
//! | `computed.tail_missed_normal` | the same of 400, round trips being normal | – |
//! | `computed.tail_sequential`, `…_normal` | retrievals in a row in 200 ms at 99.9 % | – |
//! | `computed.w2.levels` | unscheduled levels that Homa §3.4's rule gives a workload | of 8 |
//! | `computed.w2.top` | largest message of the highest level | B |
//! | `computed.w2.unscheduled` | wire bytes that need no grant, of all | % |
//! | `computed.w2.mean_cut` | mean of messages that are cut at 1 MB (Homa/Linux) | B |
//! | `computed.slowdown.72.20` | HULL's eq. 3: slowdown with 72 % of a link at 20 % load | – |
//! | `computed.headroom.2.25` | its eq. 5: headroom for 2 flows and 25 packets in flight | % |

use homa_proto::{
    Body, Config, Data, Duration, Endpoint, MessageId, Packet, PeerId, PeerInfo, Rate, RpcId, Span,
    Time,
};
use homa_sim::fabric::cioq::pfc::{PfcLink, detail_thresholds, safe_pause};
use homa_sim::measure::headroom;
use homa_sim::topology::LeafSpine;
use homa_sim::{HostId, SimDuration};
use homa_workload::framing::{FULL_FRAME, Framing, MIN_FRAME};
use homa_workload::quantile::Percentile;
use homa_workload::sizes::Workload;

use crate::tail::{self, RoundTrips};

/// A number that follows from rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// Serialisation of a full frame.
    FrameUs,
    /// One-way time of the shortest frame.
    IdleUs,
    /// Grant to data.
    RttUs,
    /// RTTbytes.
    RttKb,
    /// Buffer due to overcommitment.
    OvercommitKib,
    /// Of DeTail's analysis.
    Detail(OfDetail),
    /// Of a built-in workload, 1 to 5.
    Workload(u8, OfWorkload),
    /// HULL's equation 3: per cent of the link that may be used, and of load.
    Slowdown(u8, u8),
    /// HULL's equation 5: flows, packets in flight.
    Headroom(u8, u8),
}

/// Results of DeTail's rules for its link and its round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfDetail {
    /// Time until a pause takes effect.
    ReactionUs,
    /// Bytes that arrive until a pause takes effect.
    ReactionBytes,
    /// The greatest threshold that is safe.
    SafePause,
    /// The threshold chosen.
    Pause,
    /// The threshold below which the sender continues.
    Unpause,
    /// Late workers among this many.
    Missed(u32),
    /// Late of 400 workers with normal round trips.
    MissedNormal,
    /// Retrievals in a page's time.
    Sequential,
    /// The same with normal round trips.
    SequentialNormal,
}

/// Results of the rule of Homa §3.4 for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfWorkload {
    /// Unscheduled levels.
    Levels,
    /// Cutoff of the highest.
    Top,
    /// Share of bytes unscheduled.
    Unscheduled,
    /// Mean of messages of at most 1 MB.
    MeanCut,
}

const NAMED: [(&str, Computed); 5] = [
    ("frame_us", Computed::FrameUs),
    ("idle_us", Computed::IdleUs),
    ("rtt_us", Computed::RttUs),
    ("rtt_kb", Computed::RttKb),
    ("overcommit_kib", Computed::OvercommitKib),
];
const OF_DETAIL: [(&str, OfDetail); 10] = [
    ("pfc_reaction_us", OfDetail::ReactionUs),
    ("pfc_reaction_bytes", OfDetail::ReactionBytes),
    ("pfc_safe_pause", OfDetail::SafePause),
    ("pfc_pause", OfDetail::Pause),
    ("pfc_unpause", OfDetail::Unpause),
    ("tail_missed_40", OfDetail::Missed(40)),
    ("tail_missed_400", OfDetail::Missed(400)),
    ("tail_missed_normal", OfDetail::MissedNormal),
    ("tail_sequential", OfDetail::Sequential),
    ("tail_sequential_normal", OfDetail::SequentialNormal),
];
const OF_WORKLOAD: [(&str, OfWorkload); 4] = [
    ("levels", OfWorkload::Levels),
    ("top", OfWorkload::Top),
    ("unscheduled", OfWorkload::Unscheduled),
    ("mean_cut", OfWorkload::MeanCut),
];

const GIGABIT: f64 = 1e9;

impl Computed {
    /// The number of that name, `computed.` left out.
    pub fn named(name: &str) -> Option<Self> {
        if let Some((_, computed)) = NAMED.iter().find(|(known, _)| *known == name) {
            return Some(*computed);
        }
        if let Some((_, of)) = OF_DETAIL.iter().find(|(known, _)| *known == name) {
            return Some(Self::Detail(*of));
        }
        let (workload, what) = name.split_once('.')?;
        if let ("slowdown" | "headroom", Some((a, b))) = (workload, what.split_once('.')) {
            let (a, b) = (a.parse().ok()?, b.parse().ok()?);
            return Some(match workload {
                "slowdown" => Self::Slowdown(a, b),
                _ => Self::Headroom(a, b),
            });
        }
        let number = workload.strip_prefix('w')?.parse().ok().filter(|n| (1..=5).contains(n))?;
        let (_, of) = OF_WORKLOAD.iter().find(|(known, _)| *known == what)?;
        Some(Self::Workload(number, *of))
    }

    /// Its name.
    pub fn name(self) -> String {
        if let Self::Workload(number, of) = self {
            let named = OF_WORKLOAD.iter().find(|(_, known)| *known == of);
            return format!("w{number}.{}", named.map_or("", |(name, _)| name));
        }
        if let Self::Slowdown(gamma, load) = self {
            return format!("slowdown.{gamma}.{load}");
        }
        if let Self::Headroom(flows, packets) = self {
            return format!("headroom.{flows}.{packets}");
        }
        if let Self::Detail(of) = self {
            let named = OF_DETAIL.iter().find(|(_, known)| *known == of);
            return named.map_or("", |(name, _)| name).to_owned();
        }
        let named = NAMED.iter().find(|(_, known)| *known == self);
        named.map_or("", |(name, _)| name).to_owned()
    }

    /// The number.
    pub fn value(self) -> f64 {
        match self {
            Self::FrameUs => FULL_FRAME as f64 * 8.0 / (10.0 * GIGABIT) * 1e6,
            Self::IdleUs => idle_us(),
            Self::RttUs => rtt_us(),
            Self::RttKb => rtt_us() * 1e-6 * 10.0 * GIGABIT / 8.0 / 1e3,
            Self::OvercommitKib => 6.0 * rtt_us() * 1e-6 * 10.0 * GIGABIT / 8.0 / 1024.0,
            Self::Detail(of) => of_detail(of),
            Self::Workload(number, of) => of_workload(number, of),
            Self::Slowdown(gamma, load) => {
                let share = |percent: u8| f64::from(percent) / 100.0;
                headroom::slowdown(share(gamma), share(load)).unwrap_or(f64::INFINITY)
            }
            Self::Headroom(flows, packets) => {
                // A packet per microsecond.
                let (link, rtt) = (Rate::gbps(12), Duration::micros(u64::from(packets)));
                headroom::needed(u32::from(flows), link, rtt, 1_500) * 100.0
            }
        }
    }
}

/// Mean over all destinations of one host, which are alike for every host.
fn idle_us() -> f64 {
    let wiring = LeafSpine::homa().wire();
    let others = 1..wiring.hosts();
    let count = f64::from(wiring.hosts() - 1);
    let shortest = [MIN_FRAME as u32];
    others.map(|to| wiring.ideal(HostId(0), HostId(to), &shortest).0 as f64).sum::<f64>()
        / count
        / 1e6
}

fn rtt_us() -> f64 {
    let wiring = LeafSpine::homa().wire();
    let (here, there) = (HostId(0), HostId(wiring.hosts() - 1));
    let grant = wiring.ideal(here, there, &[MIN_FRAME as u32]);
    let data = wiring.ideal(there, here, &[FULL_FRAME as u32]);
    (grant.0 + data.0) as f64 / 1e6
}

/// DeTail §4.3.1's link, §2.2's workflows.
fn of_detail(of: OfDetail) -> f64 {
    let link = PfcLink::symmetric(Rate::gbps(1), 1_530, SimDuration::nanos(5_476));
    let chosen = detail_thresholds(&link, 131_072, 8);
    let trips = RoundTrips::Curve(tail::DETAIL.to_vec());
    let normal = trips.normal_beside();
    let missed = |trips: &RoundTrips, workers| {
        f64::from(tail::missed(trips.share_above(10_000.0), workers, 0.999))
    };
    let sequential = |trips: &RoundTrips| {
        f64::from(tail::sequential(trips, 200_000.0, Percentile::P999, (10_000, 1)).most)
    };
    match of {
        OfDetail::ReactionUs => link.reaction().total().0 as f64 / 1e6,
        OfDetail::ReactionBytes => link.reaction_bytes() as f64,
        OfDetail::SafePause => safe_pause(&link, 131_072, 8).map_or(f64::NAN, f64::from),
        OfDetail::Pause => chosen.map_or(f64::NAN, |chosen| f64::from(chosen.pause)),
        OfDetail::Unpause => chosen.map_or(f64::NAN, |chosen| f64::from(chosen.unpause)),
        OfDetail::Missed(workers) => missed(&trips, workers),
        OfDetail::MissedNormal => missed(&normal, 400),
        OfDetail::Sequential => sequential(&trips),
        OfDetail::SequentialNormal => sequential(&normal),
    }
}

fn of_workload(number: u8, of: OfWorkload) -> f64 {
    let workload = Workload::BUILT_IN[usize::from(number) - 1].clone();
    let name = workload.to_string();
    match of {
        OfWorkload::Unscheduled => unscheduled_percent(&workload),
        OfWorkload::MeanCut => {
            workload.sizes().map_or(f64::NAN, |sizes| sizes.truncated(1_000_000).mean_bytes())
        }
        OfWorkload::Levels => allocation(&name).iter().filter(|cutoff| **cutoff > 0).count() as f64,
        OfWorkload::Top => f64::from(allocation(&name)[7]),
    }
}

/// Wire bytes of the packets that need no grant, in percent of all data packets'.
fn unscheduled_percent(workload: &Workload) -> f64 {
    const LIMIT: u32 = 9328;
    let Ok(sizes) = workload.sizes() else { return f64::NAN };
    let wire = |bytes: u32| Framing::Paper.data_wire_bytes(bytes) as f64;
    sizes.mean_of(|bytes| wire(bytes.min(LIMIT))) / sizes.mean_of(wire) * 100.0
}

/// Cutoffs that a receiver measures (Homa §3.4) if the first packets of many messages arrive, whose
/// lengths cover the distribution evenly, and as many grants, because traffic is the same in both
/// directions. The result varies with the longest messages (W2's share is 6.46 levels of eight), so
/// the most frequent number of levels counts, in its last division.
fn allocation(workload: &str) -> [u32; 8] {
    const PAYLOAD: u32 = 1442;
    const RTT_BYTES: u32 = 10_000;
    /// Number of lengths drawn; two of them are the longest of W2.
    const DRAWS: u64 = 1 << 20;
    let sizes = Workload::parse(workload).ok().and_then(|workload| workload.sizes().ok());
    // Of long messages only the first packet comes: no limit on such messages may choose.
    let config = Config::sigcomm18(Rate::gbps(10)).max_rpcs(1 << 24).memory_budget(1 << 60);
    let (Some(sizes), Ok(config)) = (sizes, config.validate()) else { return [0; 8] };
    // A grant per packet: long messages are many of them, and few messages then say enough.
    let messages = if sizes.mean_bytes() < 10_000.0 { DRAWS } else { DRAWS / 64 };
    let mut endpoint = Endpoint::new(config);
    let peer = PeerId(0);
    endpoint.open_peer(peer, PeerInfo { host: 0, max_payload: PAYLOAD });
    endpoint.listen(4000);
    let packet = |id, body| Packet {
        peer,
        priority: 7,
        local_port: 0,
        remote_port: 40_000,
        id: RpcId(id * 2),
        body,
    };
    let mut now = Time::ZERO;
    let mut seen = [(0, [0; 8]); 9];
    for i in 1..=messages {
        now += Duration::micros(1);
        let u = ((i * 650_011 % DRAWS) as f64 + 0.5) / DRAWS as f64;
        let length = sizes.quantile(u);
        let data = Data {
            span: Span { message: MessageId(0), offset: 0, len: length.min(PAYLOAD) },
            message_length: length,
            incoming: length.min(RTT_BYTES),
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            incast: None,
        };
        let _ = endpoint.receive(now, &packet(i, Body::Data(data)));
        for _ in 0..length.saturating_sub(RTT_BYTES).div_ceil(1456) {
            let _ = endpoint.receive(now, &packet(i, Body::Grant { offset: length, priority: 0 }));
        }
        while endpoint.event().is_some() {}
        while endpoint.transmit(now).is_some() {}
        if i % 1_000 == 0 {
            let cutoffs = endpoint.cutoffs().0;
            let entry = &mut seen[cutoffs.iter().filter(|cutoff| **cutoff > 0).count()];
            *entry = (entry.0 + 1, cutoffs);
        }
    }
    seen.iter().max_by_key(|(times, _)| *times).map_or([0; 8], |(_, cutoffs)| *cutoffs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(name: &str, expected: f64, margin: f64) {
        let computed = Computed::named(name).unwrap();
        assert_eq!(computed.name(), name);
        let value = computed.value();
        assert!((value - expected).abs() <= margin, "{name}: {value}");
    }

    #[test]
    fn the_fabric_has_the_times_of_the_published_one() {
        assert_near("frame_us", 1.2304, 1e-9);
        assert_near("rtt_us", 7.744, 1e-3);
        assert_near("rtt_kb", 9.680, 1e-2);
        assert_near("idle_us", 2.362, 1e-3);
        assert_near("overcommit_kib", 56.7, 0.1);
    }

    #[test]
    fn w2_is_divided_as_in_figure_4() {
        assert_near("w2.unscheduled", 80.46, 0.1);
        assert_near("w2.levels", 6.0, 0.0);
        assert_near("w2.top", 280.0, 28.0);
        assert_near("w2.mean_cut", 433.0, 1.0);
    }

    #[test]
    fn hulls_equations_are_those_of_the_paper() {
        assert_near("slowdown.80.40", 1.5, 1e-9);
        assert_near("slowdown.87.60", 0.4 / 0.27, 1e-9);
        assert_near("headroom.2.25", 8.0, 1e-9);
        assert_near("headroom.8.25", 32.0, 1e-9);
    }

    #[test]
    fn nothing_else_is_computed() {
        for name in ["slowdown.80", "slowdown.x.20", "w6.levels", "w2.bottom", "frame", ""] {
            assert_eq!(Computed::named(name), None);
        }
    }
}

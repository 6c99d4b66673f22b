//! The rack under a row as the simulator describes it.

use std::time::Duration;

use homa_sim::scenario::{
    AlgorithmName, Bandwidth, Buffer, EcnConfig, Fabric, FramingName, Impaired, Measures,
    PhantomOptions, PickName, Routing, Scenario, SchemeOptions, Shape, Span, Stop, TcpOptions,
};
use homa_testbed::{Degraded, LEAVES, POOL, SMALL_RPC_BYTES, Transport};

use super::super::args::{Args, Switch};
use super::super::fabric::{FabricShape, PathChoice};
use super::super::marking::PlannedRow;

/// RTTbytes before anything is measured, as the runtime starts.
const FIRST_RTT_BYTES: u32 = 10_000;

/// Parameters of the simulated hosts.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// A message's time in the software of both together, microseconds.
    pub us: f64,
    /// TCP's least retransmission timeout.
    pub rto_min: Duration,
}

/// The rack under a row; `None`: the simulator does not have what runs on its hosts.
pub fn scenario(args: &Args, row: PlannedRow, hosts: Hosts) -> Option<Scenario> {
    let (scheme, options) = match row.transport {
        // The simulated hosts have one engine each, and neither HTTP/2 nor proxies.
        Transport::HomaSharded | Transport::Grpc | Transport::GrpcProxy => return None,
        Transport::Homa | Transport::HomaFlat => ("homa", homa(args, row.transport)),
        _ => tcp(args, row, hosts.rto_min)?,
    };
    let delay = Span((hosts.us * 1e6) as u64);
    let sending = Span(delay.0 / 2);
    // A frame meets the rack's faults once, and two links in the simulator.
    let per_link = |once: f64| ((1.0 - (1.0 - once).sqrt()) * 1e6).round() as u32;
    let link = Bandwidth(args.link());
    Some(Scenario {
        scheme: scheme.to_owned(),
        options,
        fabric: Fabric {
            shape: match args.network.fabric {
                FabricShape::SingleSwitch => Shape::SingleSwitch { hosts: args.hosts() as u32 },
                FabricShape::LeafSpine => Shape::LeafSpine {
                    racks: LEAVES,
                    hosts_per_rack: args.hosts() as u32 / LEAVES,
                    spines: LEAVES,
                },
            },
            routing: Some(match args.network.forwarding {
                PathChoice::Ecmp => Routing::Ecmp,
                PathChoice::Spray => Routing::Spray,
                PathChoice::Alb => Routing::Adaptive,
            }),
            impaired: args
                .network
                .degraded()
                .iter()
                .map(|degraded| impaired(args, degraded))
                .collect(),
            host_link: link,
            fabric_link: link,
            send_delay: sending,
            nic_delay: Span(0),
            receive_delay: Span(delay.0 - sending.0),
            switch_delay: Span(0),
            buffer: Buffer::PerPort { bytes: args.buffer },
            loss_ppm: per_link(args.loss),
            duplicate_ppm: per_link(args.duplicate),
            ..Fabric::default()
        },
        stop: Stop { messages: None, ..Stop::default() },
        seed: args.seed,
        measures: Measures { priorities: false, ..Measures::default() },
        ..Scenario::default()
    })
}

/// A link of the rack that changes under load, which begins at time 0 here.
fn impaired(args: &Args, degraded: &Degraded) -> Impaired {
    let rate = Bandwidth(args.link() * u64::from(degraded.percent) / 100);
    Impaired {
        from: format!("tor{}", degraded.leaf),
        to: format!("spine{}", degraded.spine),
        one_way: false,
        at: Span(degraded.after.as_nanos() as u64 * 1_000),
        until: None,
        rate: (degraded.percent > 0).then_some(rate),
        loss_ppm: None,
    }
}

/// Homa as the runtime starts it.
fn homa(args: &Args, transport: Transport) -> SchemeOptions {
    let map = match transport {
        Transport::HomaFlat => homa::PriorityMap::Flat,
        _ => homa::PriorityMap::default(),
    };
    SchemeOptions {
        framing: Some(FramingName::Udp),
        rtt_bytes: Some(FIRST_RTT_BYTES),
        levels: Some(map.levels()),
        incast_control: Some(args.incast_control == Switch::On),
        ..SchemeOptions::default()
    }
}

/// TCP as the rack's hosts set it: open connections whose windows survive idleness, a low least
/// timeout, a congestion control that the simulator has.
fn tcp(args: &Args, row: PlannedRow, rto_min: Duration) -> Option<(&'static str, SchemeOptions)> {
    let heeds = row.transport.heeds_marks();
    let algorithm = match (row.transport, args.cc.as_str()) {
        (Transport::Dctcp, _) => AlgorithmName::Dctcp,
        (_, "cubic") => AlgorithmName::Cubic,
        (_, "reno") => AlgorithmName::NewReno,
        _ => return None,
    };
    let (connections, pick) = match row.transport {
        Transport::TcpPool | Transport::TcpClassed => (POOL as u32, PickName::Idle),
        _ => (1, PickName::Random),
    };
    let classes = (row.transport == Transport::TcpClassed).then(|| vec![SMALL_RPC_BYTES]);
    let marks = heeds && row.marks == Some(true);
    let scheme = if row.transport == Transport::Dctcp { "dctcp" } else { "tcp" };
    let unmarked = EcnConfig::new(u32::MAX.into());
    let threshold = args.marks.ecn_threshold.filter(|_| marks);
    let ecn = threshold.map(|bytes| EcnConfig { threshold: bytes.into(), ..unmarked });
    // DCTCP's own row has a threshold, which the rack lacks.
    let ecn = ecn.or((scheme == "dctcp").then_some(unmarked));
    let phantom = args.marks.phantom_queue.filter(|_| marks).map(|queue| PhantomOptions {
        drain: Some(queue.drain),
        threshold: Some(queue.threshold.into()),
        ..PhantomOptions::default()
    });
    let tcp = TcpOptions {
        algorithm: Some(algorithm),
        ecn: Some(heeds),
        min_rto: Some(Span(rto_min.as_nanos() as u64 * 1_000)),
        idle_restart: Some(false),
        connections: Some(connections),
        pick: Some(pick),
        size_classes: classes,
        ..TcpOptions::default()
    };
    Some((scheme, SchemeOptions { ecn, phantom, tcp: Some(tcp), ..SchemeOptions::default() }))
}

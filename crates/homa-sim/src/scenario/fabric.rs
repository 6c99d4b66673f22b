//! The network of a scenario: its shape, rates, delays and buffers.

use serde::{Deserialize, Serialize};

use super::units::{self, Bandwidth, Span};

/// A network. The default is the one of Homa §5.2: 144 hosts in 9 racks, 4 spines, 10 and 40
/// Gbit/s, unlimited buffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fabric {
    /// How hosts and switches are connected.
    pub shape: Shape,
    /// Rate of a host's link.
    pub host_link: Bandwidth,
    /// Rate of the links between switches.
    pub fabric_link: Bandwidth,
    /// Rate of the links between aggregation and core switches, where there are such; absent:
    /// `fabric_link`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_link: Option<Bandwidth>,
    /// From the application's call to the NIC: pure latency (Homa §5.2: part of 1.5 us).
    pub send_delay: Span,
    /// Inside the sending NIC, after serialisation.
    pub nic_delay: Span,
    /// From the receiving NIC to the application: pure latency.
    pub receive_delay: Span,
    /// Inside each switch, besides receiving and sending the frame.
    pub switch_delay: Span,
    /// Along each cable.
    pub propagation: Span,
    /// Switches forward a frame before its last bit arrived.
    pub cut_through: bool,
    /// Frames of higher priority interrupt the one being sent (link-level preemption).
    pub preemption: bool,
    /// How a switch picks among equal paths; absent: as the scheme has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Of `adaptive`: drain bytes below which a port is favoured, ascending; the first threshold
    /// with a favoured port decides (DeTail §4.2.3). Absent: 16384 and 65536.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub thresholds: Option<Vec<u32>>,
    /// Of `adaptive`: favoured ports take turns instead of chance.
    pub round_robin: bool,
    /// Memory for waiting frames.
    pub buffer: Buffer,
    /// Packets lost at random on every link, per million.
    pub loss_ppm: u32,
    /// Packets delivered twice at random on every link, per million.
    pub duplicate_ppm: u32,
    /// Packets held up at random on every link, so that those behind overtake, per million.
    pub reorder_ppm: u32,
    /// The longest time for which one is held up; each time up to it is equally likely.
    pub reorder_by: Span,
    /// When random loss, duplication and reordering of all links end; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_until: Option<Span>,
    /// Links that are down, slower or more lossy than the others. Idle times are those of the
    /// unimpaired network.
    pub impaired: Vec<Impaired>,
    /// Hosts that stand still for a while: they send nothing, and what arrives waits.
    pub paused: Vec<Paused>,
}

/// A host that stands still for a while, as one whose processor is taken away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paused {
    /// Which: `h0`, `h1`, ...
    pub host: String,
    /// Since when.
    #[serde(default)]
    pub at: Span,
    /// Until when.
    pub until: Span,
}

/// How hosts and switches are connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// All hosts at one switch.
    SingleSwitch {
        /// Number of hosts.
        hosts: u32,
    },
    /// Racks of hosts, each TOR connected once to every spine.
    LeafSpine {
        /// Number of TORs.
        racks: u32,
        /// Hosts at each TOR.
        hosts_per_rack: u32,
        /// Number of spines.
        spines: u32,
    },
    /// Three tiers of `k`-port switches: `k` pods, `k^3 / 4` hosts times the oversubscription.
    FatTree {
        /// Ports per switch, even.
        k: u32,
        /// Hosts per TOR as a multiple of its uplinks; 1: full bisection.
        #[serde(default = "one")]
        oversubscription: u32,
    },
    /// Three tiers of any size: in each pod every TOR is connected to every aggregation switch;
    /// aggregation switches of the same number in their pods share core switches.
    Pods {
        /// Number of pods.
        pods: u32,
        /// TORs in each.
        racks: u32,
        /// Hosts at each TOR.
        hosts_per_rack: u32,
        /// Aggregation switches in each pod.
        aggrs: u32,
        /// Core switches above each aggregation switch.
        cores: u32,
    },
    /// Links listed in a file, one per line: `from,to,gbps,delay_ns`, such as `h0,s3,100,500`; `h`
    /// and a number is a host, any other name a switch. Rates and delays stand there, so
    /// `host_link`, `fabric_link` and all delays of the plan are not used; loads are shares of the
    /// slowest host's link.
    Graph {
        /// Its path.
        file: String,
    },
}

fn one() -> u32 {
    1
}

/// How a switch picks among equal paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Uniformly at random for each packet.
    Spray,
    /// By a hash of source, destination and message: a message keeps to one path, two of one pair
    /// may take different ones, as RPCs from different ports do.
    Ecmp,
    /// For each packet a port where little of its level and above waits: below the first of
    /// `thresholds` if there is one, else below the next, else any (DeTail §4.2.3).
    Adaptive,
}

/// Memory for waiting frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Buffer {
    /// Never full (Homa §5.2).
    Unlimited,
    /// Drop-tail at this many wire bytes per port.
    PerPort {
        /// Wire bytes.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u64,
    },
    /// Drop-tail at this many wire bytes per port and priority level (HULL §6.2.2: 10 packets).
    PerLevel {
        /// Wire bytes.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u64,
    },
    /// One pool per switch; no port takes more than `alpha_percent` % of what is free.
    Shared {
        /// Wire bytes per switch.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u64,
        /// Dynamic threshold, percent of the free memory.
        alpha_percent: u32,
    },
}

/// A link that is not as the others: slower, lossy, or down when neither is said.
///
/// Ends are hosts (`h0`) and switches: `tor0` of a single switch; `tor0`, `spine0` of a leaf-spine;
/// `tor0`, `aggr0`, `core0` of a fat tree; the names in a graph's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impaired {
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// Only in the direction from `from` to `to`.
    #[serde(default)]
    pub one_way: bool,
    /// Since when.
    #[serde(default)]
    pub at: Span,
    /// Until when; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
    /// Its rate meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// Packets lost on it besides `loss_ppm` of all links, per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ppm: Option<u32>,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            shape: Shape::LeafSpine { racks: 9, hosts_per_rack: 16, spines: 4 },
            host_link: Bandwidth::gbps(10),
            fabric_link: Bandwidth::gbps(40),
            core_link: None,
            send_delay: Span::nanos(500),
            nic_delay: Span::nanos(500),
            receive_delay: Span::nanos(500),
            switch_delay: Span::nanos(250),
            propagation: Span::nanos(0),
            cut_through: false,
            preemption: false,
            routing: None,
            thresholds: None,
            round_robin: false,
            buffer: Buffer::Unlimited,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Span::nanos(100_000),
            faults_until: None,
            impaired: Vec::new(),
            paused: Vec::new(),
        }
    }
}

impl Shape {
    /// Number of hosts; `None` for a graph, whose file knows.
    pub fn hosts(&self) -> Option<u32> {
        match *self {
            Self::SingleSwitch { hosts } => Some(hosts),
            Self::LeafSpine { racks, hosts_per_rack, .. } => racks.checked_mul(hosts_per_rack),
            Self::FatTree { k, oversubscription } => {
                let hosts_per_rack = (k / 2).checked_mul(oversubscription)?;
                k.checked_mul(k / 2)?.checked_mul(hosts_per_rack)
            }
            Self::Pods { pods, racks, hosts_per_rack, .. } => {
                pods.checked_mul(racks)?.checked_mul(hosts_per_rack)
            }
            Self::Graph { .. } => None,
        }
    }
}

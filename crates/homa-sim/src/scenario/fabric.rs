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
    /// Rate of the links between aggregation and core switches, for shapes that have core switches.
    /// Default: `fabric_link`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_link: Option<Bandwidth>,
    /// Latency from the application's call to the NIC (Homa §5.2: part of 1.5 us). It delays
    /// packets but does not limit their rate.
    pub send_delay: Span,
    /// Latency of the sending NIC, after serialisation.
    pub nic_delay: Span,
    /// Latency from the receiving NIC to the application.
    pub receive_delay: Span,
    /// Latency of each switch, in addition to receiving and sending the frame.
    pub switch_delay: Span,
    /// Latency of each cable.
    pub propagation: Span,
    /// Whether switches forward a frame before its last bit has arrived.
    pub cut_through: bool,
    /// Whether frames of higher priority interrupt the frame in transmission (link-level
    /// preemption).
    pub preemption: bool,
    /// How a switch picks among equal paths. Default: that of the scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Only for `adaptive`: a port is favoured if its drain bytes are below a threshold. Thresholds
    /// ascend, and the first one with a favoured port decides (DeTail §4.2.3). Default: 16384 and
    /// 65536.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub thresholds: Option<Vec<u32>>,
    /// Only for `adaptive`: favoured ports are used in turn instead of at random.
    pub round_robin: bool,
    /// Memory for waiting frames.
    pub buffer: Buffer,
    /// Packets lost at random on every link, per million.
    pub loss_ppm: u32,
    /// Packets delivered twice at random on every link, per million.
    pub duplicate_ppm: u32,
    /// Packets delayed at random on every link, so that later ones overtake them, per million.
    pub reorder_ppm: u32,
    /// The maximum of that delay. All values up to it are equally likely.
    pub reorder_by: Span,
    /// When random loss, duplication and reordering of all links end. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_until: Option<Span>,
    /// Links that are down, slower or more lossy than the others. Idle times are measured without
    /// these impairments.
    pub impaired: Vec<Impaired>,
    /// Hosts that pause for some time: they send nothing, and arriving packets wait.
    pub paused: Vec<Paused>,
}

/// A host that pauses for some time, e.g. because its processor runs something else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paused {
    /// Name of the host: `h0`, `h1`, ...
    pub host: String,
    /// Beginning of the pause. Default: the start of the run.
    #[serde(default)]
    pub at: Span,
    /// End of the pause.
    pub until: Span,
}

/// How hosts and switches are connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// One switch that all hosts are connected to.
    SingleSwitch {
        /// Number of hosts.
        hosts: u32,
    },
    /// Racks of hosts. Each TOR has one link to every spine.
    LeafSpine {
        /// Number of TORs.
        racks: u32,
        /// Hosts at each TOR.
        hosts_per_rack: u32,
        /// Number of spines.
        spines: u32,
    },
    /// Three tiers of `k`-port switches with `k` pods and `k^3 / 4` hosts times the
    /// oversubscription.
    FatTree {
        /// Ports per switch; an even number.
        k: u32,
        /// Hosts per TOR as a multiple of its uplinks. 1, the default, means full bisection.
        #[serde(default = "one")]
        oversubscription: u32,
    },
    /// Three tiers of any size. In each pod every TOR is connected to every aggregation switch, and
    /// the n-th aggregation switches of all pods share core switches.
    Pods {
        /// Number of pods.
        pods: u32,
        /// TORs in each pod.
        racks: u32,
        /// Hosts at each TOR.
        hosts_per_rack: u32,
        /// Aggregation switches in each pod.
        aggrs: u32,
        /// Core switches above each aggregation switch.
        cores: u32,
    },
    /// Links from a file. Because the file has rates and delays, `host_link`, `fabric_link` and all
    /// delays of the plan are ignored. Loads are shares of the slowest host's link.
    Graph {
        /// Path of the file.
        file: String,
        /// The format of the file. Default: the one that its first row shows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<GraphFormat>,
    },
}

/// A format of a file of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphFormat {
    /// Rows of `from,to,gbps,delay_ns`, e.g. `h0,s3,100,500`. A name of `h` and a number is a host,
    /// any other name is a switch.
    Links,
    /// A topology of htsim (`.topo`).
    Htsim,
    /// A topology of HPCC's ns-3.
    Hpcc,
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
    /// By a hash of source, destination and message. All packets of a message take one path, but
    /// two messages between the same hosts may take different ones, as RPCs from different ports
    /// do.
    Ecmp,
    /// By a hash of source and destination. All packets between two hosts take one path.
    EcmpHosts,
    /// For each packet a port with few waiting bytes of its level and above: one below the first of
    /// `thresholds` if there is one, else one below the next, else any (DeTail §4.2.3).
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
    /// One pool per switch. No port uses more than `alpha_percent` % of the free memory.
    Shared {
        /// Wire bytes per switch.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u64,
        /// Dynamic threshold, percent of the free memory.
        alpha_percent: u32,
    },
}

/// A link that is slower if `rate` is set, lossy if `loss_ppm` is set, and down if neither is.
///
/// Ends are hosts (`h0`) and switches: `tor0` of a single switch; `tor0` and `spine0` of a
/// leaf-spine; `tor0`, `aggr0` and `core0` of a fat tree; or the names in the file of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impaired {
    /// One end.
    pub from: String,
    /// The other end.
    pub to: String,
    /// Only the direction from `from` to `to` is impaired.
    #[serde(default)]
    pub one_way: bool,
    /// When the impairment begins. Default: at the start of the run.
    #[serde(default)]
    pub at: Span,
    /// When it ends. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
    /// Rate of the link during that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// Packets lost on it, per million, in addition to `loss_ppm` of all links.
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
    /// Number of hosts. `None` for a graph, because only its file has it, and if the number
    /// overflows.
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

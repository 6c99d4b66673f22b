//! The table of schemes.

use homa_proto::Duration;

use crate::fabric::queue::{PhantomConfig, TrimmingConfig};
use crate::fabric::{Alb, Forwarding};
use crate::scenario::{EcnConfig, EcnLinksName, EcnScopeName, QueueBytes};
use crate::transport::uet::UetControl;

use super::dcpim::DcpimHosts;
use super::homa::{self, HomaHosts};
use super::ideal::Ideal;
use super::ndp::NdpHosts;
use super::pfabric::PFabricHosts;
use super::phost::PHostHosts;
use super::rdma::{self, RdmaAlgorithm, RdmaHosts};
use super::sird::SirdHosts;
use super::stop_and_wait::StopAndWaitHosts;
use super::tcp::{self, TcpHosts};
use super::uet::{self, UetHosts};
use super::{Nic, PhantomQueue, Scheme, SwitchQueue, detail, hull};

/// The threshold of DCTCP (SIGCOMM 2010 §3.5) and PIAS (NSDI 2015 §5.1) at 10 Gbit/s, 65 full
/// frames, and on faster links at least 1.25 BDP, as SIRD's study has it at 100 Gbit/s
/// (arXiv 2312.15403: 82 frames).
pub(super) const K: QueueBytes = QueueBytes::Bdp { thousandths: 1_250, least: 65 * 1_538 };
/// The same below 10 Gbit/s: 20 full frames (DCTCP §3.5, at 1 Gbit/s).
pub(super) const SLOW_K: QueueBytes = QueueBytes::Bdp { thousandths: 1_250, least: 20 * 1_538 };
/// HULL's phantom queue. Its threshold is 1 KB at 1 Gbit/s (§6), which such a link sends in 8 us,
/// and faster links have as much time: with 1 KB at 400 Gbit/s, the first packets of any message
/// would be marked, and a message of 1 MB alone would take 21 times as long as it needs.
pub(super) const PHANTOM: PhantomQueue =
    PhantomQueue { config: PhantomConfig::PAPER, threshold: QueueBytes::Time(Duration::micros(8)) };

/// A row of Homa, with the switches of its paper.
const fn homa_row(name: &'static str, paper: &'static str, host: &'static HomaHosts) -> Scheme {
    Scheme {
        name,
        paper,
        host,
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    }
}

/// A row of Ultra Ethernet, with its trimming switches.
const fn uet_row(name: &'static str, paper: &'static str, host: &'static UetHosts) -> Scheme {
    Scheme {
        name,
        paper,
        host,
        queue: SwitchQueue::Trimming(uet::QUEUE),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    }
}

/// A row of RDMA's queue pairs, with the switches of HPCC's simulator.
const fn rdma_row(name: &'static str, paper: &'static str, host: &'static RdmaHosts) -> Scheme {
    Scheme {
        name,
        paper,
        host,
        queue: SwitchQueue::Red(rdma::marks(host.0)),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    }
}

/// Every scheme.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        one_way_only: true,
        ..homa_row(
            "homa-sim",
            "Homa (SIGCOMM 2018) §5.2, as in its authors' simulator",
            &HomaHosts { profile: "sigcomm18-sim", build: homa::simulator },
        )
    },
    homa_row(
        "homa-paper",
        "Homa (SIGCOMM 2018), as the paper describes it",
        &HomaHosts { profile: "sigcomm18", build: homa::paper },
    ),
    homa_row(
        "homa",
        "Homa with the defaults of the `homa` crate",
        &HomaHosts { profile: "default", build: homa::default },
    ),
    homa_row(
        "homa-linux",
        "Homa as the Linux kernel module has it (branch main, July 2026)",
        &HomaHosts { profile: "linux", build: homa::linux },
    ),
    homa_row(
        "homa-linux-upstream",
        "the patches for the upstream Linux kernel (v19): everything is sent unasked",
        &HomaHosts { profile: "linux-upstream", build: homa::linux_upstream },
    ),
    homa_row(
        "homa-p4",
        "HomaP4 of Homa (SIGCOMM 2018) Figure 8: levels merged to four",
        &HomaHosts { profile: "sigcomm18", build: homa::merged::<4> },
    ),
    homa_row(
        "homa-p2",
        "HomaP2 of Homa (SIGCOMM 2018) Figure 8: levels merged to two",
        &HomaHosts { profile: "sigcomm18", build: homa::merged::<2> },
    ),
    homa_row(
        "homa-p1",
        "HomaP1 of Homa (SIGCOMM 2018) Figure 8: levels merged to one",
        &HomaHosts { profile: "sigcomm18", build: homa::merged::<1> },
    ),
    homa_row(
        "basic",
        "Basic of Homa (SIGCOMM 2018) Figure 8: RAMCloud's BasicTransport",
        &HomaHosts { profile: "basic", build: homa::basic },
    ),
    Scheme {
        name: "streaming",
        paper: "InfRC of Homa (SIGCOMM 2018) Figure 8: byte streams, one connection per pair",
        host: &TcpHosts { variant: "byte streams, no congestion control", build: tcp::streaming },
        queue: SwitchQueue::Combined(detail::ONE_LEVEL_SWITCH),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "ideal",
        paper: "a lower bound: SRPT with perfect knowledge on the receivers' links",
        host: &Ideal,
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: true,
        loses_by_design: false,
    },
    Scheme {
        name: "stop-and-wait",
        paper: "one packet of a message at a time: the smallest correct transport",
        host: &StopAndWaitHosts,
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: true,
        loses_by_design: false,
    },
    Scheme {
        name: "pfabric",
        paper: "pFabric (SIGCOMM 2013)",
        host: &PFabricHosts,
        queue: SwitchQueue::PriorityDrop,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: true,
    },
    Scheme {
        name: "phost",
        paper: "pHost (CoNEXT 2015)",
        host: &PHostHosts,
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: true,
    },
    Scheme {
        name: "ndp",
        paper: "NDP (SIGCOMM 2017)",
        host: &NdpHosts,
        queue: SwitchQueue::Trimming(TrimmingConfig::PAPER),
        forwarding: Forwarding::Source,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "sird",
        paper: "SIRD (NSDI 2025)",
        host: &SirdHosts,
        // The threshold follows the hosts' link ([`super::sird`]).
        queue: SwitchQueue::Ecn(EcnConfig {
            threshold: K,
            scope: EcnScopeName::Port,
            links: EcnLinksName::Fabric,
        }),
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "dcpim",
        paper: "dcPIM (SIGCOMM 2022)",
        host: &DcpimHosts,
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    uet_row(
        "uet-nscc",
        "Ultra Ethernet 1.0 with windows of senders (NSCC), as in its authors' simulator",
        &UetHosts(UetControl::Nscc),
    ),
    uet_row(
        "uet-rccc",
        "Ultra Ethernet 1.0 with credit of receivers (RCCC), as in its authors' simulator",
        &UetHosts(UetControl::Rccc),
    ),
    uet_row(
        "uet-nscc-rccc",
        "Ultra Ethernet 1.0 with windows and credit (NSCC and RCCC) together",
        &UetHosts(UetControl::Both),
    ),
    rdma_row("hpcc", "HPCC (SIGCOMM 2019)", &RdmaHosts(RdmaAlgorithm::Hpcc)),
    rdma_row(
        "dcqcn",
        "DCQCN (SIGCOMM 2015), as in HPCC's simulator",
        &RdmaHosts(RdmaAlgorithm::Dcqcn),
    ),
    rdma_row(
        "timely",
        "TIMELY (SIGCOMM 2015), as in HPCC's simulator",
        &RdmaHosts(RdmaAlgorithm::Timely),
    ),
    rdma_row(
        "dctcp-rdma",
        "DCTCP (SIGCOMM 2010) by rate, as in HPCC's simulator",
        &RdmaHosts(RdmaAlgorithm::Dctcp),
    ),
    rdma_row("powertcp", "PowerTCP (NSDI 2022)", &RdmaHosts(RdmaAlgorithm::Power)),
    rdma_row(
        "theta-powertcp",
        "θ-PowerTCP (NSDI 2022), which needs no telemetry",
        &RdmaHosts(RdmaAlgorithm::ThetaPower),
    ),
    rdma_row("swift", "Swift (SIGCOMM 2020)", &RdmaHosts(RdmaAlgorithm::Swift)),
    Scheme {
        name: "tcp",
        paper: "TCP as Linux runs it: RFC 9438 (CUBIC), 8985 (RACK-TLP), 6298",
        host: &TcpHosts { variant: "TCP CUBIC, SACK, RACK-TLP", build: tcp::linux },
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "tcp-newreno",
        paper: "RFC 5681 and 6582",
        host: &TcpHosts { variant: "TCP NewReno", build: tcp::newreno },
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "dctcp",
        paper: "DCTCP (SIGCOMM 2010), RFC 8257",
        host: &TcpHosts { variant: "DCTCP, SACK, RACK-TLP", build: tcp::dctcp },
        queue: SwitchQueue::Ecn(EcnConfig::new(K)),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "pias",
        paper: "PIAS (NSDI 2015)",
        host: &TcpHosts { variant: "DCTCP, levels by bytes sent", build: tcp::pias },
        queue: SwitchQueue::Ecn(EcnConfig { scope: EcnScopeName::Port, ..EcnConfig::new(K) }),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "tcp-ecn",
        paper: "RFC 3168: NewReno that halves once per window with marks",
        host: &TcpHosts { variant: "TCP NewReno, ECN", build: tcp::ecn },
        queue: SwitchQueue::Ecn(EcnConfig::new(K)),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "hull",
        paper: "HULL (NSDI 2012): DCTCP, phantom queues, paced NICs",
        host: &TcpHosts { variant: "DCTCP, SACK, RACK-TLP", build: tcp::dctcp },
        queue: SwitchQueue::Phantom(None, Some(PHANTOM)),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pacer,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "tcp-droptail",
        paper: "HULL §6: TCP that fills buffers",
        host: &TcpHosts { variant: "TCP NewReno, SACK", build: hull::tcp },
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "dctcp-30k",
        paper: "HULL §6: DCTCP with its threshold for 1 Gbit/s",
        host: &TcpHosts { variant: "DCTCP, SACK, RACK-TLP", build: hull::dctcp },
        queue: SwitchQueue::Ecn(EcnConfig::new(QueueBytes::Fixed(30_000))),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "dctcp-6k-pacer",
        paper: "HULL §6: the lowest threshold that pacing allows, at 1 Gbit/s",
        host: &TcpHosts { variant: "DCTCP, SACK, RACK-TLP", build: hull::dctcp },
        queue: SwitchQueue::Ecn(EcnConfig::new(QueueBytes::Fixed(6_000))),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pacer,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "tcp-ecn-pq",
        paper: "HULL §3.1: TCP with ECN, phantom queues, paced NICs",
        host: &TcpHosts { variant: "TCP NewReno, ECN", build: tcp::ecn },
        queue: SwitchQueue::Phantom(
            None,
            Some(PhantomQueue { threshold: QueueBytes::Fixed(6_000), ..PHANTOM }),
        ),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pacer,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "tcp-qos",
        paper: "HULL §6.2.2: TCP with messages of one packet at a higher level",
        host: &TcpHosts { variant: "TCP NewReno, SACK, two levels", build: hull::qos },
        queue: SwitchQueue::Strict,
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "flow-hashing",
        paper: "DeTail §6.1: the baseline of its evaluation",
        host: &TcpHosts { variant: "TCP NewReno", build: detail::flow_hashing },
        queue: SwitchQueue::Combined(detail::SWITCH),
        forwarding: Forwarding::Ecmp,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: true,
    },
    Scheme {
        name: "packet-scatter",
        paper: "DeTail §3.3: a random path for each packet",
        host: &TcpHosts { variant: "TCP NewReno, timeouts only", build: detail::lossless },
        queue: SwitchQueue::Combined(detail::SWITCH),
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: true,
    },
    Scheme {
        name: "lossless-packet-scatter",
        paper: "DeTail §6.1: packet scatter with priority flow control",
        host: &TcpHosts { variant: "TCP NewReno, timeouts only", build: detail::lossless },
        queue: SwitchQueue::Combined(detail::LOSSLESS_SWITCH),
        forwarding: Forwarding::Spray,
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
    Scheme {
        name: "detail",
        paper: "DeTail (SIGCOMM 2012; UCB TR)",
        host: &TcpHosts { variant: "TCP NewReno, timeouts only", build: detail::lossless },
        queue: SwitchQueue::Combined(detail::LOSSLESS_SWITCH),
        forwarding: Forwarding::Adaptive(Alb::DETAIL),
        nic: Nic::Pull,
        one_way_only: false,
        loses_by_design: false,
    },
];

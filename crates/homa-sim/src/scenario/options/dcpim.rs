//! Parameters of dcPIM. Defaults are those of its evaluation (SIGCOMM 2022; the authors' simulator,
//! `py/load_100Gbps/load.py`).

use serde::{Deserialize, Serialize};

use crate::scenario::units::{self, Span};

/// Parameters of dcPIM (SIGCOMM 2022). A packet time is that of a full packet on a host's link, and
/// BDP is `bdp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DcpimOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets without Ethernet's header, preamble, checksum and gap, as in the authors' simulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// The bandwidth-delay product of a host, full packets. Default: RTTbytes of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdp: Option<u32>,
    /// Messages of at most this many packets are sent at once; 0: none. Default: BDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<u32>,
    /// Rounds of a matching (r). Default: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Channels of a host in either direction (k). Default: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Round trip of a control packet. Default: the network's round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_rtt: Option<Span>,
    /// Length of a round, `control_rtt` (beta). Default: 1.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<f64>,
    /// In as many rounds of a matching the shortest message goes first; the others are random.
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sorted_rounds: Option<u32>,
    /// Tokens of a message that may be unanswered, packets. Default: BDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Time after the last token until one more may be sent beyond the window, BDP packet times.
    /// Default: 1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_timeout: Option<f64>,
    /// Time after the last token until missing packets get tokens again, BDP packet times.
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend: Option<f64>,
    /// How long a sender waits for an answer before it announces a message again. Default: 20
    /// round trips, at least 1 ms (inferred; the authors' simulator loses no control packets).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<Span>,
}

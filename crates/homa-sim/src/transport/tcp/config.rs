//! Parameters of the TCP hosts. None is a constant, because studies differ in nearly all of them.

use homa_proto::Duration;

use crate::transport::stream::ConnectionPolicy;

use super::priorities::Priorities;

/// Headers of IPv4 and TCP without options, bytes.
pub const HEADERS: u32 = 20 + 20;
/// The time stamps option with its padding (RFC 7323 §3), bytes.
pub const TIMESTAMPS: u32 = 12;

/// The algorithm that controls the congestion window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// Slow start and congestion avoidance (RFC 5681).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// DCTCP (RFC 8257) with its estimation gain `g`.
    Dctcp {
        /// Weight of the latest window in alpha (RFC 8257 §4.2 recommends 1/16).
        gain: f64,
    },
}

/// Retransmission timer (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoConfig {
    /// Timeout before the first measurement (§2.1).
    pub initial: Duration,
    /// Lower bound (§2.4).
    pub min: Duration,
    /// Upper bound (§2.5).
    pub max: Duration,
    /// Clock granularity G (§2): timeouts are multiples of it.
    pub granularity: Duration,
}

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Fast retransmit after three duplicates. Without it only the timer finds losses, so receivers
    /// tolerate any reordering (DeTail §5).
    pub fast_retransmit: bool,
    /// New segments on the first two duplicates (RFC 3042).
    pub limited_transmit: bool,
    /// Selective acknowledgements (RFC 2018, 6675).
    pub sack: bool,
    /// RACK loss detection by time, and tail loss probes (RFC 8985); needs `sack`.
    pub rack: bool,
}

impl Recovery {
    /// RFC 6582 with limited transmit.
    pub const NEWRENO: Self =
        Self { fast_retransmit: true, limited_transmit: true, sack: false, rack: false };
    /// RFC 6675.
    pub const SACK: Self = Self { sack: true, ..Self::NEWRENO };
    /// RFC 8985, as in Linux.
    pub const RACK: Self = Self { rack: true, ..Self::SACK };
    /// Timeouts only (DeTail §5).
    pub const TIMEOUTS: Self =
        Self { fast_retransmit: false, limited_transmit: false, sack: false, rack: false };
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Switches may mark instead of drop. Receivers echo a mark until CWR, and senders react once
    /// per window (RFC 3168), or both follow DCTCP (RFC 8257), which needs this option.
    pub ecn: bool,
    /// Switches may mark pure acknowledgements, too, as in the ns-2 code of DCTCP and pFabric; RFC
    /// 3168 §6.1.4 forbids it.
    pub ecn_on_acks: bool,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Retransmission timer.
    pub rto: RtoConfig,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Segments carry time stamps, 12 bytes, as in Linux; their values are not used.
    pub timestamps: bool,
    /// The choice of the connection that carries a message.
    pub connections: ConnectionPolicy,
    /// Connections start with SYN and SYN-ACK; otherwise they are open from the beginning.
    pub handshake: bool,
    /// Segments in the first window (RFC 6928: 10).
    pub initial_window: u32,
    /// The most segments by which an acknowledgement opens the window in slow start: 1 (RFC 5681),
    /// 2 (RFC 3465), or any number (Linux: `u32::MAX`).
    pub slow_start_limit: u32,
    /// A connection that was idle for an RTO restarts from the initial window (RFC 5681 §4.1).
    pub idle_restart: bool,
    /// How long an acknowledgement waits for a second segment (RFC 5681 §4.2). If `None`, every
    /// segment is acknowledged immediately.
    pub delayed_ack: Option<Duration>,
    /// Receivers offer this many bytes beyond the in-order prefix.
    pub receive_window: u32,
    /// The most unacknowledged bytes that a sender keeps.
    pub send_buffer: u32,
    /// How packets get their levels.
    pub priorities: Priorities,
    /// Level of pure acknowledgements.
    pub ack_priority: u8,
    /// A sender waits until this part of its window may leave as one large send (Linux:
    /// `tcp_tso_win_divisor`, 3); 0: it never waits.
    pub tso_win_divisor: u32,
    /// A connection is given up after this many consecutive timeouts (RFC 1122 §4.2.3.5: R2).
    pub max_timeouts: u32,
}

impl TcpConfig {
    /// TCP as in the RFCs: NewReno without options, one connection per client and server, minimum
    /// RTO 1 s, all packets at one level.
    pub fn newreno() -> Self {
        Self {
            algorithm: Algorithm::NewReno,
            ecn: false,
            ecn_on_acks: false,
            recovery: Recovery::NEWRENO,
            rto: RtoConfig {
                initial: Duration::secs(1),
                min: Duration::secs(1),
                max: Duration::secs(60),
                granularity: Duration::millis(1),
            },
            mtu: 1_500,
            timestamps: false,
            connections: ConnectionPolicy::ONE,
            handshake: false,
            initial_window: 10,
            slow_start_limit: 2,
            idle_restart: true,
            delayed_ack: Some(Duration::millis(200)),
            receive_window: 6 << 20,
            send_buffer: 4 << 20,
            priorities: Priorities::One(0),
            ack_priority: 0,
            tso_win_divisor: 0,
            max_timeouts: 15,
        }
    }

    /// TCP with the defaults of Linux: CUBIC, SACK, RACK-TLP, time stamps, a minimum RTO of 200 ms,
    /// acknowledgements delayed by 40 ms.
    pub fn linux() -> Self {
        let newreno = Self::newreno();
        Self {
            algorithm: Algorithm::Cubic,
            recovery: Recovery::RACK,
            rto: RtoConfig { min: Duration::millis(200), max: Duration::secs(120), ..newreno.rto },
            timestamps: true,
            slow_start_limit: u32::MAX,
            delayed_ack: Some(Duration::millis(40)),
            ..newreno
        }
    }

    /// DCTCP as in Linux: the same with RFC 8257.
    pub fn dctcp() -> Self {
        let algorithm = Algorithm::Dctcp { gain: 1.0 / 16.0 };
        Self { algorithm, ecn: true, ecn_on_acks: true, ..Self::linux() }
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u32 {
        let options = if self.timestamps { TIMESTAMPS } else { 0 };
        self.mtu.saturating_sub(HEADERS + options).max(1)
    }

    /// The limit on unacknowledged bytes, whatever the congestion window.
    pub fn flight_limit(&self) -> u32 {
        self.receive_window.min(self.send_buffer).max(self.mss())
    }

    /// The longest delay of an acknowledgement at a receiver.
    pub fn longest_ack_delay(&self) -> Duration {
        self.delayed_ack.unwrap_or(Duration::ZERO)
    }
}

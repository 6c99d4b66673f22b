//! The bytes of a message on the wire, header by header.
//!
//! Every frame pays Ethernet's 38 bytes (header 14, checksum 4, preamble 8, gap 12) and occupies at
//! least 84, except under `rdma` and `uet`; IP packets are at most 1500 bytes, IPv4 without
//! options. A message starts a packet of its own.
//!
//! | framing | bytes beside the payload of a full frame | payload |
//! |---|---|---|
//! | `paper` | 38 + IP 20 + UDP 8 + Homa 30 unscheduled, 16 scheduled | 1442, 1456 |
//! | `udp` | 38 + IP 20 + UDP 8 + datagram header 16 + Homa DATA 56 | 1400 |
//! | `udp-sealed` | the same, and a tag of 16 at the end of the datagram | 1384 |
//! | `ip146` | 38 + IP 20 + Homa DATA 56 | 1424 |
//! | `tcp` | 38 + IP 20 + TCP with timestamps 32 | 1448 |
//! | `plain` | 38 + IP and transport 40 | 1460 |
//! | `rdma` | 48 in all, and what packets collect (HPCC: 42), without a minimum | 1000 |
//! | `uet` | 64 in all, in packets of 4150, without a minimum | 4086 |
//!
//! Left out, because their number depends on the protocol's choices: control packets of `udp` and
//! `ip146`, acknowledgements of `tcp` and `plain`, retransmissions. The authors' simulator sends
//! exactly one grant per scheduled packet and counts it as load, so `paper` does too.

/// Ethernet header, checksum, preamble and inter-frame gap, bytes.
pub const ETHERNET: u64 = 38;

/// Least bytes a frame occupies on the wire.
pub const MIN_FRAME: u64 = 84;

/// Wire bytes of a full frame.
pub const FULL_FRAME: u64 = 1538;

/// Bytes of one message that the authors' simulator sends unscheduled: 10,000 on the wire.
pub const PAPER_UNSCHEDULED: u64 = 9328;

/// How messages become frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The packet simulator of the Homa paper (§5.2), grants included.
    Paper,
    /// Homa in UDP datagrams.
    Udp,
    /// Homa in encrypted UDP datagrams.
    UdpSealed,
    /// Homa as IP protocol 146, as the Linux kernel module sends it.
    Ip146,
    /// TCP with timestamps; segments of one message only.
    Tcp,
    /// Headers of 40 bytes, as simulations of pFabric, pHost, NDP and TCP count them.
    Plain,
    /// R2P2 in UDP datagrams, as SIRD's simulation counts it.
    R2p2,
    /// Ultra Ethernet, as its authors' simulation counts it: 64 bytes around up to 4086.
    Uet,
    /// RDMA over Ethernet, as HPCC's simulation counts it, without a minimum.
    Rdma {
        /// Message bytes of a full packet.
        payload: u16,
        /// Bytes around them in all.
        headers: u16,
    },
}

/// Packets of one kind: their headers inside the Ethernet frame and their largest payload, bytes.
pub(crate) struct Packets {
    headers: u64,
    pub(crate) payload: u64,
    /// The least bytes of a frame.
    least: u64,
}

impl Packets {
    /// Wire bytes of `bytes` of payload, cut into as few packets as possible; none for no payload.
    fn wire_bytes(&self, bytes: u64) -> u64 {
        let full = bytes / self.payload;
        let rest = bytes % self.payload;
        let last = if rest > 0 { self.frame(rest) } else { 0 };
        full * self.frame(self.payload) + last
    }

    pub(crate) fn frame(&self, payload: u64) -> u64 {
        (ETHERNET + self.headers + payload).max(self.least)
    }
}

impl Framing {
    /// Most bytes of a message that fit its first packet.
    pub fn max_payload(self) -> u32 {
        self.first().payload as u32
    }

    /// Wire bytes of the data packets of one message.
    pub fn data_wire_bytes(self, message_bytes: u32) -> u64 {
        let bytes = u64::from(message_bytes);
        match self {
            Self::Paper => {
                let wire = PaperWire::new(message_bytes, PAPER_UNSCHEDULED as u32);
                wire.unscheduled + wire.scheduled
            }
            Self::Udp
            | Self::UdpSealed
            | Self::Ip146
            | Self::Tcp
            | Self::Plain
            | Self::R2p2
            | Self::Uet
            | Self::Rdma { .. } => self.first().wire_bytes(bytes),
        }
    }

    /// Wire bytes of the grants of one message, which travel in the other direction. 0 if the
    /// receiver chooses their number.
    pub fn grant_wire_bytes(self, message_bytes: u32) -> u64 {
        match self {
            Self::Paper => PaperWire::new(message_bytes, PAPER_UNSCHEDULED as u32).grants,
            Self::Udp
            | Self::UdpSealed
            | Self::Ip146
            | Self::Tcp
            | Self::Plain
            | Self::R2p2
            | Self::Uet
            | Self::Rdma { .. } => 0,
        }
    }

    /// Wire bytes that a message adds to the network's load: data and the grants counted above.
    pub fn wire_bytes(self, message_bytes: u32) -> u64 {
        self.data_wire_bytes(message_bytes) + self.grant_wire_bytes(message_bytes)
    }

    pub(crate) const PAPER_SCHEDULED: Packets =
        Packets { headers: 20 + 8 + 16, payload: 1456, least: MIN_FRAME };

    /// The packets a message starts with.
    pub(crate) fn first(self) -> Packets {
        let headers = match self {
            Self::Paper => 20 + 8 + 30,
            Self::Udp => 20 + 8 + 16 + 56,
            Self::UdpSealed => 20 + 8 + 16 + 56 + 16,
            Self::Ip146 => 20 + 56,
            Self::Tcp => 20 + 32,
            Self::Plain => 20 + 20,
            Self::R2p2 => 20 + 8 + 14,
            // Its 64 bytes include those of Ethernet.
            Self::Uet => 64 - ETHERNET,
            Self::Rdma { headers, .. } => u64::from(headers).saturating_sub(ETHERNET),
        };
        let (packet, least) = match self {
            Self::Uet => (4150 - ETHERNET, 0),
            Self::Rdma { payload, .. } => (headers + u64::from(payload.max(1)), 0),
            _ => (1500, MIN_FRAME),
        };
        Packets { headers, payload: packet - headers, least }
    }
}

/// Wire bytes of a message in the authors' framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperWire {
    /// Packets sent without a grant.
    pub unscheduled: u64,
    /// Packets that are granted.
    pub scheduled: u64,
    /// Grants, one for each of those, the other way.
    pub grants: u64,
}

impl PaperWire {
    /// Of a message whose first `limit` bytes are sent without a grant.
    pub fn new(message_bytes: u32, limit: u32) -> Self {
        let unscheduled = message_bytes.min(limit);
        let scheduled = u64::from(message_bytes - unscheduled);
        Self {
            unscheduled: Framing::Paper.first().wire_bytes(unscheduled.into()),
            scheduled: Framing::PAPER_SCHEDULED.wire_bytes(scheduled),
            grants: scheduled.div_ceil(Framing::PAPER_SCHEDULED.payload) * MIN_FRAME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_fills_a_full_frame() {
        for (framing, payload) in [
            (Framing::Paper, 1442),
            (Framing::Udp, 1400),
            (Framing::UdpSealed, 1384),
            (Framing::Ip146, 1424),
            (Framing::Tcp, 1448),
        ] {
            assert_eq!(framing.max_payload(), payload);
            assert_eq!(framing.data_wire_bytes(payload), FULL_FRAME, "{framing:?}");
            assert!(framing.data_wire_bytes(payload + 1) > FULL_FRAME, "{framing:?}");
        }
        assert_eq!(Framing::Paper.data_wire_bytes(9328 + 1456), 10_000 + FULL_FRAME);
    }

    #[test]
    fn wire_bytes_by_hand() {
        assert_eq!(Framing::Paper.wire_bytes(1), 97);
        // Six full unscheduled packets and one of 676 bytes are the 10,000 bytes of RTTbytes.
        assert_eq!(Framing::Paper.wire_bytes(9328), 10_000);
        // One byte more is a separate packet, which needs an 84-byte grant.
        assert_eq!(Framing::Paper.wire_bytes(9329), 10_000 + 84 + 84);
        // At ten times the rate twenty-one full packets go without a grant.
        let fast = PaperWire::new(30_282, 60_000);
        assert_eq!(fast, PaperWire { unscheduled: 21 * 1538, scheduled: 0, grants: 0 });
        assert_eq!(Framing::Udp.wire_bytes(100), 38 + 100 + 100);
        assert_eq!(Framing::Udp.wire_bytes(1401), 1538 + 139);
        assert_eq!(Framing::Ip146.wire_bytes(2848), 2 * 1538);
        assert_eq!(Framing::Tcp.wire_bytes(1), 91);
        assert_eq!(Framing::Tcp.wire_bytes(0), 0);
        assert_eq!(Framing::Uet.wire_bytes(4086 + 100), 4150 + 164);
        // A short packet is not padded.
        let hpcc = Framing::Rdma { payload: 1_000, headers: 90 };
        assert_eq!((hpcc.max_payload(), hpcc.wire_bytes(1_001)), (1_000, 1_090 + 91));
        assert_eq!((Framing::Uet.wire_bytes(1), Framing::Uet.wire_bytes(4087)), (65, 4150 + 65));
    }
}

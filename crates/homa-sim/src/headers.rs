//! Wire bytes of a packet. They belong to the environment, not to the protocol.
//!
//! Sizes follow the kernel module's packet layout behind the chosen headers, on Ethernet with an
//! MTU of 1500 bytes, and include preamble (8), frame check (4) and inter-frame gap (12).

use homa_proto::{Body, Packet, wire};

/// Ethernet header, frame check sequence, preamble and inter-frame gap.
const ETHERNET: u32 = 14 + 4 + 8 + 12;
/// The shortest frame (64 bytes) with preamble and gap.
const SHORTEST: u32 = 64 + 20;
const IPV4: u32 = 20;
/// The UDP header and the datagram header before the Homa packet.
const UDP: u32 = 8 + 16;
/// The tag of an encrypted datagram, for AES-GCM and ChaCha20-Poly1305.
const TAG: u32 = 16;
const DATA_HEADER: u32 = wire::DATA_LEN as u32;
/// Homa headers of the authors' simulator (HomaSimulation).
const AUTHORS_UNSCHEDULED: u32 = 30;
const AUTHORS_SCHEDULED: u32 = 16;

/// The headers around a Homa packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// Directly in IPv4, protocol 146.
    Ip146,
    /// In UDP over IPv4.
    Udp,
    /// In UDP over IPv4, encrypted: each datagram has a tag. Only the sizes are simulated.
    UdpSealed,
    /// The sizes of the paper authors' simulator: UDP over IPv4 without our datagram header, and a
    /// Homa header of 30 bytes for unscheduled data, 16 for scheduled data and GRANTs.
    Authors,
}

impl Headers {
    /// Largest IP packet in bytes; [`Headers::max_payload`] assumes it.
    pub const MTU: u32 = 1500;

    /// Message bytes that fit in one DATA packet.
    pub const fn max_payload(self) -> u32 {
        match self {
            Self::Authors => Self::MTU - self.headers() - AUTHORS_UNSCHEDULED,
            _ => Self::MTU - self.headers() - DATA_HEADER,
        }
    }

    /// Message bytes that fit in one DATA packet if IP packets hold `mtu` bytes; at least 1.
    pub const fn payload_at(self, mtu: u32) -> u32 {
        let payload = (self.max_payload() + mtu).saturating_sub(Self::MTU);
        if payload == 0 { 1 } else { payload }
    }

    /// The headers by which the workload crate prices messages.
    pub const fn priced(self) -> homa_workload::framing::Framing {
        match self {
            Self::Authors => homa_workload::framing::Framing::Paper,
            Self::Ip146 => homa_workload::framing::Framing::Ip146,
            Self::Udp => homa_workload::framing::Framing::Udp,
            Self::UdpSealed => homa_workload::framing::Framing::UdpSealed,
        }
    }

    /// Bytes that the packet occupies on the wire.
    pub fn wire_bytes(self, packet: &Packet) -> u32 {
        let bytes = match self {
            Self::Authors => authors_bytes(&packet.body),
            _ => packet_bytes(&packet.body),
        };
        let bytes = ETHERNET + self.headers() + bytes;
        if bytes < SHORTEST { SHORTEST } else { bytes }
    }

    const fn headers(self) -> u32 {
        match self {
            Self::Ip146 => IPV4,
            Self::Udp => IPV4 + UDP,
            Self::UdpSealed => IPV4 + UDP + TAG,
            Self::Authors => IPV4 + 8,
        }
    }
}

fn authors_bytes(body: &Body) -> u32 {
    match body {
        Body::Data(data) if data.span.offset < data.incoming => AUTHORS_UNSCHEDULED + data.span.len,
        Body::Data(data) => AUTHORS_SCHEDULED + data.span.len,
        _ => AUTHORS_SCHEDULED,
    }
}

fn packet_bytes(body: &Body) -> u32 {
    let payload = if let Body::Data(data) = body { data.span.len } else { 0 };
    wire::encoded_len(body) as u32 + payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::{Data, FULL_FRAME, MessageId, PeerId, RpcId, Span};

    fn packet(body: Body) -> Packet {
        let peer = PeerId(0);
        Packet { peer, priority: 7, local_port: 1, remote_port: 2, id: RpcId(2), body }
    }

    #[test]
    fn full_data_is_a_full_frame_and_a_grant_a_short_one() {
        for (framing, grant) in
            [(Headers::Ip146, 91), (Headers::Udp, 115), (Headers::UdpSealed, 131)]
        {
            let len = framing.max_payload();
            let span = Span { message: MessageId(0), offset: 0, len };
            let data = Data {
                span,
                message_length: len,
                incoming: len,
                ack: None,
                cutoff_version: 0,
                retransmit: false,
                incast: None,
            };
            assert_eq!(framing.wire_bytes(&packet(Body::Data(data))), FULL_FRAME);
            let body = Body::Grant { offset: 1, priority: 0 };
            assert_eq!(framing.wire_bytes(&packet(body)), grant);
        }
        assert_eq!(Headers::Ip146.wire_bytes(&packet(Body::Busy { come_back: None })), 86);
    }
}

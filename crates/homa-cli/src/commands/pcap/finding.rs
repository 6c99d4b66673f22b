//! The result of dissecting a frame: a Homa packet, an ICMP refusal of one, or another protocol.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use homa_proto::wire::datagram::RequestExtensions;
use homa_proto::{DropReason, Packet, RpcId};

use super::frame::Unreadable;

/// What carries a Homa packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encapsulation {
    /// IP protocol 146.
    Ip,
    /// IP protocol 6, disguised.
    Tcp,
    /// A UDP datagram.
    Udp,
}

impl Encapsulation {
    /// Its name in both forms of the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Knowledge about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Everything.
    All(Packet, RequestExtensions),
    /// The common header: the capture kept no more.
    Header {
        /// Its type, as on the wire.
        kind: u8,
        /// The RPC.
        id: RpcId,
    },
    /// Nothing: the capture kept less than the common header.
    Nothing,
    /// It breaks the format.
    Malformed(DropReason),
}

/// A Homa packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homa {
    /// What carries it.
    pub encapsulation: Encapsulation,
    /// Sender; port 0 when not even that was readable.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Level that the IP header asks for: the top three bits of the traffic class.
    pub priority: u8,
    /// The datagram's number (UDP).
    pub number: Option<u64>,
    /// What it says.
    pub known: Known,
}

/// Why ICMP says that a Homa packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpRefusal {
    /// No socket listens at the port.
    Port,
    /// The host does not speak the protocol.
    Protocol,
    /// It is larger than the MTU of the next link of its path, which is this many bytes. The sender
    /// then sends smaller ones, and its RPC continues.
    TooBig(u32),
    /// Another code of "destination unreachable".
    Other(u8),
}

impl fmt::Display for IcmpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port => f.write_str("port unreachable"),
            Self::Protocol => f.write_str("protocol unreachable"),
            Self::TooBig(mtu) => write!(f, "packet too big, MTU {mtu}"),
            Self::Other(code) => write!(f, "destination unreachable, code {code}"),
        }
    }
}

/// An ICMP message about a Homa packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Who refuses.
    pub from: IpAddr,
    /// Why.
    pub refusal: IcmpRefusal,
    /// Sender and receiver of the packet that it quotes.
    pub source: SocketAddr,
    /// Its receiver.
    pub destination: SocketAddr,
    /// Its RPC, if the quotation goes that far.
    pub id: Option<RpcId>,
}

/// A finding in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A Homa packet.
    Homa(Homa),
    /// A refusal.
    Icmp(Icmp),
    /// A datagram of Homa that was captured before.
    Copy,
    /// Not Homa: a protocol number.
    Protocol(u8),
    /// In a tunnel, not IP: an EtherType.
    EtherType(u16),
    /// Homa or not, it cannot be read.
    Unreadable(Unreadable),
}

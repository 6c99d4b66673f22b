//! The transports compared on a rack, behind one interface: start an RPC, wait, see what finished.
//!
//! Every host has one of these, client and server at once. None of them waits: the thread that
//! drives a host, or several, sleeps in the kernel until one of their descriptors is ready or a
//! timer is due.

mod framing;
#[cfg(feature = "grpc")]
mod grpc;
mod homa;
mod tcp;

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use ::homa::{CallError, PriorityMap};
use homa_workload::nearest::choice;

#[cfg(feature = "grpc")]
pub use grpc::RawCodec;
pub use tcp::SMALL_RPC_BYTES;

use crate::Host;
use homa::HomaTransport;
use tcp::TcpOptions;

/// The kernel's name of DCTCP (RFC 8257).
const DCTCP: &str = "dctcp";
/// Engines at an address where there are several.
const SHARDS: usize = 2;
/// Connections per peer of a pool.
pub const POOL: usize = 8;

/// An RPC to start. The server answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RackRpc {
    /// Chosen by the caller; comes back in [`Done`].
    pub id: u64,
    /// The host to ask.
    pub server: usize,
    /// Bytes of the request, at least 1.
    pub request_bytes: u32,
    /// Bytes of the response, at least 1.
    pub response_bytes: u32,
}

/// An RPC that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// As given in [`RackRpc`].
    pub id: u64,
    /// When the last byte of the response was there, nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Why the transport gave up, if it did.
    pub error: Option<CallError>,
}

/// One host's end of a transport.
pub trait RpcTransport {
    /// Starts an RPC.
    fn submit(&mut self, rpc: RackRpc) -> io::Result<()>;

    /// Serves and receives what can be served and received now, and appends what finished. Never
    /// waits. `readable`: one of its descriptors was just now.
    fn turn(&mut self, readable: bool, done: &mut Vec<Done>) -> io::Result<()>;

    /// Descriptors that become readable when [`RpcTransport::turn`] has something to do.
    fn handles(&self) -> &[RawFd];

    /// When to call [`RpcTransport::turn`] even so, nanoseconds of CLOCK_MONOTONIC.
    fn wake_at_ns(&mut self) -> Option<u64>;

    /// Requests served so far.
    fn served(&self) -> u64;

    /// User and system time so far of threads and processes other than the one that calls this.
    fn cpu_elsewhere(&self) -> Duration {
        Duration::ZERO
    }
}

/// Options of a transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportOptions<'a> {
    /// The kernel's name of TCP's congestion control.
    pub(crate) congestion_control: &'a str,
    /// Homa limits unscheduled bytes of responses when many RPCs are outstanding (Homa §3.6).
    pub(crate) homa_incast_control: bool,
    /// The program with the command `proxy`.
    #[cfg_attr(not(feature = "grpc"), expect(dead_code))]
    pub(crate) program: Option<&'a Path>,
}

/// One host's end before its peers are known to be there.
pub(crate) enum ListeningHost {
    /// Needs no connections.
    Homa(Box<HomaTransport>),
    /// Has connections to open.
    Tcp(tcp::ListeningTcp),
    /// Has a runtime to start, and perhaps a proxy.
    #[cfg(feature = "grpc")]
    Grpc(grpc::ListeningGrpc),
}

impl ListeningHost {
    /// Opens the sockets of a host.
    pub(crate) fn open(
        transport: Transport,
        host: Host<'_>,
        options: TransportOptions<'_>,
    ) -> io::Result<Self> {
        let homa = |map, shards| {
            let homa = HomaTransport::open(host, map, shards, options.homa_incast_control)?;
            Ok(Self::Homa(Box::new(homa)))
        };
        let tcp = |connections, classed| TcpOptions {
            connections,
            classed,
            ecn: transport.heeds_marks(),
            congestion_control: options.congestion_control.into(),
        };
        let open = |options| tcp::ListeningTcp::open(host, options).map(Self::Tcp);
        match transport {
            Transport::Homa => homa(PriorityMap::default(), 1),
            Transport::HomaFlat => homa(PriorityMap::Flat, 1),
            Transport::HomaSharded => homa(PriorityMap::default(), SHARDS),
            Transport::TcpClassed => open(tcp(POOL, true)),
            Transport::TcpPool => open(tcp(POOL, false)),
            Transport::Tcp | Transport::TcpEcn => open(tcp(1, false)),
            Transport::Dctcp => {
                open(TcpOptions { congestion_control: DCTCP.into(), ..tcp(1, false) })
            }
            #[cfg(feature = "grpc")]
            Transport::Grpc => grpc::ListeningGrpc::open(host, None).map(Self::Grpc),
            #[cfg(feature = "grpc")]
            Transport::GrpcProxy => {
                let program = options.program.ok_or_else(|| io::Error::other("no program"))?;
                grpc::ListeningGrpc::open(host, Some(program.into())).map(Self::Grpc)
            }
            #[cfg(not(feature = "grpc"))]
            Transport::Grpc | Transport::GrpcProxy => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "built without the feature `grpc`"))
            }
        }
    }

    /// Connects to the others, once all of them are listening.
    pub(crate) fn connect(self) -> io::Result<Box<dyn RpcTransport>> {
        Ok(match self {
            Self::Homa(homa) => homa,
            Self::Tcp(tcp) => Box::new(tcp.connect()?),
            #[cfg(feature = "grpc")]
            Self::Grpc(grpc) => Box::new(grpc.connect()?),
        })
    }
}

/// The transports by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Homa over UDP with the priorities a user gets by default: six levels.
    Homa,
    /// Homa over UDP with a single priority level, as in a network that honours none.
    HomaFlat,
    /// Homa as users get it, with two engines at each host's address, as on two cores: each has
    /// half of the link and grants half of what one would.
    HomaSharded,
    /// Kernel TCP, a pool, small RPCs on their own connection in the highest class of switch and
    /// host.
    TcpClassed,
    /// Kernel TCP, eight connections per peer, the least busy takes the next RPC.
    TcpPool,
    /// Kernel TCP, one connection per peer.
    Tcp,
    /// The same with ECN (RFC 3168): it heeds the marks of switches.
    TcpEcn,
    /// The same under the kernel's DCTCP (RFC 8257), where it has it.
    Dctcp,
    /// gRPC over kernel TCP, one connection of HTTP/2 per peer (feature `grpc`).
    Grpc,
    /// The same client and server of gRPC, with a `homa proxy` beside each (feature `grpc`).
    GrpcProxy,
}

impl Transport {
    /// Those that every kernel has and every rack compares, in the order of a report.
    pub const COMPARED: [Self; 5] =
        [Self::Homa, Self::HomaFlat, Self::TcpClassed, Self::TcpPool, Self::Tcp];
    /// All, in the order of a report.
    pub const ALL: [Self; 10] = [
        Self::Homa,
        Self::HomaFlat,
        Self::HomaSharded,
        Self::TcpClassed,
        Self::TcpPool,
        Self::Tcp,
        Self::TcpEcn,
        Self::Dctcp,
        Self::Grpc,
        Self::GrpcProxy,
    ];

    /// The name on command lines and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Homa => "homa",
            Self::HomaFlat => "homa-flat",
            Self::HomaSharded => "homa-sharded",
            Self::TcpClassed => "tcp-classed",
            Self::TcpPool => "tcp-pool",
            Self::Tcp => "tcp",
            Self::TcpEcn => "tcp-ecn",
            Self::Dctcp => DCTCP,
            Self::Grpc => "grpc",
            Self::GrpcProxy => "grpc-proxy",
        }
    }

    /// Whether its hosts ask switches to mark congestion, and react to the marks.
    pub fn heeds_marks(self) -> bool {
        matches!(self, Self::TcpEcn | Self::Dctcp)
    }

    /// The kernel's name of the congestion control it runs under, whatever is asked for.
    pub fn own_congestion_control(self) -> Option<&'static str> {
        (self == Self::Dctcp).then_some(DCTCP)
    }

    /// Whether it is Homa, whose promises and packets the others do not share.
    pub fn is_homa(self) -> bool {
        match self {
            Self::Homa | Self::HomaFlat | Self::HomaSharded | Self::GrpcProxy => true,
            Self::TcpClassed
            | Self::TcpPool
            | Self::Tcp
            | Self::TcpEcn
            | Self::Dctcp
            | Self::Grpc => false,
        }
    }

    /// Whether its clients and servers are those of gRPC, which run in threads of their own.
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcProxy)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no transport's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown transport `{0}`; {near}", near = choice(.0, Transport::ALL.map(Transport::name)))]
pub struct UnknownTransport(pub String);

impl FromStr for Transport {
    type Err = UnknownTransport;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|transport| transport.name() == text);
        named.ok_or_else(|| UnknownTransport(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_transport() {
        for transport in Transport::ALL {
            assert_eq!(transport.to_string().parse(), Ok(transport));
        }
        let said = |name: &str| name.parse::<Transport>().unwrap_err().to_string();
        assert!(said("quic").starts_with("unknown transport `quic`; allowed: homa, "));
        assert!(said("quic").contains("tcp-classed"));
        let slip = "unknown transport `tcp-clased`; did you mean `tcp-classed`?";
        assert_eq!(said("tcp-clased"), slip);
    }
}

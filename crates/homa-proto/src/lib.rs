//! The Homa transport protocol as a pure state machine: time is an argument, randomness is a seed,
//! packets are values. The crate is `no_std`, so it cannot name a socket, a clock, a thread or a
//! randomly seeded map.
//!
//! The sources are *Homa: A Receiver-Driven Low-Latency Transport Protocol Using Network
//! Priorities* (Montazeri, Li, Alizadeh and Ousterhout, SIGCOMM 2018) and the Linux kernel module
//! HomaModule, whose wire format this crate speaks.
//!
//! # Concepts
//!
//! * A **message** is a sequence of bytes of known length. Messages, not streams, are sent,
//!   granted, given a priority and retransmitted.
//! * An **RPC** is a request message from a client and the response message of its server. There
//!   are no connections: state exists only while the RPC is in progress. It is identified by a
//!   number that the client chooses.
//! * A **peer** is a remote endpoint, for example an address and a UDP port. The environment
//!   numbers peers and opens them with [`Endpoint::open_peer`].
//! * **RTTbytes** are the bytes that a link carries in one round trip. The first RTTbytes of a
//!   message are **unscheduled**: they are sent at once. The rest is **scheduled**: the receiver
//!   allows it by GRANTs. It grants a few messages at a time (**overcommitment**), so that the link
//!   stays busy if one of their senders is busy elsewhere.
//! * A **priority** is one of eight levels of the network's queues. The receiver chooses them, so
//!   that short messages overtake long ones.
//!
//! # The contract
//! | neighbour | in | out |
//! |---|---|---|
//! | application | [`Endpoint::submit`] | [`Endpoint::event`] |
//! | network | [`Endpoint::receive`] | [`Endpoint::transmit`] (the link pulls) |
//! | clock | [`Endpoint::expire`] | [`Endpoint::deadline`] |
//!
//! After every input, drain `event`, read `deadline` again, and offer `transmit`. `now` must never
//! decrease. The bytes of messages stay with the environment: a packet names a span of a message,
//! and a receipt says to which place received bytes have to be copied.
//!
//! # Two hosts
//!
//! ```
//! use homa_proto::*;
//!
//! let host = || {
//!     let config = Config::for_users(Rate::gbps(10)).validate()?;
//!     let mut endpoint = Endpoint::new(config);
//!     endpoint.open_peer(PeerId(0), PeerInfo { host: 1, max_payload: 1_400 });
//!     endpoint.expire(Time::ZERO);
//!     Ok::<_, ConfigError>(endpoint)
//! };
//! let (mut client, mut server) = (host()?, host()?);
//! server.listen(4_000);
//!
//! // The network: the ports of a packet are seen from the host that has it.
//! let carry = |now, from: &mut Endpoint, to: &mut Endpoint| {
//!     while let Some(packet) = from.transmit(now) {
//!         let (local_port, remote_port) = (packet.remote_port, packet.local_port);
//!         let _ = to.receive(now, &Packet { local_port, remote_port, ..packet });
//!     }
//! };
//!
//! let now = Time(1_000);
//! let request = Request {
//!     peer: PeerId(0),
//!     local_port: 99,
//!     remote_port: 4_000,
//!     length: 500,
//!     deadline: now + Duration::secs(1),
//!     idempotent: false,
//!     head: 0,
//!     cookie: 7,
//! };
//! client.submit(now, Submit::Request(request))?;
//! carry(now, &mut client, &mut server);
//!
//! let Some(Event::Delivered(request)) = server.event() else { panic!("no request") };
//! assert_eq!((request.kind, request.length), (MessageKind::Request, 500));
//! server.submit(now, Submit::Response { rpc: request.rpc, length: 20 })?;
//! carry(now, &mut server, &mut client);
//!
//! let delivered = std::iter::from_fn(|| client.event()).find_map(|event| match event {
//!     Event::Delivered(delivered) => Some(delivered),
//!     _ => None,
//! });
//! assert_eq!(delivered.map(|response| (response.length, response.cookie)), Some((20, 7)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the paper's rules are
//!
//! The function that decides each rule. Its documentation begins with the section and, for most
//! rules, has an example with numbers.
//!
//! | section | rule | file (function) |
//! |---|---|---|
//! | §3.2 | unscheduled bytes = RTTbytes | `send/unscheduled.rs` (`unscheduled_bytes`) |
//! | §3.2 | SRPT at the sender | `send/srpt.rs` (`shortest_first`) |
//! | §3.2 | control packets before DATA | `endpoint.rs` (`next_packet`) |
//! | §3.3 | a GRANT per DATA keeps RTTbytes outstanding | `grant/decide.rs` (`bytes_to_grant`) |
//! | §3.3 | packets in any order | `receive/reassembly.rs` (`insert`) |
//! | §3.4 | scheduled levels, lowest first | `priority/scheduled.rs` (`scheduled_priority`) |
//! | §3.4 | cutoffs, chosen by the receiver (Figure 4) | `priority/estimator.rs` (`allocate`) |
//! | §3.4 | cutoffs, applied by the sender | `priority/unscheduled.rs` (`level_by_cutoffs`) |
//! | §3.5 | degree = scheduled levels | `grant/overcommitment.rs` (`degree`) |
//! | §3.5 | one active message per host | `grant/overcommitment.rs` (`may_be_active`) |
//! | §3.5 | the highest priority is active | `grant/overcommitment.rs` (`fewest_left_first`) |
//! | §3.6 | incast flag | `incast.rs` (`incast_flag`) |
//! | §3.7 | RESEND after a timeout | `loss/due.rs` (`resend_due`) |
//! | §3.7 | BUSY (Figure 3) | `loss/busy.rs` (`says_busy`) |
//! | §3.7 | retransmission | `send/retransmit.rs` (`resend`) |
//! | §3.7 | an unknown RPC | `loss/unknown.rs` (`on_resend_unknown`) |
//! | §3.8 | the server forgets with the last packet | `completion/need_ack.rs` (`message_sent`) |
//!
//! RPCs instead of connections (§3.1) are `rpc/`. RTTbytes are measured in `receive/rtt.rs`.
//! Beyond the paper: ACKs and at most once (`completion/`), messages read before they are whole
//! (`receive/early.rs`) and sent while they are written (`send/write.rs`), spoofed addresses and
//! restarts (`address_validation/`), parameters and profiles (`config/`), and the format on the
//! wire, which is HomaModule's (`wire/`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address_validation;
mod completion;
mod config;
mod counters;
mod coverage;
mod endpoint;
mod event;
mod grant;
mod incast;
mod link;
mod loss;
mod packet;
mod peer;
mod priority;
mod receive;
mod rpc;
mod send;
mod units;
mod util;
pub mod wire;

pub use address_validation::{ClientDirectory, Executions};
pub use config::{
    Completion, Config, ConfigError, DataLayout, FULL_FRAME, GrantWindow, GrantedLevel, Granting,
    IncastConfig, LEVELS, LossConfig, Overcommitment, PriorityAllocation, Profile, StartMsg,
    UnknownRpcReply, UnscheduledLevel, UnscheduledLimit, ValidConfig,
};
pub use counters::Counters;
pub use coverage::Coverage;
pub use endpoint::Endpoint;
pub use event::{
    Delivered, DropReason, Event, MessageKind, Placement, Quoted, Receipt, Request, RpcError,
    RpcHandle, Submit, SubmitError, Submitted, Unreachable,
};
pub use grant::Credit;
pub use link::{LinkId, LinkInfo, Links, SiblingShards};
pub use loss::HOST_STALL;
pub use packet::{
    AckEntry, Acks, Body, Data, Limits, MessageId, Packet, PeerId, Proof, RefusalReason,
    ResendLength, RpcId, Span,
};
pub use peer::PeerInfo;
pub use units::{Duration, Rate, Time};

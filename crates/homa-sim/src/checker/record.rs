//! The checker's records of calls, RPCs and messages.

use std::collections::{BTreeMap, BTreeSet};

use homa_proto::{MessageId, PeerId, RpcError, RpcHandle, RpcId, Time};

use crate::time::SimTime;
use crate::topology::HostId;

use super::intervals::Intervals;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnding {
    /// It has not ended yet.
    Open,
    /// Its response was delivered.
    Answered,
    /// It failed.
    Failed(RpcError),
    /// Its client cancelled it.
    Cancelled,
    /// Its client lost its whole state.
    ClientCrashed,
}

/// A call, from the time of its submission.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The caller.
    pub client: HostId,
    /// The host called.
    pub server: HostId,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the last response submitted.
    pub response_bytes: Option<u32>,
    /// Whether the caller marked it idempotent.
    pub idempotent: bool,
    /// When it should fail.
    pub deadline: Time,
    /// When it was submitted.
    pub submitted: SimTime,
    /// When it ended.
    pub ended: SimTime,
    /// How it ended.
    pub ending: CallEnding,
    /// How often the request was delivered to the server application.
    pub executions: u32,
    /// Ids under which the server executed it since its last restart.
    pub executed: BTreeSet<RpcId>,
    /// The server was down at submission or crashed later, or it dropped its side of the RPC.
    pub server_forgot: bool,
    /// When the client last received a packet that shows that this call is alive.
    pub last_heard: SimTime,
}

/// An RPC handle as a key: index and generation.
pub(super) type HandleKey = (u32, u32);

/// See [`HandleKey`].
pub(super) fn handle_key(handle: RpcHandle) -> HandleKey {
    (handle.index, handle.generation)
}

/// One host.
#[derive(Debug, Default)]
pub(super) struct HostRecord {
    pub down: bool,
    /// When it last came up.
    pub up: SimTime,
    pub rpcs: BTreeMap<HandleKey, RpcRecord>,
    pub messages: BTreeMap<MessageId, MessageRecord>,
    /// Every handle ever issued.
    pub used: BTreeSet<HandleKey>,
    /// Bytes received of messages that are not delivered yet.
    pub held_bytes: u64,
}

impl HostRecord {
    /// RPCs in progress, as client and as server.
    pub fn counts(&self) -> (usize, usize) {
        let clients =
            self.rpcs.values().filter(|rpc| matches!(rpc, RpcRecord::Client { .. })).count();
        (clients, self.rpcs.len() - clients)
    }
}

/// An RPC in progress at one host.
#[derive(Debug)]
pub(super) enum RpcRecord {
    Client {
        cookie: u64,
    },
    Server {
        peer: PeerId,
        id: RpcId,
        /// The request was delivered to the application.
        executing: bool,
        /// The response was submitted.
        answered: bool,
    },
}

/// A message known to one host.
#[derive(Debug)]
pub(super) enum MessageRecord {
    Outgoing(OutgoingRecord),
    Incoming(IncomingRecord),
}

#[derive(Debug)]
pub(super) struct OutgoingRecord {
    pub rpc: RpcHandle,
    pub cookie: u64,
    pub length: u32,
    pub to: PeerId,
    /// The id as the sender writes it. For a request it is known from the first packet on.
    pub id: Option<RpcId>,
    /// Bytes that the sender may send: unscheduled, granted, or requested by a RESEND.
    pub allowed: u32,
    /// The server answered RPC_UNKNOWN, so the call may continue under another id.
    pub unknown: bool,
}

#[derive(Debug)]
pub(super) struct IncomingRecord {
    pub rpc: Option<RpcHandle>,
    pub from: PeerId,
    /// The id as the sender writes it.
    pub id: RpcId,
    pub total: u32,
    pub here: Intervals,
    /// Packets that carried bytes of it.
    pub packets: u32,
}

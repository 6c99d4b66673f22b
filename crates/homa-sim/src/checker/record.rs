//! What the judge writes down about calls, RPCs and messages.

use std::collections::{BTreeMap, BTreeSet};

use homa_proto::{MessageId, PeerId, RpcError, RpcHandle, RpcId, Time};

use crate::time::SimTime;
use crate::topology::HostId;

use super::intervals::Intervals;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not yet.
    Open,
    /// Its response was delivered.
    Answered,
    /// It failed.
    Failed(RpcError),
    /// Its client cancelled it.
    Cancelled,
    /// Its client lost everything.
    ClientCrashed,
}

/// A call from its submission on.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asked.
    pub client: HostId,
    /// Who is to answer.
    pub server: HostId,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the last response submitted.
    pub response_bytes: Option<u32>,
    /// The caller's promise.
    pub idempotent: bool,
    /// When to fail.
    pub deadline: Time,
    /// When it was submitted.
    pub submitted: SimTime,
    /// When it ended.
    pub ended: SimTime,
    /// How it ended.
    pub ending: Ending,
    /// How often the request was delivered to the server application.
    pub executions: u32,
    /// Ids under which the server that lives executed it.
    pub executed: BTreeSet<RpcId>,
    /// The server was down at the submission or crashed later, or ended its side of the RPC.
    pub server_forgot: bool,
    /// When the client last accepted a sign of life for this call.
    pub heard: SimTime,
}

/// An RPC handle as a key: index and generation.
pub(super) type Name = (u32, u32);

/// See [`Name`].
pub(super) fn name(handle: RpcHandle) -> Name {
    (handle.index, handle.generation)
}

/// One host.
#[derive(Debug, Default)]
pub(super) struct HostRecord {
    pub down: bool,
    /// When it came up last.
    pub up: SimTime,
    pub rpcs: BTreeMap<Name, Rpc>,
    pub messages: BTreeMap<MessageId, Message>,
    /// Handles ever given out.
    pub used: BTreeSet<Name>,
    /// Bytes in place of undelivered incoming messages.
    pub held_bytes: u64,
}

impl HostRecord {
    /// RPCs in progress, as client and as server.
    pub fn counts(&self) -> (usize, usize) {
        let clients = self.rpcs.values().filter(|rpc| matches!(rpc, Rpc::Client { .. })).count();
        (clients, self.rpcs.len() - clients)
    }
}

/// An RPC in progress at one host.
#[derive(Debug)]
pub(super) enum Rpc {
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
pub(super) enum Message {
    Outgoing(Outgoing),
    Incoming(Incoming),
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub rpc: RpcHandle,
    pub cookie: u64,
    pub length: u32,
    pub to: PeerId,
    /// The sender's form; known from the first packet on for requests.
    pub id: Option<RpcId>,
    /// Bytes the sender may send: unscheduled, granted, or asked for again.
    pub allowed: u32,
    /// The server said that it does not know the RPC: the call may go on under another id.
    pub unknown: bool,
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub rpc: Option<RpcHandle>,
    pub from: PeerId,
    /// The sender's form.
    pub id: RpcId,
    pub total: u32,
    pub here: Intervals,
    /// Packets that had a place in it.
    pub packets: u32,
}

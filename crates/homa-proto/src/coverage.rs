//! Which inputs met which states: the table of states and events that tests print and the swarm
//! reports.

use crate::packet::Body;
use crate::rpc::RpcState;

/// An input as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EndpointInput {
    Data,
    Grant,
    Resend,
    RpcUnknown,
    Busy,
    Cutoffs,
    Freeze,
    NeedAck,
    Ack,
    Timer,
    Response,
    Cancel,
}

const STATES: [&str; 9] = [
    "(no RPC)",
    "client outgoing",
    "client incoming",
    "server incoming",
    "server in service",
    "server outgoing",
    "server sent",
    "one-way outgoing",
    "one-way incoming",
];

const INPUTS: [&str; 12] = [
    "DATA", "GRANT", "RESEND", "UNKNOWN", "BUSY", "CUTOFFS", "FREEZE", "NEED_ACK", "ACK", "timer",
    "response", "cancel",
];

impl EndpointInput {
    pub(crate) const fn of(body: &Body) -> Self {
        match body {
            Body::Data(_) | Body::StartMsg { .. } => Self::Data,
            Body::Grant { .. } => Self::Grant,
            Body::Resend { .. } => Self::Resend,
            Body::RpcUnknown { .. } => Self::RpcUnknown,
            Body::Busy { .. } => Self::Busy,
            Body::Cutoffs { .. } => Self::Cutoffs,
            Body::Freeze => Self::Freeze,
            Body::NeedAck | Body::Challenge { .. } => Self::NeedAck,
            Body::Ack(_) | Body::Proof(_) => Self::Ack,
        }
    }
}

/// See [`Coverage::possible`].
fn may_meet(state: usize, input: usize) -> bool {
    let (is, client) = (|other: EndpointInput| input == other as usize, matches!(state, 1 | 2));
    let serves = state == RpcState::ServerInService as usize + 1;
    match state {
        _ if is(EndpointInput::Freeze) => false,
        7 | 8 => false,
        0 => !is(EndpointInput::Timer),
        _ if is(EndpointInput::NeedAck) => client,
        _ if is(EndpointInput::Ack) => !client,
        _ if is(EndpointInput::Response) => serves,
        _ if is(EndpointInput::Cancel) => serves || client,
        _ => true,
    }
}

/// Counts per state and input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: [[u64; INPUTS.len()]; STATES.len()],
}

impl Coverage {
    pub(crate) fn mark(&mut self, state: Option<RpcState>, input: EndpointInput) {
        let row = state.map_or(0, |s| s as usize + 1);
        self.cells[row][input as usize] += 1;
    }

    /// Adds the counts of another endpoint.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.cells.iter_mut().flatten().zip(other.cells.iter().flatten()) {
            *mine += theirs;
        }
    }

    /// Every cell: (state, input, count).
    pub fn cells(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        self.cells.iter().zip(STATES).flat_map(|(row, state)| {
            row.iter().zip(INPUTS).map(move |(&count, input)| (state, input, count))
        })
    }

    /// Number of cells that hosts which follow the protocol can reach over a network. The state
    /// table's test reaches the others with packets that no such host sends (FREEZE, NEED_ACK from
    /// a client, ACK from a server), or as an application that answers or cancels an RPC that it
    /// was not given. A timer needs an RPC, and one-way messages have no wire format.
    pub fn possible() -> usize {
        let row = |state: usize| (0..INPUTS.len()).filter(move |&input| may_meet(state, input));
        (0..STATES.len()).flat_map(row).count()
    }

    /// Number of the possible cells reached.
    pub fn reached(&self) -> usize {
        let row = |(state, row): (usize, &[u64; INPUTS.len()])| {
            (0..row.len()).filter(|&input| row[input] > 0 && may_meet(state, input)).count()
        };
        self.cells.iter().enumerate().map(row).sum()
    }
}

//! The applications of a scenario: clients that call as planned, servers that answer as planned.
//!
//! A server recognises a call by its client's port, as a real server would by the request's bytes.

use homa_proto::{
    Delivered, Event, MessageKind, PeerId, Request, RpcHandle, Submit, SubmitError, Submitted,
};

use crate::engine::{Application, Context};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;

use super::scenario::PlannedCall;

/// The port that servers listen on.
pub(super) const SERVER_PORT: u16 = 99;
/// Clients' ports begin here.
const CLIENT_PORTS: u16 = 1_000;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Planned {
    calls: Vec<PlannedCall>,
    /// By call: the handle, when it was submitted.
    handles: Vec<Option<RpcHandle>>,
    /// Requests being served: call and handle.
    jobs: Vec<(usize, RpcHandle)>,
    /// Calls that were refused at their submission.
    pub refused: u64,
}

/// What a wake-up is about.
enum Wake {
    Call(usize),
    Cancel(usize),
    Answer(usize),
}

impl Wake {
    fn token(self) -> u64 {
        let (kind, index) = match self {
            Self::Call(index) => (0, index),
            Self::Cancel(index) => (1, index),
            Self::Answer(index) => (2, index),
        };
        (index as u64) << 2 | kind
    }

    fn from_token(token: u64) -> Self {
        let index = (token >> 2) as usize;
        match token & 3 {
            0 => Self::Call(index),
            1 => Self::Cancel(index),
            _ => Self::Answer(index),
        }
    }
}

impl Planned {
    pub fn new(calls: Vec<PlannedCall>) -> Self {
        let handles = vec![None; calls.len()];
        Self { calls, handles, jobs: Vec::new(), refused: 0 }
    }

    /// The wake-up that makes call `index`.
    pub fn call_token(index: usize) -> u64 {
        Wake::Call(index).token()
    }

    fn call<C: Context>(&mut self, net: &mut C, host: HostId, index: usize) {
        let call = self.calls[index];
        let request = Request {
            peer: PeerId(call.server.0),
            local_port: CLIENT_PORTS + index as u16,
            remote_port: SERVER_PORT,
            length: call.request_bytes,
            deadline: net.now().protocol() + call.allowed,
            idempotent: call.idempotent,
            cookie: index as u64,
        };
        match net.submit(host, Submit::Request(request)) {
            Ok(Submitted { rpc, .. }) => {
                self.handles[index] = Some(rpc);
                if let Some(after) = call.cancel_after {
                    net.wake_host_at(host, net.now() + after, Wake::Cancel(index).token());
                }
            }
            Err(_) => self.refused += 1,
        }
    }

    fn serve<C: Context>(&mut self, net: &mut C, host: HostId, delivered: &Delivered) {
        let index = usize::from(delivered.remote_port.wrapping_sub(CLIENT_PORTS));
        let Some(call) = self.calls.get(index) else { return };
        self.jobs.push((index, delivered.rpc));
        let job = self.jobs.len() - 1;
        if call.service == SimDuration::ZERO {
            self.answer(net, host, job);
        } else {
            net.wake_host_at(host, net.now() + call.service, Wake::Answer(job).token());
        }
    }

    /// Also answers RPCs that ended meanwhile: the transport must refuse.
    fn answer<C: Context>(&mut self, net: &mut C, host: HostId, job: usize) {
        let (index, rpc) = self.jobs[job];
        let call = self.calls[index];
        let answer = Submit::Response { rpc, length: call.response_bytes };
        // Other refusals are the checker's to judge.
        if call.refused
            || matches!(net.submit(host, answer), Err(SubmitError::MessageTooLong { .. }))
        {
            let _ = net.submit(host, Submit::Cancel { rpc });
        }
    }
}

impl Application for Planned {
    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        if let Event::Delivered(delivered) = event
            && delivered.kind == MessageKind::Request
        {
            self.serve(net, host, delivered);
        }
    }

    fn wake_host<C: Context>(&mut self, net: &mut C, host: HostId, token: u64) {
        match Wake::from_token(token) {
            Wake::Call(index) => self.call(net, host, index),
            Wake::Cancel(index) => {
                if let Some(rpc) = self.handles[index] {
                    // An RPC that ended meanwhile is refused.
                    let _ = net.submit(host, Submit::Cancel { rpc });
                }
            }
            Wake::Answer(job) => self.answer(net, host, job),
        }
    }

    /// The calls still to come are made in the new life.
    fn restarted<C: Context>(&mut self, net: &mut C, host: HostId) {
        for (index, call) in self.calls.iter().enumerate() {
            if call.client == host && call.at > net.now() {
                net.wake_host_at(host, call.at, Self::call_token(index));
            }
        }
    }
}

/// When the last planned call is made.
pub(super) fn last_call(calls: &[PlannedCall]) -> SimTime {
    calls.iter().map(|call| call.at).max().unwrap_or(SimTime::ZERO)
}

//! Messages one by one, as a swarm plans them: clients that call and servers that answer as
//! planned, one-way messages between.
//!
//! A server recognises a call by its client's port, as a real server would by the request's bytes.

use homa_proto::{
    Delivered, Duration, Event, MessageKind, PeerId, Request, RpcHandle, Submit, SubmitError,
    Submitted,
};

use crate::engine::{Application, Context};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;

use super::SERVER_PORT;

/// One call, or one message without an answer.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall {
    /// When.
    pub at: SimTime,
    /// Who asks.
    pub client: HostId,
    /// Who answers.
    pub server: HostId,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the response.
    pub response_bytes: u32,
    /// No response is wanted: the request is a one-way message, and the rest does not matter.
    pub one_way: bool,
    /// Between the request's delivery and its answer.
    pub service: SimDuration,
    /// The server refuses instead of answering.
    pub refused: bool,
    /// The client gives up after this long.
    pub cancel_after: Option<SimDuration>,
    /// Time allowed.
    pub allowed: Duration,
    /// May run again.
    pub idempotent: bool,
}

/// Clients' ports begin here.
const CLIENT_PORTS: u16 = 1_000;

/// See the module's description.
#[derive(Debug)]
pub struct Planned {
    calls: Vec<PlannedCall>,
    /// By call: the handle, when it was submitted.
    handles: Vec<Option<RpcHandle>>,
    /// Requests being served: call and handle.
    jobs: Vec<(usize, RpcHandle)>,
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
    /// At most 60,000 calls: each has a port.
    pub fn new(calls: Vec<PlannedCall>) -> Self {
        let handles = vec![None; calls.len()];
        Self { calls, handles, jobs: Vec::new() }
    }

    /// The wake-ups that make the calls: of which host, when, and their tokens.
    pub fn wakes(&self) -> impl Iterator<Item = (HostId, SimTime, u64)> {
        let wake = |(index, call): (usize, &PlannedCall)| {
            (call.client, call.at, Wake::Call(index).token())
        };
        self.calls.iter().enumerate().map(wake)
    }

    fn call<C: Context>(&mut self, net: &mut C, host: HostId, index: usize) {
        let call = self.calls[index];
        let (peer, length, cookie) = (PeerId(call.server.0), call.request_bytes, index as u64);
        if call.one_way {
            // A refusal is the checker's to judge.
            let _ = net.submit(host, Submit::OneWay { peer, length, cookie });
            return;
        }
        let request = Request {
            peer,
            local_port: CLIENT_PORTS + index as u16,
            remote_port: SERVER_PORT,
            length,
            deadline: net.now().protocol() + call.allowed,
            idempotent: call.idempotent,
            head: 0,
            cookie,
        };
        if let Ok(Submitted { rpc, .. }) = net.submit(host, Submit::Request(request)) {
            self.handles[index] = Some(rpc);
            if let Some(after) = call.cancel_after {
                net.wake_host_at(host, net.now() + after, Wake::Cancel(index).token());
            }
        }
    }

    fn serve<C: Context>(&mut self, net: &mut C, host: HostId, delivered: &Delivered) {
        let index = usize::from(delivered.remote_port.wrapping_sub(CLIENT_PORTS));
        let Some(call) = self.calls.get(index) else {
            // Nobody planned it: somebody else made it up.
            let _ = net.submit(host, Submit::Cancel { rpc: delivered.rpc });
            return;
        };
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
                net.wake_host_at(host, call.at, Wake::Call(index).token());
            }
        }
    }
}

/// When the last planned call is made.
pub fn last_call(calls: &[PlannedCall]) -> SimTime {
    calls.iter().map(|call| call.at).max().unwrap_or(SimTime::ZERO)
}

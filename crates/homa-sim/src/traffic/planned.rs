//! Messages one by one, as a swarm plans them: clients call, servers answer as planned, and one-way
//! messages are sent in between.
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

/// One call, or one one-way message.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall {
    /// Start time.
    pub at: SimTime,
    /// The calling host.
    pub client: HostId,
    /// The answering host.
    pub server: HostId,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the response.
    pub response_bytes: u32,
    /// The request is a one-way message without a response; the fields below do not apply.
    pub one_way: bool,
    /// Time from the request's delivery to its answer.
    pub service: SimDuration,
    /// The server cancels instead of answering.
    pub refused: bool,
    /// The client cancels after this time.
    pub cancel_after: Option<SimDuration>,
    /// Time until the deadline.
    pub allowed: Duration,
    /// The call may be executed more than once.
    pub idempotent: bool,
}

/// First port of clients.
const CLIENT_PORTS: u16 = 1_000;

/// The application that carries out a plan.
#[derive(Debug)]
pub struct Planned {
    calls: Vec<PlannedCall>,
    /// By call: its handle, once it is submitted.
    handles: Vec<Option<RpcHandle>>,
    /// Requests being served: call and handle.
    jobs: Vec<(usize, RpcHandle)>,
}

/// The reason of a wake-up.
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
    /// Takes at most 60,000 calls, because each has a port.
    pub fn new(calls: Vec<PlannedCall>) -> Self {
        let handles = vec![None; calls.len()];
        Self { calls, handles, jobs: Vec::new() }
    }

    /// The wake-ups that start the calls: host, time and token.
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
            // The checker judges refusals.
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
            // The request is not in the plan, so a hostile host made it up.
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

    /// Answers an RPC even if it has ended; the transport must then refuse.
    fn answer<C: Context>(&mut self, net: &mut C, host: HostId, job: usize) {
        let (index, rpc) = self.jobs[job];
        let call = self.calls[index];
        let answer = Submit::Response { rpc, length: call.response_bytes };
        // The checker judges other refusals.
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
                    // An RPC that has ended is refused.
                    let _ = net.submit(host, Submit::Cancel { rpc });
                }
            }
            Wake::Answer(job) => self.answer(net, host, job),
        }
    }

    /// Later calls are made in the new life.
    fn restarted<C: Context>(&mut self, net: &mut C, host: HostId) {
        for (index, call) in self.calls.iter().enumerate() {
            if call.client == host && call.at > net.now() {
                net.wake_host_at(host, call.at, Wake::Call(index).token());
            }
        }
    }
}

/// Time of the last planned call.
pub fn last_call(calls: &[PlannedCall]) -> SimTime {
    calls.iter().map(|call| call.at).max().unwrap_or(SimTime::ZERO)
}

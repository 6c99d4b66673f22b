//! Messages in pieces: requests that are read while they arrive, and messages that are written
//! while they are sent.
//!
//! A thread that reads may wait for more. If it does not wait and finds nothing, a receive reports
//! the request once more of it has come, or it has ended: then the descriptor is readable.
//!
//! Invariant: each report is for a request that waits for an answer, and is withdrawn by a read.

use homa_proto::{RpcHandle, Time};

use super::{CallFailure, Mailbox, MailboxItem, MailboxPhase};
use crate::engine::core::{Core, QueuedRequest};
use crate::engine::wait::waiters::WakeTarget;
use crate::error::{RequestError, WriteError};
use crate::message::Message;
use crate::payload::Payload;
use crate::writer::left_after;

/// A request that was received before it was whole, and whose last bytes were not taken.
#[derive(Debug)]
pub(super) struct ArrivingRequest {
    /// Bytes that were not taken.
    left: usize,
    /// Those bytes, once all have arrived.
    rest: Option<Message>,
    report: Report,
}

impl ArrivingRequest {
    pub(super) fn new(left: usize) -> Self {
        Self { left, rest: None, report: Report::Unwanted }
    }
}

/// Whether a receive reports that more of a request can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Unwanted,
    /// Once more has come. The number is that of its deadline's entry.
    Wanted(u64),
    /// Its position among all messages.
    Due(u64),
}

/// Why no bytes of a message were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// More will come.
    NotYet,
    /// The rest of the request will not come.
    Ended(RequestError),
    /// The call failed.
    Failed(CallFailure),
    /// No such request waits for an answer, and no such call for its response.
    Unknown,
    /// The socket was closed.
    Closed,
}

/// A response that is written while it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenReply {
    length: usize,
    left: usize,
}

impl MailboxPhase {
    /// Why no bytes were read: `why`, unless the socket was closed.
    pub(super) fn unread(self, why: Unread) -> Unread {
        if self == Self::Closed { Unread::Closed } else { why }
    }
}

impl Mailbox {
    /// The next bytes of a received request; `None` after the last. The caller waits or calls
    /// [`Self::want_report`] if they have not come yet.
    pub fn read(
        &mut self,
        rpc: RpcHandle,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Result<Option<Message>, Unread> {
        let phase = self.phase;
        self.withdraw(rpc, wakes);
        let received = self.open.get_mut(&rpc).filter(|open| !self.requests.contains(open.place));
        let open = received.filter(|open| open.written.is_none());
        let open = open.ok_or(phase.unread(Unread::Unknown))?;
        let Some(arriving) = &mut open.arriving else { return Ok(None) };
        if open.cancelled {
            return Err(Unread::Ended(RequestError::Gone));
        }
        if let Some(bytes) = core.take_arrived(rpc) {
            arriving.left -= bytes.len();
            return Ok(Some(bytes));
        }
        if let Some(rest) = arriving.rest.take() {
            open.arriving = None;
            return Ok(Some(rest).filter(|rest| !rest.is_empty()));
        }
        if open.until <= core.time() && open.until != Time::MAX {
            return Err(Unread::Ended(RequestError::DeadlineExceeded));
        }
        Err(phase.unread(Unread::NotYet))
    }

    /// A receive reports the request once more of it has come, or it has ended.
    pub fn want_report(&mut self, rpc: RpcHandle) {
        let number = self.next_order();
        let Some(open) = self.open.get_mut(&rpc) else { return };
        if let Some(arriving) = &mut open.arriving {
            arriving.report = Report::Wanted(number);
            self.wanted.insert((open.until, number), rpc);
        }
    }

    /// Withdraws what [`Self::want_report`] asked for.
    fn withdraw(&mut self, rpc: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        let Some(open) = self.open.get_mut(&rpc) else { return };
        let Some(arriving) = &mut open.arriving else { return };
        match std::mem::replace(&mut arriving.report, Report::Unwanted) {
            Report::Wanted(number) => drop(self.wanted.remove(&(open.until, number))),
            Report::Due(order) => drop(self.reports.remove(&order)),
            Report::Unwanted => return,
        }
        self.wake_if_over(wakes);
    }

    /// Wakes the threads that wait for more of a message.
    pub(super) fn wake_readers(&mut self, rpc: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        while self.wake_one(wakes, |wanted| wanted.piece == Some(rpc)) {}
    }

    /// No more of a request is read: its readers return.
    pub(super) fn stop_reading(&mut self, rpc: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        self.withdraw(rpc, wakes);
        self.wake_readers(rpc, wakes);
    }

    /// More of a request has come, or it has ended: wakes its readers.
    pub(super) fn more(&mut self, rpc: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        self.wake_readers(rpc, wakes);
        let order = self.next_order();
        let Some(open) = self.open.get_mut(&rpc) else { return };
        let Some(arriving) = &mut open.arriving else { return };
        if let Report::Wanted(number) = arriving.report {
            arriving.report = Report::Due(order);
            self.wanted.remove(&(open.until, number));
            self.reports.insert(order, rpc);
            self.wake_one(wakes, |wanted| wanted.requests);
        }
    }

    /// A request that was announced with its first bytes has arrived whole.
    pub(super) fn whole(
        &mut self,
        rpc: RpcHandle,
        bytes: QueuedRequest,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) {
        let Some(open) = self.open.get_mut(&rpc) else {
            return drop(core.accept_request(bytes));
        };
        if let Some(queued) = self.requests.get_mut(open.place) {
            queued.bytes = bytes;
            return;
        }
        let rest = core.accept_request(bytes);
        if let Some(arriving) = &mut open.arriving {
            arriving.rest = Some(rest);
        }
        self.more(rpc, wakes);
    }

    /// Takes the first report.
    pub(super) fn take_report(&mut self, wakes: &mut Vec<WakeTarget>) -> Option<MailboxItem> {
        let (_, rpc) = self.reports.pop_first()?;
        let open = self.open.get_mut(&rpc)?;
        let arriving = open.arriving.as_mut()?;
        arriving.report = Report::Unwanted;
        let item = MailboxItem::More {
            rpc,
            request: true,
            from: open.from,
            cookie: 0,
            left: arriving.left,
        };
        self.nudge(rpc, wakes);
        self.wake_if_over(wakes);
        Some(item)
    }

    /// Reports requests whose deadline has passed by `now`.
    pub fn passed(&mut self, now: Time, wakes: &mut Vec<WakeTarget>) {
        while let Some((&(until, _), &rpc)) = self.wanted.first_key_value()
            && until <= now
        {
            self.more(rpc, wakes);
        }
    }

    /// The earliest deadline of a request that is to be reported.
    pub fn next_alarm(&self) -> Option<Time> {
        let first = self.wanted.first_key_value().map(|((until, _), _)| *until);
        first.filter(|&until| until != Time::MAX)
    }

    /// A request is answered, but its response has yet to be written. No more of the request is
    /// read.
    pub(super) fn begin_writing(
        &mut self,
        rpc: RpcHandle,
        written: WrittenReply,
        wakes: &mut Vec<WakeTarget>,
    ) {
        self.stop_reading(rpc, wakes);
        if let Some(open) = self.open.get_mut(&rpc) {
            (open.arriving, open.written) = (None, Some(written));
        }
    }

    /// Appends to the request of a call that is written while it is sent.
    pub fn write_request(
        &mut self,
        rpc: RpcHandle,
        bytes: &[u8],
        core: &mut Core,
    ) -> Result<(), WriteError> {
        let call = self.calls.get_mut(&rpc).filter(|call| call.result.is_none());
        let call = call.ok_or(WriteError::Gone)?;
        let left = left_after(call.unwritten, bytes)?;
        if !core.write(rpc, bytes) {
            return Err(WriteError::Gone);
        }
        call.unwritten = left;
        Ok(())
    }

    /// Appends to the response to a request that is written while it is sent.
    pub fn write_reply(
        &mut self,
        rpc: RpcHandle,
        bytes: &[u8],
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Result<(), WriteError> {
        let open = self.open.get_mut(&rpc).ok_or(WriteError::Gone)?;
        let written = open.written.as_mut().ok_or(WriteError::Gone)?;
        let left = left_after(written.left, bytes)?;
        let gone = !core.write(rpc, bytes);
        written.left = left;
        let length = written.length;
        if gone || left == 0 {
            if !gone {
                core.written(rpc, length);
            }
            self.close_request(rpc, core, wakes);
        }
        if gone { Err(WriteError::Gone) } else { Ok(()) }
    }
}

impl WrittenReply {
    /// A response whose bytes have yet to be written; `None` if it has them.
    pub(super) fn begun(response: &Payload) -> Option<Self> {
        let length = response.len();
        response.is_to_be_written().then_some(Self { length, left: length })
    }
}

//! Responses that are read while they arrive.
//!
//! A receive reports such a call with its first bytes, and after a read that found nothing, once
//! more has come. It also reports the end of the call if its reader was not told before. A call
//! that fails is received as any other. The last read removes the call.

use std::mem;

use homa_proto::RpcHandle;

use super::Mailbox;
use super::item::{CallFailure, MailboxItem};
use super::pieces::Unread;
use crate::engine::core::{Core, Partial};
use crate::engine::wait::waiters::WakeTarget;
use crate::error::CallError;
use crate::message::Message;

/// The response to a call, while it is read.
#[derive(Debug)]
pub struct ArrivingResponse {
    /// Its readable part, once its first bytes have come.
    partial: Option<Partial>,
    /// Bytes that were taken.
    taken: usize,
    report: ResponseReport,
}

/// Whether a receive reports that more of a response can be read, or that the call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseReport {
    Unwanted,
    /// Once more has come.
    Wanted,
    /// More has come.
    Due,
}

impl ArrivingResponse {
    /// A response before its first bytes.
    pub fn new() -> Self {
        Self { partial: None, taken: 0, report: ResponseReport::Wanted }
    }

    /// True if a receive reports the call once more has come.
    pub(super) fn is_wanted(&self) -> bool {
        self.report == ResponseReport::Wanted
    }

    /// True if a receive of this call reports it.
    pub(super) fn is_due(&self) -> bool {
        self.report == ResponseReport::Due
    }
}

impl Mailbox {
    /// The next bytes of a response; `None` after the last. Then the call is forgotten, as it is if
    /// it failed. The caller waits or calls [`Self::want_more`] if they have not come yet.
    pub fn read_response(
        &mut self,
        rpc: RpcHandle,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Result<Option<Message>, Unread> {
        let phase = self.phase;
        let unknown = || phase.unread(Unread::Unknown);
        let call = self.calls.get_mut(&rpc).ok_or_else(unknown)?;
        let arriving = call.arriving.as_mut().ok_or_else(unknown)?;
        arriving.report = ResponseReport::Unwanted;
        self.ended.remove(&call.order);
        let piece = match &mut call.result {
            Some(Ok(rest)) if !rest.is_empty() => {
                let rest = mem::take(rest);
                core.accepted(rest.len());
                arriving.taken += rest.len();
                return Ok(Some(rest));
            }
            Some(Ok(_)) => Ok(None),
            Some(Err(failure)) => Err(Unread::Failed(failure.clone())),
            None => match arriving.partial.and_then(|partial| core.take_response(&partial)) {
                Some((bytes, end)) if end == arriving.taken + bytes.len() => {
                    arriving.taken = end;
                    return Ok(Some(bytes));
                }
                // The bytes that were taken belong to another execution.
                Some(_) => {
                    core.cancel(rpc);
                    Err(Unread::Failed(CallFailure::Call(CallError::Indeterminate)))
                }
                None => return Err(phase.unread(Unread::NotYet)),
            },
        };
        drop(self.take_call(rpc, core, wakes));
        piece
    }

    /// A receive reports the call once more of its response has come, or it has ended.
    pub fn want_more(&mut self, rpc: RpcHandle) {
        if let Some(arriving) = self.calls.get_mut(&rpc).and_then(|call| call.arriving.as_mut()) {
            arriving.report = ResponseReport::Wanted;
        }
    }

    /// More of a response has come.
    pub(super) fn more_of_response(&mut self, partial: Partial, wakes: &mut Vec<WakeTarget>) {
        let (rpc, order) = (partial.rpc, self.next_order());
        let Some(call) = self.calls.get_mut(&rpc).filter(|call| call.result.is_none()) else {
            return;
        };
        let Some(arriving) = &mut call.arriving else { return };
        arriving.partial = Some(partial);
        if arriving.is_wanted() {
            arriving.report = ResponseReport::Due;
            let is_private = call.private;
            if !is_private {
                call.order = order;
                self.ended.insert(order, rpc);
            }
            self.wake_for_call(rpc, is_private, wakes);
        }
        self.wake_readers(rpc, wakes);
    }

    /// The result of a call whose response came without its first `lent` bytes, which were taken.
    pub(super) fn without_taken(
        &self,
        rpc: RpcHandle,
        result: Result<Message, CallError>,
        lent: usize,
        core: &mut Core,
    ) -> Result<Message, CallError> {
        let arriving = self.calls.get(&rpc).and_then(|call| call.arriving.as_ref());
        let is_whole = lent == arriving.map_or(0, |arriving| arriving.taken);
        match result {
            Ok(rest) if !is_whole => {
                core.accepted(rest.len());
                Err(CallError::Indeterminate)
            }
            result => result,
        }
    }

    /// Receives a call: its end, or that more of its response can be read.
    pub(super) fn receive_call(
        &mut self,
        rpc: RpcHandle,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> MailboxItem {
        let Some(call) = self.calls.get_mut(&rpc) else { return MailboxItem::Unknown };
        let left = match (&call.arriving, &call.result) {
            (Some(_), Some(Ok(rest))) => rest.len(),
            (Some(ArrivingResponse { partial: Some(partial), taken, .. }), None) => {
                core.length_of(partial).saturating_sub(*taken)
            }
            _ => return self.take_call(rpc, core, wakes),
        };
        if let Some(arriving) = &mut call.arriving {
            arriving.report = ResponseReport::Unwanted;
        }
        self.ended.remove(&call.order);
        let (from, cookie) = (call.to, call.cookie);
        self.nudge(rpc, wakes);
        MailboxItem::More { rpc, request: false, from, cookie, left }
    }
}

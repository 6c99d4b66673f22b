//! Control packets that wait for the link: they leave before all DATA (Homa §3.2).
//!
//! Invariants: packets that only answer a peer's are dropped beyond [`MAX_WAITING`], so that a peer
//! that sends faster than our link answers costs no memory; RESENDs and NEED_ACKs are counted, and
//! timers add none beyond [`MAX_RESENDS`].

use crate::event::RpcHandle;
use crate::packet::Packet;
use alloc::collections::VecDeque;

/// Control packets above which those that only answer a peer's are dropped.
const MAX_WAITING: usize = 4_096;
/// Messages with RESENDs or a NEED_ACK in the queue above which timers add none. Their answers have
/// not been read either, and more questions would be what keeps us from it.
const MAX_RESENDS: u32 = 256;

/// A control packet that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    /// The latest grant of a message, read when it leaves.
    Grant(RpcHandle),
    /// The RESENDs of a message follow: more of it may be queued.
    Resends(RpcHandle),
    /// NEED_ACK, unless the RPC is acknowledged before it leaves.
    NeedAck(RpcHandle),
    Packet(Packet),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    queue: VecDeque<Control>,
    /// Messages with RESENDs or a NEED_ACK in the queue.
    resends: u32,
}

impl ControlQueue {
    pub(crate) fn push(&mut self, packet: Packet) {
        self.queue.push_back(Control::Packet(packet));
    }

    pub(crate) fn push_grant(&mut self, handle: RpcHandle) {
        self.queue.push_back(Control::Grant(handle));
    }

    /// RESENDs of a message follow.
    pub(crate) fn push_resends(&mut self, handle: RpcHandle) {
        self.resends += 1;
        self.queue.push_back(Control::Resends(handle));
    }

    pub(crate) fn push_need_ack(&mut self, handle: RpcHandle) {
        self.resends += 1;
        self.queue.push_back(Control::NeedAck(handle));
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Control> {
        let control = self.queue.pop_front()?;
        if matches!(control, Control::Resends(_) | Control::NeedAck(_)) {
            self.resends -= 1;
        }
        Some(control)
    }

    /// The next packet to leave, for prefetching.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Control> {
        self.queue.front()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if there is room for one more answer to a peer's packet.
    pub(crate) fn may_answer(&self) -> bool {
        self.queue.len() < MAX_WAITING
    }

    /// True if timers may ask for more.
    pub(crate) const fn may_resend(&self) -> bool {
        self.resends < MAX_RESENDS
    }

    /// Messages with RESENDs or a NEED_ACK in the queue.
    pub(crate) const fn resends(&self) -> u32 {
        self.resends
    }

    /// Drops the packets that match.
    pub(crate) fn drop_packets(&mut self, drops: impl Fn(&Packet) -> bool) {
        // Entries that name an RPC find none when they leave.
        self.queue.retain(|control| !matches!(control, Control::Packet(packet) if drops(packet)));
    }
}

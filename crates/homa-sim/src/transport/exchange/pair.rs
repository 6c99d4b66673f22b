//! A host's state about one peer: the messages in progress in either direction.
//!
//! A sender numbers its messages to one receiver 0, 1, 2, ... (their *serial*), and they end in
//! about that order. Both ends therefore find a message by a subtraction. The receiver recognises
//! every late copy for as long as the sender lives, with one slot for each message since the oldest
//! unfinished one.

use std::collections::VecDeque;

use homa_proto::Time;

use super::slab::Ref;

/// Messages by serial; those before `base` are done.
#[derive(Clone, Debug, Default)]
pub(super) struct Serials {
    base: u32,
    slots: VecDeque<MessageStatus>,
}

/// The status of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MessageStatus {
    /// No packet of it has arrived.
    #[default]
    Unseen,
    /// It is in progress.
    Open(Ref),
    /// It is over: delivered, refused or abandoned.
    Done,
}

/// Serials further ahead than this are rejected, because no host has this many messages to one
/// peer.
const FAR: usize = 1 << 24;

impl Serials {
    pub fn get(&self, serial: u32) -> MessageStatus {
        match serial.checked_sub(self.base) {
            None => MessageStatus::Done,
            Some(at) => self.slots.get(at as usize).copied().unwrap_or_default(),
        }
    }

    /// Sets the status of a message; false if the serial is too far ahead.
    pub fn set(&mut self, serial: u32, slot: MessageStatus) -> bool {
        let Some(at) = serial.checked_sub(self.base).map(|at| at as usize) else { return true };
        if at >= FAR {
            return false;
        }
        if self.slots.len() <= at {
            self.slots.resize(at + 1, MessageStatus::Unseen);
        }
        self.slots[at] = slot;
        while self.slots.front() == Some(&MessageStatus::Done) {
            self.slots.pop_front();
            self.base += 1;
        }
        true
    }
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerMessages {
    /// The serial of the next message to the peer.
    pub next_serial: u32,
    /// Messages to the peer.
    pub outgoing: Serials,
    /// Messages from the peer, in its present life.
    pub incoming: Serials,
    /// The peer's life, once it sent a message.
    pub epoch: Option<u16>,
    /// When a packet of the peer last arrived.
    pub last_heard: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_serials_stay_done_and_take_no_room() {
        let mut serials = Serials::default();
        let open = MessageStatus::Open(Ref { index: 3, generation: 0 });
        assert!(serials.set(2, open));
        assert_eq!(
            [0, 1, 2, 3].map(|s| serials.get(s)),
            [MessageStatus::Unseen, MessageStatus::Unseen, open, MessageStatus::Unseen]
        );
        assert!(serials.set(1, MessageStatus::Done) && serials.set(0, MessageStatus::Done));
        assert_eq!((serials.base, serials.slots.len()), (2, 1));
        assert!(serials.set(2, MessageStatus::Done));
        assert_eq!((serials.get(2), serials.slots.len()), (MessageStatus::Done, 0));
        assert!(serials.set(0, open), "an old one is left alone");
        assert_eq!(serials.get(0), MessageStatus::Done);
        assert!(!serials.set(u32::MAX, open));
    }
}

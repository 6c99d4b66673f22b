//! A message at its receiver: the next byte that is expected, and what is answered (`rdma-hw.cc`,
//! `ReceiverCheckSeq`). Packets are taken in order only.

use homa_proto::{DropReason, Receipt, Time};

use crate::transport::PacketMeta;
use crate::transport::exchange::{Head, MessageLookup};
use crate::transport::parts::Piece;

use super::{Carried, Rdma, RdmaAnswer, RdmaBody, RdmaPacket};

/// A message that is being received.
#[derive(Clone, Debug, Default)]
pub(super) struct RdmaReceiving {
    /// The next byte.
    expected: u32,
    /// The byte that the last NACK asked for, and when it may be asked for again.
    asked: Option<(u32, Time)>,
}

/// What follows from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RdmaVerdict {
    /// It is the next one.
    Next,
    /// It came after a gap; the answer is a NACK.
    Gap,
    /// It came after a gap for which a NACK was sent before.
    Silent,
    /// It came before.
    Copy,
}

impl RdmaReceiving {
    /// Decides about a packet that begins at `offset`. A NACK for the same gap is sent again at
    /// `again` at the earliest.
    fn takes(&mut self, (offset, len): (u32, u32), now: Time, again: Time) -> RdmaVerdict {
        match offset.cmp(&self.expected) {
            std::cmp::Ordering::Less => RdmaVerdict::Copy,
            std::cmp::Ordering::Equal => {
                self.expected += len;
                RdmaVerdict::Next
            }
            std::cmp::Ordering::Greater => {
                if self.asked.is_some_and(|(byte, due)| byte == self.expected && now < due) {
                    return RdmaVerdict::Silent;
                }
                self.asked = Some((self.expected, again));
                RdmaVerdict::Gap
            }
        }
    }
}

impl Rdma {
    fn answer(&mut self, head: Head, answer: RdmaAnswer) {
        self.answers.push_back(RdmaPacket { head, body: RdmaBody::Answer(answer) });
    }

    /// A packet of a message arrived.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        (head, piece): (&Head, Piece),
        collected: Carried,
        arrival: PacketMeta,
    ) -> Receipt {
        let reply = head.to(arrival.from);
        let start = RdmaReceiving::default;
        let found = self.exchange.arrived(now, arrival.from, (head, piece.total), start);
        let marked = arrival.ce;
        let message = match found {
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                let expected = piece.total;
                let answer = RdmaAnswer { expected, is_nack: false, marked, collected: None };
                self.answer(reply, answer);
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        let again = now + self.config.nack_every;
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let verdict = incoming.state.takes((piece.offset, piece.len), now, again);
        let expected = incoming.state.expected;
        let (is_nack, measured) = match verdict {
            RdmaVerdict::Next => (false, Some(collected)),
            RdmaVerdict::Gap => (true, Some(collected)),
            RdmaVerdict::Copy => (false, None),
            RdmaVerdict::Silent => return self.refuse(DropReason::Duplicate),
        };
        self.answer(reply, RdmaAnswer { expected, is_nack, marked, collected: measured });
        if verdict != RdmaVerdict::Next {
            return self.refuse(DropReason::Duplicate);
        }
        self.exchange.place(message, (piece.offset, piece.len), expected == piece.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_in_order_and_gaps_asked_for() {
        use RdmaVerdict::{Copy, Gap, Next, Silent};
        let mut receiving = RdmaReceiving::default();
        for (now, offset, expected) in [
            (0, 1_000, Gap),
            (1, 2_000, Silent),
            (2, 0, Next),
            (3, 0, Copy),
            (4, 2_000, Gap),
            (5, 3_000, Silent),
            (504, 4_000, Gap),
            (505, 1_000, Next),
            (506, 2_000, Next),
        ] {
            let verdict = receiving.takes((offset, 1_000), Time(now), Time(now + 500));
            assert_eq!(verdict, expected, "{now}");
        }
        assert_eq!(receiving.expected, 3_000);
    }
}

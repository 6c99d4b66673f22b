//! The receiving side of a connection: when acknowledgements are sent, and what they echo.
//!
//! Delayed acknowledgements (RFC 1122 §4.2.3.2, RFC 5681 §4.2), selective ones (RFC 2018), echo of
//! congestion (RFC 3168 §6.1.3; RFC 8257 §3.2). The application takes bytes as soon as they are in
//! order, so the window is always open.

use homa_proto::Time;

use crate::transport::PacketMeta;
use crate::transport::stream::{InboundStream, StreamEffect};

use super::config::{Algorithm, TcpConfig};
use super::segment::{Flags, Sacks, Segment};

/// An acknowledgement is sent for every second segment (RFC 5681 §4.2).
const EVERY: u8 = 2;

/// The content of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The next byte expected.
    pub ack: u64,
    /// Ranges received beyond it.
    pub sacks: Sacks,
    /// ECE, and DSACK.
    pub flags: Flags,
}

/// See the module's description.
#[derive(Debug)]
pub struct Receiver {
    /// The stream.
    pub incoming: InboundStream,
    /// Its end, once a FIN arrived.
    fin: Option<u64>,
    /// Segments that arrived in order since the last acknowledgement.
    pending: u8,
    /// When they have to be acknowledged.
    due: Time,
    /// The last segment was marked (DCTCP.CE), or a segment since the last CWR was (RFC 3168).
    congested: bool,
}

impl Default for Receiver {
    /// The state of an empty stream.
    fn default() -> Self {
        let incoming = InboundStream::default();
        Self { incoming, fin: None, pending: 0, due: Time::MAX, congested: false }
    }
}

impl Receiver {
    /// A segment that occupies sequence numbers arrives. Acknowledgements are added to `replies`,
    /// the newest last.
    #[inline]
    pub fn receive(
        &mut self,
        (now, segment, arrival): (Time, &Segment, &PacketMeta),
        config: &TcpConfig,
        mut replies: impl FnMut(Reply),
    ) -> StreamEffect {
        let marked = arrival.ce || segment.flags.has(Flags::CE);
        let mut at_once = config.delayed_ack.is_none();
        if matches!(config.algorithm, Algorithm::Dctcp { .. }) {
            if marked != self.congested {
                // RFC 8257 §3.2, as in Linux: earlier segments are acknowledged with the old state,
                // and the segment that changed it immediately with the new one.
                if self.pending > 0 {
                    replies(self.reply(config, false));
                }
                self.congested = marked;
                at_once = true;
            }
        } else {
            // RFC 3168 §6.1.3
            self.congested &= !segment.flags.has(Flags::CWR);
            self.congested |= marked;
        }
        let span = segment.span();
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(span.end);
            at_once = true;
        }
        let received = self.incoming.receive(span, &segment.pieces);
        // Segments that the NIC merged count as one, acknowledged at its end. Linux acknowledges it
        // immediately because it is longer than a full segment.
        self.pending = self.pending.saturating_add(if arrival.merged { EVERY } else { 1 });
        if received != StreamEffect::InOrder
            || !arrival.merged && (at_once || self.pending >= EVERY)
        {
            replies(self.reply(config, received == StreamEffect::Duplicate));
        } else if self.due == Time::MAX {
            self.due = now + config.longest_ack_delay();
        }
        received
    }

    /// An acknowledgement of all bytes in order.
    pub fn reply(&mut self, config: &TcpConfig, duplicate: bool) -> Reply {
        self.pending = 0;
        self.due = Time::MAX;
        let ack = self.incoming.next();
        let beyond = if config.recovery.sack { self.incoming.beyond() } else { &[] };
        let flags = Flags::default().with(Flags::ECE, self.congested);
        let duplicate = duplicate && config.recovery.sack;
        Reply { ack, sacks: Sacks::new(ack, beyond), flags: flags.with(Flags::DSACK, duplicate) }
    }

    /// When a delayed acknowledgement is due; [`Time::MAX`] if none waits.
    #[inline]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Whether the whole stream has arrived.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.incoming.next() >= fin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::HostId;
    use crate::transport::stream::{ConnectionName, Key, MessageTags};
    use homa_proto::Duration;

    const LEN: u32 = 1_000;

    fn segment(index: u64, flags: Flags) -> Segment {
        Segment {
            to: HostId(0),
            name: ConnectionName { life: 0, key: Key { slot: 0, generation: 0 } },
            server_slot: 0,
            flags,
            priority: 0,
            sacks: Sacks::default(),
            len: LEN,
            seq: index * u64::from(LEN),
            ack: 0,
            pieces: MessageTags::NONE,
        }
    }

    /// Passes a segment to the receiver. Returns the acknowledgements, in segments, with their ECE
    /// flags.
    fn give(
        receiver: &mut Receiver,
        config: &TcpConfig,
        (index, marked, flags): (u64, bool, Flags),
    ) -> Vec<(u64, bool)> {
        let mut replies = Vec::new();
        let segment = segment(index, flags);
        let arrival = PacketMeta { ce: marked, ..PacketMeta::new(HostId(0), 0) };
        receiver.receive((Time(5), &segment, &arrival), config, |reply| {
            replies.push((reply.ack / u64::from(LEN), reply.flags.has(Flags::ECE)));
        });
        replies
    }

    #[test]
    fn every_second_segment_is_acknowledged_or_a_timer_expires() {
        let config = TcpConfig::newreno();
        let mut receiver = Receiver::default();
        let mut give = |index| give(&mut receiver, &config, (index, false, Flags::ACK));
        assert_eq!((give(0), give(1)), (vec![], vec![(2, false)]));
        assert_eq!(give(2), []);
        // A gap, and a segment that fills it, are acknowledged immediately.
        assert_eq!(
            (give(4), give(5), give(3)),
            (vec![(3, false)], vec![(3, false)], vec![(6, false)])
        );
        assert_eq!(give(2), [(6, false)], "so is a duplicate");
        assert_eq!(give(6), []);
        assert_eq!(receiver.due(), Time(5) + Duration::millis(200));
        assert_eq!(receiver.reply(&config, false).ack, 7_000);
        assert_eq!(receiver.due(), Time::MAX);
        let eager = TcpConfig { delayed_ack: None, ..config };
        assert_eq!(self::give(&mut receiver, &eager, (7, false, Flags::ACK)), [(8, false)]);
    }

    #[test]
    fn dctcp_echoes_each_change_of_the_mark() {
        let config = TcpConfig::dctcp();
        let mut receiver = Receiver::default();
        let mut give = |index, marked| give(&mut receiver, &config, (index, marked, Flags::ACK));
        assert_eq!((give(0, false), give(1, false)), (vec![], vec![(2, false)]));
        assert_eq!(give(2, false), []);
        // The acknowledgement of segment 2 has no echo, that of segment 3 has one.
        assert_eq!(give(3, true), [(3, false), (4, true)]);
        assert_eq!((give(4, true), give(5, true)), (vec![], vec![(6, true)]));
        // Nothing is pending at the next change.
        assert_eq!(give(6, false), [(7, false)]);
    }

    #[test]
    fn classic_echoes_continue_until_cwr() {
        let config = TcpConfig { ecn: true, delayed_ack: None, ..TcpConfig::newreno() };
        let mut receiver = Receiver::default();
        let mut give = |index, marked, flags| {
            give(&mut receiver, &config, (index, marked, flags)).last().map(|reply| reply.1)
        };
        assert_eq!(give(0, false, Flags::ACK), Some(false));
        assert_eq!(give(1, true, Flags::ACK), Some(true));
        assert_eq!(give(2, false, Flags::ACK), Some(true));
        assert_eq!(give(3, false, Flags::CWR), Some(false));
        assert_eq!(give(4, true, Flags::CWR), Some(true), "the mark is newer than the reduction");
    }
}

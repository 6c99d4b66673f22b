//! Which wire a kernel peer has: the module's, or that of public forks with START_MSG
//! ([`Config::start_msg`](crate::Config::start_msg)). Over raw IP only.
//!
//! The endpoint learns it from the packets of the peer; the table of peers keeps it for the packets
//! that are packed next. Packets of types that neither wire has are counted, and named in the log
//! and in the errors of calls to their sender.

use hashbrown::HashMap;
use homa_proto::wire::{self, Decoded};
use homa_proto::{DropReason, Duration, PeerId, Time};

use super::EngineState;
use super::receive::UNASKED;
use crate::driver::ReceivedTrain;

/// Byte of the common header that names the packet's type.
const TYPE: usize = 11;
/// Least time between two lines of the log, because any host can send such packets.
const LOG_INTERVAL: Duration = Duration::secs(1);

/// Packets of unknown types that servers sent.
#[derive(Debug, Default)]
pub struct UnknownTypes {
    /// By server: when the last one came, and its type.
    last: HashMap<PeerId, (Time, u8)>,
    /// The log is silent until then.
    quiet_until: Time,
}

impl UnknownTypes {
    /// The type of the last one that a server sent, if that was not before `since`.
    pub fn since(&self, since: Time, peer: PeerId) -> Option<u8> {
        let last = self.last.get(&peer).filter(|(at, _)| *at >= since);
        last.map(|(_, kind)| *kind)
    }

    /// True if a line may be logged now.
    fn may_log(&mut self, now: Time) -> bool {
        let may = now >= self.quiet_until;
        if may {
            self.quiet_until = now + LOG_INTERVAL;
        }
        may
    }
}

impl EngineState {
    /// Reads a packet in the wire of its sender.
    pub(super) fn decode_native<'a>(
        &mut self,
        now: Time,
        train: &ReceivedTrain<'_>,
        bytes: &'a [u8],
    ) -> Result<Decoded<'a>, DropReason> {
        let decoded = match self.config.protocol.start_msg {
            None => wire::decode(bytes, PeerId(0), UNASKED),
            Some(start_msg) => {
                // A host may be two peers: as server, and as client of one of our addresses.
                let known = [None, train.to].map(|source| self.peers.of(train.from, source));
                let mut known = known.into_iter().flatten();
                let speaks = known.any(|peer| self.endpoint.speaks_start_msg(peer));
                wire::decode_from(bytes, PeerId(0), UNASKED, start_msg, speaks)
            }
        };
        // Nothing of such a peer can be read, which looks like loss, so the log names the reason.
        if let (Err(DropReason::UnknownType), Some(&kind)) = (&decoded, bytes.get(TYPE)) {
            self.note_unknown_type(now, train, kind);
        }
        decoded
    }

    #[cold]
    fn note_unknown_type(&mut self, now: Time, train: &ReceivedTrain<'_>, kind: u8) {
        let from = train.from;
        if let Some(server) = self.peers.of(from, None) {
            self.unknown_types.last.insert(server, (now, kind));
        }
        if self.unknown_types.may_log(now) {
            tracing::warn!(%from, kind, "packet of an unknown type: the peer speaks a newer Homa");
        }
    }

    /// Notes which wire a peer has after a packet of it.
    pub(super) fn note_dialect(&mut self, peer: PeerId) {
        if let Some(start_msg) = self.config.protocol.start_msg {
            let speaks = self.endpoint.speaks_start_msg(peer);
            self.peers.set_start_msg(peer, speaks.then_some(start_msg));
        }
    }
}

//! Which wire a kernel peer has: the module's, or that of public forks with START_MSG
//! ([`Config::start_msg`](crate::Config::start_msg)). Over raw IP only.
//!
//! The endpoint learns it from the packets of the peer; the table of peers keeps it for the packets
//! that are packed next.

use homa_proto::wire::{self, Decoded};
use homa_proto::{DropReason, PeerId};

use super::EngineState;
use super::receive::UNASKED;
use crate::driver::ReceivedTrain;

/// Byte of the common header that names the packet's type.
const TYPE: usize = 11;

impl EngineState {
    /// Reads a packet in the wire of its sender.
    pub(super) fn decode_native<'a>(
        &mut self,
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
        if let (Err(DropReason::UnknownType), Some(&kind)) = (&decoded, bytes.get(TYPE)) {
            let from = train.from;
            tracing::warn!(%from, kind, "packet of an unknown type: the peer speaks a newer Homa");
        }
        decoded
    }

    /// Notes which wire a peer has after a packet of it.
    pub(super) fn note_dialect(&mut self, peer: PeerId) {
        if let Some(start_msg) = self.config.protocol.start_msg {
            let speaks = self.endpoint.speaks_start_msg(peer);
            self.peers.set_start_msg(peer, speaks.then_some(start_msg));
        }
    }
}

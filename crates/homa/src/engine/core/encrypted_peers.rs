//! Peers that encrypt, while this engine has no keys: each end is told, so that its calls end with
//! the reason and do not wait for their deadlines.
//!
//! Nothing here costs anything for a packet that can be read. The messages are not authenticated:
//! one that ends a call names its RPC id, which an attacker who does not read packets cannot guess.

use homa_proto::{DropReason, RpcError};

use super::Core;
use super::context::RequestContext;
use super::receive::EngineState;
use crate::driver::ReceivedTrain;
#[cfg(feature = "encryption")]
use crate::driver::{
    Outbox, Rejection, Train, TrainPiece,
    backlog::NoMessages,
    sealed::{HandshakeDatagram, code},
};
use crate::error::CallError;
#[cfg(feature = "encryption")]
use crate::error::HandshakeRefusal;

/// Most handshakes that are answered in a turn.
#[cfg(feature = "encryption")]
const ANSWERS_MAX: usize = 16;

/// What peers that encrypt have sent.
#[cfg(feature = "encryption")]
#[derive(Debug, Default)]
pub struct EncryptedPeers {
    answers: Outbox,
    rejections: Vec<Rejection>,
}

/// The protocol's error of a call whose packets were rejected.
const REJECTED: RpcError = RpcError::NotSent { errno: libc::EKEYREJECTED };

impl EngineState {
    /// The error of a call that the protocol has ended.
    pub fn why(&self, error: RpcError) -> CallError {
        match &self.rejection {
            Some(rejection) if error == REJECTED => CallError::rejected(rejection),
            _ => error.into(),
        }
    }

    /// The context of a message that was delivered, with its sender.
    #[cfg(feature = "encryption")]
    pub fn attributed(&self, context: RequestContext) -> RequestContext {
        RequestContext { identity: self.sender_identity.clone(), ..context }
    }

    #[cfg(not(feature = "encryption"))]
    pub fn attributed(&self, context: RequestContext) -> RequestContext {
        context
    }

    /// Counts a packet that cannot be read. It may be part of a handshake.
    #[cold]
    pub fn drop_unread(&mut self, train: &ReceivedTrain<'_>, bytes: &[u8], reason: DropReason) {
        self.endpoint.counters_mut().drop_packet(reason);
        #[cfg(feature = "encryption")]
        // A handshake has the type of no packet.
        if reason == DropReason::UnknownType && HandshakeDatagram::is_in(bytes) {
            self.encrypted_peers.note(train, bytes);
        }
        #[cfg(not(feature = "encryption"))]
        let _ = (train, bytes);
    }
}

#[cfg(feature = "encryption")]
impl EncryptedPeers {
    fn note(&mut self, train: &ReceivedTrain<'_>, bytes: &[u8]) {
        match HandshakeDatagram::read(bytes) {
            Some(HandshakeDatagram::Flight { from_client: true, id, .. })
                // Bounded, because any host can send handshakes.
                if self.answers.trains.len() < ANSWERS_MAX =>
            {
                self.answer(train, &HandshakeDatagram::Refused { id, code: code::NO_KEYS });
            }
            Some(HandshakeDatagram::Refused { id, code: code::KEYS_REQUIRED })
                if self.rejections.len() < ANSWERS_MAX =>
            {
                // The id names a call of ours, as a quoted packet would.
                let quoted = homa_proto::Quoted { id: homa_proto::RpcId(id), begins: true };
                let why = HandshakeRefusal::KeysRequired;
                let keys = "no keys".into();
                self.rejections.push(Rejection { to: train.from, quoted, keys, why });
            }
            _ => {}
        }
    }

    /// Writes an answer, which is not longer than what it answers.
    fn answer(&mut self, to: &ReceivedTrain<'_>, frame: &HandshakeDatagram<'_>) {
        let Outbox { bytes, pieces, trains } = &mut self.answers;
        let (start, first) = (bytes.len(), pieces.len());
        frame.write(0, bytes);
        let len = bytes.len() - start;
        pieces.push(TrainPiece::Buffered(start..bytes.len()));
        trains.push(Train {
            to: to.from,
            link: Default::default(),
            socket: to.socket,
            source: to.to,
            tos: 0,
            datagram: len,
            len,
            pieces: first..first + 1,
        });
    }
}

impl Core {
    /// Sends the answers, and ends the calls that need keys.
    pub(super) fn answer_encrypted_peers(&mut self) {
        #[cfg(feature = "encryption")]
        {
            if !self.state.encrypted_peers.answers.trains.is_empty() {
                let answers = std::mem::take(&mut self.state.encrypted_peers.answers);
                self.driver.send(&answers, &NoMessages);
            }
            for rejection in std::mem::take(&mut self.state.encrypted_peers.rejections) {
                self.handle_rejection(rejection);
            }
        }
    }
}

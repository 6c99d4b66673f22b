//! Datagrams that a test gives to a driver itself.

use std::net::SocketAddr;

use homa::driver::{Driver, Gather, Outbox, Train, TrainPiece};
use homa::proto::{LinkId, Span};

struct NoMessages;

impl Gather for NoMessages {
    fn bytes(&self, _: Span) -> &[u8] {
        unreachable!("all pieces are buffered")
    }
}

/// Sends a datagram from the first socket of a driver.
pub fn send(from: &mut dyn Driver, to: SocketAddr, bytes: Vec<u8>) {
    let len = bytes.len();
    let train = Train {
        to,
        link: LinkId(0),
        socket: 0,
        source: None,
        tos: 0,
        datagram: len,
        len,
        pieces: 0..1,
    };
    let pieces = vec![TrainPiece::Buffered(0..len)];
    from.send(&Outbox { bytes, pieces, trains: vec![train] }, &NoMessages);
}

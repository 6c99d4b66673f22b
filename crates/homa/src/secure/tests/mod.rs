//! Handshakes and sessions between two ends in one process.

mod handshake;
mod session;

use std::net::{IpAddr, Ipv4Addr};

use super::*;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Bytes of a fragment in a datagram of the smallest MTU.
const ROOM: usize = 1_150;

/// A fragment on its way.
type Travelling = (Level, u32, Vec<u8>);

fn cluster(byte: u8) -> Keys {
    Keys::cluster([byte; 32]).unwrap()
}

/// Both ends of a handshake.
struct Pair {
    client: Handshake,
    server: Handshake,
}

impl Pair {
    fn new(client: &Keys, server: &Keys) -> Self {
        let client = Handshake::client(client, SERVER).unwrap();
        Self { client, server: Handshake::server(server).unwrap() }
    }

    /// Passes fragments to the server; returns its flight if it has one.
    fn serve(&mut self, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
        deliver(&mut self.server, flight)
    }

    fn answer(&mut self, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
        deliver(&mut self.client, flight)
    }

    /// Both sessions, after the rest of the handshake.
    fn sessions(mut self) -> (SecureSession, SecureSession) {
        while !self.client.is_confirmed() {
            let flight = self.client.flight(ROOM);
            let flight = self.serve(&flight).unwrap();
            let flight = self.answer(&flight).unwrap();
            let flight = self.serve(&flight).unwrap();
            self.answer(&flight).unwrap();
        }
        (self.client.session().unwrap(), self.server.session().unwrap())
    }
}

/// Passes fragments to one end, which answers at most once. Dropped fragments are dropped.
fn deliver(to: &mut Handshake, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
    let mut answer = false;
    for (level, offset, bytes) in flight {
        match to.receive(Fragment { level: *level, offset: *offset, bytes }) {
            Ok(next) => answer |= next == Next::Send,
            Err(error) if !error.is_final() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(if answer { to.flight(ROOM) } else { Vec::new() })
}

/// Seals `text` behind the header `aad`, with the number and the phase.
fn seal(from: &mut SecureSession, aad: &[u8], text: &[u8]) -> (u64, bool, Vec<u8>) {
    let (number, phase) = from.next().unwrap();
    let mut payload = [text, &[0; TAG]].concat();
    from.seal(number, aad, &mut payload).unwrap();
    (number, phase, payload)
}

/// Opens a copy of a sealed datagram.
fn open(
    to: &mut SecureSession,
    aad: &[u8],
    sealed: &(u64, bool, Vec<u8>),
) -> Result<Vec<u8>, UnsealError> {
    let (number, phase, mut payload) = sealed.clone();
    let length = to.open(number, phase, aad, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

//! Handshakes between two ends on a network that an attacker controls, for tests with arbitrary
//! inputs: each byte of the input is a choice.
//!
//! The attacker drops, repeats, reorders, cuts and changes fragments, sends them back, and makes up
//! others. Claims: nothing panics; no fragment makes a server send more than its flight; if both
//! ends have a session, they understand each other, and the client got no challenge but the
//! server's; if only sealed fragments were forged, the handshake still completes; and the server
//! opens early data of the client only, each datagram once.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Fragment, Handshake, Keys, Level, Next, SecureSession, TAG};

/// Most steps of one run, and most fragments that are on their way.
const STEPS: usize = 60;
const TRAVELLING: usize = 40;

const CHALLENGE: &[u8] = b"the server's challenge";

/// A fragment on its way.
#[derive(Clone)]
struct Travelling {
    to_server: bool,
    level: Level,
    offset: u32,
    bytes: Vec<u8>,
}

struct ArbitraryNetwork<'a> {
    choices: &'a [u8],
    ends: [Handshake; 2],
    travelling: Vec<Travelling>,
    /// Datagrams of early data that were sealed and not opened.
    early: Vec<Vec<u8>>,
    /// Plaintext was forged, so that the handshake may fail.
    tainted: bool,
}

/// One run with an input.
pub fn handshake(input: &[u8]) {
    // New ones in each run, so that no ticket of an earlier run changes this one.
    let mut keys = Keys::cluster([7; 32]).expect("a constant key");
    if input.first().is_some_and(|choice| choice & 8 != 0) {
        keys = keys.early_data();
        ArbitraryNetwork::new(&keys, &[]).finish();
    }
    let mut network = ArbitraryNetwork::new(&keys, input);
    for _ in 0..STEPS {
        let Some(choice) = network.choice() else { break };
        network.step(choice);
    }
    network.finish();
}

impl<'a> ArbitraryNetwork<'a> {
    fn new(keys: &Keys, choices: &'a [u8]) -> Self {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 7));
        let client = Handshake::client(keys, at, 1).expect("good keys");
        let mut server = Handshake::server(keys, 2).expect("good keys");
        server.set_challenge(CHALLENGE.to_vec());
        let (ends, tainted) = ([client, server], false);
        Self { choices, ends, travelling: Vec::new(), early: Vec::new(), tainted }
    }

    fn choice(&mut self) -> Option<u8> {
        let (&choice, rest) = self.choices.split_first()?;
        self.choices = rest;
        Some(choice)
    }

    fn number(&mut self) -> usize {
        self.choice().unwrap_or(0).into()
    }

    fn step(&mut self, choice: u8) {
        match choice % 8 {
            0 => self.timer(64 + 6 * usize::from(choice)),
            1..=3 => {
                if let Some(fragment) = self.pick() {
                    self.deliver(&fragment);
                }
            }
            4 => {
                let copy = self.pick();
                self.travelling.extend(copy.iter().chain(&copy).cloned());
            }
            5 => drop(self.pick()),
            6 => self.change(),
            _ => self.invent(),
        }
        self.travelling.truncate(TRAVELLING);
    }

    /// The client's timer fires.
    fn timer(&mut self, room: usize) {
        let mut flight = self.ends[0].flight(room);
        if self.ends[0].may_send_early() {
            let datagram = format!("datagram {}", self.early.len()).into_bytes();
            flight.extend(self.ends[0].seal_early(&datagram));
            self.early.push(datagram);
        }
        self.send(true, flight);
    }

    fn send(&mut self, to_server: bool, flight: Vec<(Level, u32, Vec<u8>)>) {
        let fragments = flight.into_iter().map(|(level, offset, bytes)| Travelling {
            to_server,
            level,
            offset,
            bytes,
        });
        self.travelling.extend(fragments);
    }

    /// Takes one of the fragments from the network.
    fn pick(&mut self) -> Option<Travelling> {
        let at = self.number();
        let length = self.travelling.len().max(1);
        (!self.travelling.is_empty()).then(|| self.travelling.swap_remove(at % length))
    }

    fn deliver(&mut self, fragment: &Travelling) {
        let Travelling { to_server, level, offset, bytes } = fragment;
        let end = &mut self.ends[usize::from(*to_server)];
        match end.receive(Fragment { level: *level, offset: *offset, bytes }) {
            Ok(Next::Wait) => {}
            Ok(Next::Send) => {
                let flight = end.flight(1_200);
                self.send(!to_server, flight);
            }
            Err(error) => assert!(!error.is_final() || self.tainted, "{error}"),
        }
        for opened in self.ends[1].take_early_data() {
            let known = self.early.iter_mut().find(|datagram| **datagram == opened);
            known.expect("it was sealed, and not opened before").clear();
        }
    }

    /// Changes a fragment: a bit, its offset, its level, its end, or its receiver.
    fn change(&mut self) {
        let Some(mut fragment) = self.pick() else { return };
        let (how, what) = (self.number(), self.number());
        match how % 5 {
            0 if !fragment.bytes.is_empty() => {
                let at = what % fragment.bytes.len();
                fragment.bytes[at] ^= 1 << (how / 5 % 8);
            }
            1 => fragment.offset = fragment.offset.wrapping_add(what as u32).wrapping_sub(128),
            2 => fragment.level = Level::Initial,
            3 => fragment.bytes.truncate(what),
            _ => fragment.to_server ^= true,
        }
        self.tainted |= fragment.level == Level::Initial;
        self.deliver(&fragment);
    }

    /// A fragment of the attacker's.
    fn invent(&mut self) {
        let how = self.number();
        let level = match how & 65 {
            0 | 64 => Level::Initial,
            1 => Level::Handshake,
            _ => Level::Early,
        };
        let offset = match how >> 1 & 3 {
            0 => 0,
            1 => self.number() as u32,
            2 => u32::MAX - (how >> 3 & 3) as u32,
            _ => (self.number() << 7 | self.number()) as u32,
        };
        let length = self.number().min(self.choices.len());
        let (bytes, rest) = self.choices.split_at(length);
        self.choices = rest;
        let to_server = how & 128 == 0;
        self.tainted |= level == Level::Initial;
        self.deliver(&Travelling { to_server, level, offset, bytes: bytes.to_vec() });
    }

    /// The attacker leaves. Whatever it did, sessions agree; if it forged no plaintext, there are
    /// sessions.
    fn finish(mut self) {
        self.travelling.clear();
        for _ in 0..8 {
            self.timer(1_200);
            while let Some(fragment) = self.travelling.pop() {
                self.deliver(&fragment);
            }
        }
        let [client, server] = &mut self.ends;
        let challenge = client.take_challenge();
        assert!(challenge.is_none_or(|bytes| bytes == CHALLENGE));
        let early = server.early_session().map(|(session, _)| session);
        let sessions = (client.session(), early.or_else(|| server.session()));
        assert!(self.tainted || client.is_confirmed() && server.is_confirmed());
        if let (Some(mut client), Some(mut server)) = sessions {
            let keys = self.ends.each_ref().map(Handshake::peer_key);
            assert_eq!(keys, [Some(2), Some(1)], "no forgery changes a key id");
            pass(&mut client, &mut server);
            pass(&mut server, &mut client);
        }
    }
}

/// One datagram.
fn pass(from: &mut SecureSession, to: &mut SecureSession) {
    let (number, phase) = from.next().expect("a new session");
    let mut payload = [&b"text"[..], &[0; TAG]].concat();
    from.seal(number, b"header", &mut payload).expect("the number just given out");
    assert_eq!(to.open(number, phase, b"header", &mut payload), Ok(4));
    assert_eq!(&payload[..4], b"text");
}

#[cfg(test)]
mod tests {
    #[test]
    fn arbitrary_networks_break_no_handshake() {
        arbtest::arbtest(|input| {
            let length = input.len();
            super::handshake(input.bytes(length)?);
            Ok(())
        })
        .size_max(1_000);
    }
}

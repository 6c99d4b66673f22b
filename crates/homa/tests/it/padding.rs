//! The lengths of padded datagrams, as an observer on the path sees them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use homa::{Config, Keys, Padding};

use crate::common::{echo, engine, message};

/// Lengths of datagrams, of the client (true) and of the server.
type Lengths = Arc<Mutex<BTreeSet<(bool, usize)>>>;

/// A relay in front of a server, for one client. It notes the lengths of the UDP payloads
/// that are encrypted.
fn relay(server: SocketAddr) -> (SocketAddr, Lengths) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (at, lengths) = (socket.local_addr().unwrap(), Lengths::default());
    let noted = Arc::clone(&lengths);
    thread::spawn(move || {
        let (mut client, mut buffer) = (None, vec![0; 65_536]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let from_client = from != server;
            if from_client {
                client = Some(from);
            }
            if buffer[4..8] != [0; 4] {
                noted.lock().unwrap().insert((from_client, length));
            }
            if let Some(to) = if from_client { Some(server) } else { client } {
                let _ = socket.send_to(&buffer[..length], to);
            }
        }
    });
    (at, lengths)
}

/// Calls of many lengths from a client with padding to a server without. Returns the lengths of the
/// client's datagrams and whether the server's had others.
fn lengths(padding: Padding) -> (BTreeSet<usize>, bool) {
    let keys = Config::default().mtu(1_500).keys(Keys::cluster([3; 32]).unwrap());
    let (server, client) = (engine("127.0.0.1", keys.clone()), keys.padding(padding));
    echo(server.serve().unwrap());
    let (at, lengths) = relay(server.local_addr());
    let client = engine("127.0.0.1", client);
    for len in (1..3_000).step_by(131).chain([100_000]) {
        let sent = message(len, 1);
        assert_eq!(&client.client().call(at, sent.clone()).unwrap()[..], &sent[..], "{len} bytes");
    }
    // Padding is no packet that is dropped.
    let protocol = server.metrics().protocol;
    let dropped: Vec<_> = protocol.drops().filter(|(_, count)| *count > 0).collect();
    assert_eq!(dropped, [], "{padding:?}");
    let lengths = lengths.lock().unwrap();
    let of = |client| lengths.iter().filter(move |of| of.0 == client).map(|of| of.1);
    (of(true).collect(), of(false).any(|length| length % 256 != 0 && length < 1_400))
}

/// The payload of a full UDP datagram.
const FULL: usize = 1_472;

#[test]
fn padded_datagrams_have_few_lengths() {
    let (blocks, others) = lengths(Padding::Multiple(256));
    assert!(others, "the server pads, too");
    let odd: Vec<&usize> = blocks.iter().filter(|len| **len % 256 != 0).collect();
    assert!(odd.iter().all(|len| **len > FULL - 32), "{blocks:?}");
    assert!(blocks.len() >= 5 && odd.len() < 5, "{blocks:?}");
    let (full, _) = lengths(Padding::Full);
    assert!(full.iter().all(|len| (FULL - 32..=FULL).contains(len)), "{full:?}");
    let (plain, _) = lengths(Padding::None);
    assert!(plain.len() > 20, "{plain:?}");
}

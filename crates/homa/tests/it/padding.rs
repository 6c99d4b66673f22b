//! The lengths of padded datagrams, as an observer on the path sees them.

use std::collections::BTreeSet;

use homa::{Config, Keys, Padding};

use crate::common::{echo, engine, message};
use crate::relay::relay;

/// Calls of many lengths from a client with padding to a server without. Returns the lengths of the
/// client's datagrams and whether the server's had others.
fn lengths(padding: Padding) -> (BTreeSet<usize>, bool) {
    let keys = Config::default().mtu(1_500).keys(Keys::cluster([3; 32]).unwrap());
    let (server, client) = (engine("127.0.0.1", keys.clone()), keys.padding(padding));
    echo(server.serve().unwrap());
    let (at, recorded) = relay(server.local_addr());
    let client = engine("127.0.0.1", client);
    for len in (1..3_000).step_by(131).chain([100_000]) {
        let sent = message(len, 1);
        assert_eq!(&client.client().call(at, sent.clone()).unwrap()[..], &sent[..], "{len} bytes");
    }
    // Padding is no packet that is dropped.
    let protocol = server.metrics().protocol;
    let dropped: Vec<_> = protocol.drops().filter(|(_, count)| *count > 0).collect();
    assert_eq!(dropped, [], "{padding:?}");
    let recorded = recorded.lock().unwrap();
    // Only the datagrams of sessions have a key id.
    let sealed = recorded.iter().filter(|(_, payload)| payload[4..8] != [0; 4]);
    let of = |client| sealed.clone().filter(move |of| of.0 == client).map(|of| of.1.len());
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

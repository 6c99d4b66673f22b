//! Handshakes: loss, order, wrong keys.

use super::*;

#[test]
fn two_holders_of_a_key_agree_and_seal_both_ways() {
    let mut pair = Pair::new(&cluster(7), &cluster(7));
    let flight = pair.client.flight(ROOM);
    let flight = pair.serve(&flight).unwrap();
    assert!(pair.server.session().is_none(), "the client is not verified yet");
    let flight = pair.answer(&flight).unwrap();
    let confirmation = pair.serve(&flight).unwrap();
    assert!(pair.server.is_address_proven() && pair.server.is_confirmed());
    assert!(!pair.client.is_confirmed());
    assert_eq!(pair.answer(&confirmation), Ok(Vec::new()));
    assert!(pair.client.is_confirmed());
    assert!(pair.client.flight(ROOM).is_empty() && pair.server.flight(ROOM).is_empty());
    let (mut client, mut server) = pair.sessions();
    assert_eq!(*client.identity(), PeerIdentity::Cluster);
    assert_eq!(*server.identity(), PeerIdentity::Cluster);
    let request = seal(&mut client, b"header", b"request");
    assert_eq!(open(&mut server, b"header", &request), Ok(b"request".to_vec()));
    let response = seal(&mut server, b"header", b"response");
    assert_eq!(open(&mut client, b"header", &response), Ok(b"response".to_vec()));
}

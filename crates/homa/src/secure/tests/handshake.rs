//! Handshakes: flights, loss and order, wrong keys, forgeries.

use super::*;

#[test]
fn two_holders_of_a_key_agree_and_seal_both_ways() {
    let mut pair = Pair::new(&cluster(7), &cluster(7));
    let flight = pair.client.flight(ROOM);
    let flight = pair.serve(&flight).unwrap();
    assert!(pair.server.session().is_none(), "the client is not verified yet");
    let flight = pair.answer(&flight).unwrap();
    let confirmation = pair.serve(&flight).unwrap();
    assert!(pair.server.is_address_validated() && pair.server.is_confirmed());
    assert!(!pair.client.is_confirmed());
    assert_eq!(pair.client.peer_key(), Some(SERVER_KEY));
    assert_eq!(pair.server.peer_key(), Some(CLIENT_KEY));
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

/// The post-quantum shares of ML-KEM-768: 1,184 bytes from the client and 1,088 from the server.
#[test]
fn the_key_exchange_is_post_quantum_and_needs_fragments() {
    let mut pair = Pair::new(&cluster(7), &cluster(7));
    let hello = pair.client.flight(ROOM);
    let bytes = |flight: &[Travelling]| -> usize {
        let plain = flight.iter().filter(|(level, ..)| *level == Level::Initial);
        plain.map(|(_, _, bytes)| bytes.len()).sum()
    };
    assert!(hello.len() > 1 && hello.iter().all(|(_, _, bytes)| bytes.len() <= ROOM));
    assert!(bytes(&hello) > 1_184 + 32, "{}", bytes(&hello));
    let flight = pair.serve(&hello).unwrap();
    assert!(bytes(&flight) > 1_088 + 32, "{}", bytes(&flight));
    let sent: usize = hello.iter().map(|(_, _, bytes)| bytes.len()).sum();
    let answer: usize = flight.iter().map(|(_, _, bytes)| bytes.len()).sum();
    assert!(answer < 3 * sent, "{answer} bytes answer {sent}");
}

#[test]
fn loss_order_copies_and_cuts_do_not_matter() {
    let keys = cluster(7);
    arbtest::arbtest(|input| {
        let mut pair = Pair::new(&keys, &keys);
        let (mut to_server, mut to_client) = (Vec::<Travelling>::new(), Vec::new());
        for round in 0..12 {
            // The client's timer fires; each flight may be cut in another way.
            to_server.extend(pair.client.flight(input.int_in_range(64..=1_400)?));
            for server in [true, false] {
                let (to, from) = match server {
                    true => (&mut pair.server, &mut to_server),
                    false => (&mut pair.client, &mut to_client),
                };
                let mut answers = Vec::new();
                while !from.is_empty() {
                    let fragment = from.swap_remove(input.int_in_range(0..=from.len() - 1)?);
                    let copies = if round < 9 { input.int_in_range(0..=2)? } else { 1 };
                    for _ in 0..copies {
                        answers.extend(deliver(to, std::slice::from_ref(&fragment)).unwrap());
                    }
                }
                if server { &mut to_client } else { &mut to_server }.extend(answers);
            }
            if pair.client.is_confirmed() {
                break;
            }
        }
        assert!(pair.client.is_confirmed() && pair.server.is_confirmed());
        let (mut client, mut server) = pair.sessions();
        let sealed = seal(&mut client, b"", b"text");
        assert_eq!(open(&mut server, b"", &sealed), Ok(b"text".to_vec()));
        Ok(())
    });
}

#[test]
fn a_challenge_is_given_out_once_the_server_is_verified() {
    let keys = cluster(7);
    for last in [true, false] {
        let mut pair = Pair::new(&keys, &keys);
        let hello = pair.client.flight(ROOM);
        let mut flight = pair.serve(&hello).unwrap();
        let challenge = flight.pop().unwrap();
        let (first, second) = match last {
            true => (flight, vec![challenge]),
            false => (vec![challenge], flight),
        };
        pair.answer(&first).unwrap();
        assert_eq!(pair.client.take_challenge(), None);
        pair.answer(&second).unwrap();
        assert_eq!(pair.client.take_challenge().as_deref(), Some(&CHALLENGE[..]));
        // The flight is repeated with a new number.
        let flight = pair.server.flight(ROOM);
        pair.answer(&flight).unwrap();
        assert_eq!(pair.client.take_challenge(), None, "once");
        assert_eq!(pair.server.take_challenge(), None, "the server's is for clients");
    }
}

#[test]
fn a_challenge_that_no_server_sealed_is_dropped() {
    let keys = cluster(7);
    let mut pair = Pair::new(&keys, &keys);
    let hello = pair.client.flight(ROOM);
    let mut flight = pair.serve(&hello).unwrap();
    let (level, offset, bytes) = flight.pop().unwrap();
    // In plaintext, by another handshake, and by the client.
    let forged = (Level::Initial, offset, CHALLENGE.to_vec());
    let mut other = Pair::new(&keys, &keys);
    let hello = other.client.flight(ROOM);
    let foreign = other.serve(&hello).unwrap().pop().unwrap();
    assert_eq!((foreign.0, foreign.1), (level, offset));
    for early in [true, false] {
        if !early {
            pair.answer(&flight).unwrap();
        }
        for forged in [&forged, &foreign] {
            assert_eq!(pair.answer(std::slice::from_ref(forged)), Ok(Vec::new()));
        }
        assert_eq!(pair.client.take_challenge(), None);
    }
    // The server takes none, whatever its number.
    assert_eq!(pair.serve(&[(level, offset, bytes)]), Ok(Vec::new()));
    assert!(pair.client.session().is_some());
}

/// The peer has the handshake keys, but does not follow the rules.
#[test]
fn sealed_fragments_of_the_wrong_end_are_dropped() {
    const COMPLETE: u32 = 0xffff_fffe;
    const TICKET: u32 = 0xffff_fffc;
    let keys = cluster(7);
    let mut pair = Pair::new(&keys, &keys);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let mut forged = Vec::new();
    pair.server.push_sealed(TICKET, &[4, 0, 0, 0], &mut forged);
    pair.server.push_sealed(COMPLETE, &[], &mut forged);
    // The client has the keys, but has not verified the server.
    let (last, first) = flight.split_last().unwrap();
    let (finished, rest) = first.split_last().unwrap();
    pair.answer(rest).unwrap();
    assert_eq!(pair.answer(&forged), Ok(Vec::new()));
    assert!(pair.client.session().is_none() && !pair.client.is_confirmed());
    let mut answer = pair.answer(&[finished.clone(), last.clone()]).unwrap();
    for offset in [COMPLETE, 0xffff_fffd, TICKET] {
        let mut forged = Vec::new();
        pair.client.push_sealed(offset, &[4, 0, 0, 0], &mut forged);
        let (level, offset, bytes) = &forged[0];
        let refused = pair.server.receive(Fragment { level: *level, offset: *offset, bytes });
        assert!(matches!(refused, Err(HandshakeError::Dropped(_))), "{offset:x}: {refused:?}");
    }
    answer = pair.serve(&answer).unwrap();
    pair.answer(&answer).unwrap();
    assert!(pair.client.is_confirmed() && pair.server.is_confirmed());
    pair.sessions();
}

/// Client and server with these keys, until one of them fails; returns both errors.
fn refusal(client: &Keys, server: &Keys) -> (HandshakeError, HandshakeError) {
    let mut pair = Pair::new(client, server);
    let (mut at_client, mut at_server) = (None, None);
    let mut to_server = pair.client.flight(ROOM);
    for _ in 0..4 {
        let flight = pair.serve(&to_server).unwrap_or_else(|error| {
            at_server.get_or_insert(error);
            pair.server.flight(ROOM)
        });
        to_server = pair.answer(&flight).unwrap_or_else(|error| {
            at_client.get_or_insert(error);
            pair.client.flight(ROOM)
        });
    }
    assert!(pair.server.session().is_none(), "the server has accepted the client");
    (at_client.expect("the client fails"), at_server.expect("the server fails"))
}

#[test]
fn another_cluster_key_is_a_typed_error_at_both_ends() {
    let errors = refusal(&cluster(1), &cluster(2));
    assert_eq!(errors, (HandshakeError::WrongKey, HandshakeError::KeyRefused));
    assert!(errors.0.is_final());
    assert!(errors.0.to_string().contains("another cluster key: give both ends the same key file"));
}

#[test]
fn certificates_and_a_key_file_do_not_mix() {
    let (ca, other) = (Authority::new(), cluster(1));
    let with = ca.keys("127.0.0.1", "client");
    let (client, server) = refusal(&with, &other);
    assert!(matches!(server, HandshakeError::Incompatible(_)), "{server}");
    assert!(matches!(client, HandshakeError::RefusedByPeer { .. }), "{client}");
    let (client, server) = refusal(&other, &with);
    assert!(matches!(server, HandshakeError::Incompatible(_)), "{server}");
    assert!(matches!(client, HandshakeError::RefusedByPeer { .. }), "{client}");
}

#[test]
fn forged_fragments_neither_pass_nor_end_a_handshake() {
    let keys = cluster(7);
    let mut pair = Pair::new(&keys, &keys);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    for (level, offset, bytes) in &flight {
        if *level == Level::Initial {
            pair.answer(&[(*level, *offset, bytes.clone())]).unwrap();
            continue;
        }
        let dropped = |client: &mut Handshake, offset: u32, bytes: &[u8]| {
            let error = client.receive(Fragment { level: *level, offset, bytes }).unwrap_err();
            assert!(!error.is_final(), "{error}");
        };
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            dropped(&mut pair.client, *offset, &flipped);
            dropped(&mut pair.client, *offset, &bytes[..at]);
        }
        dropped(&mut pair.client, offset + 1, bytes);
        // The server's own bytes come back to it.
        dropped(&mut pair.server, *offset, bytes);
    }
    // Plaintext that arrives when bytes have to be sealed: an alert, and more messages.
    let end = flight.iter().filter(|(level, ..)| *level == Level::Initial).map(|f| f.2.len());
    let end = end.sum::<usize>() as u32;
    for (offset, bytes) in [(u32::MAX, &[49_u8][..]), (end, &[8, 0, 0, 2, 0, 0])] {
        assert_eq!(pair.answer(&[(Level::Initial, offset, bytes.to_vec())]), Ok(Vec::new()));
    }
    let finished = pair.answer(&flight).unwrap();
    assert!(pair.client.session().is_some());
    // What the client sealed is of no use twice, and a changed copy of it of no use at all.
    let confirmation = pair.serve(&finished).unwrap();
    assert_eq!(confirmation.len(), 2, "a ticket, and that the server is complete");
    assert_eq!(pair.serve(&finished), Ok(Vec::new()), "no answer to copies");
    assert!(pair.server.session().is_some() && pair.server.session().is_none());
}

#[test]
fn a_flood_of_absurd_fragments_does_not_stop_a_handshake() {
    let keys = cluster(7);
    let mut pair = Pair::new(&keys, &keys);
    for offset in (1..u32::MAX - 1).step_by(65_537).chain(1..4_000) {
        let _ = pair.server.receive(Fragment { level: Level::Initial, offset, bytes: &[0] });
        let early = Fragment { level: Level::Handshake, offset, bytes: &[0; 60] };
        assert!(pair.server.receive(early).is_err(), "a server keeps nothing sealed");
        let _ = pair.client.receive(early);
    }
    // The junk makes TLS fail or is overwritten; it was not authentic, so both are correct. The
    // client, which got only sealed junk, completes with a server that got none.
    let hello = pair.client.flight(ROOM);
    let _ = pair.serve(&hello);
    pair.server = Handshake::server(&keys, SERVER_KEY).unwrap();
    pair.sessions();
}

#[test]
fn a_peer_that_is_no_engine_is_a_protocol_violation() {
    let mut pair = Pair::new(&cluster(1), &cluster(1));
    let error = pair.serve(&[(Level::Initial, 0, b"GET / HTTP/1.1".to_vec())]).unwrap_err();
    assert!(matches!(error, HandshakeError::Protocol(_)), "{error}");
    let alert = pair.server.flight(ROOM);
    assert_eq!(alert.len(), 1, "the peer is told");
    assert!(pair.answer(&alert).unwrap_err().is_final());
    // Every later fragment gets the error again, and the alert can be repeated.
    assert!(pair.serve(&[(Level::Initial, 0, vec![0])]).is_err());
    assert_eq!(pair.server.flight(ROOM), alert);
}

#[test]
fn a_peer_without_a_key_id_is_refused() {
    let keys = cluster(1);
    for (client, server) in [(0, SERVER_KEY), (CLIENT_KEY, 0)] {
        let client = Handshake::client(&keys, SERVER, client).unwrap();
        let mut pair = Pair { client, server: Handshake::server(&keys, server).unwrap() };
        let hello = pair.client.flight(ROOM);
        let flight = pair.serve(&hello).unwrap();
        let error = match pair.answer(&flight) {
            Ok(finished) => pair.serve(&finished).unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, HandshakeError::Protocol(_)), "{error}");
    }
}

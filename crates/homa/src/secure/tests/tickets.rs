//! Resumption: a ticket shortens the next handshake, and changes nothing else.

use rustls::crypto::aws_lc_rs::Ticketer;

use super::*;
use crate::secure::tickets::Tickets;

/// A whole handshake, whose sessions work. Returns whether it was resumed, and the bytes of the
/// server's flight that are sealed.
fn handshake(client: &Keys, server: &Keys) -> (bool, usize) {
    let mut pair = Pair::new(client, server);
    let mut flight = pair.client.flight(ROOM);
    let mut sealed = None;
    for _ in 0..2 {
        let answer = pair.serve(&flight).unwrap();
        let bytes = answer.iter().filter(|(level, ..)| *level == Level::Handshake);
        sealed.get_or_insert(bytes.map(|(_, _, bytes)| bytes.len()).sum::<usize>());
        flight = pair.answer(&answer).unwrap();
    }
    assert!(pair.client.is_confirmed());
    let [resumed, at_server] = [&pair.client, &pair.server].map(Handshake::is_resumed);
    assert_eq!(resumed, at_server);
    assert_eq!(pair.client.take_challenge().as_deref(), Some(&CHALLENGE[..]));
    let (mut client, mut server) = pair.sessions();
    for (from, to) in [(true, "request"), (false, "response")] {
        let (from, to, text) = match from {
            true => (&mut client, &mut server, to),
            false => (&mut server, &mut client, to),
        };
        let datagram = seal(from, b"header", text.as_bytes());
        assert_eq!(open(to, b"header", &datagram), Ok(text.as_bytes().to_vec()));
    }
    (resumed, sealed.unwrap())
}

fn is_resumed(client: &Keys, server: &Keys) -> bool {
    handshake(client, server).0
}

#[test]
fn the_next_handshake_is_resumed_without_signatures() {
    let (client, server) = (cluster(7), cluster(7));
    let (first, whole) = handshake(&client, &server);
    assert!(!first);
    for _ in 0..3 {
        let (resumed, short) = handshake(&client, &server);
        assert!(resumed, "each handshake brings a ticket");
        // Certificate and CertificateVerify: the public key and a signature.
        assert!(short + 44 + 64 < whole, "{short} and {whole}");
    }
}

#[test]
fn a_resumed_session_has_fresh_keys_and_the_same_identity() {
    let (client, server) = (cluster(7), cluster(7));
    let sessions = || {
        let mut pair = Pair::new(&client, &server);
        let hello = pair.client.flight(ROOM);
        let flight = pair.serve(&hello).unwrap();
        let finished = pair.answer(&flight).unwrap();
        let confirmation = pair.serve(&finished).unwrap();
        pair.answer(&confirmation).unwrap();
        let resumed = pair.client.is_resumed();
        let (client, server) = pair.sessions();
        assert_eq!(
            (client.identity(), server.identity()),
            (&PeerIdentity::Cluster, &PeerIdentity::Cluster)
        );
        (resumed, client, server)
    };
    let (_, mut before, _) = sessions();
    let (resumed, mut after, mut server) = sessions();
    assert!(resumed);
    let old = seal(&mut before, b"header", b"request");
    assert_eq!(open(&mut server, b"header", &old), Err(UnsealError::Forged));
    let new = seal(&mut after, b"header", b"request");
    assert_eq!(open(&mut server, b"header", &new), Ok(b"request".to_vec()));
}

#[test]
fn a_client_whose_key_was_removed_cannot_resume() {
    let path = folder("tickets").join("cluster.key");
    write(&path, &[line(2), line(1)]);
    let server = Keys::from_file(&path).unwrap();
    // The client accepts the server's key and presents the other one.
    let of_client = folder("tickets-client").join("cluster.key");
    write(&of_client, &[line(1), line(2)]);
    let client = Keys::from_file(&of_client).unwrap();
    assert!(!is_resumed(&client, &server) && is_resumed(&client, &server));
    write(&path, &[line(2)]);
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    assert!(!pair.server.is_resumed());
    let finished = pair.answer(&flight).unwrap();
    assert_eq!(pair.serve(&finished), Err(HandshakeError::WrongKey));
    assert!(pair.server.session().is_none());
    // With its key again it is accepted, but not by an old ticket.
    write(&path, &[line(2), line(1)]);
    assert!(!is_resumed(&client, &server));
    // A client that reads its own file again forgets its tickets, too.
    client.reload().unwrap();
    assert!(!is_resumed(&client, &server));
    assert!(is_resumed(&client, &server));
}

#[test]
fn a_ticket_of_another_process_leads_to_a_whole_handshake() {
    let client = cluster(7);
    assert!(!is_resumed(&client, &cluster(7)));
    assert!(!is_resumed(&client, &cluster(7)), "this server has other keys for tickets");
}

#[test]
fn a_recorded_ticket_is_of_no_use_without_its_secret() {
    let (client, server) = (cluster(7), cluster(7));
    handshake(&client, &server);
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let finished = pair.answer(&flight).unwrap();
    assert!(pair.client.is_resumed());
    // The attacker sends what it has seen, before and after the client has used its ticket.
    for _ in 0..2 {
        let mut replayed = Handshake::server(&server, SERVER_KEY).unwrap();
        assert!(!deliver(&mut replayed, &hello).unwrap().is_empty(), "the server answers");
        assert_eq!(deliver(&mut replayed, &finished), Ok(Vec::new()));
        assert!(replayed.session().is_none() && !replayed.is_address_validated());
        let confirmation = pair.serve(&finished).unwrap();
        pair.answer(&confirmation).unwrap();
    }
    assert!(pair.client.is_confirmed() && is_resumed(&client, &server));
}

#[test]
fn a_forged_ticket_is_dropped_and_ends_nothing() {
    let (client, server) = (cluster(7), cluster(7));
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let finished = pair.answer(&flight).unwrap();
    let confirmation = pair.serve(&finished).unwrap();
    let (level, offset, bytes) = confirmation[0].clone();
    for at in 0..bytes.len() {
        let mut forged = bytes.clone();
        forged[at] ^= 1 << (at % 8);
        let fragment = Fragment { level, offset, bytes: &forged };
        assert!(!pair.client.receive(fragment).unwrap_err().is_final());
        assert!(pair.server.receive(fragment).is_err(), "only servers issue tickets");
    }
    let plain = Fragment { level: Level::Initial, offset, bytes: &bytes };
    assert_eq!(pair.client.receive(plain), Ok(Next::Wait));
    pair.answer(&confirmation).unwrap();
    assert!(pair.client.is_confirmed() && is_resumed(&client, &server));
}

#[test]
fn a_client_keeps_one_ticket_a_server_and_a_bounded_number() {
    let (keys, server) = (cluster(7), cluster(7));
    let ticket = || {
        handshake(&keys, &server);
        keys.credentials().tickets.unwrap().take(SERVER).unwrap()
    };
    let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let tickets = Tickets::new(2);
    for at in [a, b, b, c, c, c] {
        tickets.insert(at, ticket());
    }
    assert_eq!([a, b, c].map(|at| tickets.take(at).is_some()), [false, true, true]);
    assert!(tickets.take(b).is_none() && tickets.take(c).is_none(), "each is used once");
}

#[test]
fn certificates_are_verified_in_every_handshake() {
    let ca = Authority::new();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = ca.issue("127.0.0.1", "server");
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(ca.roots())
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    // Even if the caller's other services have tickets.
    server.ticketer = Ticketer::new().unwrap();
    let keys = Keys::tls(Arc::new(client), Arc::new(server)).unwrap();
    assert!(!is_resumed(&keys, &keys) && !is_resumed(&keys, &keys));
}

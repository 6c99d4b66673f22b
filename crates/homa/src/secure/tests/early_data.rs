//! Early data: sealed by a client with a ticket, and opened by its server only, once.

use std::slice;

use super::*;
use crate::driver::fork::children;

/// Keys of both ends that allow early data, after a handshake in which the client got a ticket.
fn with_a_ticket() -> (Keys, Keys) {
    let (client, server) = (cluster(7).early_data(), cluster(7).early_data());
    let pair = Pair::new(&client, &server);
    assert!(!pair.client.may_send_early(), "there is no ticket");
    pair.sessions();
    (client, server)
}

/// A datagram as early data.
fn early(pair: &mut Pair, datagram: &[u8]) -> Travelling {
    assert!(pair.client.may_send_early());
    pair.client.seal_early(datagram).unwrap()
}

fn receive(to: &mut Handshake, fragments: &[Travelling]) -> Vec<Vec<u8>> {
    for (level, offset, bytes) in fragments {
        let _ = to.receive(Fragment { level: *level, offset: *offset, bytes });
    }
    to.take_early_data()
}

#[test]
fn early_data_are_opened_once_and_answered_at_once() {
    let (client, server) = with_a_ticket();
    let mut pair = Pair::new(&client, &server);
    let (hello, request) = (pair.client.flight(ROOM), early(&mut pair, b"request"));
    let flight = pair.serve(&hello).unwrap();
    assert_eq!(receive(&mut pair.server, slice::from_ref(&request)), [b"request"]);
    assert_eq!(receive(&mut pair.server, slice::from_ref(&request)), [b""; 0], "it was repeated");
    let mut forged = request;
    for at in 0..forged.2.len() {
        forged.2[at] ^= 1;
        assert_eq!(receive(&mut pair.server, slice::from_ref(&forged)), [b""; 0]);
        forged.2[at] ^= 1;
    }
    assert!(pair.server.session().is_none() && !pair.server.is_address_validated());
    let (mut at_server, theirs) = pair.server.early_session().unwrap();
    assert_eq!((theirs, at_server.identity()), (CLIENT_KEY, &PeerIdentity::Cluster));
    assert!(pair.server.early_session().is_none());
    let response = seal(&mut at_server, b"header", b"response");

    let finished = pair.answer(&flight).unwrap();
    assert!(pair.client.is_early_data_accepted() && pair.client.seal_early(b"late").is_none());
    let mut at_client = pair.client.session().unwrap();
    assert_eq!(open(&mut at_client, b"header", &response), Ok(b"response".to_vec()));
    let next = seal(&mut at_client, b"header", b"next");
    pair.serve(&finished).unwrap();
    assert!(pair.server.is_confirmed() && pair.server.is_resumed());
    assert_eq!(open(&mut at_server, b"header", &next), Ok(b"next".to_vec()));
}

#[test]
fn a_replayed_or_restarted_handshake_opens_no_early_data() {
    let (client, server) = with_a_ticket();
    let mut pair = Pair::new(&client, &server);
    let mut flight = pair.client.flight(ROOM);
    flight.push(early(&mut pair, b"request"));
    // The ticket of another process, first.
    for (server, expected) in [(&cluster(7).early_data(), 0), (&server, 1), (&server, 0)] {
        let mut attacked = Handshake::server(server, SERVER_KEY).unwrap();
        assert_eq!(receive(&mut attacked, &flight).len(), expected);
        assert_eq!(attacked.early_session().is_some(), expected == 1);
    }
    // Its client finds the ticket used, and makes a whole handshake.
    let answer = pair.serve(&flight).unwrap();
    pair.answer(&answer).unwrap();
    assert!(!pair.client.is_early_data_accepted());
    let (mut client, mut server) = pair.sessions();
    let request = seal(&mut client, b"header", b"request");
    assert_eq!(open(&mut server, b"header", &request), Ok(b"request".to_vec()));
}

#[test]
fn early_data_that_overtake_the_hello_are_kept_and_bounded() {
    let (client, server) = with_a_ticket();
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.flight(ROOM);
    let fragments: Vec<_> = (0..40_u8).map(|n| early(&mut pair, &[n; 30])).collect();
    assert_eq!(receive(&mut pair.server, &fragments), [b""; 0]);
    pair.serve(&hello).unwrap();
    let opened = pair.server.take_early_data();
    let expected: Vec<_> = (0..EARLY_MAX).map(|n| vec![n as u8; 30]).collect();
    assert_eq!(opened, expected);
    let memory = [early(&mut pair, &[0; 9_000]), early(&mut pair, &[0; 9_000])];
    let mut other = Handshake::server(&server, SERVER_KEY).unwrap();
    let dropped = memory.map(|(level, offset, bytes)| {
        other.receive(Fragment { level, offset, bytes: &bytes }).is_err()
    });
    assert_eq!(dropped, [false, true], "at most 16 KB");
}

#[test]
fn a_server_can_reject_early_data_and_resume() {
    let (client, server) = with_a_ticket();
    let mut pair = Pair::new(&client, &server);
    pair.server.reject_early_data();
    let mut flight = pair.client.flight(ROOM);
    flight.push(early(&mut pair, b"request"));
    assert_eq!(receive(&mut pair.server, &flight), [b""; 0]);
    assert!(pair.server.early_session().is_none());
    let answer = pair.server.flight(ROOM);
    pair.answer(&answer).unwrap();
    assert!(pair.client.is_resumed() && !pair.client.is_early_data_accepted());
    pair.sessions();
}

#[test]
fn both_ends_have_to_allow_early_data() {
    let allowed = || cluster(7).early_data();
    let ca = Authority::new();
    let certified = || ca.keys("127.0.0.1", "host").early_data();
    for (client, server) in
        [(allowed(), cluster(7)), (cluster(7), allowed()), (certified(), certified())]
    {
        Pair::new(&client, &server).sessions();
        let pair = Pair::new(&client, &server);
        assert!(!pair.client.may_send_early());
        pair.sessions();
    }
}

#[test]
fn tickets_for_early_data_end_with_the_key_file() {
    let path = folder("early-data").join("cluster.key");
    write(&path, &[line(1)]);
    let client = Keys::from_file(&path).unwrap().early_data();
    let server = Keys::from_file(&path).unwrap().early_data();
    Pair::new(&client, &server).sessions();
    server.reload().unwrap();
    let mut pair = Pair::new(&client, &server);
    let mut flight = pair.client.flight(ROOM);
    flight.push(early(&mut pair, b"request"));
    assert_eq!(receive(&mut pair.server, &flight), [b""; 0]);
    // The files are read again, and early data are still allowed.
    pair.sessions();
    assert!(Pair::new(&client, &server).client.may_send_early());
}

#[test]
fn the_child_of_a_fork_has_no_tickets_of_its_parent() {
    let (client, server) = with_a_ticket();
    let issued = || server.credentials().server.session_storage.clone();
    let received = || client.credentials().tickets.unwrap();
    assert!(issued().put(b"name".to_vec(), b"session".to_vec()));
    // Without a handshake: another thread of the parent may have held a lock of the TLS library.
    let Some(child) = children::fork() else {
        let none = issued().take(b"name").is_none() && received().take(SERVER).is_none();
        let next = issued().put(b"next".to_vec(), b"session".to_vec());
        let kept = next && issued().take(b"next").is_some();
        children::exit(none && kept && server.allows_early_data());
    };
    assert!(child.passed(), "the child had its parent's tickets, or keeps none");
    assert!(issued().take(b"name").is_some() && received().take(SERVER).is_some());
}

//! RPCs between two exchanges, without a network.

use homa_proto::{Request, RpcError, Submit, SubmitError, Submitted};

use super::*;

type Plain = Exchange<(), ()>;

const CLIENT: HostId = HostId(0);
const SERVER: HostId = HostId(1);

fn request(deadline: Time) -> Submit {
    Submit::Request(Request {
        peer: PeerId(SERVER.0),
        local_port: 1,
        remote_port: 2,
        length: 100,
        deadline,
        idempotent: false,
        head: 0,
        cookie: 77,
    })
}

fn submit(at: &mut Plain, what: Submit) -> (Submitted, Head, Ref) {
    let (submitted, message) = at.submit(Time::ZERO, what, |_, _| ()).unwrap();
    let message = message.unwrap();
    (submitted, at.outgoing(message).unwrap().head, message)
}

/// A whole message arrives in one packet.
fn arrive(at: &mut Plain, from: HostId, head: &Head, length: u32) -> MessageLookup {
    let found = at.arrived(Time::ZERO, from, (head, length), || ());
    if let MessageLookup::Open(message) = found {
        assert!(matches!(at.place(message, (0, length), true), Receipt::Place(_)));
    }
    found
}

fn events(at: &mut Plain) -> Vec<Event> {
    std::iter::from_fn(|| at.event()).collect()
}

fn delivered(event: &Event) -> Delivered {
    let Event::Delivered(delivered) = event else { panic!("{event:?}") };
    *delivered
}

#[test]
fn a_response_ends_its_call_and_the_request_is_released_once() {
    let (mut client, mut server) = (Plain::new(0), Plain::new(0));
    let (submitted, head, message) = submit(&mut client, request(Time::MAX));
    assert_eq!(head.kind(), MessageKind::Request);
    arrive(&mut server, CLIENT, &head, 100);
    let seen = delivered(&events(&mut server)[0]);
    assert_eq!((seen.kind, seen.peer, seen.local_port), (MessageKind::Request, PeerId(0), 2));
    let answer = Submit::Response { rpc: seen.rpc, length: 50 };
    let (_, back, response) = submit(&mut server, answer);
    assert_eq!(server.submit(Time::ZERO, answer, |_, _| ()), Err(SubmitError::UnknownRpc));
    // The acknowledgement of the request was lost; the response implies it.
    assert!(matches!(arrive(&mut client, SERVER, &back, 50), MessageLookup::Open(_)));
    let seen = events(&mut client);
    assert_eq!(seen[0], Event::Release { message: submitted.message.unwrap() });
    let response_seen = delivered(&seen[1]);
    assert_eq!((response_seen.rpc, response_seen.cookie), (submitted.rpc, 77));
    assert_eq!(seen.len(), 2);
    client.finish(message);
    assert_eq!(events(&mut client), []);
    server.finish(response);
    assert!(matches!(events(&mut server)[..], [Event::Release { .. }]));
    assert_eq!((client.in_flight(), server.in_flight()), ((0, 0), (0, 0)));
}

#[test]
fn copies_of_delivered_messages_are_always_recognised() {
    let (mut client, mut server) = (Plain::new(0), Plain::new(0));
    let heads: Vec<Head> = (0..5).map(|_| submit(&mut client, request(Time::MAX)).1).collect();
    for at in [3, 0, 2, 4, 1] {
        assert!(matches!(arrive(&mut server, CLIENT, &heads[at], 100), MessageLookup::Open(_)));
        assert_eq!(arrive(&mut server, CLIENT, &heads[at], 100), MessageLookup::Done);
    }
    assert_eq!(arrive(&mut server, CLIENT, &heads[3], 100), MessageLookup::Done);
    assert_eq!(events(&mut server).len(), 5);
}

#[test]
fn a_deadline_fails_the_call_and_frees_the_receivers_state() {
    let (mut client, mut server) = (Plain::new(0), Plain::new(0));
    let (submitted, head, _) = submit(&mut client, request(Time(500)));
    let MessageLookup::Open(part) = server.arrived(Time::ZERO, CLIENT, (&head, 100), || ()) else {
        panic!("not open")
    };
    let _ = server.place(part, (0, 10), false);
    assert_eq!(client.deadline(), Some(Time(500)));
    client.expire(Time(499));
    assert_eq!(events(&mut client), []);
    client.expire(Time(500));
    let (rpc, message) = (submitted.rpc, submitted.message.unwrap());
    let error = RpcError::DeadlineExceeded;
    let expected = [Event::Failed { rpc, cookie: 77, error }, Event::Release { message }];
    assert_eq!(events(&mut client), expected);
    // The first farewell is lost.
    assert_eq!(client.courtesy(), Some((head, Courtesy::Abandon)));
    let again = client.deadline().unwrap();
    client.expire(again);
    let (head, what) = client.courtesy().unwrap();
    server.on_courtesy(again, CLIENT, &head, what);
    assert!(matches!(events(&mut server)[..], [Event::Started { .. }, Event::Release { .. }]));
    let (reply, what) = server.courtesy().unwrap();
    assert_eq!((reply.to, what), (CLIENT, Courtesy::Abandoned));
    client.on_courtesy(again, SERVER, &reply, what);
    assert_eq!((client.deadline(), client.courtesy()), (None, None));
    assert_eq!(
        arrive(&mut server, CLIENT, &head, 100),
        MessageLookup::Done,
        "late packets do nothing"
    );
    assert_eq!((client.in_flight(), server.in_flight()), ((0, 0), (0, 0)));
}

#[test]
fn a_cancelled_call_refuses_its_response() {
    let (mut client, mut server) = (Plain::new(0), Plain::new(0));
    let (submitted, head, _) = submit(&mut client, request(Time::MAX));
    arrive(&mut server, CLIENT, &head, 100);
    let rpc = delivered(&events(&mut server)[0]).rpc;
    let (_, back, _) = submit(&mut server, Submit::Response { rpc, length: 50 });
    let cancel = Submit::Cancel { rpc: submitted.rpc };
    assert!(client.submit(Time::ZERO, cancel, |_, _| ()).is_ok());
    assert_eq!(client.submit(Time::ZERO, cancel, |_, _| ()), Err(SubmitError::UnknownRpc));
    assert!(matches!(events(&mut client)[..], [Event::Release { .. }]));
    assert_eq!(arrive(&mut client, SERVER, &back, 50), MessageLookup::Done);
}

#[test]
fn a_host_that_restarts_is_not_mistaken_for_its_former_life() {
    let (mut old, mut server) = (Plain::new(0), Plain::new(0));
    let (_, before, _) = submit(&mut old, request(Time::MAX));
    arrive(&mut server, CLIENT, &before, 100);
    let rpc = delivered(&events(&mut server)[0]).rpc;
    let mut new = Plain::new(1);
    let (_, after, _) = submit(&mut new, request(Time::MAX));
    assert_eq!(after.serial, before.serial);
    assert!(matches!(arrive(&mut server, CLIENT, &after, 100), MessageLookup::Open(_)));
    let seen = events(&mut server);
    assert_eq!(seen[0], Event::Cancelled { rpc });
    assert_ne!(delivered(&seen[1]).id, RpcId(before.id.0));
    assert_eq!(arrive(&mut server, CLIENT, &before, 100), MessageLookup::Stale);
    assert_eq!(new.answered(Time::ZERO, SERVER, &before), None, "an old acknowledgement");
    assert!(new.answered(Time::ZERO, SERVER, &after).is_some());
}

#[test]
fn a_silent_peer_is_given_up_and_a_live_one_is_not() {
    let mut client = Plain::new(0);
    let (submitted, head, message) = submit(&mut client, request(Time::MAX));
    assert!(!client.give_up(Time(SILENCE.0 - 1), message));
    assert_eq!(client.answered(Time(SILENCE.0 - 1), SERVER, &head), Some(message));
    assert!(!client.give_up(Time(SILENCE.0), message));
    assert!(client.give_up(Time(2 * SILENCE.0), message));
    let (rpc, message) = (submitted.rpc, submitted.message.unwrap());
    let error = RpcError::PeerUnreachable;
    let expected = [Event::Failed { rpc, cookie: 77, error }, Event::Release { message }];
    assert_eq!(events(&mut client), expected);
    assert_eq!(client.in_flight(), (0, 0));
}

#[test]
fn one_way_messages_and_requests_share_one_sequence() {
    let mut client = Plain::new(3);
    let one_way = Submit::OneWay { peer: PeerId(9), length: 1, cookie: 0 };
    let ids = [one_way, request(Time::MAX), one_way].map(|what| submit(&mut client, what).1.id);
    let expected = [1, 2, 3].map(|n| RpcId(3 << 32 | n << 1));
    assert_eq!(ids, expected);
    assert_eq!(
        client.submit(
            Time::ZERO,
            Submit::OneWay { peer: PeerId(9), length: 0, cookie: 0 },
            |_, _| ()
        ),
        Err(SubmitError::EmptyMessage)
    );
}

#[test]
fn a_name_is_released_only_if_the_application_saw_it() {
    for bytes in [0, 40] {
        let (mut client, mut server) = (Plain::new(0), Plain::new(0));
        let (submitted, head, _) = submit(&mut client, request(Time::MAX));
        let MessageLookup::Open(message) = server.arrived(Time::ZERO, CLIENT, (&head, 100), || ())
        else {
            panic!("a new message is open");
        };
        if bytes > 0 {
            assert!(matches!(server.place(message, (0, bytes), false), Receipt::Place(_)));
        }
        client.submit(Time::ZERO, Submit::Cancel { rpc: submitted.rpc }, |_, _| ()).unwrap();
        let (head, farewell) = client.courtesy().unwrap();
        server.on_courtesy(Time::ZERO, CLIENT, &head, farewell);
        let seen = events(&mut server);
        match bytes {
            0 => assert_eq!(seen, []),
            _ => assert!(matches!(seen[..], [Event::Started { .. }, Event::Release { .. }])),
        }
    }
}

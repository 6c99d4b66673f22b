//! A request that is in service for seconds: how often its client and its server ask.

use homa_proto::{
    Body, Config, Duration, PeerId, Rate, Request, RpcHandle, Submit, Time, Unreachable,
};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

/// A call whose request the application has.
fn in_service() -> (ClientAndServer, RpcHandle) {
    let mut pair = ClientAndServer::new(users(), users());
    pair.reply = None;
    let deadline = pair.now + Duration::secs(600);
    let request = Request { deadline, idempotent: true, ..pair.request(100, 1) };
    pair.submit(CLIENT, Submit::Request(request));
    pair.run_for(Duration::millis(1));
    let [Observed::Request(rpc, _)] = pair.seen[SERVER][..] else { panic!("{:?}", pair.seen) };
    (pair, rpc)
}

fn answer(pair: &mut ClientAndServer, rpc: RpcHandle) {
    pair.submit(SERVER, Submit::Response { rpc, length: 100 });
}

#[test]
fn its_client_asks_after_as_long_as_it_has_taken() {
    let (mut pair, rpc) = in_service();
    let mut asked = Vec::new();
    for seconds in [1, 9, 30, 100] {
        let before = pair.ends[CLIENT].counters().resends_sent;
        pair.run_for(Duration::secs(seconds));
        asked.push(pair.ends[CLIENT].counters().resends_sent - before);
    }
    assert_eq!(asked, [7, 3, 3, 10], "in the end once in ten seconds");
    // A client that asks is there.
    assert_eq!(pair.ends[SERVER].counters().need_acks_sent, 0);
    answer(&mut pair, rpc);
    pair.run_for(Duration::millis(1));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
}

#[test]
fn its_client_asks_once_if_a_delay_is_announced() {
    let (mut pair, rpc) = in_service();
    let now = pair.now;
    pair.ends[SERVER].announce_delay(now, rpc, Duration::secs(25));
    let before = pair.sent;
    pair.run_for(Duration::secs(25));
    assert_eq!(pair.sent, before.map(|n| n + 1), "{}", pair.transcript);
    answer(&mut pair, rpc);
    pair.run_for(Duration::millis(1));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
}

#[test]
fn a_lost_response_does_not_wait_until_its_client_asks() {
    let (mut pair, rpc) = in_service();
    let now = pair.now;
    pair.ends[SERVER].announce_delay(now, rpc, Duration::secs(25));
    pair.run_for(Duration::secs(2));
    answer(&mut pair, rpc);
    let mut lost = false;
    pair.lose = Box::new(move |from, packet, _| {
        let first = from == SERVER && matches!(packet.body, Body::Data(_)) && !lost;
        lost |= first;
        first
    });
    pair.run_for(Duration::millis(100));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)], "{}", pair.transcript);
}

#[test]
fn a_client_that_died_after_it_was_told_is_noticed() {
    let (mut pair, _) = in_service();
    pair.run_until(Time::ZERO + Duration::secs(5));
    pair.restart(CLIENT, users(), 9);
    // It was told to ask again after at most the time in service.
    pair.run_for(Duration::secs(5) + Duration::millis(1_100));
    assert!(pair.seen[SERVER].contains(&Observed::Cancelled), "{}", pair.transcript);
    pair.assert_clean();
}

#[test]
fn a_client_whose_packets_are_lost_is_asked_less_and_less_often() {
    let (mut pair, _) = in_service();
    pair.lose = Box::new(|from, _, _| from == CLIENT);
    let mut asked = Vec::new();
    for until in [900, 1_100, 1_900, 2_100, 3_900, 4_100] {
        pair.run_until(Time::ZERO + Duration::millis(until));
        asked.push(pair.ends[SERVER].counters().need_acks_sent);
    }
    assert_eq!(asked, [0, 1, 1, 2, 2, 3]);
}

#[test]
fn an_idempotent_call_that_rests_asks_once_its_server_is_gone() {
    let (mut pair, rpc) = in_service();
    pair.ends[SERVER].announce_delay(pair.now, rpc, Duration::secs(25));
    pair.run_for(Duration::secs(1));
    let asked = pair.ends[CLIENT].counters().resends_sent;
    // A report about another call of the peer.
    pair.ends[CLIENT].unreachable(pair.now, PeerId(0), Unreachable::Port(PORTS[SERVER]), None);
    pair.drain(CLIENT);
    pair.run_for(Duration::millis(25));
    assert_eq!(pair.ends[CLIENT].counters().resends_sent, asked + 1, "{}", pair.transcript);
}

#[test]
fn other_profiles_are_told_no_time() {
    let paper = || Config::sigcomm18(Rate::gbps(10));
    let mut pair = ClientAndServer::new(paper(), paper());
    pair.reply = Some((100, Duration::secs(2)));
    pair.call(100, 1);
    pair.run_for(Duration::secs(1));
    let asked = pair.sent[CLIENT];
    assert!(asked > 300, "the client keeps asking every few milliseconds: {asked} times");
}

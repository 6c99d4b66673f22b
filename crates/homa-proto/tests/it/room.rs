//! A server without room for a request asks its client to come back.

use homa_proto::{Body, Config, Duration, Rate};

use crate::common::{CLIENT, ClientAndServer, Observed, SERVER};

const CALLS: u64 = 200;

/// A server with room for ten requests of one host, and a client with more of them.
fn crowd() -> ClientAndServer {
    let users = || Config::for_users(Rate::gbps(10));
    let mut pair = ClientAndServer::new(users(), users().max_rpcs(20));
    pair.reply = None;
    for cookie in 0..CALLS {
        pair.call(100, cookie);
    }
    pair
}

#[test]
fn calls_to_a_full_server_are_all_answered() {
    let mut pair = crowd();
    pair.reply = Some((100, Duration::millis(20)));
    pair.run_for(Duration::secs(3));
    let answered = |seen: &&Observed| matches!(seen, Observed::Response(..));
    assert_eq!(pair.seen[CLIENT].iter().filter(answered).count() as u64, CALLS);
    assert_eq!(pair.executions() as u64, CALLS);
    pair.run_for(Duration::millis(60));
    pair.assert_clean();
}

#[test]
fn a_server_that_stays_full_is_asked_less_and_less_often() {
    let mut pair = crowd();
    pair.run_for(Duration::millis(1));
    let mut asked = Vec::new();
    for _ in 0..9 {
        let before = pair.sent[CLIENT];
        pair.run_for(Duration::secs(1));
        asked.push(pair.sent[CLIENT] - before);
    }
    // A call that was sent away asks, is told that it was not executed, and is sent away again.
    assert!(asked[8] <= CALLS * 2, "{asked:?}");
    // As soon as there is room, it is used.
    let accepted: Vec<Observed> = pair.seen[SERVER].clone();
    for seen in accepted {
        let Observed::Request(rpc, _) = seen else { panic!("{seen:?}") };
        pair.submit(SERVER, homa_proto::Submit::Response { rpc, length: 100 });
    }
    pair.run_for(Duration::millis(900));
    assert!(pair.executions() > 10, "{}", pair.executions());
}

#[test]
fn nothing_is_sent_to_a_full_server_before_the_time_it_names() {
    let mut pair = crowd();
    pair.run_for(Duration::millis(1));
    assert_eq!(pair.ends[SERVER].counters().busys_sent, CALLS - 10);
    let before = pair.sent[CLIENT];
    pair.lose = Box::new(|from, packet, _| {
        // The requests that are served ask for their responses.
        let resend = matches!(packet.body, Body::Resend { .. });
        assert!(from == SERVER || resend, "{packet:?}");
        false
    });
    pair.run_for(Duration::millis(18));
    let asked = pair.sent[CLIENT] - before;
    assert!(asked <= 3 * 10, "{asked}");
}

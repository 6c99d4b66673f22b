//! Exchanges between two endpoints as text that reads like the paper's figures.

use homa_proto::{
    Body, Config, Duration, IncastConfig, Overcommitment, Rate, RefusalReason, Request, RpcError,
    Submit,
};

use crate::common::{CLIENT, ClientAndServer, Observed, SERVER};

const LINK: Rate = Rate::gbps(10);

fn users() -> ClientAndServer {
    ClientAndServer::new(Config::for_users(LINK), Config::for_users(LINK))
}

fn is_data(body: &Body) -> bool {
    matches!(body, Body::Data(_))
}

#[test]
fn the_simplest_rpc_is_two_packets_and_a_piggybacked_ack() {
    let mut pair = users();
    pair.call(100, 1);
    pair.run_for(Duration::micros(100));
    pair.call(100, 2);
    pair.run_for(Duration::millis(60));
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn a_long_message_is_granted_as_it_arrives() {
    let mut pair = users();
    pair.call(30_000, 1);
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn a_lost_packet_is_asked_for_by_range() {
    let mut pair = users();
    pair.lose = Box::new(|from, packet, n| from == CLIENT && is_data(&packet.body) && n == 3);
    pair.call(6_000, 1);
    pair.run_for(Duration::millis(80));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn a_lost_request_is_found_by_the_client_and_executed_once() {
    let mut pair = users();
    pair.lose = Box::new(|from, packet, n| from == CLIENT && is_data(&packet.body) && n == 1);
    pair.call(100, 1);
    pair.run_for(Duration::millis(80));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    assert_eq!(pair.executions(), 1);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn a_lost_response_is_sent_again_without_executing_again() {
    let mut pair = users();
    pair.lose = Box::new(|from, packet, n| from == SERVER && is_data(&packet.body) && n < 3);
    pair.call(100, 1);
    pair.run_for(Duration::millis(90));
    assert_eq!((pair.executions(), pair.seen[CLIENT].len()), (1, 1));
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn a_server_keeps_a_response_while_its_client_asks_for_it() {
    let mut pair = users();
    let now = pair.now;
    pair.ends[CLIENT].limit_memory(now, 0);
    pair.call(100, 1);
    pair.run_for(Duration::secs(5));
    assert_eq!(pair.seen[CLIENT], []);
    let now = pair.now;
    pair.ends[CLIENT].limit_memory(now, 1_000_000);
    pair.run_for(Duration::secs(1));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    assert_eq!(pair.executions(), 1);
    pair.run_for(Duration::secs(3));
    pair.assert_clean();
}

#[test]
fn a_slow_server_says_busy_and_the_client_waits() {
    let mut pair = users();
    pair.reply = Some((100, Duration::millis(40)));
    pair.call(100, 1);
    pair.run_for(Duration::millis(150));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    assert!(pair.ends[SERVER].counters().busys_sent >= 2);
    pair.assert_clean();
}

#[test]
fn a_restarted_server_makes_the_call_indeterminate() {
    let mut pair = users();
    pair.reply = None;
    pair.call(100, 1);
    pair.run_for(Duration::millis(3));
    pair.restart(SERVER, Config::for_users(LINK), 9);
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::Indeterminate)]);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

/// An idempotent call of 5,000 bytes that its server has begun to serve.
fn in_service() -> ClientAndServer {
    let mut pair = users();
    pair.reply = None;
    pair.call_idempotent(5_000, 1);
    pair.run_for(Duration::millis(3));
    pair
}

#[test]
fn an_idempotent_call_that_its_server_forgot_is_executed_again() {
    let mut pair = in_service();
    let Some(&Observed::Request(rpc, _)) = pair.seen[SERVER].first() else {
        panic!("not executed")
    };
    pair.submit(SERVER, Submit::Cancel { rpc });
    pair.reply = Some((100, Duration::micros(1)));
    pair.run_for(Duration::millis(1));
    // A server that refuses every request is not asked as fast as the network can.
    assert_eq!(pair.executions(), 1);
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    assert_eq!(pair.executions(), 2);
    pair.assert_clean();
}

#[test]
fn a_server_that_gives_a_call_up_says_so_at_once() {
    for lost in [false, true] {
        let mut pair = users();
        pair.reply = None;
        pair.call(5_000, 1);
        pair.run_for(Duration::millis(3));
        let Some(&Observed::Request(rpc, _)) = pair.seen[SERVER].first() else { panic!() };
        let mut lose = lost;
        pair.lose = Box::new(move |_, packet, _| {
            matches!(packet.body, Body::RpcUnknown { .. }) && std::mem::take(&mut lose)
        });
        pair.submit(SERVER, Submit::Cancel { rpc });
        pair.run_for(Duration::millis(1));
        let told = [Observed::Failed(1, RpcError::Indeterminate)];
        assert_eq!(pair.seen[CLIENT], if lost { &told[..0] } else { &told });
        // If the packet is lost, the client's timer asks.
        pair.run_for(Duration::millis(60));
        assert_eq!((&pair.seen[CLIENT][..], pair.executions()), (&told[..], 1));
        pair.assert_clean();
    }
}

#[test]
fn a_refused_call_fails_with_the_servers_reason() {
    let long = RefusalReason::ResponseTooLong { length: 90_000, max: 50_000 };
    for (reason, error) in [
        (RefusalReason::Overloaded, RpcError::Overloaded),
        (RefusalReason::Abandoned, RpcError::Abandoned),
        (RefusalReason::DeadlinePassed, RpcError::DeadlineExceeded),
        (long, RpcError::ResponseTooLong { length: 90_000, max: 50_000 }),
    ] {
        for (lost, idempotent) in [(0, false), (0, true), (2, false), (2, true)] {
            let mut pair = users();
            pair.reply = None;
            let request = Request { idempotent, ..pair.request(5_000, 1) };
            pair.submit(CLIENT, Submit::Request(request));
            pair.run_for(Duration::millis(3));
            let Some(&Observed::Request(rpc, _)) = pair.seen[SERVER].first() else { panic!() };
            let mut lose = lost;
            pair.lose = Box::new(move |_, packet, _| {
                let unknown = matches!(packet.body, Body::RpcUnknown { .. }) && lose > 0;
                lose -= u32::from(unknown);
                unknown
            });
            pair.submit(SERVER, Submit::Refuse { rpc, reason });
            pair.run_for(Duration::millis(if lost > 0 { 100 } else { 1 }));
            // Whether the first answers are lost or not, and it is not called again.
            let told = [Observed::Failed(1, error)];
            assert_eq!((&pair.seen[CLIENT][..], pair.executions()), (&told[..], 1));
            pair.run_for(Duration::millis(60));
            pair.assert_clean();
        }
    }
}

#[test]
fn many_lost_requests_are_found_one_round_trip_after_the_other() {
    let mut pair = users();
    pair.lose = Box::new(|from, _, n| from == CLIENT && n <= 100);
    for cookie in 0..100 {
        pair.call(100, cookie);
    }
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT].len(), 100);
    pair.assert_clean();
}

#[test]
fn cancelling_a_call_reaches_the_server() {
    let mut pair = users();
    pair.reply = None;
    let rpc = pair.call(100, 1);
    pair.run_for(Duration::millis(1));
    pair.submit(CLIENT, Submit::Cancel { rpc });
    pair.run_for(Duration::millis(1));
    assert!(pair.seen[SERVER].contains(&Observed::Cancelled));
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn profile_linux_tells_the_server_of_failed_calls() {
    for cancelled in [false, true] {
        let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
        pair.reply = None;
        let rpc = pair.call(100, 1);
        pair.run_for(Duration::millis(1));
        assert!(!pair.seen[SERVER].contains(&Observed::Cancelled));
        if cancelled {
            pair.submit(CLIENT, Submit::Cancel { rpc });
            pair.run_for(Duration::millis(1));
        } else {
            pair.run_for(Duration::secs(11));
            assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::DeadlineExceeded)]);
        }
        assert!(pair.seen[SERVER].contains(&Observed::Cancelled), "cancelled: {cancelled}");
        pair.assert_clean();
    }
}

#[test]
fn a_dead_server_fails_the_call_at_its_timeout() {
    let mut pair = users();
    pair.lose = Box::new(|from, _, _| from == CLIENT);
    pair.call(100, 1);
    pair.run_for(Duration::secs(11));
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::DeadlineExceeded)]);
    let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
    pair.lose = Box::new(|from, _, _| from == CLIENT);
    pair.call(100, 1);
    pair.run_for(Duration::millis(130));
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::PeerUnreachable)]);
}

/// The server grants the bytes that its predecessor had, so that the client need not time out once
/// per window.
#[test]
fn a_long_request_whose_server_is_new_is_granted_anew() {
    let config = || Config::sigcomm18(LINK);
    let mut pair = ClientAndServer::new(config(), config());
    pair.call(1_000_000, 1);
    pair.run_for(Duration::micros(780));
    pair.restart(SERVER, config(), 9);
    pair.run_for(Duration::millis(12));
    assert_eq!((&pair.seen[CLIENT][..], pair.executions()), (&[Observed::Response(1, 100)][..], 1));
    pair.assert_clean();
}

#[test]
fn the_papers_profile_needs_no_acks_and_may_execute_again() {
    let mut pair = ClientAndServer::new(Config::sigcomm18(LINK), Config::sigcomm18(LINK));
    pair.lose = Box::new(|from, packet, n| from == SERVER && is_data(&packet.body) && n == 1);
    pair.call(100, 1);
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    assert_eq!(pair.executions(), 2);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn the_kernels_profile_confirms_with_need_ack_and_ack() {
    let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
    pair.call(100, 1);
    pair.run_for(Duration::millis(10));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    pair.assert_clean();
    insta::assert_snapshot!(pair.transcript);
}

#[test]
fn short_message_overtakes_long_one() {
    let mut pair = users();
    pair.call(1_000_000, 1);
    pair.run_for(Duration::micros(50));
    pair.call(100, 2);
    pair.run_for(Duration::millis(80));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(2, 100), Observed::Response(1, 100)]);
    pair.assert_clean();
}

#[test]
fn a_too_long_request_fails_with_the_servers_limit() {
    let mut small = Config::for_users(LINK);
    small.max_message = 5_000;
    let mut pair = ClientAndServer::new(Config::for_users(LINK), small);
    pair.call(100_000, 1);
    pair.run_for(Duration::millis(60));
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::RequestTooLong { max: 5_000 })]);
    let refused = pair.request(5_001, 2);
    let error = pair.ends[CLIENT].submit(pair.now, Submit::Request(refused));
    assert_eq!(error, Err(homa_proto::SubmitError::MessageTooLong { max: 5_000 }));
    pair.run_for(Duration::millis(60));
    pair.assert_clean();
}

#[test]
fn a_too_long_response_fails_the_call_that_asked_for_it() {
    let mut small = Config::for_users(LINK);
    small.max_message = 5_000;
    let mut pair = ClientAndServer::new(small, Config::for_users(LINK));
    pair.reply = Some((100_000, Duration::micros(1)));
    pair.call(100, 1);
    pair.run_for(Duration::millis(60));
    let error = RpcError::ResponseTooLong { length: 100_000, max: 5_000 };
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, error)]);
    pair.run_for(Duration::secs(3));
    pair.assert_clean();
}

#[test]
fn acks_of_a_burst_are_piggybacked_or_sent_in_time() {
    let mut pair = users();
    for burst in 0..3 {
        for call in 0..60 {
            pair.call(100, burst * 60 + call);
        }
        pair.run_for(Duration::micros(300));
        assert_eq!(pair.seen[CLIENT].len() as u64, (burst + 1) * 60);
    }
    assert_eq!(pair.ends[CLIENT].counters().acks_sent, 0);
    pair.run_for(Duration::millis(20));
    // Some of the last burst's ACKs were piggybacked on its later calls; an ACK packet names six.
    assert!((1..=10).contains(&pair.ends[CLIENT].counters().acks_sent));
    assert_eq!(pair.ends[SERVER].counters().need_acks_sent, 0);
    pair.assert_clean();
}

#[test]
fn the_kernels_profile_sends_an_ack_for_each_six_calls() {
    let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
    for call in 0..60 {
        pair.call(100, call);
    }
    pair.run_for(Duration::micros(300));
    assert!(pair.ends[CLIENT].counters().acks_sent >= 9);
}

#[test]
fn a_client_that_only_sends_measures_rtt_bytes() {
    let rate = Rate::gbps(100);
    let mut pair = ClientAndServer::new(Config::for_users(rate), Config::for_users(rate));
    let (mut grants, mut before) = (Vec::new(), 0);
    for call in 0..60 {
        pair.call(30_000, call);
        pair.run_for(Duration::millis(4));
        let now = pair.ends[SERVER].counters().grants_sent;
        grants.push(now - before);
        before = now;
    }
    assert!(grants[0] > 0, "the first request is longer than the start value of RTTbytes");
    assert_eq!(grants[59], 0, "RTTbytes of this path are more than 30 kB: {grants:?}");
}

#[test]
fn the_kernels_profile_takes_no_limit_from_pad_bytes() {
    let incast = IncastConfig::default().threshold(0).max_unscheduled(300).burst(1);
    let client = Config::for_users(LINK).incast(incast);
    for (server, unscheduled) in
        [(Config::for_users(LINK), "incoming 300"), (Config::linux(), "incoming 5000")]
    {
        let mut pair = ClientAndServer::new(client.clone(), server);
        pair.reply = Some((5_000, Duration::ZERO));
        pair.call(100, 1);
        pair.run_for(Duration::millis(10));
        assert!(pair.transcript.contains(unscheduled), "{}", pair.transcript);
    }
}

/// A client whose cancellation was lost, and one that crashed and is back.
#[test]
fn an_abandoned_response_does_not_wait_for_grants() {
    for restarts in [false, true] {
        let mut pair = users();
        pair.reply = Some((1_000_000, Duration::micros(50)));
        pair.lose = Box::new(|from, packet, n| {
            from == CLIENT && n < 4 && matches!(packet.body, Body::Ack(_))
        });
        let rpc = pair.call(100, 1);
        pair.run_for(Duration::micros(20));
        match restarts {
            true => pair.restart(CLIENT, Config::for_users(LINK), 3),
            false => drop(pair.submit(CLIENT, Submit::Cancel { rpc })),
        }
        pair.run_for(Duration::millis(100));
        assert_eq!((pair.executions(), pair.ends[SERVER].rpcs()), (1, (0, 1)));
        pair.run_for(Duration::millis(900));
        assert_eq!(pair.ends[SERVER].rpcs(), (0, 0), "restarts: {restarts}");
    }
}

#[test]
fn packets_longer_than_rtt_bytes_are_granted() {
    let config = Config::for_users(LINK)
        .rtt_bytes(500)
        .measure_rtt_bytes(false)
        .overcommitment(Overcommitment::Fixed(1));
    let mut pair = ClientAndServer::new(config.clone(), config);
    pair.call(100_000, 1);
    pair.run_for(Duration::millis(100));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    pair.assert_clean();
}

//! Messages that are read while they arrive: requests run once, whatever ends them, and a slow
//! reader limits what is granted.

use std::cell::Cell;
use std::rc::Rc;

use homa_proto::{
    Body, Config, Duration, PeerId, Rate, RefusalReason, Request, RpcError, RpcHandle, Submit, Time,
};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

const WINDOW: u32 = 100_000;
const LENGTH: u32 = 1_000_000;
const MS: fn(u64) -> Duration = Duration::millis;

fn pair(config: fn() -> Config) -> ClientAndServer {
    let mut pair = ClientAndServer::new(config(), config());
    pair.ends[SERVER].listen_early(PORTS[SERVER], WINDOW);
    pair.reply = None;
    pair
}

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

/// The request that the server's application was told of, and its readable bytes.
fn arriving(pair: &ClientAndServer) -> (RpcHandle, u32) {
    let told = pair.seen[SERVER].iter().rev().find_map(|seen| match seen {
        Observed::Arriving(rpc, offset) => Some((*rpc, *offset)),
        _ => None,
    });
    told.unwrap_or_else(|| panic!("no request arrives: {}", pair.transcript))
}

/// A call whose request arrives and is begun.
fn begun(config: fn() -> Config) -> (ClientAndServer, RpcHandle) {
    let mut pair = pair(config);
    pair.call(LENGTH, 1);
    pair.run_for(Duration::micros(20));
    let (rpc, _) = arriving(&pair);
    let now = pair.now;
    assert_eq!(pair.ends[SERVER].arriving(rpc).map(|request| request.length), Some(LENGTH));
    pair.ends[SERVER].begin_arriving(now, rpc).unwrap();
    (pair, rpc)
}

/// The application takes everything that has arrived until the request is whole.
fn read_all(pair: &mut ClientAndServer, rpc: RpcHandle) {
    while !pair.seen[SERVER].contains(&Observed::Request(rpc, LENGTH)) {
        let (_, offset) = arriving(pair);
        let now = pair.now;
        pair.ends[SERVER].read(now, rpc, offset);
        pair.run_for(Duration::micros(20));
    }
}

fn ends(pair: &mut ClientAndServer) -> Vec<Observed> {
    pair.run_for(Duration::secs(30));
    pair.assert_clean();
    pair.seen[CLIENT].clone()
}

#[test]
fn a_slow_reader_limits_what_is_granted() {
    for config in [users, Config::linux, || Config::sigcomm18(Rate::gbps(10))] {
        let (mut pair, rpc) = begun(config);
        pair.run_for(MS(300));
        let (_, first) = arriving(&pair);
        let most = WINDOW.max(pair.ends[SERVER].config().rtt_bytes) + 2 * 1_400;
        assert!(first <= most, "{first} of {most}: {}", pair.transcript);
        assert!(pair.seen[CLIENT].is_empty(), "{:?}", pair.seen);
        // It takes half, and as much arrives.
        let now = pair.now;
        pair.ends[SERVER].read(now, rpc, first / 2);
        pair.run_for(MS(300));
        let (_, second) = arriving(&pair);
        assert!(second > first && second <= first / 2 + most, "{first}, {second} of {most}");
        read_all(&mut pair, rpc);
        pair.submit(SERVER, Submit::Response { rpc, length: 10 });
        assert_eq!(ends(&mut pair), [Observed::Response(1, 10)]);
        assert_eq!(pair.executions(), 1);
    }
}

/// A reader that takes as little as it needs so that more comes, and pauses for seconds.
#[test]
fn a_client_that_reads_a_response_slowly_gets_all_of_it() {
    for config in [users, Config::linux, || Config::sigcomm18(Rate::gbps(10))] {
        let mut pair = ClientAndServer::new(config(), config());
        pair.reply = Some((LENGTH, Duration::micros(1)));
        let request = Request { deadline: Time::MAX, ..pair.request(100, 1) };
        let rpc = pair.submit(CLIENT, Submit::Request(request));
        pair.ends[CLIENT].read_response(rpc, WINDOW);
        let readable = |pair: &ClientAndServer| {
            let found = pair.seen[CLIENT].iter().rev().find_map(|seen| match seen {
                Observed::Arriving(of, offset) if *of == rpc => Some(*offset),
                _ => None,
            });
            found.unwrap_or_else(|| panic!("nothing arrives: {}", pair.transcript))
        };
        let most = WINDOW.max(pair.ends[CLIENT].config().rtt_bytes) + 2 * 1_400;
        pair.run_for(Duration::secs(5));
        let mut taken = 0;
        while !pair.seen[CLIENT].contains(&Observed::Response(1, LENGTH)) {
            let offset = readable(&pair);
            assert!(offset > taken, "nothing more after {taken}: {}", pair.transcript);
            assert!(offset <= taken + most, "{offset} of {taken} + {most}");
            taken = offset;
            let now = pair.now;
            pair.ends[CLIENT].read(now, rpc, offset);
            pair.run_for(Duration::secs(1));
        }
        pair.assert_clean();
        assert_eq!(pair.executions(), 1);
    }
}

#[test]
fn a_slow_reader_does_not_delay_other_messages() {
    let (mut pair, _) = begun(users);
    pair.run_for(MS(10));
    pair.reply = Some((100, Duration::micros(1)));
    let short = 300_000;
    pair.ends[SERVER].listen(PORTS[SERVER] + 1);
    for cookie in 2..20 {
        let request = pair.request(short, cookie);
        let to = Request { remote_port: PORTS[SERVER] + 1, ..request };
        pair.submit(CLIENT, Submit::Request(to));
    }
    pair.run_for(MS(20));
    assert_eq!(pair.executions(), 18, "{:?}", pair.seen);
}

/// The memory is less than the window of a reader, so less is granted than it would take.
#[test]
fn a_reader_whose_server_is_short_of_memory_continues() {
    let short: [fn() -> Config; 3] = [
        || users().memory_budget(10_000),
        || users().memory_budget(20_000),
        || users().memory_budget(90_000),
    ];
    for config in short {
        let (mut pair, rpc) = begun(config);
        let until = pair.now + Duration::secs(5);
        while !pair.seen[SERVER].contains(&Observed::Request(rpc, LENGTH)) {
            assert!(pair.now < until, "it stands still: {:?}", pair.seen[SERVER].last());
            let (_, offset) = arriving(&pair);
            let now = pair.now;
            pair.ends[SERVER].read(now, rpc, offset);
            pair.run_for(MS(1));
        }
    }
}

#[test]
fn a_loss_in_any_place_is_repaired() {
    for modulus in [3, 7, 20] {
        let mut pair = pair(users);
        pair.lose = Box::new(move |_, _, ordinal| ordinal % modulus == 1);
        pair.call(LENGTH, 1);
        pair.run_for(MS(50));
        let (rpc, _) = arriving(&pair);
        let now = pair.now;
        pair.ends[SERVER].begin_arriving(now, rpc).unwrap();
        read_all(&mut pair, rpc);
        pair.submit(SERVER, Submit::Response { rpc, length: 10 });
        assert_eq!(ends(&mut pair), [Observed::Response(1, 10)]);
        assert_eq!(pair.executions(), 1);
    }
}

#[test]
fn a_cancelled_request_is_reported_and_not_executed_again() {
    let mut pair = pair(users);
    let call = pair.call(LENGTH, 1);
    pair.run_for(Duration::micros(20));
    let (rpc, _) = arriving(&pair);
    let now = pair.now;
    pair.ends[SERVER].begin_arriving(now, rpc).unwrap();
    // The client's last DATA arrives once more after the end.
    let late: Rc<Cell<Option<homa_proto::Packet>>> = Rc::default();
    let keep = Rc::clone(&late);
    pair.lose = Box::new(move |from, packet, _| {
        if from == CLIENT && matches!(packet.body, Body::Data(_)) {
            keep.set(Some(*packet));
        }
        false
    });
    pair.run_for(MS(1));
    let now = pair.now;
    pair.ends[SERVER].read(now, rpc, WINDOW);
    pair.run_for(MS(1));
    pair.submit(CLIENT, Submit::Cancel { rpc: call });
    pair.run_for(MS(1));
    assert_eq!(pair.seen[SERVER].last(), Some(&Observed::Cancelled), "{}", pair.transcript);
    assert!(pair.ends[SERVER].begin_arriving(now, rpc).is_err());
    let mut first = late.get().expect("it sent DATA");
    if let Body::Data(data) = &mut first.body {
        (data.span.offset, data.span.len) = (0, 1_400);
    }
    let (seen, now) = (pair.seen[SERVER].len(), pair.now);
    pair.deliver(SERVER, &first);
    assert_eq!((pair.seen[SERVER].len(), pair.now), (seen, now), "{:?}", pair.seen);
    assert_eq!(ends(&mut pair), []);
}

#[test]
fn a_request_that_its_server_drops_is_not_executed_again() {
    for reason in [RefusalReason::Abandoned, RefusalReason::Overloaded] {
        let (mut pair, rpc) = begun(users);
        pair.submit(SERVER, Submit::Refuse { rpc, reason });
        let error = match reason {
            RefusalReason::Abandoned => RpcError::Abandoned,
            _ => RpcError::Overloaded,
        };
        assert_eq!(ends(&mut pair), [Observed::Failed(1, error)]);
    }
}

#[test]
fn a_server_that_loses_a_begun_request_makes_it_indeterminate() {
    let (mut pair, rpc) = begun(users);
    // That it gives the request up is lost, so the client's RESEND asks for it.
    pair.lose = Box::new(|_, packet, _| matches!(packet.body, Body::RpcUnknown { .. }));
    pair.submit(SERVER, Submit::Cancel { rpc });
    pair.run_for(Duration::millis(1));
    pair.lose = Box::new(|_, _, _| false);
    assert_eq!(ends(&mut pair), [Observed::Failed(1, RpcError::Indeterminate)]);
    assert_eq!(pair.executions(), 0);
}

#[test]
fn a_begun_request_of_a_restarted_server_does_not_run_again() {
    let validating = || users().validate_addresses(true).unguessable_ids(true);
    let mut pair = pair(validating);
    pair.call(LENGTH, 1);
    pair.run_for(Duration::micros(50));
    let (rpc, _) = arriving(&pair);
    let now = pair.now;
    pair.ends[SERVER].begin_arriving(now, rpc).unwrap();
    // DATA is in flight, so the new server sees the middle of the request.
    pair.restart(SERVER, validating(), 9);
    pair.ends[SERVER].listen_early(PORTS[SERVER], WINDOW);
    let told = pair.seen[SERVER].len();
    assert_eq!(ends(&mut pair), [Observed::Failed(1, RpcError::Indeterminate)]);
    assert_eq!(pair.seen[SERVER].len(), told, "{:?}", pair.seen);
}

#[test]
fn an_answer_before_the_end_of_the_request_completes_the_call() {
    for config in [users, Config::linux] {
        let (mut pair, rpc) = begun(config);
        pair.submit(SERVER, Submit::Response { rpc, length: 70_000 });
        assert_eq!(ends(&mut pair), [Observed::Response(1, 70_000)]);
        assert_eq!(pair.executions(), 0, "it was not delivered as a whole");
    }
}

#[test]
fn an_unvalidated_client_starts_nothing() {
    let mut pair = pair(|| users().validate_addresses(true).unguessable_ids(true));
    let told = Rc::new(Cell::new(false));
    let keep = Rc::clone(&told);
    pair.lose = Box::new(move |from, packet, _| {
        let proof = matches!(packet.body, Body::Proof(_));
        keep.set(keep.get() || from == CLIENT && proof);
        proof
    });
    pair.call(LENGTH, 1);
    pair.run_for(MS(2));
    assert!(told.get() && pair.seen[SERVER].is_empty(), "{:?}", pair.seen);
    pair.lose = Box::new(|_, _, _| false);
    pair.run_for(MS(50));
    let (rpc, _) = arriving(&pair);
    let now = pair.now;
    assert!(pair.ends[SERVER].is_validated(PeerId(0)));
    pair.ends[SERVER].begin_arriving(now, rpc).unwrap();
    read_all(&mut pair, rpc);
    pair.submit(SERVER, Submit::Response { rpc, length: 10 });
    assert_eq!(ends(&mut pair), [Observed::Response(1, 10)]);
}

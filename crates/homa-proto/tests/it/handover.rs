//! A server's place is taken by another endpoint, which continues its memory of executed requests.

use std::cell::RefCell;
use std::rc::Rc;

use homa_proto::{Body, Config, Duration, Executions, Packet, Rate, RpcError};

use crate::common::{CLIENT, ClientAndServer, Observed, SERVER};

fn users() -> Config {
    Config::for_users(Rate::gbps(10)).validate_addresses(true)
}

/// A client and a server, and the DATA of the requests that the client sends.
fn pair() -> (ClientAndServer, Rc<RefCell<Vec<Packet>>>) {
    let mut pair = ClientAndServer::new(users(), users());
    let requests = Rc::new(RefCell::new(Vec::new()));
    let seen = requests.clone();
    pair.lose = Box::new(move |from, packet, _| {
        if from == CLIENT && packet.begins_request() {
            seen.borrow_mut().push(*packet);
        }
        false
    });
    (pair, requests)
}

/// Replaces the server by one that takes its place, after a while in which neither is there.
fn hand_over(pair: &mut ClientAndServer, seed: u64) {
    let executions = pair.ends[SERVER].executions(pair.now);
    let covered = executions.covers();
    let mut bytes = Vec::new();
    executions.encode(&mut bytes);
    let read = Executions::decode(&bytes).expect("what was written");
    assert_eq!(read, executions);
    let pause = Duration::millis(50);
    pair.now += pause;
    pair.restart(SERVER, users(), seed);
    pair.ends[SERVER].take_over(&read, Duration(covered.0 + pause.0));
}

/// A client finishes one call and makes another one, whose packets are all lost.
fn with_a_lost_call() -> ClientAndServer {
    let (mut pair, _) = pair();
    pair.call(100, 1);
    pair.run_for(Duration::millis(2));
    pair.lose = Box::new(|from, _, _| from == CLIENT);
    pair.call(100, 2);
    pair.run_for(Duration::millis(20));
    pair
}

/// The end of the last call, once packets arrive.
fn end_of_last_call(pair: &mut ClientAndServer) -> Option<Observed> {
    pair.lose = Box::new(|_, _, _| false);
    pair.run_for(Duration::millis(500));
    pair.seen[CLIENT].last().cloned()
}

#[test]
fn the_next_server_executes_nothing_a_second_time() {
    let (mut pair, requests) = pair();
    // Nothing of the first call arrives, so that it is in progress all the time: all later calls
    // may be, too, as far as the client declares.
    let (seen, first) = (requests.clone(), Rc::new(RefCell::new(None)));
    pair.lose = Box::new(move |from, packet, _| {
        let first = *first.borrow_mut().get_or_insert(packet.id.client());
        if from == CLIENT && packet.begins_request() && packet.id != first {
            seen.borrow_mut().push(*packet);
        }
        packet.id.client() == first
    });
    pair.call(100, 0);
    pair.run_for(Duration::millis(2));
    for cookie in 1..=20 {
        pair.call(100, cookie);
        pair.run_for(Duration::millis(2));
        if cookie % 4 == 0 {
            hand_over(&mut pair, 100 + cookie);
        }
    }
    assert_eq!(pair.executions(), 20, "{}", pair.transcript);
    let copies = requests.borrow().clone();
    assert!(copies.len() >= 20);
    for copy in &copies {
        pair.deliver(SERVER, copy);
        pair.run_for(Duration::micros(100));
    }
    assert_eq!(pair.executions(), 20, "{}", pair.transcript);
}

/// The request arrives after the handover, which is later than the call's beginning.
#[test]
fn a_call_from_before_the_handover_is_executed_once() {
    let mut pair = with_a_lost_call();
    hand_over(&mut pair, 7);
    let end = end_of_last_call(&mut pair);
    assert_eq!(end, Some(Observed::Response(2, 100)), "{}", pair.transcript);
    assert_eq!(pair.executions(), 2);
}

#[test]
fn a_call_whose_answer_was_lost_is_indeterminate() {
    let (mut pair, _) = pair();
    pair.call(100, 1);
    pair.run_for(Duration::millis(2));
    pair.lose = Box::new(|from, packet, _| from == SERVER && matches!(packet.body, Body::Data(_)));
    pair.call(100, 2);
    pair.run_for(Duration::millis(2));
    assert_eq!(pair.executions(), 2);
    hand_over(&mut pair, 7);
    pair.lose = Box::new(|_, _, _| false);
    pair.run_for(Duration::millis(500));
    let end = Observed::Failed(2, RpcError::Indeterminate);
    assert_eq!(pair.seen[CLIENT].last(), Some(&end), "{}", pair.transcript);
    assert_eq!(pair.executions(), 2);
}

/// While a server hands over, calls wait for the next one.
#[test]
fn a_call_during_the_handover_is_answered_by_the_next_server() {
    for known in [true, false] {
        let (mut pair, _) = pair();
        if known {
            pair.call(100, 1);
            pair.run_for(Duration::millis(2));
        }
        let before = pair.executions();
        pair.ends[SERVER].postpone_requests();
        pair.call(100, 2);
        pair.run_for(Duration::millis(100));
        assert_eq!(pair.executions(), before);
        assert!(pair.ends[SERVER].counters().busys_sent > 0);
        assert_eq!(pair.ends[SERVER].rpcs(), (0, 0), "nothing is kept of it");
        hand_over(&mut pair, 7);
        pair.run_for(Duration::millis(500));
        let end = Observed::Response(2, 100);
        assert_eq!(pair.seen[CLIENT].last(), Some(&end), "{}", pair.transcript);
        assert_eq!(pair.executions(), before + 1);
    }
}

#[test]
fn what_is_no_record_of_executions_is_refused() {
    let (mut pair, _) = pair();
    for cookie in 0..300 {
        pair.call(100, cookie);
        pair.run_for(Duration::micros(100));
    }
    let mut whole = Vec::new();
    pair.ends[SERVER].executions(pair.now).encode(&mut whole);
    assert_eq!(Executions::decode(&whole).map(|read| read.clients()), Some(1));
    for cut in 0..whole.len() {
        assert_eq!(Executions::decode(&whole[..cut]), None, "{cut} bytes");
    }
    whole.push(0);
    assert_eq!(Executions::decode(&whole), None);
    // Whatever else is read is a record that an endpoint can take over and hand over again.
    arbtest::arbtest(|u| {
        let mut bytes = whole.clone();
        bytes.pop();
        for _ in 0..u.int_in_range(1..=8)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] = u.arbitrary()?;
        }
        if let Some(read) = Executions::decode(&bytes) {
            let mut next = crate::common::config(users(), 3);
            next.take_over(&read, Duration::ZERO);
            assert_eq!(next.executions(pair.now).clients(), read.clients());
        }
        Ok(())
    });
}

/// The address was bound before the call began, although the server's first input came later.
#[test]
fn a_server_vouches_for_the_time_since_it_was_bound() {
    for (vouched, end) in [
        (30, Observed::Response(2, 100)),
        (10, Observed::Failed(2, RpcError::Indeterminate)),
        (0, Observed::Failed(2, RpcError::Indeterminate)),
    ] {
        let mut pair = with_a_lost_call();
        pair.restart(SERVER, users(), 7);
        pair.ends[SERVER].vouch_for(Duration::millis(vouched));
        assert_eq!(end_of_last_call(&mut pair), Some(end), "{}", pair.transcript);
    }
}

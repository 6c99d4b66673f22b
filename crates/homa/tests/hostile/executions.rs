//! Requests are executed at most once, even if an attacker copies them or the server forgot them.

use homa::CallError;
use homa::proto::{Body, RpcId};

use super::host::{first, packets};
use super::wire::Wire;

/// Returns the datagram of the last request.
fn last_request(wire: &Wire) -> (Vec<u8>, RpcId) {
    let is = |bytes: &&Vec<u8>| packets(bytes).iter().any(|p| matches!(p.body, Body::Data(_)));
    let datagram = wire.seen.iter().rfind(is).unwrap().clone();
    let id = packets(&datagram).iter().find(|p| matches!(p.body, Body::Data(_))).unwrap().id;
    (datagram, id)
}

/// Makes one call, and returns its datagram.
fn once(wire: &mut Wire) -> (Vec<u8>, RpcId) {
    let calls = wire.ended.len();
    wire.call(b"once", 1);
    assert_eq!(wire.finish(calls + 1).unwrap(), b"once");
    last_request(wire)
}

fn times(wire: &Wire, request: &[u8]) -> usize {
    wire.executed.iter().filter(|executed| **executed == request).count()
}

#[test]
fn a_copy_is_not_executed_while_its_client_lives_nor_afterwards() {
    let mut wire = Wire::new();
    let (copy, _) = once(&mut wire);
    wire.inject(&copy);
    wire.settle();
    assert_eq!(times(&wire, b"once"), 1);
}

#[test]
fn a_copy_from_before_a_restart_is_not_executed() {
    let mut wire = Wire::new();
    let (copy, _) = once(&mut wire);
    wire.restart();
    wire.inject(&copy);
    wire.settle();
    assert_eq!(times(&wire, b"once"), 1, "its client waits for nothing");
    wire.slow = b"slow".to_vec();
    wire.call(b"slow", 2);
    wire.execute(2);
    wire.inject(&copy);
    wire.settle();
    assert_eq!(times(&wire, b"once"), 1, "its client waits for something else");
    wire.call(b"more", 3);
    assert_eq!(wire.finish(2).unwrap(), b"more");
}

#[test]
fn a_call_during_a_restart_is_indeterminate_and_runs_once() {
    let mut wire = Wire::new();
    once(&mut wire);
    wire.slow = b"slow".to_vec();
    wire.call(b"slow", 2);
    wire.execute(2);
    let (copy, _) = last_request(&wire);
    wire.restart();
    wire.inject(&copy);
    assert_eq!(wire.finish(2), Err(CallError::Indeterminate));
    wire.settle();
    assert_eq!(times(&wire, b"slow"), 1);
}

#[test]
fn a_copy_from_another_port_of_its_client_is_not_executed() {
    let mut wire = Wire::new();
    let (copy, _) = once(&mut wire);
    wire.rebind();
    wire.slow = b"slow".to_vec();
    wire.call(b"slow", 2);
    wire.execute(2);
    wire.inject(&copy);
    wire.settle();
    assert_eq!(times(&wire, b"once"), 1);
}

#[test]
fn a_call_runs_once_if_its_client_appears_elsewhere() {
    let mut wire = Wire::new();
    once(&mut wire);
    wire.slow = b"slow".to_vec();
    wire.call(b"slow", 2);
    wire.execute(2);
    wire.rebind();
    // The client asks for its response from a new port, from which the server knows no call.
    assert_eq!(wire.finish(2), Err(CallError::Indeterminate));
    wire.settle();
    assert_eq!(times(&wire, b"slow"), 1);
    wire.call(b"more", 3);
    assert_eq!(wire.finish(3).unwrap(), b"more");
}

#[test]
fn invented_clients_take_nothing_from_the_real_one() {
    let mut wire = Wire::new();
    let (copy, _) = once(&mut wire);
    for epoch in 0..200u64 {
        wire.inject(&first((0x9000_0000 + epoch) << 32 | 20, 30, 30));
        wire.turn();
    }
    wire.settle();
    assert_eq!(wire.executed.len(), 1, "these requests are copies");
    wire.inject(&copy);
    wire.settle();
    assert_eq!(times(&wire, b"once"), 1);
}

#[test]
fn a_request_far_ahead_does_not_shut_its_client_out() {
    let mut wire = Wire::new();
    let (_, id) = once(&mut wire);
    for ahead in [1u64 << 20, 1 << 24, 1 << 30] {
        wire.inject(&first(id.0 + 2 * ahead, 30, 30));
        wire.settle();
        let calls = wire.ended.len();
        wire.call(b"still", 5);
        assert_eq!(wire.finish(calls + 1).unwrap(), b"still", "{ahead}");
    }
    assert_eq!(wire.executed.iter().filter(|bytes| bytes.len() == 30).count(), 0);
}

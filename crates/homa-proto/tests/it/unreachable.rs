//! Which calls an ICMP report ends, and with which error: a call whose request the server may have
//! is never reported as not executed.

use homa_proto::{
    Body, Completion, Config, Duration, PeerId, Quoted, Rate, RpcError, RpcId, Submit, Unreachable,
};
use std::cell::Cell;
use std::rc::Rc;

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

const PORT: Unreachable = Unreachable::Port(PORTS[SERVER]);
const DATA: Option<(u64, bool)> = Some((0, true));
/// DATA that does not begin a message, or a control packet.
const OTHER: Option<(u64, bool)> = Some((0, false));

/// A pair, and the id of the client's last DATA. All packets of the client are lost.
fn pair(config: fn() -> Config) -> (ClientAndServer, Rc<Cell<u64>>) {
    let (mut pair, id) = (ClientAndServer::new(config(), config()), Rc::new(Cell::new(0)));
    watch(&mut pair, &id, true);
    (pair, id)
}

/// From now on `id` is that of the client's last DATA, and all or none of its packets are lost.
fn watch(pair: &mut ClientAndServer, id: &Rc<Cell<u64>>, lost: bool) {
    let seen = Rc::clone(id);
    pair.lose = Box::new(move |from, packet, _| {
        if from == CLIENT && matches!(packet.body, Body::Data(_)) {
            seen.set(packet.id.0);
        }
        lost && from == CLIENT
    });
}

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

/// An ICMP report arrives. `quoted`: the difference of its id to that of the last DATA, and whether
/// it quotes the first DATA.
fn report(
    pair: &mut ClientAndServer,
    id: &Cell<u64>,
    what: Unreachable,
    quoted: Option<(u64, bool)>,
) {
    let quoted = quoted.map(|(more, begins)| Quoted { id: RpcId(id.get() + more), begins });
    pair.ends[CLIENT].unreachable(pair.now, PeerId(0), what, quoted);
    pair.drain(CLIENT);
}

fn failures(pair: &ClientAndServer) -> Vec<RpcError> {
    let failure = |seen: &Observed| match seen {
        Observed::Failed(_, error) => Some(*error),
        _ => None,
    };
    pair.seen[CLIENT].iter().filter_map(failure).collect()
}

#[test]
fn a_call_whose_first_packet_came_back_was_not_executed() {
    for (what, quoted, expected) in [
        (Unreachable::Host, DATA, Some(RpcError::HostUnreachable)),
        (Unreachable::Protocol, DATA, Some(RpcError::ProtocolUnreachable)),
        (PORT, DATA, Some(RpcError::PortUnreachable)),
        (Unreachable::Port(PORTS[SERVER] + 1), DATA, None),
        // The report names no packet, so the call's RESEND will be reported, too.
        (PORT, None, None),
        // Forged: the next id, and an id that only the server writes.
        (Unreachable::Host, Some((2, true)), None),
        (PORT, Some((1, true)), None),
    ] {
        let (mut pair, id) = pair(users);
        pair.call(100, 1);
        pair.run_for(Duration::micros(10));
        report(&mut pair, &id, what, quoted);
        assert_eq!(failures(&pair), Vec::from_iter(expected), "{what:?} {quoted:?}");
    }
}

#[test]
fn a_call_that_the_server_may_have_is_indeterminate() {
    // The server sent nothing about it, and its RESEND came back.
    for (quoted, error) in [
        (OTHER, RpcError::Indeterminate),
        (None, RpcError::Indeterminate),
        // It is the only DATA that was sent.
        (DATA, RpcError::PortUnreachable),
    ] {
        let (mut pair, id) = pair(users);
        pair.call(100, 1);
        pair.run_for(Duration::millis(7));
        report(&mut pair, &id, PORT, quoted);
        assert_eq!(failures(&pair), [error], "{quoted:?}");
    }
    // The server sent a packet about it: CUTOFFS, which are sent only to hosts that have none; a
    // GRANT, BUSY, or a part of the response.
    for (knows, length, reply, silent_after) in [
        (false, 100, None, 20),
        (true, 60_000, None, 200),
        (true, 100, Some((100, Duration::millis(20))), 10_000),
        (true, 100, Some((60_000, Duration::ZERO)), 20),
    ] {
        let (mut pair, id) = pair(users);
        watch(&mut pair, &id, false);
        if knows {
            pair.call(100, 2);
            pair.run_for(Duration::millis(1));
            assert_eq!(pair.seen[CLIENT], [Observed::Response(2, 100)]);
        }
        pair.reply = reply;
        pair.call(length, 1);
        pair.run_for(Duration::micros(silent_after));
        report(&mut pair, &id, PORT, DATA);
        assert_eq!(failures(&pair), [RpcError::Indeterminate], "{}", pair.transcript);
    }
}

/// RFC 1122 §4.2.3.9: such a report may be wrong a moment later.
#[test]
fn a_call_that_was_heard_outlives_a_report_about_the_host() {
    for what in [Unreachable::Host, Unreachable::Refused { errno: 13 }] {
        // The server sent a GRANT, BUSY, or a part of the response.
        for (length, reply, silent_after) in [
            (60_000, None, 200),
            (100, Some((100, Duration::millis(20))), 10_000),
            (100, Some((60_000, Duration::ZERO)), 20),
        ] {
            let (mut pair, id) = pair(users);
            watch(&mut pair, &id, false);
            pair.call(100, 2);
            pair.run_for(Duration::millis(1));
            pair.reply = reply;
            pair.call(length, 1);
            pair.run_for(Duration::micros(silent_after));
            report(&mut pair, &id, what, DATA);
            assert_eq!(failures(&pair), [], "{what:?}: {}", pair.transcript);
        }
    }
}

#[test]
fn a_lasting_refusal_ends_calls_of_which_nothing_left() {
    let (what, error) = (Unreachable::Refused { errno: 13 }, RpcError::NotSent { errno: 13 });
    for config in [users, Config::linux] {
        for (quoted, errors) in [(DATA, vec![error]), (OTHER, vec![])] {
            let (mut pair, id) = pair(config);
            pair.call_idempotent(100, 1);
            pair.run_for(Duration::micros(10));
            report(&mut pair, &id, what, quoted);
            assert_eq!(failures(&pair), errors, "{quoted:?}");
        }
    }
}

#[test]
fn a_report_about_the_host_does_not_cancel_a_request_in_service() {
    let (mut pair, _) = pair(users);
    pair.lose = Box::new(|_, _, _| false);
    pair.reply = None;
    pair.call(100, 1);
    pair.run_for(Duration::millis(1));
    let now = pair.now;
    pair.ends[SERVER].unreachable(now, PeerId(0), Unreachable::Host, None);
    pair.drain(SERVER);
    assert!(matches!(pair.seen[SERVER][..], [Observed::Request(..)]), "{:?}", pair.seen[SERVER]);
}

/// Servers may begin to execute a request before it is whole.
#[test]
fn only_the_first_data_proves_that_a_request_was_not_executed() {
    let mut later = Vec::new();
    for (quoted, error) in [
        (DATA, Some(RpcError::PortUnreachable)),
        (OTHER, Some(RpcError::Indeterminate)),
        (None, Some(RpcError::Indeterminate)),
    ] {
        let (mut pair, id) = pair(users);
        pair.call(1_000_000, 1);
        pair.run_for(Duration::micros(300));
        report(&mut pair, &id, PORT, quoted);
        // Without a proof, it waits for the answer to a RESEND.
        pair.run_for(Duration::millis(7));
        report(&mut pair, &id, PORT, None);
        later.push((failures(&pair).first().copied(), error));
    }
    assert!(later.iter().all(|(got, wanted)| got == wanted), "{later:?}");
}

#[test]
fn a_request_that_was_granted_may_be_in_execution() {
    let (mut pair, id) = pair(users);
    pair.lose = Box::new(|_, _, _| false);
    pair.call(1_000_000, 1);
    pair.run_for(Duration::micros(300));
    assert!(pair.ends[CLIENT].counters().grants_received > 0);
    report(&mut pair, &id, PORT, None);
    assert_eq!(failures(&pair), [RpcError::Indeterminate]);
}

/// A request that would be one packet by now, and was several.
#[test]
fn a_report_of_a_part_of_a_request_speaks_for_no_other() {
    let (mut pair, id) = pair(users);
    pair.call(4_000, 1);
    let first = pair.ends[CLIENT].transmit(pair.now).expect("its first packet");
    id.set(first.id.0);
    pair.now += Duration::micros(10);
    pair.call(100, 2);
    while pair.ends[CLIENT].transmit(pair.now).is_some() {}
    pair.ends[CLIENT].set_max_payload(PeerId(0), 8_900);
    report(&mut pair, &id, PORT, DATA);
    assert_eq!(failures(&pair), [RpcError::PortUnreachable]);
    assert_eq!(pair.seen[CLIENT].len(), 1, "the other waits");
}

/// Packets that left in one turn met one host. Earlier ones may be in service, and later ones have
/// separate reports.
#[test]
fn a_report_covers_packets_of_the_same_turn() {
    let (mut pair, id) = pair(users);
    pair.call(100, 1);
    pair.run_for(Duration::micros(10));
    // One turn of an environment that takes all packets there are.
    let now = pair.now;
    for cookie in 2..5 {
        pair.call(100, cookie);
    }
    while let Some(packet) = pair.ends[CLIENT].transmit(now) {
        id.set(packet.id.0);
    }
    report(&mut pair, &id, PORT, DATA);
    let error = RpcError::PortUnreachable;
    let failed: Vec<_> = (2..5).map(|cookie| Observed::Failed(cookie, error)).collect();
    assert_eq!(pair.seen[CLIENT], failed);
    pair.run_for(Duration::millis(7));
    report(&mut pair, &id, PORT, None);
    assert_eq!(pair.seen[CLIENT][3..], [Observed::Failed(1, RpcError::Indeterminate)]);
}

#[test]
fn an_idempotent_call_outlives_its_server_without_a_flood() {
    let (mut pair, id) = pair(users);
    pair.reply = None;
    pair.lose = Box::new(|_, _, _| false);
    pair.call_idempotent(5_000, 1);
    pair.run_for(Duration::millis(3));
    assert_eq!(pair.executions(), 1);
    // The process is gone, so the host reports each packet.
    pair.lose = Box::new(|from, _, _| from == CLIENT);
    let before = pair.sent[CLIENT];
    for _ in 0..1_000 {
        pair.run_for(Duration::millis(1));
        report(&mut pair, &id, PORT, None);
    }
    let packets = pair.sent[CLIENT] - before;
    assert!((40..55).contains(&packets), "{packets} in a second");
    // The server is back.
    pair.restart(SERVER, users(), 9);
    pair.lose = Box::new(|_, _, _| false);
    pair.reply = Some((100, Duration::micros(1)));
    pair.run_for(Duration::millis(30));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    pair.run_for(Duration::millis(60));
    pair.assert_clean();
}

#[test]
fn an_idempotent_call_still_has_a_deadline() {
    let (mut pair, id) = pair(users);
    pair.call_idempotent(100, 1);
    pair.run_for(Duration::micros(10));
    report(&mut pair, &id, PORT, DATA);
    assert_eq!(failures(&pair), []);
    pair.run_for(Duration::secs(10));
    assert_eq!(failures(&pair), [RpcError::DeadlineExceeded]);
}

/// The kernel module's rule; and in the paper, calls may be executed twice in any case.
#[test]
fn other_profiles_fail_every_call_of_the_peer() {
    for config in [Config::linux, || Config::sigcomm18(Rate::gbps(10))] {
        for idempotent in [false, true] {
            let (mut pair, id) = pair(config);
            pair.lose = Box::new(|_, _, _| false);
            pair.reply = None;
            if idempotent {
                pair.call_idempotent(5_000, 1)
            } else {
                pair.call(5_000, 1)
            };
            pair.run_for(Duration::millis(30));
            report(&mut pair, &id, PORT, None);
            assert_eq!(failures(&pair), [RpcError::PortUnreachable]);
        }
    }
}

/// Its last bytes and those of another left together, but its first packet, which came back, long
/// before: the server may have begun to listen in between.
#[test]
fn a_report_of_a_long_requests_first_packet_speaks_for_no_other() {
    let (mut pair, id) = pair(users);
    pair.call(5_000, 1);
    let now = pair.now;
    while let Some(packet) = pair.ends[CLIENT].transmit(now) {
        id.set(packet.id.0);
    }
    pair.call(100, 2);
    while pair.ends[CLIENT].transmit(now).is_some() {}
    report(&mut pair, &id, PORT, DATA);
    assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::PortUnreachable)]);
}

/// The first answer may be lost.
#[test]
fn a_call_to_a_closed_port_is_refused_each_time() {
    let (mut pair, _) = pair(users);
    let mut lost = 0;
    pair.lose = Box::new(move |_, packet, _| {
        lost += u32::from(matches!(packet.body, Body::RpcUnknown { .. }));
        matches!(packet.body, Body::RpcUnknown { .. }) && lost <= 2
    });
    pair.ends[SERVER].unlisten(PORTS[SERVER]);
    pair.call(100, 1);
    pair.run_for(Duration::millis(100));
    assert_eq!(failures(&pair), [RpcError::PortUnreachable]);
    // If executed calls are not remembered, the server cannot tell.
    let config = || users().completion(Completion::AtLeastOnce);
    let (mut pair, _) = self::pair(config);
    pair.lose = Box::new(|_, _, _| false);
    pair.ends[SERVER].unlisten(PORTS[SERVER]);
    pair.call(100, 1);
    pair.run_for(Duration::millis(100));
    assert_eq!(failures(&pair), [RpcError::Indeterminate]);
}

/// It learns that from its DATA, so a server that listens before its RESEND changes nothing.
#[test]
fn a_call_to_a_closed_port_is_refused_at_its_first_packet() {
    for length in [100, 9_000] {
        let (mut pair, _) = pair(users);
        pair.lose = Box::new(|_, _, _| false);
        pair.ends[SERVER].unlisten(PORTS[SERVER]);
        pair.call(length, 1);
        pair.run_for(Duration::millis(1));
        assert_eq!(failures(&pair), [RpcError::PortUnreachable]);
        assert_eq!(pair.ends[SERVER].counters().unknowns_sent, 1, "one answer a request");
        pair.ends[SERVER].listen(PORTS[SERVER]);
        pair.run_for(Duration::millis(100));
        assert_eq!(pair.executions(), 0);
        pair.assert_clean();
    }
    // A stranger's address may be spoofed.
    let config = || users().validate_addresses(true);
    let (mut pair, _) = pair(config);
    pair.lose = Box::new(|_, _, _| false);
    pair.ends[SERVER].unlisten(PORTS[SERVER]);
    pair.call(100, 1);
    pair.run_for(Duration::millis(1));
    assert_eq!(pair.sent[SERVER], 0, "{}", pair.transcript);
}

/// A call to an engine without a server, or whose server ended, learns that from its RESEND.
#[test]
fn an_engine_refuses_calls_to_its_closed_ports() {
    for (executed, restarts, error) in [
        (false, false, RpcError::PortUnreachable),
        (true, false, RpcError::Indeterminate),
        // Its memory begins after the call.
        (false, true, RpcError::Indeterminate),
    ] {
        let (mut pair, _) = pair(users);
        pair.reply = None;
        let (lost, mut told) = (restarts, 0);
        pair.lose = Box::new(move |from, packet, _| {
            let Body::RpcUnknown { no_server, .. } = packet.body else { return false };
            told += u32::from(from == SERVER);
            !no_server || lost && told == 1
        });
        if !executed {
            pair.ends[SERVER].unlisten(PORTS[SERVER]);
        }
        pair.call(100, 1);
        pair.run_for(Duration::millis(1));
        if restarts {
            pair.restart(SERVER, users(), 9);
        }
        pair.ends[SERVER].unlisten(PORTS[SERVER]);
        if let Some(&Observed::Request(rpc, _)) = pair.seen[SERVER].first() {
            pair.submit(SERVER, Submit::Cancel { rpc });
        }
        pair.run_for(Duration::millis(10));
        assert_eq!((failures(&pair), pair.executions()), (vec![error], usize::from(executed)));
        pair.assert_clean();
    }
}

#[test]
fn an_idempotent_call_waits_for_a_server_without_a_flood() {
    let (mut pair, _) = pair(users);
    pair.lose = Box::new(|_, _, _| false);
    pair.ends[SERVER].unlisten(PORTS[SERVER]);
    pair.call_idempotent(5_000, 1);
    pair.run_for(Duration::secs(1));
    assert!((40..60).contains(&pair.sent[CLIENT]), "{} in a second", pair.sent[CLIENT]);
    pair.ends[SERVER].listen(PORTS[SERVER]);
    pair.run_for(Duration::millis(30));
    assert_eq!((&pair.seen[CLIENT][..], pair.executions()), (&[Observed::Response(1, 100)][..], 1));
    pair.run_for(Duration::millis(100));
    pair.assert_clean();
}

/// Whenever it returns, and whether another engine at the address or the host itself says that it
/// is gone.
#[test]
fn idempotent_calls_find_a_server_within_30_ms_of_its_return() {
    for (icmp, calls, gone) in
        [(false, 1, 137), (false, 200, 64), (false, 200, 1_003), (true, 1, 177), (true, 50, 511)]
    {
        let (mut pair, id) = pair(users);
        watch(&mut pair, &id, icmp);
        pair.ends[SERVER].unlisten(PORTS[SERVER]);
        for cookie in 0..calls {
            pair.call_idempotent(100, cookie);
        }
        for _ in 0..gone {
            let before = pair.sent[CLIENT];
            pair.run_for(Duration::millis(1));
            // The host answers whatever arrives at the closed port.
            if icmp && pair.sent[CLIENT] > before {
                report(&mut pair, &id, PORT, DATA);
            }
        }
        let asked = pair.ends[CLIENT].counters().resends_sent;
        assert!(asked <= 3 + gone / 20, "{asked} for {calls} calls in {gone} ms");
        pair.ends[SERVER].listen(PORTS[SERVER]);
        pair.lose = Box::new(|_, _, _| false);
        pair.run_for(Duration::millis(30));
        assert_eq!(pair.executions() as u64, calls, "icmp {icmp} after {gone} ms");
    }
}

/// Another process, which challenges the client: the call gets a new id, under which nothing was
/// sent before the restart, so the client declares it as not executed.
#[test]
fn an_idempotent_call_finds_a_restarted_server_within_30_ms() {
    let validating = || users().validate_addresses(true);
    for gone in [10, 137, 1_003] {
        let mut pair = ClientAndServer::new(validating(), validating());
        pair.call(100, 0);
        pair.run_for(Duration::millis(5));
        pair.ends[SERVER].unlisten(PORTS[SERVER]);
        pair.call_idempotent(100, 1);
        pair.run_for(Duration::millis(gone));
        pair.restart(SERVER, validating(), 9);
        pair.run_for(Duration::millis(30));
        let answered = [0, 1].map(|call| Observed::Response(call, 100));
        assert_eq!(pair.seen[CLIENT], answered, "after {gone} ms");
    }
}

/// A router has no way for a moment (RFC 1122 §4.2.3.9).
#[test]
fn an_unreachable_host_ends_no_call_that_it_has_answered() {
    for (answered, seen) in [(true, vec![]), (false, vec![RpcError::Indeterminate])] {
        let (mut pair, id) = pair(users);
        watch(&mut pair, &id, false);
        pair.reply = None;
        if !answered {
            pair.lose = Box::new(|from, _, _| from == SERVER);
        }
        pair.call(5_000, 1);
        pair.run_for(Duration::millis(8));
        pair.ends[CLIENT].unreachable(pair.now, PeerId(0), Unreachable::Host, None);
        pair.drain(CLIENT);
        assert_eq!(failures(&pair), seen, "{}", pair.transcript);
    }
}

/// The RESEND overtook the request, and a server listens when the request arrives.
#[test]
fn a_refused_request_is_not_executed_later() {
    let (mut pair, _) = pair(users);
    pair.ends[SERVER].unlisten(PORTS[SERVER]);
    pair.lose = Box::new(|from, packet, _| from == CLIENT && matches!(packet.body, Body::Data(_)));
    pair.call(100, 1);
    let late = pair.ends[CLIENT].transmit(pair.now).expect("the request");
    pair.run_for(Duration::millis(10));
    assert_eq!(failures(&pair), [RpcError::PortUnreachable]);
    pair.ends[SERVER].listen(PORTS[SERVER]);
    pair.deliver(SERVER, &late);
    pair.run_for(Duration::millis(10));
    assert_eq!(pair.executions(), 0);
}

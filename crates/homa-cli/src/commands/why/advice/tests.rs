//! Evidence, and the advice that follows.

use super::super::server::{ServerTime, ServerView};
use super::super::split::FastestLink;
use super::*;

const US: f64 = 1e-6;

/// Evidence of RPCs of one direction with these times in microseconds, beside 40 for the link.
fn evidence(direction: &str, causes: &[(Cause, f64)]) -> Evidence {
    let times = causes.iter().map(|(cause, time)| (*cause, time * US));
    let times: Vec<_> = times.chain([(Cause::Link, 40.0 * US)]).collect();
    let slow = Slow::with(direction, 40.0 * US, &times);
    let time = if direction == "client" { [1.0, 0.0] } else { [0.0, 1.0] };
    Evidence { followed: 200.0, slow: vec![slow], time, ..Evidence::default() }
}

#[test]
fn each_cause_has_its_advice() {
    use Cause::{Accept, Application, Grant, Loss, Network, Queue, Receive, Server, Stalled};
    let link = FastestLink { rate: Some(1e10), ..FastestLink::default() };
    let full = |evidence| Evidence { sent: 9e9, link, ..evidence };
    let unsure = FastestLink { unsure: true, ..FastestLink::default() };
    let unsure = |evidence| Evidence { link: unsure, ..evidence };
    let overflows = |evidence| Evidence { overflows: 3.0, ..evidence };
    let black_holes = |evidence| Evidence { black_holes: 1.0, ..evidence };
    // Two stalls, which explain nothing that is not in the stage of stalls.
    let short = Stalls { times: 2.0, seconds: 20e-6, share: 1e-6 };
    let stalls = |evidence| Evidence { stalls: short, ..evidence };
    let same = |evidence: Evidence| evidence;
    type Row<'a> = (&'a [(Cause, f64)], &'a dyn Fn(Evidence) -> Evidence, Advice);
    let table: [Row<'_>; 28] = [
        (&[], &same, Advice::Fast),
        (&[(Queue, 10.0)], &same, Advice::Fast),
        (&[(Queue, 30.0)], &same, Advice::Fast),
        (&[(Stalled, 15.0)], &stalls, Advice::Fast),
        (&[(Queue, 500.0)], &same, Advice::MoreEngines),
        (&[(Queue, 500.0)], &full, Advice::LinkFull),
        (&[(Queue, 500.0)], &unsure, Advice::SetLinkRate),
        (&[(Queue, 500.0)], &stalls, Advice::MoreEngines),
        (&[(Queue, 500.0), (Grant, 400.0), (Loss, 300.0)], &same, Advice::Mixed),
        (&[(Queue, 500.0)], &|evidence| full(stalls(evidence)), Advice::LinkFull),
        (&[(Grant, 500.0), (Queue, 100.0)], &unsure, Advice::Grants),
        (&[(Grant, 500.0)], &stalls, Advice::Grants),
        // A process that is stopped now and then, and a message that waited for grants meanwhile.
        (&[(Grant, 400.0), (Stalled, 500.0)], &stalls, Advice::Processor),
        (&[(Queue, 100.0), (Accept, 90.0), (Stalled, 200.0)], &full, Advice::Processor),
        (&[(Grant, 500.0), (Stalled, 100.0)], &stalls, Advice::Grants),
        (&[(Grant, 100.0), (Queue, 150.0), (Stalled, 200.0)], &stalls, Advice::Mixed),
        (&[(Loss, 500.0)], &same, Advice::NetworkLoss),
        (&[(Loss, 500.0)], &overflows, Advice::ReceiveQueue),
        (&[(Loss, 500.0)], &black_holes, Advice::PathMtu),
        (&[(Network, 500.0)], &overflows, Advice::Priorities),
        (&[(Receive, 500.0)], &overflows, Advice::Priorities),
        (&[(Receive, 300.0), (Network, 300.0)], &same, Advice::Mixed),
        (&[(Server, 500.0)], &stalls, Advice::AskServer),
        (&[(Application, 500.0), (Loss, 20.0)], &overflows, Advice::Application),
        (&[(Application, 500.0)], &stalls, Advice::Application),
        (&[(Accept, 500.0), (Application, 90.0)], &same, Advice::AcceptSooner),
        (&[(Accept, 500.0)], &stalls, Advice::AcceptSooner),
        (&[(Application, 300.0), (Network, 200.0)], &full, Advice::Application),
    ];
    for direction in ["client", "server"] {
        for (causes, change, wanted) in &table {
            let evidence = change(evidence(direction, causes));
            let (advice, slow) = advise(&evidence);
            assert_eq!(advice, *wanted, "{direction} {causes:?}");
            assert_eq!(slow.unwrap().direction, direction);
        }
    }
    assert_eq!(advise(&Evidence::default()).0, Advice::NoRpcs);
}

#[test]
fn only_short_messages_need_priorities() {
    use Cause::{Network, Receive};
    let link = FastestLink { rate: Some(1e10), ..FastestLink::default() };
    let table = [
        ("short", 0.0, 9e9, Advice::Priorities),
        ("medium", 0.0, 1e9, Advice::Receiver),
        ("long", 0.0, 1e9, Advice::Receiver),
        ("medium", 0.0, 8e9, Advice::LinkFull),
        ("long", 7.0, 9e9, Advice::ReceiveQueue),
    ];
    for (size, overflows, received, wanted) in table {
        for (direction, cause) in [("server", Receive), ("client", Receive), ("client", Network)] {
            let mut of = evidence(direction, &[(cause, 500.0)]);
            of.slow[0].size = size.into();
            let of = Evidence { overflows, received, link, ..of };
            assert_eq!(advise(&of).0, wanted, "{direction} {size} {received}");
        }
    }
    // No rate, no full link.
    let mut of = Evidence { received: 9e9, ..evidence("server", &[(Receive, 500.0)]) };
    of.slow[0].size = "long".into();
    assert_eq!(advise(&of).0, Advice::Receiver);
}

#[test]
fn a_long_path_is_not_a_queue() {
    let of = |plain: f64| {
        let mut of = evidence("client", &[(Cause::Network, 900.0)]);
        of.slow[0].plain = plain * US;
        advise(&of).0
    };
    assert_eq!(of(0.0), Advice::Priorities);
    assert_eq!(of(300.0), Advice::Priorities, "most of it is beyond the round trip");
    assert_eq!(of(900.0), Advice::Path);
}

#[test]
fn a_stopped_server_is_found_although_its_engine_saw_no_waiting() {
    use Cause::{Accept, Application, Grant, Loss, Network, Queue, Receive, Server};
    // The slowest 5 % waited for 50 ms, or 0.5 ms, in the socket.
    let often = Stalls { times: 20.0, seconds: 2.0, share: 0.06 };
    let rarely = Stalls { share: 0.0005, ..often };
    let none = Stalls::default();
    let of_own = |stalls, causes: &[(Cause, f64)]| {
        advise(&Evidence { stalls, ..evidence("server", causes) }).0
    };
    assert_eq!(of_own(often, &[]), Advice::Processor, "its requests seem fast");
    assert_eq!(of_own(often, &[(Grant, 900.0)]), Advice::Processor);
    assert_eq!(of_own(often, &[(Application, 400e3)]), Advice::Application);
    assert_eq!(of_own(rarely, &[(Grant, 900.0)]), Advice::Grants);
    assert_eq!(of_own(none, &[]), Advice::Fast);
    // Its clients see the waiting, but not its reason.
    let of_server = |stalls, causes: &[(Cause, f64)]| {
        advise(&Evidence { server_stalls: Some(stalls), ..evidence("client", causes) }).0
    };
    for (cause, otherwise) in [
        (Network, Advice::Priorities),
        (Receive, Advice::Priorities),
        (Grant, Advice::Grants),
        (Loss, Advice::NetworkLoss),
        (Application, Advice::Application),
        (Accept, Advice::AcceptSooner),
        (Server, Advice::AskServer),
    ] {
        assert_eq!(of_server(often, &[(cause, 90e3)]), Advice::ServerProcessor, "{cause:?}");
        assert_eq!(of_server(rarely, &[(cause, 90e3)]), otherwise);
        assert_eq!(of_server(none, &[(cause, 90e3)]), otherwise);
    }
    assert_eq!(of_server(often, &[(Queue, 90e3)]), Advice::MoreEngines);
    assert_eq!(of_server(often, &[(Application, 400e3)]), Advice::Application);
    // Handlers that always take that long hold up their engine themselves.
    let mut always = evidence("client", &[(Application, 90e3)]);
    let time = ServerTime { fastest: 45e-3, ..ServerTime::default() };
    always.slow[0].server = ServerView::Known(time);
    let always = Evidence { server_stalls: Some(often), ..always };
    assert_eq!(advise(&always).0, Advice::Application);
    let client = Evidence { stalls: often, ..evidence("client", &[(Network, 900.0)]) };
    assert_eq!(advise(&client).0, Advice::Priorities, "a client's calls hold all of their waiting");
}

#[test]
fn few_slow_rpcs_decide_nothing() {
    let of = |rpcs: f64, cause: Cause| {
        let mut of = evidence("client", &[(cause, 500.0)]);
        of.slow[0].rpcs = rpcs;
        of
    };
    for rpcs in [1.0, 9.0] {
        assert_eq!(advise(&of(rpcs, Cause::Loss)).0, Advice::TooFew);
        assert_eq!(advise(&of(rpcs, Cause::Stalled)).0, Advice::TooFew);
    }
    assert_eq!(advise(&of(10.0, Cause::Loss)).0, Advice::NetworkLoss);
    // Enough of one size, and few of another that seem slower.
    let mut two = of(10.0, Cause::Loss);
    let few = |times: f64| {
        let mut few = Slow::with("client", 40.0 * US, &[(Cause::Queue, times * 40.0 * US)]);
        (few.size, few.rpcs, few.of) = ("long".into(), 3.0, 60.0);
        few
    };
    two.slow.push(few(90.0));
    assert_eq!(advise(&two).0, Advice::NetworkLoss);
    let mut fast = evidence("client", &[]);
    fast.slow.push(few(1.2));
    assert_eq!(advise(&fast).0, Advice::Fast);
    fast.slow[1] = few(90.0);
    let (advice, slow) = advise(&fast);
    assert_eq!((advice, slow.unwrap().size.as_str()), (Advice::TooFew, "long"), "not \"fast\"");
}

#[test]
fn the_size_that_suffers_most_is_the_one_to_look_at() {
    let mut evidence = evidence("client", &[(Cause::Queue, 100.0)]);
    let slow = |times: f64, size: &str, of: f64| {
        let causes = [(Cause::Link, 4e-3), (Cause::Grant, times * 4e-3)];
        let mut slow = Slow::with("client", 4e-3, &causes);
        (slow.size, slow.of) = (size.into(), of);
        slow
    };
    evidence.slow.push(slow(1.0, "long", 100.0));
    assert_eq!(advise(&evidence).0, Advice::MoreEngines);
    evidence.slow.push(slow(9.0, "long", 100.0));
    assert_eq!(advise(&evidence).0, Advice::Grants);
    // A handful of a size decides nothing.
    evidence.slow.push(slow(90.0, "medium", 1.0));
    assert_eq!(advise(&evidence).1.unwrap().size, "long");
}

#[test]
fn a_server_that_waits_for_its_own_calls_is_judged_by_them() {
    let mut both = evidence("server", &[(Cause::Application, 900.0)]);
    both.slow.extend(evidence("client", &[(Cause::Loss, 800.0)]).slow);
    both.time = [0.9, 1.0];
    assert_eq!(advise(&both).0, Advice::NetworkLoss);
    both.time = [0.1, 1.0];
    assert_eq!(advise(&both).0, Advice::Application);
}

//! The report in sentences.

use std::net::SocketAddr;

use super::advice::{Advice, FEW, remedy};
use super::split::{Cause, Evidence, Slow, Stalls};
use crate::pages::located;

/// A smaller share is not mentioned.
const SMALL: f64 = 0.01;

// Advice without numbers.
const ACCEPT_SOONER: &str = "\
    Use more threads that accept requests, or faster handlers: complete requests wait for one.";
const SET_LINK_RATE: &str = "\
    Set Config::link_rate (--link-rate): the engine does not know the rate of its link, so it \
    cannot order messages before the link does.";
const MORE_ENGINES: &str = "\
    Spread the peers over several engines (Engine::sharded): the core of this one, or its \
    queue, is the limit.";
const GRANTS: &str = "\
    Spread the long messages over more receivers, or over time: the link or the memory \
    (Config::memory_budget) of their receivers is shared by too many at once. If `homa top` at \
    a receiver shows stalls, its process does not run in time: remedy that first.";
const PATH_MTU: &str = "\
    Let ICMP pass, or set Config::mtu: large packets vanish on a path \
    (docs/operating/network.md).";
const NETWORK_LOSS: &str = "\
    Find where packets are lost: compare the drop counters of switch ports, by queue, with \
    homa_driver_receive_overflows_total and homa_protocol_drops_total of the peers \
    (docs/operating/metrics.md).";
const PRIORITIES: &str = "\
    Check with `homa ping SERVER --priorities` that the network honours DSCP, and map CS0 to \
    CS5 to strict priorities (docs/operating/network.md).";

/// The whole report, with the lines about restarts.
pub fn report(
    endpoint: SocketAddr,
    restarts: &[String],
    evidence: &Evidence,
    slow: Option<&Slow>,
    advised: Advice,
) -> String {
    let mut lines = vec![format!(
        "{endpoint}: {:.0} RPCs were followed in {:.0} s, one in 16.",
        evidence.followed, evidence.seconds
    )];
    lines.extend(restarts.iter().cloned());
    if let Some(slow) = slow {
        lines.push(String::new());
        lines.push(about(slow));
        let causes = Cause::ALL.into_iter().filter(|&cause| slow.share(cause) >= SMALL);
        let mut causes: Vec<Cause> = causes.collect();
        causes.sort_by(|a, b| slow.time(*b).total_cmp(&slow.time(*a)));
        lines.extend(causes.into_iter().map(|cause| sentence(slow, cause)));
        lines.extend(unseen(evidence, slow));
    }
    lines.push(String::new());
    lines.push(advice(evidence, slow, advised));
    lines.join("\n")
}

fn about(slow: &Slow) -> String {
    let what = if slow.direction == "client" { "Calls" } else { "Requests" };
    let size = match slow.size.as_str() {
        "short" => "of up to 1,400 bytes",
        "medium" => "of up to 65,536 bytes",
        _ => "of more than 65,536 bytes",
    };
    let best = match slow.direction.as_str() {
        "client" => "the shortest wait that was seen and the time of their bytes on the link",
        _ => "the time of their bytes on the link",
    };
    let share = slow.rpcs / slow.of * 100.0;
    let best = match slow.best > 0.0 {
        true => format!("The best is {}, {best}.", time(slow.best)),
        false => {
            "The link's rate is not known, so the time of the bytes is not counted.".to_owned()
        }
    };
    format!("{what} {size}: the slowest {share:.0} % took {} on average. {best}", time(slow.mean))
}

fn sentence(slow: &Slow, cause: Cause) -> String {
    let what = match cause {
        Cause::Link => "is the least that a round trip and the bytes on the link take",
        Cause::Queue => {
            "passed at the sender: other messages of this engine left first, or the pacer waited \
             for the link"
        }
        Cause::Grant => "passed while their receivers granted nothing",
        Cause::Loss => "passed until lost bytes came again",
        Cause::Network => "passed in the network, or while the peer sent other messages",
        Cause::Server => "passed in the server or in the network, which a client cannot tell apart",
        Cause::Accept => "passed before the server's application took the request",
        Cause::Application => "passed in the server's handlers",
        Cause::Stalled => "passed while this process did not run",
    };
    format!("- {:.0} % ({}) {what}.", slow.share(cause) * 100.0, time(slow.time(cause)))
}

/// What the times of requests do not hold, if it matters.
fn unseen(evidence: &Evidence, slow: &Slow) -> Option<String> {
    let why = match (slow.direction == "server", evidence.stalls.times, evidence.overflows) {
        (false, ..) | (_, 0.0, 0.0) => return None,
        (_, 0.0, lost) => format!("its queue was full and lost {lost:.0} datagrams"),
        _ => format!("the process did not run ({})", stalls(&evidence.stalls)),
    };
    Some(format!(
        "These times begin when the engine reads a request's first packet. How long packets waited \
         in the socket before, while {why}, is seen only at a client: run this there."
    ))
}

/// How often and how long a process did not run.
fn stalls(of: &Stalls) -> String {
    format!("{:.0} times, {} in all", of.times.max(1.0), time(of.seconds))
}

/// A time to watch in which enough slow RPCs are followed, if they are as frequent as they were:
/// seconds, and at least twice as long as before.
fn longer(watched: f64, rpcs: f64) -> u64 {
    const TIMES: [u64; 7] = [10, 30, 60, 120, 300, 600, 1_800];
    let enough = watched * (1.5 * FEW / rpcs.max(1.0)).max(2.0);
    let round = TIMES.into_iter().find(|&time| time as f64 >= enough);
    round.unwrap_or(3_600)
}

/// How to get more RPCs to look at.
fn more(evidence: &Evidence, slow: Option<&Slow>) -> String {
    let rpcs = slow.map_or(0.0, |slow| slow.rpcs);
    let longer = longer(evidence.seconds, rpcs);
    match slow {
        None => format!(
            "No RPC that was followed ended: run this while RPCs are slow, or for longer (--for \
             {longer}s)."
        ),
        Some(_) => format!(
            "Change nothing yet: only {rpcs:.0} slow RPCs were followed, which may be chance. At \
             least {FEW} are needed. Run this again for longer: --for {longer}s."
        ),
    }
}

/// The one thing to change.
pub fn advice(evidence: &Evidence, slow: Option<&Slow>, advice: Advice) -> String {
    located(&change(evidence, slow, advice))
}

/// The same; pages have their names in the repository.
fn change(evidence: &Evidence, slow: Option<&Slow>, advice: Advice) -> String {
    let share = |cause: Cause| slow.map_or(0.0, |slow| slow.share(cause)) * 100.0;
    let rate = evidence.rate.unwrap_or(0.0);
    match advice {
        Advice::NoRpcs | Advice::TooFew => more(evidence, slow),
        Advice::Fast => format!(
            "Change nothing: slow RPCs take {:.1} times the best.",
            slow.map_or(1.0, Slow::slowdown)
        ),
        Advice::Application => format!(
            "Change nothing about the network: the server's handlers take {:.0} % of the time.",
            share(Cause::Application)
        ),
        Advice::AcceptSooner => ACCEPT_SOONER.to_owned(),
        Advice::SetLinkRate => SET_LINK_RATE.to_owned(),
        Advice::LinkFull => format!(
            "Send less, or use a faster link: {} of {} are used.",
            bits(evidence.sent),
            bits(rate)
        ),
        Advice::MoreEngines => MORE_ENGINES.to_owned(),
        Advice::Grants => GRANTS.to_owned(),
        Advice::ReceiveQueue => format!(
            "Raise net.core.rmem_max and Config::receive_buffer: this host's own queue lost {:.0} \
             datagrams (docs/operating/host.md).",
            evidence.overflows
        ),
        Advice::PathMtu => PATH_MTU.to_owned(),
        Advice::NetworkLoss => NETWORK_LOSS.to_owned(),
        Advice::Processor => format!(
            "Give the process more processor time, and look for what stops it: it did not run in \
             time, {} (docs/operating/host.md).",
            stalls(&evidence.stalls)
        ),
        Advice::ServerProcessor => format!(
            "Give the server's process more processor time, and look for what stops it: it did \
             not run in time, {} (docs/operating/host.md).",
            stalls(&evidence.server_stalls.unwrap_or_default())
        ),
        Advice::Priorities => PRIORITIES.to_owned(),
        Advice::AskServer => format!(
            "Run this again with --server and the metrics endpoint of the server: {:.0} % of the \
             time passes there or on the way.",
            share(Cause::Server)
        ),
        Advice::Mixed => slow.map_or_else(String::new, |slow| {
            let most = slow.most();
            let first = remedy(evidence, slow, most);
            format!(
                "No single cause takes half of the time. The largest takes {:.0} %; begin there. \
                 {}",
                share(most),
                change(evidence, Some(slow), first)
            )
        }),
    }
}

/// A rate in bits per second, for people.
fn bits(rate: f64) -> String {
    match rate {
        r if r < 1e9 => format!("{:.1} Mbit/s", r / 1e6),
        r => format!("{:.1} Gbit/s", r / 1e9),
    }
}

/// A time in seconds, for people.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rpcs_end_with_how_to_get_more() {
        let of = |seconds, rpcs| {
            let evidence = Evidence { seconds, ..Evidence::default() };
            let mut slow = Slow::with("client", 1e-5, &[(Cause::Loss, 1e-2)]);
            slow.rpcs = rpcs;
            advice(&evidence, Some(&slow), Advice::TooFew)
        };
        let table = [
            (30.0, 9.0, 60),
            (30.0, 3.0, 300),
            (0.1, 1.0, 10),
            (30.0, 1.0, 600),
            (9e3, 9.0, 3_600),
        ];
        for (seconds, rpcs, longer) in table {
            let text = of(seconds, rpcs);
            assert!(text.starts_with("Change nothing yet: only "), "{text}");
            assert!(text.ends_with(&format!("for longer: --for {longer}s.")), "{text}");
        }
        let none = advice(&Evidence { seconds: 30.0, ..Evidence::default() }, None, Advice::NoRpcs);
        assert!(none.ends_with("for longer (--for 600s)."), "{none}");
    }

    #[test]
    fn mixed_causes_end_with_the_remedy_of_the_largest() {
        let causes = [(Cause::Link, 3e-4), (Cause::Loss, 4e-4), (Cause::Queue, 3.5e-4)];
        let slow = Slow::with("client", 3e-4, &causes);
        let evidence = Evidence { overflows: 7.0, ..Evidence::default() };
        let text = advice(&evidence, Some(&slow), Advice::Mixed);
        assert!(text.contains("The largest takes 38 %; begin there. Raise net.core"), "{text}");
        assert!(!text.contains("Change nothing"), "{text}");
    }

    #[test]
    fn a_server_says_what_it_cannot_see_if_that_matters() {
        let stalls = Stalls { times: 3.0, seconds: 0.6, share: 0.02 };
        let lost = Evidence { overflows: 7.0, ..Evidence::default() };
        let stalled = Evidence { stalls, ..lost.clone() };
        let said = |direction, evidence: &Evidence| {
            let slow = Slow::with(direction, 0.0, &[(Cause::Network, 1e-3)]);
            let text = report(([127, 0, 0, 1], 9).into(), &[], evidence, Some(&slow), Advice::Fast);
            let line = text.lines().find(|line| line.starts_with("These times begin when"));
            line.map(str::to_owned)
        };
        let expect = |line: Option<String>, part: &str| {
            assert!(line.as_ref().is_some_and(|line| line.contains(part)), "{line:?}");
        };
        expect(said("server", &stalled), "did not run (3 times, 600.00 ms in all)");
        expect(said("server", &lost), "its queue was full and lost 7 datagrams");
        assert_eq!(said("server", &Evidence::default()), None);
        assert_eq!(said("client", &stalled), None);
    }

    #[test]
    fn slow_links_have_a_rate_too() {
        let on = |sent, rate| {
            let evidence = Evidence { sent, rate: Some(rate), ..Evidence::default() };
            advice(&evidence, None, Advice::LinkFull)
        };
        assert!(on(1.9e6, 2e6).ends_with("1.9 Mbit/s of 2.0 Mbit/s are used."));
        assert!(on(9.5e9, 1e10).ends_with("9.5 Gbit/s of 10.0 Gbit/s are used."));
    }
}

//! The report in sentences.

use std::net::SocketAddr;

use super::advice::Advice;
use super::split::{Cause, Evidence, Slow};
use crate::pages::located;

/// Fewer slow RPCs than this may be chance.
const FEW: f64 = 10.0;
/// A smaller share is not mentioned.
const SMALL: f64 = 0.01;

/// The whole report.
pub fn report(
    endpoint: SocketAddr,
    evidence: &Evidence,
    slow: Option<&Slow>,
    advised: Advice,
) -> String {
    let mut lines = vec![format!(
        "{endpoint}: {:.0} RPCs were followed in {:.0} s, one in 16.",
        evidence.followed, evidence.seconds
    )];
    if let Some(slow) = slow {
        lines.push(String::new());
        lines.push(about(slow));
        let causes = Cause::ALL.into_iter().filter(|&cause| slow.share(cause) >= SMALL);
        let mut causes: Vec<Cause> = causes.collect();
        causes.sort_by(|a, b| slow.time(*b).total_cmp(&slow.time(*a)));
        lines.extend(causes.into_iter().map(|cause| sentence(slow, cause)));
        if slow.rpcs < FEW {
            lines.push(format!(
                "Only {:.0} slow RPCs were followed, which may be chance: watch longer (--for).",
                slow.rpcs
            ));
        }
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
    };
    format!("- {:.0} % ({}) {what}.", slow.share(cause) * 100.0, time(slow.time(cause)))
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
        Advice::NoRpcs => "No RPC that was followed ended: run this while RPCs are slow, or watch \
                           for longer (--for)."
            .to_owned(),
        Advice::Fast => format!(
            "Change nothing: slow RPCs take {:.1} times the best.",
            slow.map_or(1.0, Slow::slowdown)
        ),
        Advice::Application => format!(
            "Change nothing about the network: the server's handlers take {:.0} % of the time.",
            share(Cause::Application)
        ),
        Advice::AcceptSooner => "Use more threads that accept requests, or faster handlers: \
                                 complete requests wait for one."
            .to_owned(),
        Advice::SetLinkRate => "Set Config::link_rate (--link-rate): the engine does not know the \
                                rate of its link, so it cannot order messages before the link does."
            .to_owned(),
        Advice::LinkFull => format!(
            "Send less, or use a faster link: {} of {} are used.",
            bits(evidence.sent),
            bits(rate)
        ),
        Advice::MoreEngines => "Spread the peers over several engines (Engine::sharded): the core \
                                of this one, or its queue, is the limit."
            .to_owned(),
        Advice::Grants => {
            "Spread the long messages over more receivers, or over time: the link or \
                           the memory (Config::memory_budget) of their receivers is shared by too \
                           many at once."
                .to_owned()
        }
        Advice::ReceiveQueue => format!(
            "Raise net.core.rmem_max and Config::receive_buffer: this host's own queue lost {:.0} \
             datagrams (docs/operating/host.md).",
            evidence.overflows
        ),
        Advice::PathMtu => "Let ICMP pass, or set Config::mtu: large packets vanish on a path \
                            (docs/operating/network.md)."
            .to_owned(),
        Advice::NetworkLoss => "Find where packets are lost: compare the drop counters of switch \
                                ports, by queue, with homa_driver_receive_overflows_total and \
                                homa_protocol_drops_total of the peers (docs/operating/metrics.md)."
            .to_owned(),
        Advice::Processor => format!(
            "Give the process more processor time: it did not run in time, {:.0} times \
             (docs/operating/host.md).",
            evidence.stalls
        ),
        Advice::Priorities => {
            "Check with `homa ping SERVER --priorities` that the network honours \
                               DSCP, and map CS0 to CS5 to strict priorities \
                               (docs/operating/network.md)."
                .to_owned()
        }
        Advice::AskServer => format!(
            "Run this again with --server and the metrics endpoint of the server: {:.0} % of the \
             time passes there or on the way.",
            share(Cause::Server)
        ),
        Advice::Mixed => "Change nothing yet: no single cause takes half of the time. Begin with \
                          the first of the list."
            .to_owned(),
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
    fn slow_links_have_a_rate_too() {
        let on = |sent, rate| {
            let evidence = Evidence { sent, rate: Some(rate), ..Evidence::default() };
            advice(&evidence, None, Advice::LinkFull)
        };
        assert!(on(1.9e6, 2e6).ends_with("1.9 Mbit/s of 2.0 Mbit/s are used."));
        assert!(on(9.5e9, 1e10).ends_with("9.5 Gbit/s of 10.0 Gbit/s are used."));
    }
}

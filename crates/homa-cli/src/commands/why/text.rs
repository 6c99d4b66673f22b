//! The report in sentences.

use std::net::SocketAddr;

use super::advice::{Advice, FEW, remedy};
use super::server::ServerView;
use super::split::{Cause, Evidence, Slow};
use super::stalls::Stalls;
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

const RECEIVER: &str = "\
    Spread the peers over several engines (Engine::sharded), or the messages over time: messages \
    of this size share the engine that receives them. A larger receive queue lets it grant more at \
    once (Config::receive_buffer and net.core.rmem_max, docs/operating/host.md).";

/// The whole report, with notes about the endpoints.
pub fn report(
    endpoint: SocketAddr,
    notes: &[String],
    evidence: &Evidence,
    slow: Option<&Slow>,
    advised: Advice,
) -> String {
    let mut lines = vec![format!(
        "{endpoint}: {:.0} RPCs were followed in {:.0} s, one in 16.",
        evidence.followed, evidence.seconds
    )];
    lines.extend(notes.iter().cloned());
    if let Some(slow) = slow {
        lines.push(String::new());
        lines.push(about(evidence, slow));
        let causes = Cause::ALL.into_iter().filter(|&cause| slow.share(cause) >= SMALL);
        let mut causes: Vec<Cause> = causes.collect();
        causes.sort_by(|a, b| slow.time(*b).total_cmp(&slow.time(*a)));
        lines.extend(causes.into_iter().map(|cause| sentence(slow, cause)));
        lines.extend(unseen(evidence, slow));
        lines.extend(of_server(evidence, slow));
    }
    lines.push(String::new());
    lines.push(advice(evidence, slow, advised));
    lines.join("\n")
}

fn about(evidence: &Evidence, slow: &Slow) -> String {
    let what = if slow.direction == "client" { "Calls" } else { "Requests" };
    let size = match slow.size.as_str() {
        "short" => "of up to 1,400 bytes",
        "medium" => "of up to 65,536 bytes",
        _ => "of more than 65,536 bytes",
    };
    let (share, mean) = (slow.rpcs / slow.of * 100.0, time(slow.mean));
    let best = [best(evidence, slow), of_link(evidence)].into_iter().flatten();
    let best: Vec<String> = best.collect();
    format!("{what} {size}: the slowest {share:.0} % took {mean} on average. {}", best.join(" "))
}

/// What the best is; `None` if it is not known.
fn best(evidence: &Evidence, slow: &Slow) -> Option<String> {
    let bytes = evidence.link.rate.map(|_| "the time of their bytes on the link");
    let wait = match evidence.too_long() {
        _ if slow.direction != "client" || evidence.shortest <= 0.0 => None,
        None => Some("the shortest wait that was seen".to_owned()),
        Some(shortest) => Some(format!(
            "a round trip that is assumed, because no wait this short was seen (the shortest was \
             {})",
            time(shortest)
        )),
    };
    let parts: Vec<String> = wait.into_iter().chain(bytes.map(str::to_owned)).collect();
    (!parts.is_empty())
        .then(|| format!("The best is {}, {}.", time(slow.best), parts.join(" and ")))
}

/// Why the best does not contain the time of bytes on the link; `None` if it does.
fn of_link(evidence: &Evidence) -> Option<String> {
    let why = match evidence.link {
        link if link.rate.is_some() => return None,
        link if link.unlimited => "The link has no limit, so its bytes take no time.",
        _ => "The link's rate is not known, so the time of the bytes is not counted.",
    };
    Some(why.to_owned())
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
        Cause::Receive => {
            "passed while the peer's message arrived: it shares the link with other messages that \
             this engine receives"
        }
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

/// What matters about the server that a client calls.
fn of_server(evidence: &Evidence, slow: &Slow) -> Vec<String> {
    if slow.direction != "client" {
        return Vec::new();
    }
    let few = match slow.server {
        ServerView::Few(followed) if followed > 0.0 => Some(format!(
            "The server followed only {followed:.0} such requests, so its part of the time is not \
             known."
        )),
        ServerView::Few(_) => Some(
            "The server followed no such requests, so its part of the time is not known: is it \
             the right one?"
                .to_owned(),
        ),
        ServerView::NotAsked | ServerView::Known(_) => None,
    };
    let stalled = evidence.server_stalls.filter(|of| of.times > 0.0);
    let stalled = stalled
        .map(|of| format!("The server's process did not run in time meanwhile: {}.", stalls(&of)));
    few.into_iter().chain(stalled).collect()
}

/// How often and how long a process did not run.
fn stalls(of: &Stalls) -> String {
    let (times, all) = (of.times.max(1.0), time(of.seconds));
    if times < 1.5 { format!("once, for {all}") } else { format!("{times:.0} times, {all} in all") }
}

/// A time to watch in which enough slow RPCs are followed, if they are as frequent as they were:
/// seconds, and at least twice as long as the user asked for. `watched` may be shorter than that,
/// for example since a restart.
fn longer(watched: f64, asked: f64, rpcs: f64) -> u64 {
    const TIMES: [u64; 8] = [10, 30, 60, 120, 300, 600, 1_800, 3_600];
    let least = watched.max(asked) * 2.0;
    let enough = (watched * 1.5 * FEW / rpcs.max(1.0)).max(least);
    let round = TIMES.into_iter().find(|&time| time as f64 >= enough);
    round.unwrap_or((least.ceil() as u64).max(3_600))
}

/// How to get more RPCs to look at.
fn more(evidence: &Evidence, slow: Option<&Slow>) -> String {
    let rpcs = slow.map_or(0.0, |slow| slow.rpcs);
    let longer = longer(evidence.seconds, evidence.asked, rpcs);
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
        Advice::LinkFull => link_full(evidence, slow),
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
        Advice::Receiver => RECEIVER.to_owned(),
        Advice::Path => format!(
            "Change nothing at the hosts: the path itself is long. Even the shortest wait was {}, \
             and neither priorities nor engines shorten it. `homa ping SERVER` shows the round \
             trip.",
            time(evidence.shortest)
        ),
        Advice::AskServer => ask_server(slow, share(Cause::Server)),
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

/// Which direction of the link is full.
fn link_full(evidence: &Evidence, slow: Option<&Slow>) -> String {
    let receives = |slow: &Slow| matches!(slow.most(), Cause::Receive | Cause::Network);
    let (what, used) = match slow.is_some_and(receives) {
        true => ("Receive less", evidence.received),
        false => ("Send less", evidence.sent),
    };
    let rate = evidence.link.rate.unwrap_or(0.0);
    format!("{what}, or use a faster link: {} of {} are used.", bits(used), bits(rate))
}

/// Where to find the server's part of the time, which is not known.
fn ask_server(slow: Option<&Slow>, share: f64) -> String {
    let server = match slow.map(|slow| slow.server) {
        Some(ServerView::Few(_)) => {
            "Run this again, and give --server the metrics endpoint of the server that is called \
             most, not of another one"
        }
        _ => "Run this again with --server and the metrics endpoint of the server",
    };
    format!("{server}: {share:.0} % of the time passes there or on the way.")
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
mod tests;

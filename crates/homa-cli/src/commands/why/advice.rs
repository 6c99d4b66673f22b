//! Which one thing to change.

use super::split::{Cause, Evidence, Slow};

/// A cause with this share of the time is the one to remedy.
const MOST: f64 = 0.5;
/// RPCs that take no longer than this many times the best are fast.
const FAST: f64 = 1.5;
/// A link that is used for more than this share is full: queues grow without bound at 100 %.
const FULL: f64 = 0.8;
/// A class of RPCs with a smaller share of the followed ones is not looked at.
const RARE: f64 = 0.02;

/// The one thing to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No RPC that was followed ended.
    NoRpcs,
    /// The RPCs are about as fast as the link.
    Fast,
    /// Nothing in the network: the time is that of the server's application.
    Application,
    /// More threads that take requests.
    AcceptSooner,
    /// Tell the engine the rate of the link.
    SetLinkRate,
    /// The link is full.
    LinkFull,
    /// The engine's core is busy, or longer messages wait for shorter ones.
    MoreEngines,
    /// The receivers grant too little.
    Grants,
    /// The own receive queue is too small.
    ReceiveQueue,
    /// A path takes smaller packets than announced.
    PathMtu,
    /// The network loses packets.
    NetworkLoss,
    /// The process does not run.
    Processor,
    /// Short RPCs wait in the network.
    Priorities,
    /// Look at the server.
    AskServer,
    /// No cause stands out.
    Mixed,
}

impl Advice {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRpcs => "no_rpcs",
            Self::Fast => "fast",
            Self::Application => "application",
            Self::AcceptSooner => "accept_sooner",
            Self::SetLinkRate => "set_link_rate",
            Self::LinkFull => "link_full",
            Self::MoreEngines => "more_engines",
            Self::Grants => "grants",
            Self::ReceiveQueue => "receive_queue",
            Self::PathMtu => "path_mtu",
            Self::NetworkLoss => "network_loss",
            Self::Processor => "processor",
            Self::Priorities => "priorities",
            Self::AskServer => "ask_server",
            Self::Mixed => "mixed",
        }
    }
}

/// The advice, and the RPCs that it is about.
pub fn advise(evidence: &Evidence) -> (Advice, Option<&Slow>) {
    let Some(slow) = worst(evidence, side(evidence)) else { return (Advice::NoRpcs, None) };
    let advice = about(evidence, slow);
    // The application may have waited for other servers.
    let [calls, requests] = evidence.time;
    if advice == Advice::Application
        && slow.direction == "server"
        && calls * 2.0 >= requests
        && let Some(slow) = worst(evidence, "client")
    {
        return (about(evidence, slow), Some(slow));
    }
    (advice, Some(slow))
}

/// The direction with more time.
fn side(evidence: &Evidence) -> &'static str {
    let [calls, requests] = evidence.time;
    if calls >= requests { "client" } else { "server" }
}

/// The size whose slow RPCs are slowest in comparison with the best.
fn worst<'a>(evidence: &'a Evidence, direction: &str) -> Option<&'a Slow> {
    let all = evidence.slow.iter().filter(|slow| slow.direction == direction);
    let frequent = all.clone().filter(|slow| slow.of >= RARE * evidence.followed);
    frequent.max_by(|a, b| a.slowdown().total_cmp(&b.slowdown()))
}

/// The advice about RPCs of one direction and size.
fn about(evidence: &Evidence, slow: &Slow) -> Advice {
    if slow.slowdown() < FAST {
        return Advice::Fast;
    }
    let causes = Cause::ALL.into_iter().filter(|&cause| cause != Cause::Link);
    let Some(most) = causes.max_by(|a, b| slow.time(*a).total_cmp(&slow.time(*b))) else {
        return Advice::Mixed;
    };
    if slow.share(most) < MOST {
        return if slow.share(Cause::Link) >= MOST { Advice::Fast } else { Advice::Mixed };
    }
    let full = evidence.rate.is_some_and(|rate| evidence.sent >= FULL * rate);
    match most {
        Cause::Application => Advice::Application,
        Cause::Server => Advice::AskServer,
        Cause::Grant => Advice::Grants,
        Cause::Queue if full => Advice::LinkFull,
        // A process that does not run delays its own part: sending, reading, and accepting.
        _ if evidence.stalls > 0.0 => Advice::Processor,
        Cause::Accept => Advice::AcceptSooner,
        Cause::Loss if evidence.overflows > 0.0 => Advice::ReceiveQueue,
        Cause::Loss if evidence.black_holes > 0.0 => Advice::PathMtu,
        Cause::Loss => Advice::NetworkLoss,
        Cause::Queue if evidence.rate_is_unsure => Advice::SetLinkRate,
        Cause::Queue => Advice::MoreEngines,
        Cause::Network | Cause::Link => Advice::Priorities,
    }
}

#[cfg(test)]
mod tests {
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
        use Cause::{Accept, Application, Grant, Loss, Network, Queue, Server};
        let full = |evidence| Evidence { sent: 9e9, rate: Some(1e10), ..evidence };
        let unsure = |evidence| Evidence { rate_is_unsure: true, ..evidence };
        let overflows = |evidence| Evidence { overflows: 3.0, ..evidence };
        let black_holes = |evidence| Evidence { black_holes: 1.0, ..evidence };
        let stalls = |evidence| Evidence { stalls: 2.0, ..evidence };
        let same = |evidence: Evidence| evidence;
        type Row<'a> = (&'a [(Cause, f64)], &'a dyn Fn(Evidence) -> Evidence, Advice);
        let table: [Row<'_>; 22] = [
            (&[], &same, Advice::Fast),
            (&[(Queue, 10.0)], &same, Advice::Fast),
            (&[(Queue, 30.0)], &same, Advice::Fast),
            (&[(Queue, 500.0)], &same, Advice::MoreEngines),
            (&[(Queue, 500.0)], &full, Advice::LinkFull),
            (&[(Queue, 500.0)], &unsure, Advice::SetLinkRate),
            (&[(Queue, 500.0)], &stalls, Advice::Processor),
            (&[(Queue, 500.0), (Grant, 400.0), (Loss, 300.0)], &same, Advice::Mixed),
            (&[(Queue, 500.0)], &|evidence| full(stalls(evidence)), Advice::LinkFull),
            (&[(Grant, 500.0), (Queue, 100.0)], &unsure, Advice::Grants),
            (&[(Grant, 500.0)], &stalls, Advice::Grants),
            (&[(Loss, 500.0)], &same, Advice::NetworkLoss),
            (&[(Loss, 500.0)], &overflows, Advice::ReceiveQueue),
            (&[(Loss, 500.0)], &black_holes, Advice::PathMtu),
            (&[(Loss, 500.0)], &stalls, Advice::Processor),
            (&[(Network, 500.0)], &overflows, Advice::Priorities),
            (&[(Server, 500.0)], &stalls, Advice::AskServer),
            (&[(Application, 500.0), (Loss, 20.0)], &overflows, Advice::Application),
            (&[(Application, 500.0)], &stalls, Advice::Application),
            (&[(Accept, 500.0), (Application, 90.0)], &same, Advice::AcceptSooner),
            (&[(Accept, 500.0)], &stalls, Advice::Processor),
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
}

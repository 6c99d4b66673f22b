//! Which one thing to change.

use super::split::{Cause, Evidence, Slow};
use super::stalls::Stalls;

/// A cause with this share of the time is the one to remedy.
const MOST: f64 = 0.5;
/// RPCs that take no longer than this many times the best are fast.
const FAST: f64 = 1.5;
/// A link that is used for more than this share is full: queues grow without bound at 100 %.
const FULL: f64 = 0.8;
/// Fewer slow RPCs than this decide nothing: they may be chance.
pub const FEW: f64 = 10.0;
/// A class of RPCs with a smaller share of the followed ones is not looked at.
const RARE: f64 = 0.02;

/// The one thing to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No RPC that was followed ended.
    NoRpcs,
    /// So few did that they may be chance.
    TooFew,
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
    /// The process of the server does not run.
    ServerProcessor,
    /// Short RPCs wait in the network.
    Priorities,
    /// Longer messages wait at the engine that receives them.
    Receiver,
    /// The path takes that long without any queue.
    Path,
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
            Self::TooFew => "too_few",
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
            Self::ServerProcessor => "server_processor",
            Self::Priorities => "priorities",
            Self::Receiver => "receiver",
            Self::Path => "path",
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

/// The size whose slow RPCs are slowest in comparison with the best, of those with enough of them.
/// One with too few is looked at if there is no other, or if it is slow and the others are not.
fn worst<'a>(evidence: &'a Evidence, direction: &str) -> Option<&'a Slow> {
    let all = evidence.slow.iter().filter(|slow| slow.direction == direction);
    let frequent = all.filter(|slow| slow.of >= RARE * evidence.followed);
    let (few, enough): (Vec<&Slow>, Vec<&Slow>) = frequent.partition(|slow| slow.rpcs < FEW);
    let slowest =
        |of: Vec<&'a Slow>| of.into_iter().max_by(|a, b| a.slowdown().total_cmp(&b.slowdown()));
    match (slowest(enough), slowest(few)) {
        (Some(sure), Some(unsure)) if sure.slowdown() < FAST && unsure.slowdown() >= FAST => {
            Some(unsure)
        }
        (Some(sure), _) => Some(sure),
        (None, unsure) => unsure,
    }
}

/// The advice about RPCs of one direction and size.
fn about(evidence: &Evidence, slow: &Slow) -> Advice {
    if slow.rpcs < FEW {
        return Advice::TooFew;
    }
    if are_due_to_stalls(slow, &evidence.stalls) {
        return Advice::Processor;
    }
    if slow.slowdown() < FAST {
        return Advice::Fast;
    }
    let most = slow.most();
    match slow.share(most) >= MOST {
        true => remedy(evidence, slow, most),
        false if slow.share(Cause::Link) >= MOST => Advice::Fast,
        false => Advice::Mixed,
    }
}

/// True if stalls of the own process take most of the time beyond the best. A server's requests
/// also wait in its socket meanwhile, before the engine sees them.
fn are_due_to_stalls(slow: &Slow, stalls: &Stalls) -> bool {
    let unseen = if slow.direction == "server" { stalls.unseen() } else { 0.0 };
    let stalled = slow.time(Cause::Stalled) + unseen;
    let beyond = slow.mean + unseen - slow.best;
    stalled > 0.0 && stalled >= MOST * beyond && slow.slowdown_after(unseen) >= FAST
}

/// The remedy for a cause of slow RPCs.
pub fn remedy(evidence: &Evidence, slow: &Slow, cause: Cause) -> Advice {
    let full = |bits| evidence.fills(bits, FULL);
    match cause {
        Cause::Stalled => Advice::Processor,
        cause if is_due_to_the_servers_stalls(evidence, slow, cause) => Advice::ServerProcessor,
        Cause::Application => Advice::Application,
        Cause::Server => Advice::AskServer,
        Cause::Grant => Advice::Grants,
        Cause::Accept => Advice::AcceptSooner,
        Cause::Loss if evidence.overflows > 0.0 => Advice::ReceiveQueue,
        Cause::Loss if evidence.black_holes > 0.0 => Advice::PathMtu,
        Cause::Loss => Advice::NetworkLoss,
        Cause::Queue if full(evidence.sent) => Advice::LinkFull,
        Cause::Queue if evidence.link.unsure => Advice::SetLinkRate,
        Cause::Queue => Advice::MoreEngines,
        Cause::Network if slow.plain > 0.0 && slow.plain >= MOST * slow.time(cause) => Advice::Path,
        Cause::Network | Cause::Receive | Cause::Link => shared(evidence, slow),
    }
}

/// The remedy if messages wait on the way, or arrive slowly. Priorities let short ones pass others;
/// longer ones share what their receiver has.
fn shared(evidence: &Evidence, slow: &Slow) -> Advice {
    if slow.size == "short" {
        Advice::Priorities
    } else if evidence.overflows > 0.0 {
        Advice::ReceiveQueue
    } else if evidence.fills(evidence.received, FULL) {
        Advice::LinkFull
    } else {
        Advice::Receiver
    }
}

/// True if stalls of the server's process explain most of a client's time. A server that does not
/// run neither reads, nor answers, nor grants, and asks too late for lost packets.
fn is_due_to_the_servers_stalls(evidence: &Evidence, slow: &Slow, cause: Cause) -> bool {
    let unseen = evidence.server_stalls.unwrap_or_default().unseen();
    // Handlers that always take that long may be what holds up an engine in their thread.
    let always = slow.server.time().map_or(0.0, |time| time.fastest);
    let explained = match cause {
        Cause::Application => unseen - always,
        Cause::Network | Cause::Receive | Cause::Grant | Cause::Loss => unseen,
        Cause::Accept | Cause::Server => unseen,
        Cause::Link | Cause::Queue | Cause::Stalled => 0.0,
    };
    slow.direction == "client" && explained > 0.0 && explained >= MOST * slow.time(cause)
}

#[cfg(test)]
mod tests;

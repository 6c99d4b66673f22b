//! The budget of each link: how many bytes may be queued below at a time ([`LinkPacer`]). The
//! kernel's routes choose the interface, and thus the link, of each peer.
//!
//! The kernel is asked for the route of a peer before a message to it is submitted, and again
//! before the next one if it reported that links or routes changed. If a link's rate is unknown,
//! the pacer goes by the bytes that are queued, which the kernel counts per socket; therefore the
//! driver has a socket for each link. Loopback has no queue. If the user configured a rate, there
//! is one link.
//!
//! Control packets are charged to a link, but do not wait for it, because other packets wait for
//! them.
//!
//! Invariants: the protocol never learns a rate that is only a guess. A link without budget does
//! not delay packets of another. If something cannot be looked up, it is unknown.

use std::net::{IpAddr, SocketAddr};

use homa_proto::{Duration, Endpoint, FULL_FRAME, LinkId, LinkInfo, Links, Rate, Time};

use super::shard_group::{LinkShare, ShardGroup};
use crate::config::{Config, LOOPBACK, rtt_bytes_max};
use crate::egress::kernel::Kernel;
use crate::egress::{Egress, Interfaces, LinkRate};
use crate::metrics::LinkMetrics;
use crate::pacer::LinkPacer;

/// The first link. Also the link of peers without a known route, and of all peers if there are no
/// routes.
const FIRST: LinkId = LinkId(0);
/// How often the kernel is asked whether links or routes changed.
const CHECK: Duration = Duration::secs(1);
/// Wire bytes of control packets that may leave at once although the link has no budget.
const CONTROL: u32 = 16 * FULL_FRAME;

/// The links of an engine.
pub struct LinkBudgets {
    kernel: Option<Kernel>,
    interfaces: Interfaces,
    /// By link number.
    links: Vec<LinkBudget>,
    /// Delays counted for links whose numbers were reused.
    waits: u64,
    /// Counts changes of the kernel's links and routes, from 1.
    generation: u32,
    checked: Time,
    /// The link to serve next.
    next: usize,
    /// The rate that the protocol's configuration gives for all links.
    protocol: Option<Rate>,
    /// The rate that the user configured.
    configured: Option<Rate>,
    /// The local address of the engine, if it is bound to one: routes may depend on it.
    bound: Option<IpAddr>,
    /// Each of this many engines has an equal, fixed part of the links' rates (`Config::sharing`).
    sharing: u64,
    /// The engines that share that part equally while they send.
    shard_group: Option<ShardGroup>,
}

/// The bytes that may be pulled now.
#[derive(Clone, Copy, Debug)]
pub struct SendBudget {
    /// The link to be charged.
    pub link: LinkId,
    /// Wire bytes.
    pub bytes: u32,
    /// The links whose messages may be pulled; none means control packets only.
    pub links: Links,
}

struct LinkBudget {
    /// `None` until an interface is needed.
    egress: Option<Egress>,
    pacer: LinkPacer,
    share: Option<LinkShare>,
}

impl LinkBudget {
    fn index(&self) -> Option<u32> {
        self.egress.as_ref().map(|egress| egress.index)
    }
}

impl LinkBudgets {
    /// The links of an engine. With `routed`, the kernel's routes choose between them.
    pub fn new(
        config: &Config,
        routed: bool,
        shard_group: Option<ShardGroup>,
        endpoint: &mut Endpoint,
    ) -> Self {
        let configured = config.link_rate;
        let protocol = endpoint.config().link_rate;
        let sharing = u64::from(config.protocol.sharing.max(1));
        // A rate that the user configured replaces all that the kernel could say.
        let kernel = match routed && configured.is_none() {
            true => Kernel::open().inspect_err(|error| {
                tracing::info!(%error, "netlink is refused: rates of links are unknown");
            }),
            false => Err(std::io::ErrorKind::Unsupported.into()),
        };
        let mut links = Self {
            kernel: kernel.ok(),
            interfaces: Interfaces::default(),
            links: vec![LinkBudget {
                egress: None,
                pacer: LinkPacer::new(divided(configured, sharing)),
                share: shard_group
                    .as_ref()
                    .map(|shard_group| shard_group.link(None, endpoint.received_by(FIRST))),
            }],
            waits: 0,
            generation: 1,
            checked: Time::ZERO,
            next: 0,
            protocol,
            configured,
            bound: None,
            sharing,
            shard_group,
        };
        // A driver without routes has no link below it that could be slow.
        let alone = if routed { None } else { Some(LOOPBACK) };
        links.set_link(FIRST, protocol, alone, endpoint);
        links.list();
        links
    }

    /// Sets the local address that packets leave from, unless it is unspecified.
    pub fn set_bound(&mut self, address: IpAddr) {
        self.bound = Some(address).filter(|address| !address.is_unspecified());
    }

    /// The generation of the kernel's links and routes; 0 if the kernel is not asked.
    pub fn generation(&self) -> u32 {
        if self.kernel.is_some() { self.generation } else { 0 }
    }

    /// Checks, at most once a second, whether links or routes changed.
    pub fn refresh(&mut self, now: Time, endpoint: &mut Endpoint) {
        // At most once a second, because it takes a system call.
        let Some(kernel) = self.kernel.as_mut().filter(|_| now >= self.checked + CHECK) else {
            return;
        };
        self.checked = now;
        if kernel.has_changed() {
            self.generation = self.generation.wrapping_add(1).max(1);
            self.list();
            self.renew(endpoint);
        }
    }

    fn list(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            self.interfaces = kernel.interfaces().unwrap_or_default();
        }
    }

    /// Updates the rates that changed. A link whose interface is gone keeps its number,
    /// because messages in progress use it.
    fn renew(&mut self, endpoint: &mut Endpoint) {
        for at in 0..self.links.len() {
            let Some(before) = self.links[at].egress.clone() else { continue };
            let unknown = || Egress { rate: LinkRate::Unknown, ..before.clone() };
            let egress = self.egress(before.index).unwrap_or_else(unknown);
            if egress.rate != before.rate {
                self.place(at, egress, endpoint);
            }
        }
    }

    fn egress(&self, index: u32) -> Option<Egress> {
        let kernel = self.kernel.as_ref()?;
        self.interfaces.egress(index, &|name| kernel.speed(name))
    }

    /// The link to a peer.
    pub fn link_to(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        endpoint: &mut Endpoint,
    ) -> LinkId {
        let Some(kernel) = &mut self.kernel else { return FIRST };
        let scope = match to {
            SocketAddr::V6(to) => to.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let from = from.or(self.bound);
        let mut route = kernel.route(to.ip(), scope, from);
        // The kernel may have no route from that address, but one to the peer.
        if route.is_none() && from.is_some() {
            route = kernel.route(to.ip(), scope, None);
        }
        match route.and_then(|index| self.egress(index)) {
            Some(egress) => self.link_of(egress, endpoint),
            None => FIRST,
        }
    }

    /// The number of an interface, which is new if necessary; the first link if there are too many.
    fn link_of(&mut self, egress: Egress, endpoint: &mut Endpoint) -> LinkId {
        let found = self.links.iter().position(|link| link.index() == Some(egress.index));
        // The interface of such a link is gone, so its number can be used again.
        let free = |link: &LinkBudget| link.index().is_none_or(|at| !self.interfaces.contains(at));
        let at = match found.or_else(|| self.links.iter().position(free)) {
            Some(at) => at,
            None if self.links.len() < usize::from(LinkId::MAX) => {
                self.links.push(LinkBudget {
                    egress: None,
                    pacer: LinkPacer::new(None),
                    share: None,
                });
                self.links.len() - 1
            }
            None => return FIRST,
        };
        // Another interface begins with nothing queued.
        if self.links[at].index() != Some(egress.index) {
            let before = std::mem::replace(&mut self.links[at].pacer, LinkPacer::new(None));
            self.waits += before.waits();
            self.links[at].share = None;
        }
        let (link, index) = (LinkId(at as u8), egress.index);
        if self.links[at].egress.as_ref() != Some(&egress) {
            self.place(at, egress, endpoint);
        }
        if self.links[at].share.is_none() {
            // By now the endpoint has the link, including the bytes that arrived earlier by this
            // number.
            let share = |shard_group: &ShardGroup| {
                shard_group.link(Some(index), endpoint.received_by(link))
            };
            self.links[at].share = self.shard_group.as_ref().map(share);
        }
        link
    }

    fn place(&mut self, at: usize, egress: Egress, endpoint: &mut Endpoint) {
        log(&egress);
        let (wire, assumed) = match egress.rate {
            LinkRate::Known(rate) => (Some(rate), None),
            LinkRate::Unlimited => (None, Some(LOOPBACK)),
            LinkRate::Guess(_) | LinkRate::Unknown => (None, None),
        };
        self.links[at].pacer.set_rate(divided(egress.rate.rate(), self.sharing));
        self.links[at].egress = Some(egress);
        self.set_link(LinkId(at as u8), self.protocol.or(wire), assumed, endpoint);
    }

    /// Tells the protocol about a link: the rate of its wire, if that is known, or else the rate
    /// that is assumed, which does not make windows longer.
    fn set_link(
        &self,
        link: LinkId,
        wire: Option<Rate>,
        assumed: Option<Rate>,
        endpoint: &mut Endpoint,
    ) {
        let rtt_bytes_max = rtt_bytes_max(wire);
        endpoint.set_link(link, LinkInfo { rate: wire.or(assumed), rtt_bytes_max });
    }

    /// The budget of a link that has something to send. Links take turns; links in `backlogged` are
    /// skipped. If no link has a budget, control packets may leave anyway. `queued` asks the kernel
    /// for the bytes queued below a link.
    pub fn send_budget(
        &mut self,
        now: Time,
        endpoint: &Endpoint,
        backlogged: Links,
        queued: impl Fn(LinkId) -> Option<u32>,
    ) -> Option<SendBudget> {
        let mut full = None;
        // Links take turns, so that a busy one does not hold up the others.
        for _ in 0..self.links.len() {
            let at = self.next % self.links.len();
            self.next = at + 1;
            let link = LinkId(at as u8);
            if !endpoint.has_packet_for(Links::only(link)) {
                continue;
            }
            full = Some(link);
            if backlogged.contains(link) {
                continue;
            }
            let LinkBudget { egress, pacer, share } = &mut self.links[at];
            if let Some(share) = share {
                pacer.set_senders(now, share.senders(now));
            }
            let budget = pacer.budget(now, || below(egress.as_ref(), link, &queued));
            publish_busy(share.as_ref(), pacer);
            if budget > 0 {
                return Some(SendBudget { link, bytes: budget, links: Links::only(link) });
            }
        }
        // Homa §3.2: control packets do not wait behind DATA.
        let link = full.filter(|_| endpoint.waiting_control() > 0)?;
        Some(SendBudget { link, bytes: CONTROL, links: Links::NONE })
    }

    /// Charges bytes that were passed down to a link.
    pub fn sent(
        &mut self,
        now: Time,
        link: LinkId,
        bytes: u32,
        queued: impl Fn(LinkId) -> Option<u32>,
    ) {
        let LinkBudget { egress, pacer, share } = &mut self.links[usize::from(link.0)];
        pacer.sent(now, bytes, || below(egress.as_ref(), link, queued));
        publish_busy(share.as_ref(), pacer);
    }

    /// Updates the endpoint with the values that the other shards published.
    pub fn refresh_siblings(&mut self, endpoint: &mut Endpoint) {
        let Some(shard_group) = &self.shard_group else { return };
        shard_group.refresh(endpoint);
        for (link, budget) in (0..).map(LinkId).zip(&mut self.links) {
            if let Some(share) = &mut budget.share {
                share.refresh(link, endpoint);
            }
        }
    }

    /// Publishes this engine's values to the other shards.
    pub fn publish(&mut self, endpoint: &Endpoint) {
        let Some(shard_group) = &self.shard_group else { return };
        shard_group.publish(endpoint);
        for (link, budget) in (0..).map(LinkId).zip(&mut self.links) {
            if let Some(share) = &mut budget.share {
                share.publish(endpoint.received_by(link));
            }
        }
    }

    /// True while a link takes packets as fast as we send them.
    pub fn outruns_us(&self, link: LinkId) -> bool {
        self.links[usize::from(link.0)].pacer.outruns_us()
    }

    /// Times that packets were delayed.
    pub fn waits(&self) -> u64 {
        self.waits + self.links.iter().map(|link| link.pacer.waits()).sum::<u64>()
    }

    /// When a link that has something to send will have a budget, except those in `backlogged`. In
    /// the past if something may leave now; `None` if there is nothing to send.
    pub fn wake(&self, endpoint: &Endpoint, backlogged: Links) -> Option<Time> {
        // Control packets do not wait for a link.
        if endpoint.waiting_control() > 0 {
            return Some(Time::ZERO);
        }
        let waiting = (0..).map(LinkId).zip(&self.links).filter(|(link, _)| {
            !backlogged.contains(*link) && endpoint.has_packet_for(Links::only(*link))
        });
        waiting.map(|(_, link)| link.pacer.wake().unwrap_or(Time::ZERO)).min()
    }

    /// The rates of all links.
    pub fn metrics(&self) -> Vec<LinkMetrics> {
        let there =
            |link: &&LinkBudget| link.index().is_some_and(|at| self.interfaces.contains(at));
        let mut all: Vec<_> = self.links.iter().filter(there).filter_map(known).collect();
        if self.configured.is_some() {
            let (interface, rate) = ("*".to_owned(), self.configured);
            all.push(LinkMetrics { interface, rate, source: "configured" });
        }
        all
    }
}

/// Publishes, to the shards that share a link, until when this one sends.
fn publish_busy(share: Option<&LinkShare>, pacer: &LinkPacer) {
    if let Some((share, until)) = share.zip(pacer.sends_until()) {
        share.busy_until(until);
    }
}

/// A part of a rate.
fn divided(rate: Option<Rate>, of: u64) -> Option<Rate> {
    rate.map(|rate| Rate((rate.0 / of).max(1)))
}

/// The bytes queued below a link. Loopback has no queue.
fn below(
    egress: Option<&Egress>,
    link: LinkId,
    queued: impl Fn(LinkId) -> Option<u32>,
) -> Option<u32> {
    match egress {
        Some(egress) if egress.rate == LinkRate::Unlimited => Some(0),
        _ => queued(link),
    }
}

/// The rate of a link.
fn known(link: &LinkBudget) -> Option<LinkMetrics> {
    let Egress { interface, rate, .. } = link.egress.as_ref()?;
    let (rate, source) = match (rate, link.pacer.estimate()) {
        (LinkRate::Unknown, Some(estimate)) => (Some(estimate), "estimated"),
        (LinkRate::Unknown, None) => (None, "unknown"),
        (LinkRate::Known(rate), _) => (Some(*rate), "route"),
        (LinkRate::Guess(rate), _) => (Some(*rate), "guess"),
        (LinkRate::Unlimited, _) => (rate.rate(), "unlimited"),
    };
    Some(LinkMetrics { interface: interface.clone(), rate, source })
}

/// Logs the rate of an interface, once and after each change.
fn log(egress: &Egress) {
    let Egress { interface, kind, rate, because, .. } = egress;
    let bits_per_second = rate.rate().map(|rate| rate.0);
    let rate = rate.word();
    tracing::info!(interface, kind, rate, bits_per_second, because, "packets leave by this link");
}

#[cfg(test)]
mod tests;

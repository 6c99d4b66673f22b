//! Priority flow control (IEEE 802.1Qbb) between the two ends of every link, for both models of
//! switches: control frames, the levels that they stop, and the network cards that obey them.
//!
//! ```text
//! the input decides ─▶ its control frame waits for the wire back ─▶ it takes effect at the sender
//! ```
//!
//! Which levels an input wants paused is the model's own rule (`cioq`, `shared`): it changes
//! [`LinkPauses::wanted`] and calls [`Net::signal`]. A model asks [`FlowControl::paused`] which
//! levels may leave a port, and lets a due control frame leave first ([`Net::send_control_frame`]).
//!
//! | module | what it does |
//! |---|---|
//! | `cards` | network cards that obey pauses |
//! | `links` | the two directions of links, and their rates |
//! | `report` | which ports wait for each other |
//!
//! Invariants: a control frame leaves only if something has changed since the last one; if the way
//! back is down, it leaves when that recovers.

mod cards;
mod links;
mod report;

use crate::engine::agenda::NetEvent;
use crate::engine::net::Net;
use crate::engine::world::World;
use crate::fabric::cioq::pfc::{CONTROL_BYTES, ResponseTime};
use crate::fabric::{FabricConfig, LinkState, NONE, PfcConfig};
use crate::nic::card::Card;
use crate::time::{SimDuration, SimTime};
use crate::topology::Wiring;
use crate::transport::Transport;

pub(super) use links::{Rates, link_pair, note_rate, reverse_links};
pub(super) use report::levels;
pub use report::{PauseReport, PausedPort, StuckLevels};

/// The pauses of one link, at both of its ends.
#[derive(Clone, Debug)]
pub(super) struct LinkPauses {
    /// At the sender: paused levels.
    pub paused: u8,
    /// At the receiver: levels that should be paused now.
    pub wanted: u8,
    /// At the receiver: levels that the last control frame paused.
    signalled: u8,
    /// At the sender: a control frame for the link in the other direction should be sent.
    pub signal_due: bool,
    /// The link in the other direction.
    pub back: u32,
    /// At the sender: the start of each level's pause.
    since: [SimTime; 8],
    /// At the sender: the pauses of all levels that have ended, together.
    lasted: SimDuration,
    /// Number of pauses.
    count: u64,
}

impl LinkPauses {
    /// True if a control frame has to be sent.
    #[inline]
    pub fn is_news(&self) -> bool {
        self.wanted != self.signalled
    }
}

/// Flow control of a network. `K` is the packet type of its hosts.
#[derive(Debug)]
pub(super) struct FlowControl<K> {
    /// By link; empty if nothing can be paused.
    pub links: Vec<LinkPauses>,
    /// Whether inputs may pause their senders.
    active: bool,
    /// Delay of control frames on a link; `None` if equal to that of data.
    cable: Option<SimDuration>,
    /// Delay from the arrival of a control frame to its effect.
    response: ResponseTime,
    /// By host: packets whose level was paused when the transport sent them.
    cards: Vec<Card<K>>,
    /// Control frames sent.
    control: u64,
    /// The longest pause that has ended.
    longest: SimDuration,
}

/// Most links of a network with flow control, because control frames name a link in 20 bits.
pub const MOST_LINKS: usize = 1 << 20;

impl<K> FlowControl<K> {
    /// Nothing is paused yet.
    pub fn new(wiring: &Wiring, config: &FabricConfig) -> Self {
        let shared = config.shared.map(|shared| shared.pfc);
        let pfc: Option<PfcConfig> = config.cioq.and_then(|cioq| cioq.pfc).or(shared);
        let mut cards = Vec::new();
        let mut links = Vec::new();
        if config.cioq.is_some() || shared.is_some() {
            debug_assert!(wiring.ports().len() <= MOST_LINKS);
            cards.resize_with(wiring.hosts() as usize, Card::default);
            let link = |back| LinkPauses {
                paused: 0,
                wanted: 0,
                signalled: 0,
                signal_due: false,
                back,
                since: [SimTime::ZERO; 8],
                lasted: SimDuration::ZERO,
                count: 0,
            };
            links = reverse_links(wiring.ports()).into_iter().map(link).collect();
        }
        Self {
            links,
            active: pfc.is_some(),
            cable: pfc.and_then(|pfc| pfc.cable),
            response: pfc.map(|pfc| pfc.response).unwrap_or_default(),
            cards,
            control: 0,
            longest: SimDuration::ZERO,
        }
    }

    /// True if hosts and ports have to ask which levels may leave.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.links.is_empty()
    }

    /// The paused levels of a port, as bits.
    #[inline]
    pub fn paused(&self, port: u32) -> u8 {
        self.links[port as usize].paused
    }
}

impl<W: World> Net<W> {
    /// The levels that an input wants paused may have changed: if so, a control frame is due.
    #[inline]
    pub(super) fn signal(&mut self, link: u32) {
        let state = &self.pauses.links[link as usize];
        if !state.is_news() || state.back == NONE {
            return;
        }
        let back = state.back;
        self.pauses.links[back as usize].signal_due = true;
        self.offer_wire(back);
    }

    /// A link has recovered: sends the control frames that the failure held back, those over the
    /// link and those for its sender.
    pub(super) fn signal_again(&mut self, port: u32) {
        let Some(back) = self.pauses.links.get(port as usize).map(|state| state.back) else {
            return;
        };
        self.signal(port);
        if back != NONE {
            self.signal(back);
        }
    }

    /// Sends a due control frame over the idle wire of `output`, to the sender of the link in the
    /// other direction. Returns when the wire is free again; `None` if nothing has changed, or if
    /// either link is down. Then the frame is sent when it recovers.
    pub(super) fn send_control_frame(&mut self, output: u32) -> Option<SimTime> {
        let state = &mut self.pauses.links[output as usize];
        state.signal_due = false;
        let link = state.back;
        let state = &mut self.pauses.links[link as usize];
        let is_down = |link: u32| self.ports[link as usize].link == LinkState::Down;
        if !state.is_news() || is_down(output) || is_down(link) {
            return None;
        }
        state.count += u64::from((state.wanted & !state.signalled).count_ones());
        state.signalled = state.wanted;
        let levels = u32::from(state.signalled);
        self.pauses.control += 1;
        let port = &mut self.ports[output as usize];
        let free_at = port.occupy(self.now, CONTROL_BYTES);
        let cable = self.pauses.cable.unwrap_or(port.delay);
        let response = self.pauses.response.of(self.wiring.ports()[link as usize].rate);
        self.schedule(free_at + cable + response, NetEvent::Paused(link << 8 | levels));
        Some(free_at)
    }

    /// A control frame takes effect. Returns the host, if the paused port is a network card.
    pub fn on_paused(&mut self, code: u32) -> Option<u32> {
        let (port, levels) = (code >> 8, code as u8);
        if self.ports[port as usize].link == LinkState::Down {
            return None;
        }
        self.set_paused(port, levels);
        if port >= self.wiring.hosts() {
            self.offer_wire(port);
            return None;
        }
        self.transports[port as usize].pause(self.now.protocol(), levels);
        let free_at = self.ports[port as usize].free_at;
        if free_at > self.now {
            self.await_wire(port, free_at);
        }
        Some(port)
    }

    /// The link behind a port failed: its sender is no longer paused, and the input at its end
    /// has to announce again what it wants.
    pub(super) fn end_pauses(&mut self, port: u32) {
        self.set_paused(port, 0);
        self.pauses.links[port as usize].signalled = 0;
        if port < self.wiring.hosts() {
            self.transports[port as usize].pause(self.now.protocol(), 0);
            let free_at = self.ports[port as usize].free_at;
            self.await_wire(port, free_at.max(self.now));
        }
    }

    /// Offers a host its wire at this time.
    fn await_wire(&mut self, host: u32, at: SimTime) {
        if !std::mem::replace(&mut self.hosts[host as usize].wire_awaited, true) {
            self.schedule(at, NetEvent::WireFree(host));
        }
    }

    fn set_paused(&mut self, port: u32, levels: u8) {
        let state = &mut self.pauses.links[port as usize];
        let (begun, ended) = (levels & !state.paused, state.paused & !levels);
        state.paused = levels;
        for level in 0..8 {
            let since = &mut state.since[level];
            if ended >> level & 1 != 0 {
                let lasted = self.now.since(*since);
                state.lasted = state.lasted + lasted;
                self.pauses.longest = self.pauses.longest.max(lasted);
            }
            if begun >> level & 1 != 0 {
                *since = self.now;
            }
        }
    }
}

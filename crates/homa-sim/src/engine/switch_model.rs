//! The switch models, and every point at which the engine treats them differently: switches with
//! output queues (`hop.rs`), those of them whose ports act at once (`preemption.rs`, `shared/`),
//! and those that also queue at their inputs (`cioq/`).
//!
//! The discipline selects the last one at compile time ([`PortQueue::IS_COMBINED`]), so that its
//! branches here cost nothing at run time. The others are told apart by the configuration, because
//! another copy of the engine for each pair of hosts and queues would be large, and a branch for
//! each packet is cheap. Invariant: no other file of the engine has such a branch. For example,
//! `hop.rs` lets a frame enter a switch without a test for the model.

use crate::fabric::Alb;
use crate::fabric::queue::PortQueue;
use crate::topology::{Choices, PortId};
use crate::transport::{Label, Transport};

use super::agenda::NetEvent;
use super::net::Net;
use super::world::{PacketOf, World};

impl<W: World> Net<W> {
    /// The next packet of a host, whose wire is free. Switches may pause levels of it.
    #[inline]
    pub(super) fn next_packet(&mut self, id: u32) -> Option<(PacketOf<W>, Label)> {
        if W::Queue::IS_COMBINED || self.pauses.is_on() {
            return self.pull_unpaused(id);
        }
        let transport = &mut self.transports[id as usize];
        let packet = transport.transmit(self.now.protocol())?;
        let label = transport.label(&packet);
        Some((packet, label))
    }

    /// A frame's first bit leaves its host.
    #[inline]
    pub(super) fn leave_host(&mut self, id: u32, slot: u32) {
        if W::Queue::IS_COMBINED {
            return self.launch(id, slot);
        }
        let port = &mut self.ports[id as usize];
        if let Some(at) = port.start(&mut self.flights.frames, slot, self.now) {
            self.schedule(at, NetEvent::Arrival(id));
        }
    }

    /// True if a host's network card holds packets that may leave.
    #[inline]
    pub(super) fn card_has_packet(&self, id: u32) -> bool {
        (W::Queue::IS_COMBINED || self.pauses.is_on()) && self.holds_unpaused(id)
    }

    /// Records the link by which a frame arrived, because the memory of an input belongs to one.
    #[inline]
    pub(super) fn note_link(&mut self, slot: u32, link: u32) {
        if W::Queue::IS_COMBINED || self.eager {
            self.flights.frames[slot as usize].gap = link;
        }
    }

    /// A frame arrives at a switch (numbered from 0).
    #[inline]
    pub(super) fn enter_switch(&mut self, switch: u32, slot: u32) {
        if W::Queue::IS_COMBINED {
            return self.enter_input(slot);
        }
        self.forward(switch, slot);
    }

    /// A frame arrives at an output port that has an event for the end of each transmission.
    pub(super) fn enqueue_eagerly(&mut self, switch: u32, port: u32, slot: u32) {
        match self.config.preemption {
            true => self.enqueue_preempting(switch, port, slot),
            false => self.enqueue_shared(switch, port, slot),
        }
    }

    /// The wire of a port with flow control is free.
    #[inline]
    pub(super) fn on_transmission_end(&mut self, port: u32) {
        match W::Queue::IS_COMBINED {
            true => self.on_sent(port),
            false => self.on_sent_shared(port),
        }
    }

    /// Chooses one of several ports by their queue lengths (`fabric/alb.rs`).
    #[inline(never)]
    pub(super) fn adapt(&mut self, switch: u32, (choices, level): (Choices, u8), alb: Alb) -> u32 {
        if !W::Queue::IS_COMBINED {
            // Ports are lazy, so their queues should be brought up to date before they are
            // compared.
            for chosen in 0..choices.count {
                let port = self.wiring.routes().port(choices, chosen);
                self.advance(port, false);
            }
        }
        let Self { wiring, ports, levels, flights, cioq, .. } = self;
        let drain = |chosen: u32| {
            let port = wiring.routes().port(choices, chosen);
            if W::Queue::IS_COMBINED {
                return cioq.drain(port, level);
            }
            let (state, levels) = (&ports[port as usize], &levels[port as usize]);
            let lists = (level..8).flat_map(|list| state.list(levels, &flights.frames, list));
            lists.map(|slot| u32::from(flights.frame(slot).bytes)).sum()
        };
        let turn = &mut self.turns[switch as usize];
        alb.choose(choices.count, drain, (&mut self.chooser, turn))
    }

    /// Drops all frames that wait at a port, because its link failed.
    pub(super) fn clear_port(&mut self, port: u32) {
        if W::Queue::IS_COMBINED {
            return self.clear_output(port);
        }
        match self.pauses.is_on() {
            true => self.clear_shared(port),
            false => self.lose_waiting(port),
        }
    }

    /// A port of a switch may have something to send: a control frame, or frames of a level that
    /// is no longer paused.
    pub(super) fn offer_wire(&mut self, port: u32) {
        match W::Queue::IS_COMBINED {
            true => self.send_on(port),
            false => self.serve(port),
        }
    }

    /// The levels of the frames that wait at a port of a switch, as bits.
    pub(super) fn waiting_levels(&self, port: u32) -> u8 {
        match W::Queue::IS_COMBINED {
            true => self.cioq.waiting_levels(port),
            false => self.ports[port as usize].occupied(),
        }
    }

    /// The ports that the frames at the end of a link wait for, of the levels in `waits`.
    pub(super) fn behind(&self, link: u32, waits: u8) -> Vec<PortId> {
        match W::Queue::IS_COMBINED {
            true => self.bound_from_input(link, waits),
            false => self.bound_from_shared(link, waits),
        }
    }

    /// True if a level of a link stays paused while the levels in `locked`, by port, do not move.
    pub(super) fn stays_paused(&self, level: (u32, u8), locked: &[u8]) -> bool {
        match W::Queue::IS_COMBINED {
            true => self.stays_paused_at_input(level, locked),
            false => self.stays_paused_shared(level, locked),
        }
    }

    /// A port and a level of it that hold a locked level of a link.
    pub(super) fn locked_behind(&self, level: (u32, u8), locked: &[u8]) -> Option<(u32, u8)> {
        match W::Queue::IS_COMBINED {
            true => self.locked_behind_input(level, locked),
            false => self.locked_behind_shared(level, locked),
        }
    }
}

//! The two switch models, and every point at which the engine treats them differently: switches
//! with output queues (`hop.rs`), and those that also queue at their inputs (`cioq/`).
//!
//! The discipline selects the model at compile time ([`PortQueue::IS_COMBINED`]), so that the
//! branches here cost nothing at run time. Invariant: no other file of the engine has such a
//! branch. For example, `hop.rs` lets a frame enter a switch without a test for the model.

use crate::fabric::Alb;
use crate::fabric::queue::PortQueue;
use crate::topology::Choices;
use crate::transport::{Label, Transport};

use super::agenda::NetEvent;
use super::net::Net;
use super::world::{PacketOf, World};

impl<W: World> Net<W> {
    /// The next packet of a host, whose wire is free. Input-queued switches may pause levels of it.
    #[inline]
    pub(super) fn next_packet(&mut self, id: u32) -> Option<(PacketOf<W>, Label)> {
        if W::Queue::IS_COMBINED {
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
        W::Queue::IS_COMBINED && self.holds_unpaused(id)
    }

    /// Records the link by which a frame arrived, because an input queue belongs to one.
    #[inline]
    pub(super) fn note_link(&mut self, slot: u32, link: u32) {
        if W::Queue::IS_COMBINED {
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
        self.lose_waiting(port);
    }

    /// A link has recovered: an input that could not signal over it may have to.
    pub(super) fn link_recovered(&mut self, port: u32) {
        if W::Queue::IS_COMBINED {
            self.signal_again(port);
        }
    }
}

//! Priority flow control: which levels an input pauses, the control frames that announce them, and
//! the frames that they stop.

use crate::engine::agenda::NetEvent;
use crate::engine::net::Net;
use crate::engine::world::{PacketOf, World};
use crate::fabric::cioq::pfc::{CONTROL_BYTES, PfcThresholds};
use crate::fabric::{LinkState, NONE};
use crate::nic::card::Card;
use crate::topology::HostId;
use crate::transport::{Label, Transport};

impl<W: World> Net<W> {
    /// The queue at an input has changed: its sender may have to be paused or released.
    #[inline]
    pub(super) fn update_pauses(&mut self, link: u32) {
        let input = &mut self.cioq.inputs[link as usize];
        let Some(PfcThresholds { pause, unpause }) = input.thresholds else { return };
        if input.to_pause | input.signalled == 0 && input.drain.at(0) <= pause {
            return;
        }
        let above = input.drain.levels(|bytes| bytes > pause);
        let below = input.drain.levels(|bytes| bytes < unpause);
        input.to_pause = input.to_pause & !below | above;
        if input.to_pause == input.signalled {
            return;
        }
        let back = self.cioq.back[link as usize];
        if back != NONE {
            self.cioq.outputs[back as usize].signal_due = true;
            self.send_on(back);
        }
    }

    /// A link has recovered: sends the control frame that the failure held back.
    pub fn signal_again(&mut self, output: u32) {
        let link = self.cioq.back[output as usize];
        if link != NONE {
            self.update_pauses(link);
        }
    }

    /// Sends a control frame from `output` to the sender of the link in the other direction. False
    /// if nothing has changed, or if the link is down; then the frame is sent when the link
    /// recovers.
    pub(super) fn send_control_frame(&mut self, output: u32) -> bool {
        let link = self.cioq.back[output as usize];
        let state = &mut self.cioq.outputs[output as usize];
        state.signal_due = false;
        let input = &mut self.cioq.inputs[link as usize];
        if input.to_pause == input.signalled || self.ports[output as usize].link == LinkState::Down
        {
            return false;
        }
        self.cioq.counts.control += 1;
        self.cioq.counts.pauses += u64::from((input.to_pause & !input.signalled).count_ones());
        input.signalled = input.to_pause;
        let levels = u32::from(input.signalled);
        state.busy = true;
        let port = &mut self.ports[output as usize];
        let free_at = port.occupy(self.now, CONTROL_BYTES);
        let cable = self.cioq.cable.unwrap_or(port.delay);
        let response = self.cioq.response.of(self.wiring.ports()[link as usize].rate);
        self.schedule(free_at, NetEvent::Sent(output));
        self.schedule(free_at + cable + response, NetEvent::Paused(link << 8 | levels));
        true
    }

    /// A control frame takes effect. Returns the host, if the paused port is a network card.
    pub fn on_paused(&mut self, code: u32) -> Option<u32> {
        let (port, levels) = (code >> 8, code as u8);
        if self.ports[port as usize].link == LinkState::Down {
            return None;
        }
        self.set_paused(port, levels);
        if port >= self.wiring.hosts() {
            self.send_on(port);
            return None;
        }
        self.transports[port as usize].pause(self.now.protocol(), levels);
        let free_at = self.ports[port as usize].free_at;
        let host = &mut self.hosts[port as usize];
        if free_at > self.now && !host.wire_awaited {
            host.wire_awaited = true;
            self.schedule(free_at, NetEvent::WireFree(port));
        }
        Some(port)
    }

    pub(super) fn set_paused(&mut self, port: u32, levels: u8) {
        let state = &mut self.cioq.outputs[port as usize];
        let (begun, ended) = (levels & !state.paused, state.paused & !levels);
        state.paused = levels;
        for level in 0..8 {
            let since = &mut state.since[level];
            if ended >> level & 1 != 0 {
                let lasted = self.now.since(*since);
                self.cioq.counts.longest = self.cioq.counts.longest.max(lasted);
            }
            if begun >> level & 1 != 0 {
                *since = self.now;
            }
        }
    }

    /// The next packet of a host that may leave: one of a level that is not paused. If the
    /// transport sends packets of paused levels, they wait in the card (`nic/card.rs`), and leave
    /// later in their order among the transport's packets.
    #[inline]
    pub fn pull_unpaused(&mut self, id: u32) -> Option<(PacketOf<W>, Label)> {
        let open = !self.cioq.outputs[id as usize].paused;
        let card = &mut self.cioq.cards[id as usize];
        let transport = &mut self.transports[id as usize];
        loop {
            let Some(packet) = transport.transmit(self.now.protocol()) else {
                return card.take(open);
            };
            let label = transport.label(&packet);
            let may_leave = open >> (label.priority & 7) & 1 != 0;
            if may_leave && card.levels() & open == 0 {
                return Some((packet, label));
            }
            card.hold(packet, label, W::Host::content(&packet));
            if may_leave {
                return card.take(open);
            }
        }
    }

    /// True if a host's network card holds packets that may leave.
    #[inline]
    pub fn holds_unpaused(&self, id: u32) -> bool {
        let open = !self.cioq.outputs[id as usize].paused;
        self.cioq.cards[id as usize].levels() & open != 0
    }

    /// A host that restarts is informed of the levels that its card may not send.
    pub fn inform_paused(&mut self, id: HostId) {
        if let Some(port) = self.cioq.outputs.get(id.0 as usize) {
            self.transports[id.0 as usize].pause(self.now.protocol(), port.paused);
        }
    }

    /// A host that crashes loses the packets in its network card.
    pub fn clear_card(&mut self, id: HostId) {
        if let Some(card) = self.cioq.cards.get_mut(id.0 as usize) {
            *card = Card::default();
        }
    }
}

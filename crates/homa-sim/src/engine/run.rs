//! The event loop, with one handler per kind of event.

use crate::fabric::NONE;
use crate::time::SimTime;
use crate::topology::{HostId, NodeId};
use crate::transport::Transport;

use super::agenda::NetEvent;
use super::application::Application;
use super::net::{Incident, Wake};
use super::probe::{LossCause, Probe};
use super::world::World;
use super::{Halt, Simulation};

impl<W: World> Simulation<W> {
    /// Runs all events that are due up to `end`, at most `max_events`. The time is `end`
    /// afterwards, unless the run ended for another reason.
    pub fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt {
        let last = self.net.counters.events.saturating_add(max_events);
        while self.net.counters.events < last {
            match self.net.events.peek() {
                None => {
                    if self.net.idle.1 < self.net.counters.events {
                        self.net.idle = (self.net.now, self.net.counters.events);
                    }
                    if end != SimTime::MAX {
                        self.net.now = self.net.now.max(end);
                    }
                    return Halt::Drained;
                }
                Some(at) if at > end => {
                    self.net.now = self.net.now.max(end);
                    return Halt::Time;
                }
                Some(_) => {
                    if self.net.events.begins_batch() {
                        self.net.prefetch();
                    }
                    self.step()
                }
            };
            if self.net.stopped {
                self.net.stopped = false;
                return Halt::Stopped;
            }
        }
        Halt::Events
    }

    /// Runs until no event is pending or the application stops the run.
    pub fn run_to_drain(&mut self) -> Halt {
        self.run_until(SimTime::MAX, u64::MAX)
    }

    /// Runs the next event; false if none is pending.
    pub fn step(&mut self) -> bool {
        let net = &mut self.net;
        let Some((at, ticket)) = net.events.pop() else { return false };
        assert!(at >= net.now, "time runs backwards");
        net.now = at;
        net.counters.events += 1;
        match ticket.event() {
            NetEvent::Arrival(port) => {
                if let Some((slot, node)) = net.on_arrival(port) {
                    self.on_effect(slot, node);
                }
            }
            NetEvent::WireFree(host) => self.on_wire_free(host),
            NetEvent::Timer(host) => self.on_timer(host),
            NetEvent::Deferred(slot) => {
                let node = net.deferred(slot);
                self.on_effect(slot, node);
            }
            NetEvent::Wake(index) => {
                let wake = net.take_wake(index);
                self.on_wake(wake);
            }
            NetEvent::Served(port) => net.on_served(port),
            NetEvent::LookedUp(slot) => net.on_looked_up(slot),
            NetEvent::Crossed(link) => net.on_crossed(link),
            NetEvent::Sent(port) => net.on_transmission_end(port),
            NetEvent::Paused(code) => {
                if let Some(host) = net.on_paused(code) {
                    self.settle(host);
                }
            }
            NetEvent::Incident(index) => {
                let incident = net.incident(index);
                self.on_incident(incident);
            }
        }
        true
    }

    /// A packet takes effect at a node.
    #[inline]
    fn on_effect(&mut self, slot: u32, node: NodeId) {
        let net = &mut self.net;
        match node.0.checked_sub(net.wiring.hosts()) {
            Some(switch) => net.enter_switch(switch, slot),
            None => self.on_delivery(node.0, slot),
        }
    }

    #[inline]
    fn on_delivery(&mut self, id: u32, slot: u32) {
        let net = &mut self.net;
        let host = &net.hosts[id as usize];
        if !host.up {
            return net.lose(slot, LossCause::HostDown);
        }
        if net.now < host.paused_until {
            let until = host.paused_until;
            return net.defer(slot, NodeId(id), until);
        }
        net.deliver(id, slot);
        self.settle(id);
    }

    #[inline]
    fn on_wire_free(&mut self, id: u32) {
        let host = &mut self.net.hosts[id as usize];
        if self.net.now < host.paused_until {
            let until = host.paused_until;
            return self.net.schedule(until, NetEvent::WireFree(id));
        }
        host.wire_awaited = false;
        if host.up {
            self.settle(id);
        }
    }

    fn on_timer(&mut self, id: u32) {
        let net = &mut self.net;
        let host = &mut net.hosts[id as usize];
        // A newer deadline replaced this event, or it belongs to an earlier life.
        if host.timer != net.now || !host.up {
            return;
        }
        host.timer = SimTime::MAX;
        if net.now < host.paused_until {
            let until = host.paused_until;
            host.timer = until;
            host.timer_waited = true;
            return net.schedule(until, NetEvent::Timer(id));
        }
        if std::mem::take(&mut host.timer_waited) {
            // Packets that were delayed to the same time come first, so queue the timer behind
            // them.
            host.timer = net.now;
            return net.schedule(net.now, NetEvent::Timer(id));
        }
        net.transports[id as usize].expire(net.now.protocol());
        self.settle(id);
    }

    fn on_wake(&mut self, wake: Wake) {
        let net = &mut self.net;
        if wake.host == NONE {
            self.application.wake(net, wake.token);
            return self.settle_dirty();
        }
        let host = &net.hosts[wake.host as usize];
        if !host.up || host.life != wake.life {
            return;
        }
        if net.now < host.paused_until {
            let until = host.paused_until;
            return net.schedule_wake(until, wake);
        }
        self.application.wake_host(net, HostId(wake.host), wake.token);
        self.settle_dirty();
    }

    fn on_incident(&mut self, incident: Incident) {
        let net = &mut self.net;
        match incident {
            Incident::Pause { host, until } => {
                let host = &mut net.hosts[host.0 as usize];
                host.paused_until = host.paused_until.max(until);
            }
            Incident::Crash { host, downtime } => {
                net.hosts[host.0 as usize].up = false;
                net.clear_card(host);
                net.probe.crashed(net.now, host);
                if let Some(downtime) = downtime {
                    net.plan(net.now + downtime, Incident::Restart(host));
                }
            }
            Incident::Link(port, change) => net.change_link(port, change),
            Incident::Restart(id) => {
                let host = &mut net.hosts[id.0 as usize];
                host.life += 1;
                host.up = true;
                host.timer = SimTime::MAX;
                host.paused_until = net.now;
                let transport = &mut net.transports[id.0 as usize];
                if let Some(make) = &mut self.make {
                    *transport = make(id, host.life);
                }
                transport.expire(net.now.protocol());
                net.inform_paused(id);
                net.probe.restarted(net.now, id);
                self.application.restarted(net, id);
                self.settle(id.0);
                self.settle_dirty();
            }
        }
    }

    /// Settles the hosts that applications gave input to.
    #[inline]
    fn settle_dirty(&mut self) {
        while let Some(id) = self.net.dirty.pop() {
            self.net.hosts[id as usize].dirty = false;
            self.settle_one(id);
        }
    }

    /// Settles a host after an input to it.
    #[inline]
    fn settle(&mut self, id: u32) {
        self.settle_one(id);
        self.settle_dirty();
    }

    /// Reports events and offers the wire until neither has an effect; then schedules the wire and
    /// the timer.
    #[inline]
    fn settle_one(&mut self, id: u32) {
        loop {
            self.drain(id);
            let net = &mut self.net;
            let free = net.ports[id as usize].free_at <= net.now;
            let host = &net.hosts[id as usize];
            if !free || !host.up || net.now < host.paused_until || !net.pull(id) {
                break;
            }
        }
        let net = &mut self.net;
        let busy_until = net.ports[id as usize].free_at;
        let held = net.card_has_packet(id);
        let (host, transport) = (&mut net.hosts[id as usize], &net.transports[id as usize]);
        let rearmed = host.rearm(net.now, transport.deadline());
        if busy_until > net.now && !host.wire_awaited && (held || transport.has_packet()) {
            host.wire_awaited = true;
            net.schedule(busy_until, NetEvent::WireFree(id));
        }
        if let Some(at) = rearmed {
            self.net.schedule(at, NetEvent::Timer(id));
        }
    }

    /// Hands pending events to the application.
    #[inline]
    fn drain(&mut self, id: u32) {
        let net = &mut self.net;
        while let Some(event) = net.transports[id as usize].event() {
            net.probe.event(net.now, HostId(id), &event);
            self.application.event(net, HostId(id), &event);
        }
    }
}

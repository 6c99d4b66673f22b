//! The loop of the simulator: one handler per kind of happening.

use homa_proto::{Body, Packet, PeerId};

use super::Transport;
use crate::time::SimTime;

use super::fault::{Fault, Link, Verdict};
use super::host::{Application, Context};
use super::probe::{LossCause, Observed, Probe};
use super::{Envelope, Happening, HostId, Network, Waiting};

impl<T: Transport, A: Application<T>, F: Fault, P: Probe> Network<T, A, F, P> {
    /// Runs until nothing is pending at or before `end`, or `max_events` happened; true in the
    /// first case.
    pub fn run_until(&mut self, end: SimTime, max_events: u64) -> bool {
        for _ in 0..max_events {
            if self.events.peek().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                return true;
            }
            self.step();
        }
        false
    }

    /// The next happening; false when nothing is pending.
    pub fn step(&mut self) -> bool {
        let Some((at, happening)) = self.events.pop() else { return false };
        debug_assert!(at >= self.now);
        self.now = at;
        match happening {
            Happening::WireFree(host) => self.on_wire_free(host),
            Happening::Ingress(slot) => self.on_ingress(slot),
            Happening::Switch(slot) => self.on_switch(slot),
            Happening::PortFree(host) => self.on_port_free(host),
            Happening::Egress(slot) => self.on_egress(slot),
            Happening::Deliver(slot) => self.on_deliver(slot),
            Happening::Timer(host) => self.on_timer(host),
            Happening::Wake { host, life, token } => self.on_wake(host, life, token),
            Happening::Pause { host, until } => {
                let host = &mut self.hosts[host.0 as usize];
                host.paused_until = host.paused_until.max(until);
            }
            Happening::Crash { host, downtime } => {
                self.hosts[host.0 as usize].up = false;
                self.probe.observe(at, Observed::Crashed { host });
                if let Some(downtime) = downtime {
                    self.events.push(at + downtime, Happening::Restart(host));
                }
            }
            Happening::Restart(host) => self.on_restart(host),
        }
        true
    }

    fn on_wire_free(&mut self, host: HostId) {
        if self.postponed(host, Happening::WireFree(host)) {
            return;
        }
        self.hosts[host.0 as usize].wire_busy = false;
        if self.hosts[host.0 as usize].up {
            self.settle(host);
        }
    }

    /// Offers the wire to the transport; true when it gave a packet.
    fn pull(&mut self, id: HostId) -> bool {
        let host = &mut self.hosts[id.0 as usize];
        if host.wire_busy || self.now < host.paused_until {
            return false;
        }
        let Some(packet) = host.transport.transmit(self.now.protocol()) else { return false };
        host.wire_busy = true;
        let wire_bytes = self.config.framing.wire_bytes(&packet);
        self.probe.observe(self.now, Observed::Transmitted { host: id, packet: &packet });
        self.trace.mix(self.now.0);
        self.trace.mix(u64::from(id.0) << 32 | u64::from(packet.peer.0));
        self.trace.mix(packet.id.0);
        self.trace.mix(fingerprint(&packet));
        self.packet_hops += 1;
        let done = self.now + self.config.rate.serialisation(wire_bytes);
        let slot = self.packets.insert(Envelope { from: id, packet, wire_bytes });
        self.events.push(done + self.config.propagation, Happening::Ingress(slot));
        self.events.push(done, Happening::WireFree(id));
        true
    }

    fn on_ingress(&mut self, slot: u32) {
        let Some(envelope) = self.packets.get(slot) else { return };
        let verdict = self.faults.verdict(self.now, Link::Up(envelope.from), &envelope.packet);
        match verdict {
            Verdict::Pass => self.on_switch(slot),
            Verdict::Lose => self.lose(slot, LossCause::Fault),
            Verdict::Delay(extra) => self.events.push(self.now + extra, Happening::Switch(slot)),
            Verdict::Duplicate(extra) => {
                let copy = self.packets.insert(*envelope);
                self.events.push(self.now + extra, Happening::Switch(copy));
                self.on_switch(slot);
            }
        }
    }

    /// Store and forward: the whole packet is here, it goes to its output port.
    fn on_switch(&mut self, slot: u32) {
        let Some(envelope) = self.packets.get(slot) else { return };
        let to = HostId(envelope.packet.peer.0);
        let (wire_bytes, priority) = (envelope.wire_bytes, envelope.packet.priority);
        let Some(port) = self.ports.get_mut(to.0 as usize) else {
            return self.lose(slot, LossCause::NoRoute);
        };
        let idle = port.departs().is_none();
        if port.enqueue(self.now, Waiting { slot, wire_bytes, priority }).is_err() {
            return self.lose(slot, LossCause::Overflow);
        }
        if let (true, Some(at)) = (idle, port.departs()) {
            self.events.push(at, Happening::PortFree(to));
        }
    }

    fn on_port_free(&mut self, to: HostId) {
        let port = &mut self.ports[to.0 as usize];
        if let Some(departure) = port.next(self.now) {
            self.packet_hops += 1;
            let delay = self.config.propagation + self.config.software_delay;
            self.events.push(departure.at + delay, Happening::Egress(departure.frame.slot));
        }
        if let Some(at) = port.departs() {
            self.events.push(at, Happening::PortFree(to));
        }
    }

    fn on_egress(&mut self, slot: u32) {
        let Some(envelope) = self.packets.get(slot) else { return };
        let to = HostId(envelope.packet.peer.0);
        match self.faults.verdict(self.now, Link::Down(to), &envelope.packet) {
            Verdict::Pass => self.on_deliver(slot),
            Verdict::Lose => self.lose(slot, LossCause::Fault),
            Verdict::Delay(extra) => self.events.push(self.now + extra, Happening::Deliver(slot)),
            Verdict::Duplicate(extra) => {
                let copy = self.packets.insert(*envelope);
                self.events.push(self.now + extra, Happening::Deliver(copy));
                self.on_deliver(slot);
            }
        }
    }

    fn on_deliver(&mut self, slot: u32) {
        let Some(envelope) = self.packets.get(slot) else { return };
        let to = HostId(envelope.packet.peer.0);
        if !self.hosts[to.0 as usize].up {
            return self.lose(slot, LossCause::HostDown);
        }
        if self.postponed(to, Happening::Deliver(slot)) {
            return;
        }
        let Some(envelope) = self.packets.take(slot) else { return };
        let packet = as_received(envelope.from, envelope.packet);
        let transport = &mut self.hosts[to.0 as usize].transport;
        let receipt = transport.receive(self.now.protocol(), &packet);
        self.trace.mix(self.now.0);
        self.trace.mix(u64::from(to.0) << 32 | u64::from(envelope.from.0));
        self.trace.mix(packet.id.0);
        let observed = Observed::Received { host: to, packet: &packet, receipt: &receipt };
        self.probe.observe(self.now, observed);
        self.settle(to);
    }

    fn on_timer(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        // Superseded by an earlier deadline, or of an earlier life.
        if host.timer != self.now || !host.up {
            return;
        }
        host.timer = SimTime::MAX;
        if self.now < host.paused_until {
            host.timer = host.paused_until;
            return self.events.push(host.paused_until, Happening::Timer(id));
        }
        host.transport.expire(self.now.protocol());
        self.settle(id);
    }

    fn on_wake(&mut self, id: HostId, life: u32, token: u64) {
        let host = &self.hosts[id.0 as usize];
        if !host.up || host.life != life {
            return;
        }
        if !self.postponed(id, Happening::Wake { host: id, life, token }) {
            self.at_host(id, |application, host| application.on_wake(host, token));
            self.settle(id);
        }
    }

    fn on_restart(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        host.life += 1;
        host.up = true;
        host.timer = SimTime::MAX;
        host.paused_until = self.now;
        host.transport = (self.make)(id, host.life);
        host.transport.expire(self.now.protocol());
        self.probe.observe(self.now, Observed::Restarted { host: id });
        self.at_host(id, |application, host| application.on_restart(host));
        self.settle(id);
    }

    /// After an input: events out, wire offered, until neither changes anything; then the timer.
    fn settle(&mut self, id: HostId) {
        while self.drain(id) | self.pull(id) {}
        if let Some(at) = self.hosts[id.0 as usize].rearm(self.now) {
            self.events.push(at, Happening::Timer(id));
        }
    }

    /// Hands events to the application; true when there were any.
    fn drain(&mut self, id: HostId) -> bool {
        let mut any = false;
        while let Some(event) = self.hosts[id.0 as usize].transport.event() {
            any = true;
            self.probe.observe(self.now, Observed::Event { host: id, event: &event });
            self.at_host(id, |application, host| application.on_event(host, &event));
        }
        any
    }

    fn at_host(&mut self, id: HostId, act: impl FnOnce(&mut A, &mut Context<'_, T, P>)) {
        let host = &mut self.hosts[id.0 as usize];
        let mut context = Context {
            now: self.now,
            host: id,
            life: host.life,
            transport: &mut host.transport,
            events: &mut self.events,
            probe: &mut self.probe,
        };
        act(&mut self.application, &mut context);
    }

    /// True when `host` is frozen; then `happening` comes again at the end of the pause.
    fn postponed(&mut self, host: HostId, happening: Happening) -> bool {
        let until = self.hosts[host.0 as usize].paused_until;
        if self.now < until {
            self.events.push(until, happening);
        }
        self.now < until
    }

    fn lose(&mut self, slot: u32, cause: LossCause) {
        let Some(envelope) = self.packets.take(slot) else { return };
        let host = HostId(envelope.packet.peer.0);
        let lost = Observed::Lost { host, packet: &envelope.packet, cause };
        self.probe.observe(self.now, lost);
    }
}

/// The packet as its receiver knows it: from whom, ports from its side, no name of the sender's
/// message.
fn as_received(from: HostId, packet: Packet) -> Packet {
    let mut body = packet.body;
    if let Body::Data(data) = &mut body {
        data.span.message = homa_proto::MessageId(0);
    }
    Packet {
        peer: PeerId(from.0),
        local_port: packet.remote_port,
        remote_port: packet.local_port,
        body,
        ..packet
    }
}

/// One word that differs when the packets differ in type, range or priority.
fn fingerprint(packet: &Packet) -> u64 {
    let (kind, range) = match packet.body {
        Body::Data(data) => (0, u64::from(data.span.offset) << 24 | u64::from(data.span.len)),
        Body::Grant { offset, .. } => (1, u64::from(offset)),
        Body::Resend { offset, .. } => (2, u64::from(offset)),
        Body::RpcUnknown { .. } => (3, 0),
        Body::Busy => (4, 0),
        Body::Cutoffs { version, .. } => (5, u64::from(version)),
        Body::Freeze => (6, 0),
        Body::NeedAck => (7, 0),
        Body::Ack(acks) => (8, acks.len() as u64),
    };
    range << 8 | kind << 4 | u64::from(packet.priority)
}

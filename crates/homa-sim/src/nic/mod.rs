//! A network card between a host's transport and its wire. It wraps the transport, so that the
//! fabric works with one [`Transport`].
//!
//! ```text
//! transport -> large sends (segmentation) -> pacer, or past it -> wire
//! transport -> egress queue that marks (instead of these) -> wire
//! transport <- deliveries (processor) <- interrupts (coalescing) <- wire
//! ```
//!
//! A packet of a flow that the [`pacer`] has associated waits for tokens, and any other packet
//! overtakes it. If both have a packet for the wire, they take turns. A host without pacer and
//! offloads may mark packets in its [`egress`] queue if it is long. Under priority flow control, a
//! [`card`] between all of this and the wire holds packets of paused levels. Invariant: `deadline`
//! covers everything that waits here for a time, and `has_packet` everything that may be sent. Left
//! out: the queue behind the pacer, which is the wire itself; receipts of frames that wait for an
//! interrupt, so that measures that follow packets into their messages do not work here.

pub mod card;
pub mod coalescing;
pub mod cpu;
pub mod egress;
pub mod pacer;
pub mod segmentation;
pub mod throttling;
pub mod trains;

use homa_proto::{Event, Receipt, Submit, SubmitError, Submitted, Time};
use homa_workload::rng::Rng;

use crate::topology::HostId;
use crate::transport::{Label, PacketContent, PacketMeta, Timeouts, Transport};

use coalescing::{CoalescingConfig, ReceiveRing, RingCounts};
use cpu::{Cpu, CpuConfig};
use egress::Egress;
use pacer::{NicPacer, PacerConfig, Released};
use segmentation::{SegmentationConfig, SendQueue};
use throttling::Work;
use trains::Trains;

/// Preamble, gap and check sequence do not count in the pacer, because its hardware does not see
/// them. Two full frames are then 3028 bytes, and fit into its bucket of 3 KB. If they were 3076,
/// only one frame could leave per tick of 16 us, which is 769 Mbit/s.
const UNCOUNTED: u32 = 24;

/// Features of a NIC besides sending a packet when the wire is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NicConfig {
    /// Spaces the packets of flows that met congestion (HULL §4.2).
    pub pacer: Option<PacerConfig>,
    /// Takes large pieces from the host (HULL §4.1).
    pub segmentation: Option<SegmentationConfig>,
    /// Collects frames before it interrupts the host (HULL §4.1).
    pub coalescing: Option<CoalescingConfig>,
    /// Processor time that packets cost the host; `None` if they cost nothing.
    pub cpu: Option<CpuConfig>,
    /// Marks packets above this many drain bytes in an egress queue (DeTail §4.2.4). It excludes
    /// the other features.
    pub mark_above: Option<u32>,
    /// Bytes of all levels of the egress queue count for a mark, as at a switch's port.
    pub mark_by_port: bool,
    /// The host whose frames measure the network; they reach the transport as they arrive. HULL
    /// §5.2 has an instrument at the switch for this.
    pub instrument: Option<HostId>,
}

impl NicConfig {
    /// True if no feature is on.
    pub fn is_plain(&self) -> bool {
        let Self { instrument, mark_by_port, .. } = *self;
        *self == Self { instrument, mark_by_port, ..Self::default() }
    }
}

/// Counts of a NIC since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounters {
    /// Frames, interrupts, deliveries.
    pub received: RingCounts,
    /// Packets that the pacer released.
    pub paced: Released,
    /// Nanoseconds that the processor spent on packets.
    pub busy: u64,
    /// Message bytes received.
    pub data_bytes: u64,
    /// Packets without message bytes that were sent: acknowledgements and grants.
    pub control_sent: u64,
    /// Bursts of sent packets with message bytes.
    pub data_trains: Trains,
    /// Bursts of received packets without message bytes.
    pub control_trains: Trains,
}

/// State of the offloads.
#[derive(Debug)]
struct Offloads<P> {
    ring: Option<ReceiveRing<P>>,
    queue: Option<SendQueue<P>>,
    /// Every packet is handed over separately.
    single: bool,
    instrument: Option<HostId>,
    cpu: Cpu,
    counters: NicCounters,
}

impl<P: Copy> Offloads<P> {
    fn new(config: &NicConfig) -> Option<Self> {
        let NicConfig { segmentation, coalescing, cpu, instrument, .. } = *config;
        if segmentation.is_none() && coalescing.is_none() && cpu.is_none() {
            return None;
        }
        // A processor takes time even if every frame interrupts.
        let every = CoalescingConfig { frames: Some(1), ..CoalescingConfig::default() };
        let coalescing = coalescing.or(cpu.map(|_| every));
        let alone = SegmentationConfig { bytes: 0, ..SegmentationConfig::LINUX };
        let segmentation = segmentation.or(cpu.map(|_| alone));
        Some(Self {
            ring: coalescing.map(ReceiveRing::new),
            single: segmentation.is_some_and(|config| config.bytes == 0),
            queue: segmentation.map(SendQueue::new),
            instrument,
            cpu: Cpu::new(cpu.unwrap_or_default()),
            counters: NicCounters::default(),
        })
    }

    /// The host hands over its packets while its processor is idle. Packets that become ready while
    /// it is busy form larger pieces, and their acknowledgements merge.
    fn refill<T: Transport<Packet = P>>(&mut self, inner: &mut T, now: Time) {
        let Self { queue: Some(queue), cpu, single, .. } = self else { return };
        let mut prepare = |queue: &mut SendQueue<P>| {
            queue.close(|data| if data { cpu.work(now, cpu.config.send) } else { now });
            cpu.free_at() <= now
        };
        let mut idle = prepare(queue);
        while idle && queue.has_room() {
            let Some(packet) = inner.transmit(now) else { break };
            let Label { to, flow, wire_bytes, .. } = inner.label(&packet);
            let data = matches!(T::content(&packet), PacketContent::Data(_));
            queue.hand_over((to.0, flow), (packet, wire_bytes), data);
            if *single {
                idle = prepare(queue);
            }
        }
        prepare(queue);
    }

    /// The next packet for the pacer or the wire.
    fn next<T: Transport<Packet = P>>(&mut self, inner: &mut T, now: Time) -> Option<P> {
        self.refill(inner, now);
        let (packet, completed) = match &mut self.queue {
            None => {
                let packet = inner.transmit(now)?;
                let bytes = inner.label(&packet).wire_bytes.saturating_sub(UNCOUNTED);
                (packet, Work { frames: 1, bytes })
            }
            Some(queue) => queue.take(now)?,
        };
        if let Some(ring) = &mut self.ring {
            ring.throttle.sent.add(completed);
        }
        Some(packet)
    }

    /// When the first waiting packet may leave, or when the host may hand over another one.
    fn send_due(&self, now: Time, wants: bool) -> Option<Time> {
        let queue = self.queue.as_ref()?;
        let free_at = Some(self.cpu.free_at()).filter(|_| wants);
        [queue.due(), free_at].into_iter().flatten().filter(|due| *due > now).min()
    }

    fn counters(&self, now: Time) -> NicCounters {
        let received = self.ring.as_ref().map_or_else(RingCounts::default, |ring| ring.counted);
        NicCounters { received, busy: self.cpu.busy_until(now), ..self.counters }
    }
}

/// A transport behind a network card.
#[derive(Debug)]
pub struct Nic<T: Transport> {
    inner: T,
    pacer: Option<NicPacer<T::Packet>>,
    offloads: Option<Box<Offloads<T::Packet>>>,
    egress: Option<Egress<T::Packet>>,
    /// The pacer's turn, if both have a packet.
    paced_turn: bool,
    /// When the first waiting packet may leave, if that is in the future.
    due: Option<Time>,
}

impl<T: Transport> Nic<T> {
    /// Wraps a transport. The random stream depends on the seed, the host and its life.
    pub fn new(inner: T, config: NicConfig, host: HostId, (life, seed): (u32, u64)) -> Self {
        let rng = || Rng::stream(seed, &format!("pacer of h{} #{life}", host.0));
        let pacer = config.pacer.map(|config| NicPacer::new(config, rng()));
        let offloads = Offloads::new(&config).map(Box::new);
        let egress = config.mark_above.map(|bytes| Egress::new(bytes, config.mark_by_port));
        Self { inner, pacer, offloads, egress, paced_turn: false, due: None }
    }

    /// The wrapped transport.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The pacer.
    pub fn pacer(&self) -> Option<&NicPacer<T::Packet>> {
        self.pacer.as_ref()
    }

    /// The next packet of the host.
    fn next(
        inner: &mut T,
        offloads: &mut Option<Box<Offloads<T::Packet>>>,
        now: Time,
    ) -> Option<T::Packet> {
        match offloads {
            None => inner.transmit(now),
            Some(offloads) => offloads.next(inner, now),
        }
    }

    /// The next packet of the host that bypasses the bucket. Earlier packets of associated flows
    /// are queued for tokens.
    fn unpaced(&mut self, now: Time) -> Option<T::Packet> {
        let Self { inner, pacer: Some(pacer), offloads, .. } = self else { return None };
        while pacer.has_room() {
            let packet = Self::next(inner, offloads, now)?;
            let label = inner.label(&packet);
            let flow = (label.to.0, label.flow);
            if !pacer.is_associated(flow, now) {
                return Some(packet);
            }
            pacer.offer(flow, packet, label.wire_bytes.saturating_sub(UNCOUNTED));
        }
        None
    }

    /// The next packet of the egress queue, after all packets of the transport have joined it.
    fn queued(&mut self, now: Time) -> Option<T::Packet> {
        let Self { inner, egress: Some(egress), .. } = self else { return None };
        while let Some(mut packet) = inner.transmit(now) {
            let label = inner.label(&packet);
            if egress.marks(&label) {
                T::mark_congestion(&mut packet);
            }
            egress.push(packet, &label);
        }
        egress.pop()
    }

    fn paced(&mut self, now: Time) -> Option<T::Packet> {
        let pacer = self.pacer.as_mut()?;
        pacer.advance(now);
        let first = if self.paced_turn { pacer.release() } else { None };
        let packet = first.or_else(|| {
            self.paced_turn = true;
            self.unpaced(now)
        });
        if first.is_some() {
            self.paced_turn = false;
        }
        let pacer = self.pacer.as_mut()?;
        let packet = packet.or_else(|| pacer.release());
        self.due = pacer.due().filter(|due| *due > now);
        packet
    }

    /// Delivers the frames that the processor has taken out of the ring to the transport.
    fn deliver(&mut self, now: Time) {
        let Self { inner, offloads: Some(offloads), .. } = self else { return };
        let Offloads { ring: Some(ring), cpu, .. } = &mut **offloads else { return };
        while let Some((packet, arrival)) = ring.take(now, cpu) {
            // The fabric already got a receipt when the frame arrived.
            let _ = inner.receive(now, &packet, arrival);
        }
    }

    /// Counts a sent packet as a trace at the wire would.
    #[cold]
    fn count_sent(&mut self, now: Time, packet: &T::Packet) {
        let Some(offloads) = &mut self.offloads else { return };
        match T::content(packet) {
            PacketContent::Data(data) => offloads.counters.data_trains.pass(now, data.len),
            _ => offloads.counters.control_sent += 1,
        }
    }

    #[cold]
    fn receive_later(&mut self, now: Time, packet: &T::Packet, arrival: PacketMeta) {
        let label = self.inner.label(packet);
        let Some(offloads) = &mut self.offloads else { return };
        match T::content(packet) {
            PacketContent::Data(data) => offloads.counters.data_bytes += u64::from(data.len),
            _ => offloads.counters.control_trains.pass(now, 0),
        }
        let waits = offloads.instrument != Some(arrival.from);
        if let Some(ring) = offloads.ring.as_mut().filter(|_| waits) {
            ring.push(now, (*packet, arrival), (label.flow, label.wire_bytes));
            self.deliver(now);
        } else {
            let _ = self.inner.receive(now, packet, arrival);
        }
    }
}

impl<T: Transport> Transport for Nic<T> {
    type Packet = T::Packet;

    #[inline]
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.inner.submit(now, what)
    }

    fn submit_at(
        &mut self,
        now: Time,
        what: Submit,
        level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        self.inner.submit_at(now, what, level)
    }

    #[inline]
    fn event(&mut self) -> Option<Event> {
        self.inner.event()
    }

    #[inline]
    fn receive(&mut self, now: Time, packet: &T::Packet, arrival: PacketMeta) -> Receipt {
        if let Some(pacer) = &mut self.pacer
            && T::echoes_congestion(packet)
        {
            pacer.echoed((arrival.from.0, self.inner.label(packet).flow), now);
        }
        if self.offloads.is_some() {
            self.receive_later(now, packet, arrival);
            return Receipt::Consumed;
        }
        self.inner.receive(now, packet, arrival)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<T::Packet> {
        self.due = None;
        let packet = match (&self.pacer, &self.egress) {
            (None, None) => Self::next(&mut self.inner, &mut self.offloads, now),
            (None, Some(_)) => self.queued(now),
            (Some(_), _) => self.paced(now),
        };
        if let Some(offloads) = &self.offloads {
            let later = offloads.send_due(now, self.inner.has_packet());
            self.due = [self.due, later].into_iter().flatten().min();
            if let Some(packet) = &packet {
                self.count_sent(now, packet);
            }
        }
        packet
    }

    #[inline]
    fn label(&self, packet: &T::Packet) -> Label {
        self.inner.label(packet)
    }

    fn content(packet: &T::Packet) -> PacketContent {
        T::content(packet)
    }

    fn refused(&self) -> u64 {
        self.inner.refused()
    }

    fn mark_congestion(packet: &mut T::Packet) {
        T::mark_congestion(packet);
    }

    fn timeouts(&self) -> Timeouts {
        self.inner.timeouts()
    }

    fn pause(&mut self, now: Time, levels: u8) {
        match &mut self.egress {
            Some(egress) => egress.paused = levels,
            None => self.inner.pause(now, levels),
        }
    }

    fn echoes_congestion(packet: &T::Packet) -> bool {
        T::echoes_congestion(packet)
    }

    #[inline]
    fn expire(&mut self, now: Time) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
        }
        if self.offloads.is_some() {
            self.deliver(now);
        }
        self.inner.expire(now);
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        let own = match (self.inner.deadline(), self.due) {
            (Some(own), Some(due)) => Some(own.min(due)),
            (own, due) => own.or(due),
        };
        let Some(Offloads { ring: Some(ring), .. }) = self.offloads.as_deref() else { return own };
        [own, ring.due()].into_iter().flatten().min()
    }

    const PREFETCH_STEPS: u32 = T::PREFETCH_STEPS;

    fn prefetch(&self, step: u32, packet: Option<(&T::Packet, HostId)>) -> u64 {
        self.inner.prefetch(step, packet)
    }

    #[inline]
    fn has_packet(&self) -> bool {
        let sends = self.offloads.as_deref().and_then(|offloads| offloads.queue.as_ref());
        let sends = sends.is_some_and(|queue| !queue.is_empty());
        let paced = self.pacer.as_ref().is_some_and(|pacer| !pacer.is_empty());
        let queued = self.egress.as_ref().is_some_and(|egress| !egress.is_idle());
        self.inner.has_packet() || sends || paced || queued
    }

    fn nic(&self, now: Time) -> Option<NicCounters> {
        if self.offloads.is_none() && self.pacer.is_none() {
            return None;
        }
        let offloads = self.offloads.as_ref();
        let counted = offloads.map_or_else(NicCounters::default, |it| it.counters(now));
        let paced = self.pacer.as_ref().map_or_else(Released::default, NicPacer::released);
        Some(NicCounters { paced, ..counted })
    }
}

#[cfg(test)]
mod tests;

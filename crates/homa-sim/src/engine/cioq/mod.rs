//! The second switch model: combined input and output queues around a crossbar (DeTail §4.2.1),
//! with priority flow control.
//!
//! ```text
//! link ─first bit─▶ its memory ─whole, looked up─▶ input queue ─crossbar─▶ output queue ─▶ link
//! ```
//!
//! A frame takes memory at its input from its first bit on, or is dropped if there is none. When
//! all of it has arrived and the forwarding engine has chosen an output, it queues by priority. The
//! crossbar carries one frame at a time from each input and to each output, `speedup` times as fast
//! as the switch's fastest link. An output takes the frame of the highest level that fits and is at
//! the head of an input's list, with inputs of equal level in turn. If an output has no room for a
//! frame, the frame waits at its input, so nothing is lost inside, or the output drops it: that is
//! configured ([`room`]). Outputs serve strict priorities.
//! Memory is free again when the last bit has crossed, or has left.
//!
//! Each level reserves a little memory at outputs for every higher one ([`Room::may_cross`]),
//! because frames of a level that is paused downstream would otherwise block levels that are not.
//! The paper does not describe how its switches avoid that.
//!
//! | module | what it does |
//! |---|---|
//! | `ingress` | arrival, look-up, the crossbar |
//! | `egress` | output queues, wires of switches and hosts |
//! | `pause` | which levels an input pauses; `engine/pauses` carries that to the sender |
//! | `locks` | which levels never move again |
//! | `room` | which frames a port has room for |
//!
//! Invariants: frames of one level from one input to one output keep their order; an idle input
//! holds no frame that its output could take; if thresholds are safe, nothing is dropped.

mod egress;
mod ingress;
mod locks;
mod pause;
mod room;

use crate::fabric::cioq::drain_bytes::DrainBytes;
use crate::fabric::cioq::pfc::PfcThresholds;
use crate::fabric::{CioqConfig, FabricConfig, Frame, List, NONE};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{PortId, PortSpec, Wiring};
use homa_proto::Rate;
use room::Room;

use super::pauses::{Rates, link_pair, note_rate, reverse_links};

/// Frames in lists by level.
#[derive(Clone, Debug)]
struct Lists {
    lists: [List; 8],
    /// Bit `n` set: list `n` holds a frame.
    occupied: u8,
}

impl Lists {
    const EMPTY: Self = Self { lists: [List::EMPTY; 8], occupied: 0 };

    #[inline]
    fn push(&mut self, frames: &mut [Frame], slot: u32) {
        let frame = &mut frames[slot as usize];
        frame.next = NONE;
        let level = frame.priority();
        self.occupied |= 1 << level;
        self.lists[usize::from(level & 7)].append(frames, slot);
    }

    /// The first frame of a nonempty level.
    #[inline]
    fn first(&self, level: u8) -> u32 {
        self.lists[usize::from(level & 7)].head
    }

    /// Takes a frame out of its level's list; `before` is the frame before it, if any.
    #[inline]
    fn take(&mut self, frames: &mut [Frame], (before, slot): (u32, u32)) {
        let frame = frames[slot as usize];
        let (level, next) = (frame.priority(), frame.next);
        let list = &mut self.lists[usize::from(level & 7)];
        if before == NONE {
            list.head = next;
        } else {
            frames[before as usize].next = next;
            if next == NONE {
                list.tail = before;
            }
        }
        if list.head == NONE {
            self.occupied &= !(1 << level);
        }
    }

    /// Takes the first frame of the highest nonempty level in `levels`.
    #[inline]
    fn pop(&mut self, frames: &[Frame], levels: u8) -> Option<u32> {
        let level = (self.occupied & levels).checked_ilog2()? as u8;
        let list = &mut self.lists[usize::from(level)];
        let slot = list.head;
        list.head = frames[slot as usize].next;
        if list.head == NONE {
            self.occupied &= !(1 << level);
        }
        Some(slot)
    }
}

/// The end of a link at a switch.
#[derive(Clone, Debug)]
struct Input {
    queue: Lists,
    /// Wire bytes in memory, including frames that are still arriving or crossing.
    drain: DrainBytes,
    /// The frame that crosses the crossbar.
    crossing: u32,
    /// Thresholds for pausing the sender; `None` if the input never does.
    thresholds: Option<PfcThresholds>,
}

/// A port of a switch; for a host's own port only the state of pauses is used.
#[derive(Clone, Debug)]
struct Output {
    queue: Lists,
    /// Wire bytes in memory, including the frame in transmission.
    drain: DrainBytes,
    /// Wire bytes that are crossing the crossbar to it.
    coming: u32,
    /// Bytes and level of the frame on the wire; 0 bytes if the wire carries none, or a control
    /// frame.
    leaving: (u16, u8),
    /// The wire is busy.
    busy: bool,
    /// Index, among the switch's inputs, of the one served last.
    turn: u32,
    /// Number of frames that wait for it at inputs.
    asking: u32,
    /// Wire bytes of all frames of the switch that are bound for it and have not begun to leave.
    bound: u32,
}

/// The indices of the bits that are set, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest)
    }
}

/// The state of all input-queued switches.
#[derive(Debug)]
pub(super) struct Cioq {
    room: Room,
    lookup: SimDuration,
    virtual_outputs: bool,
    mark_above: Option<u32>,
    /// By link.
    inputs: Vec<Input>,
    /// By port.
    outputs: Vec<Output>,
    /// By link: the link in the other direction.
    back: Vec<u32>,
    /// By link: later rates.
    rates: Rates,
    /// By switch: the links that end at it.
    inputs_of: Vec<Vec<u32>>,
    /// By link: its switch, and its index among the links that end there.
    places: Vec<(u32, u32)>,
    /// By switch: bits of those of its first 64 inputs that hold frames and have none crossing.
    waiting: Vec<u64>,
    /// By switch: the crossbar's rate.
    crossbars: Vec<LinkRate>,
    /// By slot: the time when the frame has arrived completely at the end of its link.
    whole: Vec<SimTime>,
    /// Outputs already tried in a search; kept to avoid allocations.
    passed: Vec<u32>,
}

impl Cioq {
    /// The state of a network's switches; empty unless they queue at inputs.
    pub fn new(wiring: &Wiring, config: &FabricConfig) -> Self {
        match config.cioq {
            Some(cioq) => Self::of(wiring.ports(), wiring, cioq),
            None => Self::empty(Room::default(), SimDuration::ZERO, false),
        }
    }

    fn empty(room: Room, lookup: SimDuration, virtual_outputs: bool) -> Self {
        Self {
            room,
            lookup,
            virtual_outputs,
            mark_above: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            back: Vec::new(),
            rates: Rates::new(),
            inputs_of: Vec::new(),
            places: Vec::new(),
            waiting: Vec::new(),
            crossbars: Vec::new(),
            whole: Vec::new(),
            passed: Vec::new(),
        }
    }

    fn of(ports: &[PortSpec], wiring: &Wiring, config: CioqConfig) -> Self {
        let hosts = wiring.hosts();
        let room = Room::new(config.bytes, config.output_drops && config.pfc.is_none());
        let mut cioq = Self::empty(room, config.lookup, config.virtual_outputs);
        cioq.mark_above = config.mark_above;
        cioq.back = reverse_links(ports);
        cioq.inputs_of = vec![Vec::new(); wiring.switches() as usize];
        cioq.waiting = vec![0; wiring.switches() as usize];
        let mut fastest = vec![1; wiring.switches() as usize];
        for (link, spec) in (0..).zip(ports) {
            let mut place = (NONE, NONE);
            if let Some(switch) = spec.to.0.checked_sub(hosts) {
                let inputs = &mut cioq.inputs_of[switch as usize];
                place = (switch, inputs.len() as u32);
                inputs.push(link);
            }
            cioq.places.push(place);
            if let Some(switch) = spec.from.0.checked_sub(hosts) {
                let known = &mut fastest[switch as usize];
                *known = spec.rate.0.max(*known);
            }
            let thresholds = thresholds(ports, (&cioq.back, &cioq.rates), config, link);
            cioq.inputs.push(Input {
                queue: Lists::EMPTY,
                drain: DrainBytes::default(),
                crossing: NONE,
                thresholds,
            });
            cioq.outputs.push(Output {
                queue: Lists::EMPTY,
                drain: DrainBytes::default(),
                coming: 0,
                leaving: (0, 0),
                busy: false,
                turn: 0,
                asking: 0,
                bound: 0,
            });
        }
        let rate = |fastest: &u64| Rate(fastest.saturating_mul(u64::from(config.speedup)));
        cioq.crossbars = fastest.iter().map(|fastest| LinkRate::new(rate(fastest))).collect();
        cioq
    }

    /// Announces that a link has another rate from a time on. The inputs at its ends then pause
    /// early enough for that from the beginning. If no threshold is safe, they keep the present
    /// ones.
    pub fn expect_rate(
        &mut self,
        ports: &[PortSpec],
        config: CioqConfig,
        (link, at, rate): (u32, SimTime, Rate),
    ) {
        note_rate(&mut self.rates, (link, at, rate));
        for link in [link, self.back[link as usize]] {
            if let Some(input) = self.inputs.get_mut(link as usize) {
                let safe = thresholds(ports, (&self.back, &self.rates), config, link);
                input.thresholds = safe.or(input.thresholds);
            }
        }
    }

    /// A port's drain bytes for a level, which adaptive forwarding compares.
    #[inline]
    pub fn drain(&self, port: u32, level: u8) -> u32 {
        self.outputs[port as usize].drain.at(level)
    }

    /// The levels of the frames that wait at a port.
    pub fn waiting_levels(&self, port: u32) -> u8 {
        self.outputs[port as usize].queue.occupied
    }

    /// Notes if an input has frames and none of them crosses.
    #[inline]
    fn note_waiting(&mut self, link: u32) {
        let input = &self.inputs[link as usize];
        let waits = input.crossing == NONE && input.queue.occupied != 0;
        let (switch, place) = self.places[link as usize];
        if let Some(bit) = 1_u64.checked_shl(place) {
            let waiting = &mut self.waiting[switch as usize];
            *waiting = *waiting & !bit | if waits { bit } else { 0 };
        }
    }

    /// Indices of a switch's inputs that may have a frame to send across, in a circle that starts
    /// behind `turn`.
    #[inline]
    fn places_from(&self, switch: u32, turn: u32) -> impl Iterator<Item = u32> + use<> {
        let inputs = self.inputs_of[switch as usize].len() as u32;
        let first = turn + 1;
        let known = if inputs <= u64::BITS { self.waiting[switch as usize] } else { 0 };
        let behind = u64::MAX.checked_shl(first).unwrap_or(0);
        let circle = [known & behind, known & !behind].into_iter().flat_map(Bits);
        // For larger switches, the bits do not suffice, so every input is a candidate.
        let all = if inputs <= u64::BITS { 0 } else { inputs };
        circle.chain((0..all).map(move |step| (first + step) % inputs))
    }

    /// Records when a frame has arrived completely at the end of its link.
    #[inline]
    fn note_whole(&mut self, slot: u32, at: SimTime) {
        if self.whole.len() <= slot as usize {
            self.whole.resize(slot as usize + 1, SimTime::ZERO);
        }
        self.whole[slot as usize] = at;
    }

    /// A link duplicated a frame.
    pub fn note_copy(&mut self, slot: u32, copy: u32) {
        let at = self.whole.get(slot as usize).copied().unwrap_or_default();
        self.note_whole(copy, at);
    }
}

/// Thresholds for pausing the sender of a link; `None` if the input never pauses it, or if no
/// threshold is safe.
fn thresholds(
    ports: &[PortSpec],
    links: (&[u32], &Rates),
    config: CioqConfig,
    link: u32,
) -> Option<PfcThresholds> {
    let (own, back) = link_pair(ports, links, link)?;
    config.pfc?.thresholds_over(own, back, config.bytes)
}

/// The input whose pauses must come earliest, and the greatest safe pause threshold there for all
/// rates that its link, and the one in the other direction, ever have; that threshold is `None` if
/// none is safe. The result is `None` if there is no flow control.
pub fn earliest_pause(
    wiring: &Wiring,
    config: CioqConfig,
    changes: impl IntoIterator<Item = (u32, SimTime, Rate)>,
) -> Option<(PortId, Option<u32>)> {
    let (ports, mut rates, pfc) = (wiring.ports(), Rates::new(), config.pfc?);
    changes.into_iter().for_each(|change| note_rate(&mut rates, change));
    let reverse_links = reverse_links(ports);
    let to_switches = (0..).zip(ports).filter(|(_, spec)| spec.to.0 >= wiring.hosts());
    let safe = to_switches.filter_map(|(link, _)| {
        let (own, back) = link_pair(ports, (&reverse_links, &rates), link)?;
        Some((PortId(link), pfc.safe_over(own, back, config.bytes)))
    });
    safe.min_by_key(|(_, safe)| *safe)
}

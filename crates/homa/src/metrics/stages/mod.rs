//! Where the time of RPCs goes: some RPCs are followed from stage to stage.
//!
//! One RPC in 16 is followed, chosen by its handle when it begins, and at most eight at a time. All
//! of an RPC's time is charged to exactly one stage: at each event, the time since the last event.
//! Time in which the engine did not run is a separate stage, because nothing else explains it.
//! The sums are kept by direction, by size, and by how long the RPCs took, in doublings, so that a
//! reader can look at the slow ones.
//!
//! Invariants: the stages of an RPC add up to its time, and memory is bounded. A packet of an RPC
//! that is not followed costs a test of one word. Left out: packets of a message that overtake each
//! other, and time in the kernel and the network card, which belongs to the stage around it.

use std::collections::BTreeMap;
use std::time::Duration;

use homa_proto::{Body, MessageId, Packet, PeerId, RpcHandle, RpcId, Time};

use super::Direction;
use super::latency::RpcSize;

mod text;

pub(super) use text::write;

/// RPCs that are followed at a time.
const MOST: usize = 8;
/// One RPC in two to the power of this is followed.
const ONE_IN_LOG: u32 = 4;
/// RPCs that took up to two to the power of these nanoseconds are one group, and so on in
/// doublings.
const SHORTEST: u32 = 10;
const LONGEST: u32 = 36;

/// A part of an RPC's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcStage {
    /// From the call (as client), or from the reply (as server), until the first byte left.
    Queue,
    /// From the first byte to the last byte of the own message, while bytes were allowed to leave.
    Send,
    /// The own message had no granted bytes left (Homa §3.3).
    Grant,
    /// As client: from the last byte of the request until the first of the response. Holds a round
    /// trip and the server's time.
    Wait,
    /// From the first byte until the last of the peer's message.
    Receive,
    /// As server: from the complete request until the application took it.
    Accept,
    /// As server: from there until the reply.
    Application,
    /// Until bytes that were lost came, or left, again (Homa §3.7).
    Loss,
    /// A timer was due, and for 10 ms or more the process did not run. Time of a server's
    /// application is not counted here, because a handler may be what holds up the process.
    Stalled,
}

impl RpcStage {
    /// All stages.
    pub const ALL: [Self; 9] = [
        Self::Queue,
        Self::Send,
        Self::Grant,
        Self::Wait,
        Self::Receive,
        Self::Accept,
        Self::Application,
        Self::Loss,
        Self::Stalled,
    ];

    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Send => "send",
            Self::Grant => "grant",
            Self::Wait => "wait",
            Self::Receive => "receive",
            Self::Accept => "accept",
            Self::Application => "application",
            Self::Loss => "loss",
            Self::Stalled => "stalled",
        }
    }
}

/// Followed RPCs of one direction and size that took about as long as each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageTimes {
    /// The direction. The time of a server ends when the last byte of the response left.
    pub direction: Direction,
    /// The size of the longer message.
    pub size: RpcSize,
    /// They took no longer than this, and more than half of it. Longer ones than 69 s count here.
    pub up_to: Duration,
    /// Their number.
    pub rpcs: u64,
    /// Bytes of their requests and responses.
    pub bytes: u64,
    /// Sum of their times by stage, nanoseconds.
    nanos: [u64; RpcStage::ALL.len()],
}

impl StageTimes {
    /// The sum of their times in one stage.
    pub fn time(&self, stage: RpcStage) -> Duration {
        Duration::from_nanos(self.nanos[stage as usize])
    }

    fn key(&self) -> (usize, RpcSize, Duration) {
        (self.direction as usize, self.size, self.up_to)
    }

    fn add(&mut self, other: &Self) {
        self.rpcs += other.rpcs;
        self.bytes += other.bytes;
        self.nanos.iter_mut().zip(other.nanos).for_each(|(ours, other)| *ours += other);
    }
}

/// Adds the times of another engine.
pub(super) fn merge(ours: &mut Vec<StageTimes>, other: &[StageTimes]) {
    for times in other {
        match ours.iter_mut().find(|ours| ours.key() == times.key()) {
            Some(ours) => ours.add(times),
            None => ours.push(*times),
        }
    }
    ours.sort_by_key(StageTimes::key);
}

/// An RPC that is followed.
#[derive(Clone, Copy, Debug)]
struct Followed {
    rpc: RpcHandle,
    /// As its client writes it.
    id: RpcId,
    peer: PeerId,
    direction: Direction,
    /// What it does since `since`.
    stage: RpcStage,
    since: Time,
    began: Time,
    /// Bytes of the request and the response.
    bytes: [u32; 2],
    /// Own bytes: all, those that left, and those that may leave.
    length: u32,
    left: u32,
    granted: u32,
    /// A RESEND left since the last bytes arrived.
    asked: bool,
    nanos: [u64; RpcStage::ALL.len()],
}

impl Followed {
    /// The time until now belongs to a stage.
    fn charge(&mut self, now: Time, stage: RpcStage) {
        self.nanos[stage as usize] += now.since(self.since).0;
        self.since = self.since.max(now);
    }

    /// The time until now belongs to the present stage, and another one begins.
    fn enter(&mut self, now: Time, next: RpcStage) {
        self.charge(now, self.stage);
        self.stage = next;
    }

    /// Own bytes left. True if those were the last.
    fn sent(&mut self, now: Time, end: u32, unscheduled: u32, retransmit: bool) -> bool {
        if retransmit || end <= self.left {
            self.charge(now, RpcStage::Loss);
            return false;
        }
        self.charge(now, self.stage);
        self.left = self.left.max(end);
        self.granted = self.granted.max(unscheduled);
        self.stage = match () {
            () if self.left >= self.length => RpcStage::Wait,
            () if self.left >= self.granted => RpcStage::Grant,
            () => RpcStage::Send,
        };
        self.stage == RpcStage::Wait
    }

    /// Bytes of the peer arrived.
    fn arrived(&mut self, now: Time, retransmitted: bool) {
        // The server reads this request while it arrives.
        if matches!(self.stage, RpcStage::Accept | RpcStage::Application) {
            return;
        }
        let lost = std::mem::take(&mut self.asked) && (self.stage == RpcStage::Receive);
        let stage = if lost || retransmitted { RpcStage::Loss } else { self.stage };
        self.charge(now, stage);
        self.stage = RpcStage::Receive;
    }
}

/// The followed RPCs, and the sums of those that ended.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// The bit of an RPC's index modulo 64 is set if it may be followed.
    mask: u64,
    followed: Vec<Followed>,
    ended: BTreeMap<(usize, RpcSize, Duration), StageTimes>,
    shortest_wait: Option<Duration>,
    /// All time in which the engine did not run, nanoseconds.
    stalled: u64,
}

const fn bit(index: u32) -> u64 {
    1 << (index & 63)
}

impl Stages {
    /// Decides whether an RPC is followed, always in the same way.
    #[inline]
    pub(super) fn draws(&self, rpc: RpcHandle) -> bool {
        let by_index = u64::from(rpc.index).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (u64::from(rpc.generation) ^ by_index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed < 1 << (u64::BITS - ONE_IN_LOG) && self.followed.len() < MOST
    }

    /// Follows an RPC. A client's request of `length` bytes was submitted; of a server's, that many
    /// are arriving.
    pub(super) fn follow(
        &mut self,
        now: Time,
        (rpc, id, peer): (RpcHandle, RpcId, PeerId),
        direction: Direction,
        length: u32,
    ) {
        self.drop_at(rpc.index);
        let (stage, own) = match direction {
            Direction::Client => (RpcStage::Queue, length),
            Direction::Server => (RpcStage::Receive, 0),
        };
        self.followed.push(Followed {
            rpc,
            id: id.client(),
            peer,
            direction,
            stage,
            since: now,
            began: now,
            bytes: [length, 0],
            length: own,
            left: 0,
            granted: 0,
            asked: false,
            nanos: [0; RpcStage::ALL.len()],
        });
        self.mask |= bit(rpc.index);
    }

    /// True if the RPC with this index may be followed.
    #[inline]
    fn may_follow(&self, index: u32) -> bool {
        self.mask & bit(index) != 0
    }

    /// The place of the followed RPC with this index.
    fn place(&self, index: u32) -> Option<usize> {
        self.followed.iter().position(|followed| followed.rpc.index == index)
    }

    #[inline]
    fn find(&mut self, rpc: RpcHandle) -> Option<&mut Followed> {
        if !self.may_follow(rpc.index) {
            return None;
        }
        self.search(rpc)
    }

    #[cold]
    fn search(&mut self, rpc: RpcHandle) -> Option<&mut Followed> {
        self.followed.iter_mut().find(|followed| followed.rpc == rpc)
    }

    fn remove(&mut self, place: usize) -> Followed {
        let removed = self.followed.swap_remove(place);
        self.mask = self.followed.iter().fold(0, |mask, of| mask | bit(of.rpc.index));
        removed
    }

    #[cold]
    fn drop_at(&mut self, index: u32) {
        if let Some(place) = self.place(index) {
            self.remove(place);
        }
    }

    /// The engine had something to do from `from` on, and did not run until `now`.
    #[cold]
    pub(crate) fn stalled(&mut self, from: Time, now: Time) {
        self.stalled += now.since(from).0;
        let waiting = self.followed.iter_mut();
        for followed in waiting.filter(|followed| followed.stage != RpcStage::Application) {
            followed.charge(from, followed.stage);
            followed.charge(now, RpcStage::Stalled);
        }
    }

    /// All time in which the engine did not run.
    pub(crate) fn stalled_time(&self) -> Duration {
        Duration::from_nanos(self.stalled)
    }

    /// A packet leaves.
    #[inline]
    pub(crate) fn leaves(&mut self, now: Time, packet: &Packet) {
        if self.mask == 0 {
            return;
        }
        match &packet.body {
            Body::Data(data) if self.may_follow(data.span.message.0 / 2) => {
                let end = data.span.offset + data.span.len;
                self.data_leaves(now, data.span.message, (end, data.incoming), data.retransmit);
            }
            Body::Resend { .. } => {
                if let Some(followed) = self.by_id(packet) {
                    followed.asked = true;
                }
            }
            _ => {}
        }
    }

    #[cold]
    fn data_leaves(&mut self, now: Time, message: MessageId, (end, free): (u32, u32), again: bool) {
        let Some(place) = self.place(message.0 / 2) else { return };
        let last = self.followed[place].sent(now, end, free, again);
        if last && self.followed[place].direction == Direction::Server {
            self.finish(place);
        }
    }

    fn by_id(&mut self, packet: &Packet) -> Option<&mut Followed> {
        let of = (packet.id.client(), packet.peer);
        self.followed.iter_mut().find(|followed| (followed.id, followed.peer) == of)
    }

    /// A control packet arrived.
    #[inline]
    pub(crate) fn control(&mut self, now: Time, packet: &Packet) {
        if self.mask == 0 {
            return;
        }
        let Some(followed) = self.by_id(packet) else { return };
        match packet.body {
            Body::Grant { offset, .. } if offset > followed.granted => {
                followed.granted = offset;
                if followed.stage == RpcStage::Grant {
                    followed.enter(now, RpcStage::Send);
                }
            }
            // The peer has the request and is not ready: nothing was lost.
            Body::Busy { .. } => followed.asked = false,
            _ => {}
        }
    }

    /// Bytes of an incoming message arrived.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Time, message: MessageId, packet: &Packet) {
        if self.may_follow(message.0 / 2) {
            self.note_arrived(now, message, packet);
        }
    }

    #[cold]
    fn note_arrived(&mut self, now: Time, message: MessageId, packet: &Packet) {
        let Some(place) = self.place(message.0 / 2) else { return };
        let again = matches!(&packet.body, Body::Data(data) if data.retransmit);
        self.followed[place].arrived(now, again);
    }

    /// True if an RPC is followed.
    #[inline]
    pub(super) fn follows(&mut self, rpc: RpcHandle) -> bool {
        self.find(rpc).is_some()
    }

    /// A request is complete.
    #[inline]
    pub(super) fn delivered(&mut self, now: Time, rpc: RpcHandle) {
        if let Some(followed) = self.find(rpc) {
            followed.enter(now, RpcStage::Accept);
        }
    }

    /// The application took a request at a time that is read only if it is needed.
    #[inline]
    pub(crate) fn taken(&mut self, rpc: RpcHandle, now: impl FnOnce() -> Time) {
        if let Some(followed) = self.find(rpc) {
            followed.enter(now(), RpcStage::Application);
        }
    }

    /// The application answered a request with this many bytes.
    #[inline]
    pub(super) fn replied(&mut self, now: Time, rpc: RpcHandle, length: u32) {
        if let Some(followed) = self.find(rpc) {
            followed.enter(now, RpcStage::Queue);
            followed.length = length;
            followed.bytes[1] = length;
        }
    }

    /// A call ended with a response of this many bytes, or at its deadline.
    #[inline]
    pub(super) fn ended(&mut self, now: Time, rpc: RpcHandle, length: u32) {
        if self.may_follow(rpc.index) {
            self.end(now, rpc, length);
        }
    }

    #[cold]
    fn end(&mut self, now: Time, rpc: RpcHandle, length: u32) {
        if let Some(followed) = self.search(rpc) {
            followed.enter(now, RpcStage::Wait);
            followed.bytes[1] = length;
            if let Some(place) = self.place(rpc.index) {
                self.finish(place);
            }
        }
    }

    /// An RPC ended otherwise.
    pub(super) fn abandoned(&mut self, rpc: RpcHandle) {
        if self.find(rpc).is_some() {
            self.drop_at(rpc.index);
        }
    }

    /// The bytes of a message are released: a server's response will not leave any more.
    #[inline]
    pub(crate) fn released(&mut self, message: MessageId) {
        if self.may_follow(message.0 / 2)
            && let Some(place) = self.place(message.0 / 2)
            && self.followed[place].direction == Direction::Server
        {
            self.remove(place);
        }
    }

    /// Records a followed RPC and follows it no longer.
    fn finish(&mut self, place: usize) {
        let of = self.remove(place);
        let nanos = of.since.since(of.began).0;
        let up_to = nanos.clamp(1 << SHORTEST, 1 << LONGEST).next_power_of_two();
        let up_to = Duration::from_nanos(up_to);
        let bytes = of.bytes.map(u64::from);
        let times = StageTimes {
            direction: of.direction,
            size: RpcSize::of(of.bytes[0].max(of.bytes[1])),
            up_to,
            rpcs: 1,
            bytes: bytes[0] + bytes[1],
            nanos: of.nanos,
        };
        self.ended.entry(times.key()).and_modify(|sum| sum.add(&times)).or_insert(times);
        let time = |stage: RpcStage| Duration::from_nanos(of.nanos[stage as usize]);
        let wait = time(RpcStage::Wait);
        // If a part of the wait is charged to another stage, the rest is shorter than a round trip.
        // After a repetition it is unknown which of the two was answered (RFC 6298, section 3).
        let whole = time(RpcStage::Stalled).is_zero() && time(RpcStage::Loss).is_zero();
        if of.direction == Direction::Client && of.bytes[1] > 0 && !wait.is_zero() && whole {
            self.shortest_wait = Some(self.shortest_wait.map_or(wait, |least| least.min(wait)));
        }
    }

    /// The sums, and the shortest wait of a call.
    pub(crate) fn snapshot(&self) -> (Vec<StageTimes>, Option<Duration>) {
        (self.ended.values().copied().collect(), self.shortest_wait)
    }
}

#[cfg(test)]
mod tests;

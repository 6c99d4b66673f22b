//! Output-queued switches whose ports share one memory, divided by inputs, with priority flow
//! control: the rules of HPCC's simulator (`alibaba-edu/High-Precision-Congestion-Control`,
//! revision 9f4be2a, `switch-mmu.cc`, `switch-node.cc` and `third.cc`). `engine/shared` moves
//! frames by them.
//!
//! A frame waits at its output and counts at its input until its first bit leaves. Each level of an
//! input has a reserve; beyond that it takes memory from the pool of the switch, up to a limit: a
//! share of the pool's free bytes (the dynamic threshold of Choudhury and Hahne, 1998). Beyond the
//! limit it takes its headroom, which no other level uses. A frame that does not fit there either
//! is lost. A level is paused when it has reached its limit, and continues when it is a gap below
//! it again.
//!
//! The limit moves while other inputs fill and drain the pool. An input looks at it only when one
//! of its frames arrives or leaves, as in that program.
//!
//! Two details differ from the program. There a frame that fits into the reserve may be lost if the
//! pool and the headroom are full; here it is kept. And the headroom holds a frame and the bytes
//! that may arrive until a pause takes effect
//! ([`PfcLink::reaction_bytes`](super::cioq::pfc::PfcLink::reaction_bytes)), unless a plan sets the
//! program's three delays of the link.

use homa_proto::Rate;

use super::cioq::{ChangingLink, PfcConfig};

/// A switch with one memory for all of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedConfig {
    /// Wire bytes of the switch's memory.
    pub memory: u64,
    /// Largest share of the pool's free bytes that a level of an input takes if its link has the
    /// rate `link`, parts of a million. It doubles with the rate of faster links, up to one.
    pub alpha: u32,
    /// The rate of that link.
    pub link: Rate,
    /// Wire bytes that each level of an input has to itself.
    pub reserve: u32,
    /// A paused level continues when it is this many bytes below its limit.
    pub resume_gap: u32,
    /// Wire bytes of each level's headroom; `None`: a frame, and the bytes that may arrive until a
    /// pause takes effect.
    pub headroom: Option<u32>,
    /// Levels that neither count nor pause, as bits.
    pub exempt: u8,
    /// Flow control. Its thresholds are not used.
    pub pfc: PfcConfig,
}

/// One, as a share of the pool.
pub const WHOLE: u32 = 1_000_000;

impl SharedConfig {
    /// The share of an input whose link has this rate.
    pub fn alpha_at(&self, mut rate: Rate) -> u32 {
        let mut alpha = self.alpha;
        while rate > self.link && alpha < WHOLE {
            alpha = (2 * alpha).min(WHOLE);
            rate.0 /= 2;
        }
        alpha
    }

    /// The headroom of an input, for all rates that its link and the link `back` ever have.
    pub fn headroom_over(&self, way: ChangingLink<'_>, back: ChangingLink<'_>) -> u64 {
        self.headroom.map_or_else(|| self.safe_headroom(way, back), u64::from)
    }

    /// The least headroom with which nothing is lost: the frame that has reached the limit, and
    /// the bytes that arrive until the pause takes effect.
    pub fn safe_headroom(&self, way: ChangingLink<'_>, back: ChangingLink<'_>) -> u64 {
        self.pfc.reaction_bytes_over(way, back) + u64::from(self.pfc.frame)
    }

    /// Bytes that an input with this headroom takes from the pool for good.
    pub fn set_aside(&self, headroom: u64) -> u64 {
        u64::from(self.pfc.priorities) * (headroom + u64::from(self.reserve))
    }
}

/// Wire bytes of one level at one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelMemory {
    /// In the reserve and in the pool.
    pub held: u32,
    /// In the headroom.
    pub headroom: u32,
}

/// Where a frame finds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPlace {
    /// In the reserve or the pool; this many bytes of it in the pool.
    Pool(u32),
    /// In the headroom.
    Headroom,
    /// Nowhere: it is lost.
    Lost,
}

impl LevelMemory {
    /// Bytes in the pool.
    pub fn pooled(self, reserve: u32) -> u32 {
        self.held.saturating_sub(reserve)
    }

    /// Where a frame of `bytes` is kept if the level may have `limit` bytes in the pool, and
    /// `room` in its headroom.
    pub fn place(self, bytes: u32, (reserve, limit, room): (u32, u64, u64)) -> MemoryPlace {
        let pooled = (self.held + bytes).saturating_sub(reserve);
        if u64::from(pooled) <= limit {
            return MemoryPlace::Pool(pooled.min(bytes));
        }
        match u64::from(self.headroom) + u64::from(bytes) <= room {
            true => MemoryPlace::Headroom,
            false => MemoryPlace::Lost,
        }
    }

    /// True if the level should be paused.
    pub fn pauses(self, reserve: u32, limit: u64) -> bool {
        self.headroom > 0 || u64::from(self.pooled(reserve)) >= limit
    }

    /// True if a paused level may continue.
    pub fn resumes(self, (reserve, gap): (u32, u32), limit: u64) -> bool {
        let pooled = self.pooled(reserve);
        let is_below = pooled == 0 || u64::from(pooled) + u64::from(gap) <= limit;
        self.headroom == 0 && is_below
    }

    /// A frame has left, first from the headroom. Returns the bytes of it that were in the pool.
    pub fn release(&mut self, bytes: u32, reserve: u32) -> u32 {
        let spared = self.headroom.min(bytes);
        let rest = bytes - spared;
        let pooled = self.pooled(reserve).min(rest);
        self.headroom -= spared;
        self.held -= rest;
        pooled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::cioq::pfc::{PfcLink, ResponseTime};
    use crate::time::SimDuration;

    const RESERVE: u32 = 4_096;

    fn memory(held: u32, headroom: u32) -> LevelMemory {
        LevelMemory { held, headroom }
    }

    fn config(alpha: u32) -> SharedConfig {
        let response = ResponseTime::After(SimDuration::ZERO);
        let pfc =
            PfcConfig { thresholds: None, priorities: 2, frame: 1_048, cable: None, response };
        SharedConfig {
            memory: 32 << 20,
            alpha,
            link: Rate::gbps(100),
            reserve: RESERVE,
            resume_gap: 3_072,
            headroom: None,
            exempt: 0,
            pfc,
        }
    }

    #[test]
    fn a_frame_takes_the_reserve_then_the_pool_then_the_headroom() {
        let place =
            |held, headroom, limit| memory(held, headroom).place(1_000, (RESERVE, limit, 2_000));
        assert_eq!(place(3_096, 0, 0), MemoryPlace::Pool(0), "it just fits into the reserve");
        assert_eq!(place(3_097, 0, 0), MemoryPlace::Headroom, "a byte does not");
        assert_eq!(place(3_097, 0, 1), MemoryPlace::Pool(1));
        assert_eq!(place(4_096, 0, 1_000), MemoryPlace::Pool(1_000));
        assert_eq!(place(4_097, 0, 1_000), MemoryPlace::Headroom);
        assert_eq!(place(4_097, 1_000, 1_000), MemoryPlace::Headroom);
        assert_eq!(place(4_097, 1_001, 1_000), MemoryPlace::Lost);
        assert_eq!(place(3_000, 1_001, 0), MemoryPlace::Pool(0), "the reserve is never lost");
    }

    #[test]
    fn a_level_is_paused_at_its_limit_and_continues_a_gap_below_it() {
        let pauses = |held, headroom, limit| memory(held, headroom).pauses(RESERVE, limit);
        assert!(!pauses(RESERVE + 4_999, 0, 5_000) && pauses(RESERVE + 5_000, 0, 5_000));
        assert!(pauses(0, 1, 5_000), "the headroom is in use");
        assert!(pauses(0, 0, 0), "the pool is empty");
        let resumes =
            |held, headroom, limit| memory(held, headroom).resumes((RESERVE, 3_072), limit);
        assert!(resumes(RESERVE + 1_928, 0, 5_000) && !resumes(RESERVE + 1_929, 0, 5_000));
        assert!(!resumes(RESERVE, 1, 5_000), "the headroom is in use");
        assert!(resumes(RESERVE, 0, 0), "nothing of it is in the pool");
    }

    #[test]
    fn a_frame_leaves_the_headroom_first_and_the_reserve_last() {
        let mut level = memory(5_000, 1_500);
        assert_eq!((level.release(1_000, RESERVE), level), (0, memory(5_000, 500)));
        assert_eq!((level.release(1_000, RESERVE), level), (500, memory(4_500, 0)));
        assert_eq!((level.release(1_000, RESERVE), level), (404, memory(3_500, 0)));
        assert_eq!((level.release(1_000, RESERVE), level), (0, memory(2_500, 0)));
    }

    #[test]
    fn inputs_of_faster_links_may_take_more() {
        // 1/8 at the hosts' rate, and twice that for each doubling, as in `third.cc`.
        let alphas =
            [25, 100, 200, 400, 800, 1_600].map(|gbps| config(125_000).alpha_at(Rate::gbps(gbps)));
        assert_eq!(alphas, [125_000, 125_000, 250_000, 500_000, WHOLE, WHOLE]);
        assert_eq!(config(WHOLE).alpha_at(Rate::gbps(400)), WHOLE);
    }

    #[test]
    fn the_headroom_holds_a_frame_and_the_reaction() {
        let way = |gbps| ChangingLink {
            rate: Rate::gbps(gbps),
            delay: SimDuration::micros(1),
            changes: &[],
        };
        // Twice 1 us at 100 Gbit/s, two frames, a control frame, and one more frame.
        let safe = config(1).safe_headroom(way(100), way(100));
        assert_eq!(safe, 25_000 + 2 * 1_048 + 64 + 1_048);
        let link = PfcLink::symmetric(Rate::gbps(100), 1_048, SimDuration::micros(1));
        let link = PfcLink { response: SimDuration::ZERO, ..link };
        assert_eq!(safe, link.reaction_bytes() + 1_048);
        assert_eq!(config(1).headroom_over(way(100), way(100)), safe);
        let given = SharedConfig { headroom: Some(37_500), ..config(1) };
        assert_eq!(given.headroom_over(way(100), way(100)), 37_500);
        assert_eq!(given.set_aside(37_500), 2 * (37_500 + 4_096));
    }
}

//! Adaptive load balancing (DeTail §4.2.3): of the ports on shortest paths, choose one with a short
//! egress queue.
//!
//! Drain bytes are compared with thresholds instead of with each other. A port is favoured if its
//! counter is below a threshold; the smallest threshold with a favoured port decides, and one of
//! the favoured ports is chosen at random or in turn. For example, with thresholds of 16 and 64 KB,
//! a port with 20 KB is chosen only if every port has 16 KB or more. If no port is favoured, all
//! acceptable ports are.

use super::Chooser;

/// Largest number of thresholds.
pub const MOST: usize = 8;

/// How one of several favoured ports is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlbPick {
    /// At random.
    Random,
    /// In turn, separately at each switch.
    RoundRobin,
}

/// Thresholds, and the choice among favoured ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alb {
    thresholds: [u32; MOST],
    count: u8,
    /// Choice among favoured ports.
    pub pick: AlbPick,
}

impl Alb {
    /// 16 and 64 KB, at random (DeTail §4.3.2).
    pub const DETAIL: Self =
        Self { thresholds: [16_384, 65_536, 0, 0, 0, 0, 0, 0], count: 2, pick: AlbPick::Random };

    /// With thresholds in ascending order, at most [`MOST`]; otherwise `None`.
    pub fn new(thresholds: &[u32], pick: AlbPick) -> Option<Self> {
        if thresholds.len() > MOST || !thresholds.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut alb = Self { thresholds: [0; MOST], count: thresholds.len() as u8, pick };
        alb.thresholds[..thresholds.len()].copy_from_slice(thresholds);
        Some(alb)
    }

    /// Chooses one of `n` acceptable ports by their drain bytes; `turn` stores the last choice.
    pub(crate) fn choose(
        &self,
        n: u32,
        drain: impl Fn(u32) -> u32,
        (chooser, turn): (&mut Chooser, &mut u32),
    ) -> u32 {
        let thresholds = &self.thresholds[..usize::from(self.count)];
        for &threshold in thresholds.iter().chain(&[u32::MAX]) {
            let favoured = |at: &u32| threshold == u32::MAX || drain(*at) < threshold;
            let count = (0..n).filter(favoured).count() as u32;
            if count == 0 {
                continue;
            }
            let chosen = match self.pick {
                AlbPick::Random => {
                    let place = chooser.below(count) as usize;
                    (0..n).filter(favoured).nth(place)
                }
                AlbPick::RoundRobin => {
                    let next = |step: u32| (*turn + 1 + step) % n;
                    (0..n).map(next).find(favoured)
                }
            };
            *turn = chosen.unwrap_or(0);
            return *turn;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(alb: Alb, drain: &[u32], times: u32) -> Vec<u32> {
        let (mut chooser, mut turn) = (Chooser::new(1, "spray"), 0);
        let mut count = vec![0; drain.len()];
        for _ in 0..times {
            let at = |port: u32| drain[port as usize];
            count[alb.choose(drain.len() as u32, at, (&mut chooser, &mut turn)) as usize] += 1;
        }
        count
    }

    #[test]
    fn the_smallest_threshold_with_a_favoured_port_decides() {
        let detail = Alb::DETAIL;
        let few = chosen(detail, &[20_000, 16_383, 16_384, 0], 1_000);
        assert!(few[0] + few[2] == 0 && few[1] > 400 && few[3] > 400, "{few:?}");
        let more = chosen(detail, &[65_536, 65_535, 90_000, 20_000], 1_000);
        assert!(more[0] + more[2] == 0 && more[1] > 400 && more[3] > 400, "{more:?}");
        let none = chosen(detail, &[70_000, 80_000, 90_000], 900);
        assert!(none.iter().all(|count| *count > 200), "all are acceptable: {none:?}");
    }

    #[test]
    fn turns_are_taken_among_favoured_ports_only() {
        let alb = Alb::new(&[1_000], AlbPick::RoundRobin).unwrap();
        assert_eq!(chosen(alb, &[0, 5_000, 10, 20], 9), [3, 0, 3, 3]);
        assert!(Alb::new(&[2, 1], AlbPick::Random).is_none());
    }
}

//! Flow sizes that simulations of pFabric, pHost and PIAS draw: whole packets of 1460 bytes,
//! between the points of a coarse table as ns-2 interpolates them (linearly, rounded up).
//!
//! Web search is the coarse table behind W5 (DCTCP, SIGCOMM 2010), data mining that of VL2 (SIGCOMM
//! 2009), IMC10 a table of pHost's authors after Benson et al. (IMC 2010). A stretch of more than
//! [`STEPS`] packets becomes as many steps of equal probability, each at its middle, so that the
//! mean stays.

use super::SizeStep;

/// Message bytes of a packet.
pub const PACKET: u32 = 1_460;

/// Most steps between two points.
const STEPS: u32 = 1_000;

/// Packets, and the share of flows of at most as many.
type Points = [(u32, f64)];

pub(super) const WEB_SEARCH: &Points = &[
    (6, 0.15),
    (13, 0.2),
    (19, 0.3),
    (33, 0.4),
    (53, 0.53),
    (133, 0.6),
    (667, 0.7),
    (1_333, 0.8),
    (3_333, 0.9),
    (6_667, 0.97),
    (20_000, 1.0),
];

pub(super) const DATA_MINING: &Points = &[
    (1, 0.5),
    (2, 0.6),
    (3, 0.7),
    (7, 0.8),
    (267, 0.9),
    (2_107, 0.95),
    (66_667, 0.99),
    (666_667, 1.0),
];

pub(super) const IMC10: &Points = &[
    (1, 0.5),
    (2, 0.6),
    (3, 0.7),
    (5, 0.75),
    (7, 0.8),
    (40, 0.8125),
    (72, 0.825),
    (137, 0.85),
    (267, 0.9),
    (1_187, 0.95),
    (2_107, 1.0),
];

/// The steps between the points. What leads to the first begins at one packet.
pub(super) fn steps(points: &Points) -> Vec<SizeStep> {
    let mut steps = Vec::new();
    let (mut packets, mut share) = (u32::from(points[0].0 > 1), 0.0);
    for &(to, cumulative) in points {
        let stretch = to - packets;
        let count = stretch.min(STEPS);
        for step in 1..=count {
            let whole =
                if stretch > STEPS { middle(step, count) * f64::from(stretch) } else { 0.0 };
            let at = packets + if stretch > STEPS { whole.ceil() as u32 } else { step };
            let part = (cumulative - share) * f64::from(step) / f64::from(count);
            let cumulative = if step == count { cumulative } else { share + part };
            steps.push(SizeStep { bytes: at * PACKET, cumulative });
        }
        (packets, share) = (to, cumulative);
    }
    steps
}

/// The middle of a step, as a share of all.
fn middle(step: u32, count: u32) -> f64 {
    (f64::from(step) - 0.5) / f64::from(count)
}

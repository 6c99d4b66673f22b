//! Points of a cumulative distribution with lines between them, as steps of whole bytes.
//!
//! A stretch between two points becomes its whole sizes, or, if it is long, sizes at equal
//! distances; the two at its ends have half the weight of the others, so that its mean is that of
//! the line. A first point with a share above 0 is a size that occurs that often, as ns-2 has it;
//! so is a second point of the same size.

use super::SizeStep;

/// Most steps of a table with few points.
const STEPS: usize = 8_192;

/// Fewest parts of a long stretch.
const PARTS: usize = 4;

/// The steps of points (bytes, cumulative share), which never fall; the last share is 1.
pub(super) fn steps(points: &[(f64, f64)]) -> Vec<SizeStep> {
    let parts = (STEPS / points.len().max(1)).max(PARTS);
    let mut built = Builder::default();
    let mut before: Option<(f64, f64)> = None;
    for &(to, until) in points {
        let (from, share) = before.unwrap_or((to, 0.0));
        if until > share {
            built.stretch((from, to), until - share, parts);
            built.exactly(until);
        }
        before = Some((to, until));
    }
    built.steps
}

#[derive(Default)]
struct Builder {
    steps: Vec<SizeStep>,
    share: f64,
}

impl Builder {
    fn stretch(&mut self, (from, to): (f64, f64), share: f64, parts: usize) {
        let length = to - from;
        if length == 0.0 {
            return self.add(to, share);
        }
        // A stretch of less than a byte is one part.
        let parts = parts.min(length.ceil() as usize).max(1);
        let each = share / parts as f64;
        for part in 0..=parts {
            let is_end = part == 0 || part == parts;
            let size = from + length * part as f64 / parts as f64;
            self.add(size, if is_end { each / 2.0 } else { each });
        }
    }

    fn add(&mut self, size: f64, share: f64) {
        self.share += share;
        // A message has at least one byte.
        let (bytes, cumulative) = (size.round().max(1.0) as u32, self.share);
        match self.steps.last_mut().filter(|last| last.bytes == bytes) {
            Some(last) => last.cumulative = cumulative,
            None => self.steps.push(SizeStep { bytes, cumulative }),
        }
    }

    /// Takes back what sums of shares miss by rounding.
    fn exactly(&mut self, share: f64) {
        self.share = share;
        if let Some(last) = self.steps.last_mut() {
            last.cumulative = share;
        }
    }
}

//! The queue and the NIC of a row in words, as `homa schemes` prints them.

use std::fmt;

use crate::fabric::CioqConfig;
use crate::scenario::QueueBytes;

use super::{Nic, SwitchQueue};

impl fmt::Display for SwitchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict priority",
            Self::Ecn(_) => "ECN threshold",
            // Hosts that do not react to marks get none.
            Self::Red(red) if red.from == QueueBytes::Fixed(u32::MAX) => "strict priority",
            Self::Red(_) => "marks between two thresholds",
            Self::PriorityDrop => "priority drop",
            Self::Trimming(_) => "trimming",
            Self::Phantom(..) => "phantom queue",
            Self::Combined(CioqConfig { pfc: None, .. }) => "input and output",
            Self::Combined(_) => "input and output, PFC",
        })
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull => f.write_str("pull"),
            Self::Pacer => f.write_str("pacer"),
        }
    }
}

//! The parts of a row in words, as `homa schemes` prints them.

use std::fmt;

use crate::fabric::CioqConfig;

use super::{Host, Nic, Queue};

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Homa { profile, .. } => write!(f, "homa-proto, profile {profile}"),
            Self::Bound => f.write_str("none: a bound, SRPT by clairvoyance"),
            Self::StopAndWait => f.write_str("stop and wait"),
            Self::PFabric => f.write_str("pFabric: window, timeout"),
            Self::PHost => f.write_str("pHost: tokens"),
            Self::Ndp => f.write_str("NDP: pulls"),
            Self::Tcp { variant, .. } => f.write_str(variant),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict priority",
            Self::Ecn(_) => "ECN threshold",
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

//! `--fabric`, `--forwarding` and `--degrade`: a small fabric in the rack's switch process
//! instead of one switch, how it chooses among paths, and links that become slower or fail under
//! load.

use std::fmt;
use std::time::Duration;

use homa_sim::fabric::{Alb, Forwarding};
use homa_testbed::{Degraded, LEAVES, Topology};

use crate::failure::Failure;
use crate::values;

/// What joins the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FabricShape {
    /// One switch.
    #[default]
    SingleSwitch,
    /// Two leaf and two spine switches, every link at the hosts' rate.
    LeafSpine,
}

impl FabricShape {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleSwitch => "single-switch",
            Self::LeafSpine => "leaf-spine",
        }
    }
}

/// How switches choose among paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PathChoice {
    /// By a hash of addresses and ports.
    #[default]
    Ecmp,
    /// At random for each packet.
    Spray,
    /// For each packet, a port with a short queue: below 16 KB if there is one, else below 64 KB
    /// (DeTail §4.2.3).
    Alb,
}

impl PathChoice {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Spray => "spray",
            Self::Alb => "alb",
        }
    }

    /// As the switches take it.
    fn forwarding(self) -> Forwarding {
        match self {
            Self::Ecmp => Forwarding::Ecmp,
            Self::Spray => Forwarding::Spray,
            Self::Alb => Forwarding::Adaptive(Alb::DETAIL),
        }
    }
}

/// A spine switch whose links to the leaves, or one of them, keep a share of their rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degrade {
    /// Which spine.
    spine: u32,
    /// The only leaf that it concerns.
    leaf: Option<u32>,
    /// Remaining share of the rate, per cent; 0: the link fails.
    percent: u32,
    /// After the start of the load.
    after: Duration,
}

impl fmt::Display for Degrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spine{}", self.spine)?;
        self.leaf.iter().try_for_each(|leaf| write!(f, "-leaf{leaf}"))?;
        write!(f, ":{}", self.percent)?;
        match self.after.is_zero() {
            true => Ok(()),
            false => write!(f, "@{}", values::show_duration(self.after)),
        }
    }
}

/// `spine1:10`, `spine1-leaf0:0@2s`.
pub fn degrade(text: &str) -> Result<Degrade, String> {
    let form = "write a spine and what per cent of its links' rate are left, such as spine1:10; \
                0 cuts them; spine1-leaf0:10 is one link, spine1:0@2s two seconds into the load";
    let (link, rest) = text.split_once(':').ok_or(form)?;
    let (percent, after) = match rest.split_once('@') {
        Some((percent, after)) => (percent, values::duration(after)?),
        None => (rest, Duration::ZERO),
    };
    let (spine, leaf) = match link.split_once('-') {
        Some((spine, leaf)) => (spine, Some(leaf)),
        None => (link, None),
    };
    let number = |text: &str, name: &str| -> Result<u32, String> {
        let number = text.strip_prefix(name).and_then(|number| number.parse::<u32>().ok());
        number.filter(|number| *number < LEAVES).ok_or_else(|| form.to_owned())
    };
    let percent = percent.parse::<u32>().ok().filter(|percent| *percent < 100).ok_or(form)?;
    let leaf = leaf.map(|leaf| number(leaf, "leaf")).transpose()?;
    Ok(Degrade { spine: number(spine, "spine")?, leaf, percent, after })
}

/// The options of a fabric.
#[derive(clap::Args, Clone, Debug)]
pub struct FabricArgs {
    /// Topology between the hosts, emulated by the rack's switch process.
    #[arg(long, value_enum, default_value_t = FabricShape::SingleSwitch)]
    pub fabric: FabricShape,
    /// How the switches of --fabric leaf-spine choose among paths.
    #[arg(long, value_enum, default_value_t = PathChoice::Ecmp)]
    pub forwarding: PathChoice,
    /// With --fabric leaf-spine: slow down or cut (0) the links of a spine (spine0, spine1), or one
    /// of them (spine1-leaf0), to this percentage of their rate, from the start of the load or a
    /// time after it: spine1:10, spine1:0@2s.
    #[arg(long, value_delimiter = ',', value_name = "LINK:PERCENT[@TIME],…")]
    #[arg(value_parser = degrade)]
    pub degrade: Vec<Degrade>,
}

impl FabricArgs {
    /// The topology as the rack takes it.
    pub fn topology(&self) -> Topology {
        match self.fabric {
            FabricShape::SingleSwitch => Topology::SingleSwitch,
            FabricShape::LeafSpine => Topology::LeafSpine,
        }
    }

    /// The path choice as the rack takes it.
    pub fn forwarding(&self) -> Forwarding {
        self.forwarding.forwarding()
    }

    /// Links that change, in the order of time.
    pub fn degraded(&self) -> Vec<Degraded> {
        let links = |degrade: &Degrade| {
            let Degrade { spine, percent, after, leaf } = *degrade;
            let leaves = (0..LEAVES).filter(move |other| leaf.is_none_or(|leaf| leaf == *other));
            leaves.map(move |leaf| Degraded { leaf, spine, percent, after })
        };
        let mut all: Vec<Degraded> = self.degrade.iter().flat_map(links).collect();
        all.sort_by_key(|degraded| degraded.after);
        all
    }

    /// Refuses choices among paths that a single switch does not have, changes of links after the
    /// load's end, which nothing would show, and two of one link at once.
    pub fn check(&self, duration: Duration) -> Result<(), Failure> {
        let forwarding = self.forwarding.name();
        if self.fabric == FabricShape::SingleSwitch && self.forwarding != PathChoice::default() {
            let no = anyhow::anyhow!("--forwarding {forwarding}: a single switch has one path");
            return Err(Failure::new(no, "add --fabric leaf-spine"));
        }
        let mut changes = self.degraded();
        changes.sort_by_key(|change| (change.after, change.spine, change.leaf));
        let same =
            |a: &Degraded, b: &Degraded| (a.after, a.spine, a.leaf) == (b.after, b.spine, b.leaf);
        if let Some(twice) = changes.windows(2).find(|pair| same(&pair[0], &pair[1])) {
            let Degraded { spine, leaf, .. } = twice[0];
            let twice =
                anyhow::anyhow!("--degrade: two changes of spine{spine}-leaf{leaf} at once");
            return Err(Failure::new(twice, "leave one out, or give each a time: spine1:10@2s"));
        }
        match self.degrade.iter().find(|degrade| degrade.after >= duration) {
            None => Ok(()),
            Some(late) => {
                let late = anyhow::anyhow!("--degrade {late}: the load lasts {duration:?}");
                Err(Failure::new(late, "name an earlier time, or a longer --duration"))
            }
        }
    }

    /// The topology in words.
    pub fn text(&self) -> String {
        if self.fabric == FabricShape::SingleSwitch {
            return "one switch".into();
        }
        let degraded: Vec<String> = self.degrade.iter().map(Degrade::to_string).collect();
        let degraded = match degraded.is_empty() {
            true => String::new(),
            false => format!(", {} % of rate left", degraded.join(", ")),
        };
        format!("two leaf and two spine switches ({}{degraded})", self.forwarding.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::asked;
    use super::super::setup::rack_config;
    use super::*;

    #[test]
    fn a_degraded_spine_is_both_its_links_unless_a_leaf_is_named() {
        let all = ["--fabric", "leaf-spine", "--degrade", "spine1:10,spine0-leaf1:0@2s"];
        let degraded = asked(&all).network.degraded();
        let links: Vec<_> = degraded.iter().map(|d| (d.leaf, d.spine, d.percent)).collect();
        assert_eq!(links, [(0, 1, 10), (1, 1, 10), (1, 0, 0)]);
        assert_eq!(degraded[2].after, Duration::from_secs(2));
        let early =
            asked(&["--degrade", "spine1:10@2s,spine0:0@1s", "--fabric", "leaf-spine"]).network;
        assert!(early.degraded().is_sorted_by_key(|degraded| degraded.after));
    }

    #[test]
    fn an_option_without_effect_is_refused() {
        let check = |arguments: &[&str]| {
            let args = asked(arguments);
            args.network.check(args.duration()).is_ok()
        };
        assert!(!check(&["--forwarding", "alb"]));
        assert!(check(&["--forwarding", "alb", "--fabric", "leaf-spine"]));
        let late = ["--fabric", "leaf-spine", "--degrade", "spine1:10@1s", "--duration"];
        assert!(!check(&[&late[..], &["1s"]].concat()) && check(&[&late[..], &["2s"]].concat()));
        let twice = |degrade| check(&["--fabric", "leaf-spine", "--degrade", degrade]);
        assert!(!twice("spine1:10,spine1:50") && !twice("spine1:10@1s,spine1-leaf0:0@1s"));
        assert!(twice("spine1:10,spine1:50@1s") && twice("spine1-leaf0:10,spine1-leaf1:50"));
    }

    #[test]
    fn every_fabric_has_a_rack_without_a_word_about_hosts() {
        for fabric in ["single-switch", "leaf-spine"] {
            assert!(rack_config(&asked(&["--fabric", fabric])).validate().is_ok(), "{fabric}");
        }
    }

    #[test]
    fn what_is_degraded_is_read_as_it_is_written() {
        for text in ["spine1:10", "spine0-leaf1:0", "spine1:50@200ms"] {
            assert_eq!(degrade(text).map(|read| read.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["spine1", "spine2:10", "leaf1:10", "spine1:100", "spine1:-1", "spine1:10@"] {
            assert!(degrade(wrong).is_err(), "{wrong}");
        }
    }
}

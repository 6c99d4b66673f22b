//! The interfaces of a network namespace from netlink (RTM_NEWLINK), and the rate of each.

use std::collections::BTreeMap;

use homa_proto::Rate;
use netlink_packet_route::link::{
    BondMode, BondPortState, InfoBond, InfoBondPort, InfoData, InfoPortData, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, MiiStatus,
};

use super::{Egress, LinkRate};

/// Most interfaces on top of each other. The kernel stacks at most 8.
const DEPTH_MAX: u32 = 10;

/// The interfaces of a network namespace, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces(BTreeMap<u32, NetDevice>);

#[derive(Clone, Debug, Default)]
struct NetDevice {
    name: String,
    /// The kernel's name for the kind; `None` for hardware.
    kind: Option<String>,
    loopback: bool,
    /// Up and with a carrier. (`IFF_RUNNING` is updated later.)
    running: bool,
    /// The interface below, in the same namespace.
    lower: Option<u32>,
    /// The bond or bridge that has it as a port.
    master: Option<u32>,
    bond: Option<BondMode>,
    /// The active port of a bond.
    active: Option<u32>,
    /// A port that its bond does not use now.
    spare: bool,
}

impl NetDevice {
    fn new(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut found = Self {
            loopback: flags.contains(LinkFlags::Loopback),
            running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            ..Self::default()
        };
        let mut elsewhere = false;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => found.name.clone_from(name),
                LinkAttribute::Link(lower) => found.lower = Some(*lower),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::Controller(master) => found.master = Some(*master),
                LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| found.note(info)),
                _ => {}
            }
        }
        if elsewhere {
            found.lower = None;
        }
        found
    }

    fn note(&mut self, info: &LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
            LinkInfo::Data(InfoData::Bond(bond)) => {
                for fact in bond {
                    match fact {
                        InfoBond::Mode(mode) => self.bond = Some(*mode),
                        InfoBond::ActivePort(port) => self.active = Some(*port),
                        _ => {}
                    }
                }
            }
            LinkInfo::PortData(InfoPortData::BondPort(port)) => {
                self.spare = port.iter().any(|fact| match fact {
                    InfoBondPort::BondPortState(state) => *state != BondPortState::Active,
                    InfoBondPort::MiiStatus(status) => *status != MiiStatus::Up,
                    _ => false,
                });
            }
            _ => {}
        }
    }

    fn kind(&self) -> &str {
        match &self.kind {
            Some(kind) => kind,
            None if self.loopback => "loopback",
            None => "physical",
        }
    }

    /// True for hardware, whose reported speed can be trusted.
    fn is_physical(&self) -> bool {
        matches!(self.kind(), "physical" | "dsa" | "ipoib")
    }
}

/// A rate and its source.
type Verdict = (LinkRate, String);

/// Returns the speed of a device by name.
type Speeds<'a> = dyn Fn(&str) -> Option<Rate> + 'a;

fn unknown(why: impl Into<String>) -> Verdict {
    (LinkRate::Unknown, why.into())
}

impl Interfaces {
    /// Adds an interface of the kernel's list.
    pub(crate) fn add(&mut self, message: &LinkMessage) {
        self.0.insert(message.header.index, NetDevice::new(message));
    }

    /// True if there is an interface of this number.
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.0.contains_key(&index)
    }

    /// The interfaces that are up.
    pub(crate) fn up(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter(|(_, interface)| interface.running).map(|(&index, _)| index)
    }

    /// The interface of this number and its rate, if it exists.
    pub(crate) fn egress(&self, index: u32, speeds: &Speeds<'_>) -> Option<Egress> {
        let interface = self.0.get(&index)?;
        let (rate, because) = self.rate(index, speeds, 0);
        let (name, kind) = (interface.name.clone(), interface.kind().to_owned());
        Some(Egress { index, interface: name, kind, rate, because })
    }

    fn rate(&self, index: u32, speeds: &Speeds<'_>, depth: u32) -> Verdict {
        let Some(interface) = self.0.get(&index) else {
            return unknown("the interface below is in another network");
        };
        if depth > DEPTH_MAX {
            return unknown("interfaces lie on top of each other without end");
        }
        match interface.kind() {
            "loopback" => (LinkRate::Unlimited, "the memory of this host".into()),
            _ if interface.is_physical() => match speeds(&interface.name) {
                Some(rate) => (LinkRate::Known(rate), format!("{} says so", interface.name)),
                None => unknown(format!("{} does not say its speed", interface.name)),
            },
            "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec" => {
                match interface.lower {
                    Some(lower) => self.rate(lower, speeds, depth + 1),
                    None => unknown("the interface below is in another network"),
                }
            }
            "bond" => self.bond(index, interface, speeds, depth),
            "bridge" => self.bridge(index, speeds, depth),
            kind => unknown(format!("{kind} is virtual: any speed that it tells is made up")),
        }
    }

    fn ports(&self, master: u32) -> impl Iterator<Item = (u32, &NetDevice)> {
        let of_master = move |(_, port): &(&u32, &NetDevice)| port.master == Some(master);
        self.0.iter().filter(of_master).map(|(&index, port)| (index, port))
    }

    /// The rate of a bond: the sum of its working ports, or the rate of the one in use, or of the
    /// slowest if every port carries everything. If each flow uses one port, the sum is a guess,
    /// because all packets may take the same one.
    fn bond(&self, index: u32, bond: &NetDevice, speeds: &Speeds<'_>, depth: u32) -> Verdict {
        let works = |port: &NetDevice| port.running && !port.spare;
        let used: Vec<u32> = match (bond.bond, bond.active) {
            (Some(BondMode::ActiveBackup), Some(active)) => vec![active],
            _ => self.ports(index).filter(|(_, port)| works(port)).map(|(port, _)| port).collect(),
        };
        let rates = used.iter().map(|&port| self.rate(port, speeds, depth + 1).0);
        let rates: Vec<LinkRate> = rates.collect();
        let Some(known) = rates.iter().map(|rate| rate.rate()).collect::<Option<Vec<Rate>>>()
        else {
            return unknown("a port of the bond does not say its speed");
        };
        let count = known.len();
        let guessed = rates.iter().any(|rate| matches!(rate, LinkRate::Guess(_)));
        let (rate, because) = match bond.bond {
            _ if known.is_empty() => return unknown("no port of the bond works"),
            Some(BondMode::ActiveBackup) => (known[0], "the active port of the bond".into()),
            Some(BondMode::Broadcast) => {
                (*known.iter().min().unwrap_or(&known[0]), "the slowest port of the bond".into())
            }
            Some(_) => (Rate(known.iter().map(|rate| rate.0).sum()), format!("{count} ports")),
            None => return unknown("the bond does not say how it works"),
        };
        let turns = [BondMode::ActiveBackup, BondMode::Broadcast, BondMode::BalanceRr];
        let shared = count > 1 && bond.bond.is_some_and(|mode| !turns.contains(&mode));
        match guessed || shared {
            true => (LinkRate::Guess(rate), because),
            false => (LinkRate::Known(rate), because),
        }
    }

    /// The rate of a bridge. Only the bridge knows which port leads to a peer. Ports to virtual
    /// machines and containers have no speed.
    fn bridge(&self, index: u32, speeds: &Speeds<'_>, depth: u32) -> Verdict {
        let ports = self.ports(index).filter(|(_, port)| port.running);
        let rates: Vec<(LinkRate, bool)> = ports
            .map(|(index, port)| (self.rate(index, speeds, depth + 1).0, port.is_physical()))
            .collect();
        let reported: Vec<Rate> = rates.iter().filter_map(|(rate, _)| rate.rate()).collect();
        let (Some(&least), Some(&most)) = (reported.iter().min(), reported.iter().max()) else {
            return unknown("no port of the bridge says its speed");
        };
        let silent = rates.iter().any(|(rate, physical)| rate.rate().is_none() && *physical);
        let guessed = rates.iter().any(|(rate, _)| matches!(rate, LinkRate::Guess(_)));
        match least == most && !silent && !guessed {
            true => (LinkRate::Known(least), "the ports of the bridge agree".into()),
            false => (LinkRate::Guess(least), "the slowest port of the bridge".into()),
        }
    }
}

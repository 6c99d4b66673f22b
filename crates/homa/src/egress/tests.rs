//! Tests of reading interfaces and their rates. The kernel's answers are recorded. Answers for
//! devices that build machines rarely have are made up.

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BondMode, BondPortState, InfoBond, InfoBondPort, InfoData, InfoKind, InfoPortData,
    InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MiiStatus,
};

use super::kernel::{interface_of, messages};
use super::*;

const GIGABIT: Rate = Rate::gbps(1);
const TEN: Rate = Rate::gbps(10);

/// Returns the bytes recorded under a title.
fn recorded(title: &str) -> Vec<u8> {
    let mut lines = include_str!("recorded.txt").lines();
    lines.find(|line| line.strip_prefix("# ") == Some(title)).expect("a title of the file");
    let digits: String = lines.take_while(|line| !line.starts_with('#')).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Reads the interfaces from the kernel's answer.
fn read(answer: &[u8]) -> Interfaces {
    let mut interfaces = Interfaces::default();
    for message in messages(answer) {
        match message.expect("a message that can be read").payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                interfaces.add(&link);
            }
            other => panic!("no interface: {other:?}"),
        }
    }
    interfaces
}

fn route(answer: &[u8]) -> Option<u32> {
    match messages(answer).next()??.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => interface_of(&route),
        _ => None,
    }
}

/// Returns name, kind and rate of an interface. `speeds` tells the speed that each device reports.
fn found(
    interfaces: &Interfaces,
    index: u32,
    speeds: &[(&str, Rate)],
) -> (String, String, LinkRate) {
    let speed = |name: &str| speeds.iter().find(|(of, _)| *of == name).map(|&(_, rate)| rate);
    let egress = interfaces.egress(index, &speed).expect("an interface of that number");
    (egress.interface, egress.kind, egress.rate)
}

fn text(name: &str, kind: &str, rate: LinkRate) -> (String, String, LinkRate) {
    (name.to_owned(), kind.to_owned(), rate)
}

#[test]
fn a_recorded_route_to_a_card_has_the_rate_that_the_card_says() {
    let interfaces = read(&recorded("interfaces of a virtual machine"));
    let index = route(&recorded("route to 8.8.8.8")).expect("a route");
    let eth0 = |speeds: &[(&str, Rate)]| found(&interfaces, index, speeds);
    assert_eq!(eth0(&[("eth0", TEN)]), text("eth0", "physical", LinkRate::Known(TEN)));
    assert_eq!(eth0(&[]), text("eth0", "physical", LinkRate::Unknown));
    assert_eq!(found(&interfaces, 2, &[("ifb0", TEN)]), text("ifb0", "ifb", LinkRate::Unknown));
}

#[test]
fn recorded_routes_through_virtual_interfaces_have_no_rate() {
    let interfaces = read(&recorded("interfaces of a host with a bridge and a macvlan"));
    let says = [("br0", TEN), ("tap1", TEN), ("far", TEN), ("mac0", TEN)];
    let to = |address: &str| {
        let index = route(&recorded(&format!("route to {address}"))).expect("a route");
        found(&interfaces, index, &says)
    };
    assert_eq!(to("10.9.0.7"), text("br0", "bridge", LinkRate::Unknown));
    assert_eq!(to("10.9.1.7"), text("mac0", "macvlan", LinkRate::Unknown));
    for own in ["127.0.0.1", "::1", "10.9.0.1"] {
        assert_eq!(to(own), text("lo", "loopback", LinkRate::Unlimited), "{own}");
    }
}

#[test]
fn a_truncated_or_garbled_answer_is_read_as_far_as_possible() {
    let whole = recorded("interfaces of a virtual machine");
    for end in 0..whole.len() {
        let _ = messages(&whole[..end]).flatten().count();
    }
    for at in 0..whole.len() {
        let mut garbled = whole.clone();
        garbled[at] ^= 0xff;
        let _ = messages(&garbled).flatten().count();
    }
}

/// An interface in a list that has the kernel's format.
struct Device(LinkMessage);

impl Device {
    fn new(index: u32, name: &str) -> Self {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;
        Self(message).with(LinkAttribute::IfName(name.into()))
    }

    fn with(mut self, attribute: LinkAttribute) -> Self {
        self.0.attributes.push(attribute);
        self
    }

    fn down(mut self) -> Self {
        self.0.header.flags = LinkFlags::Up;
        self
    }

    fn on(self, lower: u32, kind: InfoKind) -> Self {
        let info = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        self.with(LinkAttribute::Link(lower)).with(info)
    }

    fn bond(self, mode: BondMode, active: u32) -> Self {
        let data = vec![InfoBond::Mode(mode), InfoBond::ActivePort(active)];
        let infos = vec![LinkInfo::Kind(InfoKind::Bond), LinkInfo::Data(InfoData::Bond(data))];
        self.with(LinkAttribute::LinkInfo(infos))
    }

    fn bond_port(self, bond: u32, state: BondPortState, mii: MiiStatus) -> Self {
        let port = vec![InfoBondPort::BondPortState(state), InfoBondPort::MiiStatus(mii)];
        let infos = vec![
            LinkInfo::PortKind(InfoPortKind::Bond),
            LinkInfo::PortData(InfoPortData::BondPort(port)),
        ];
        self.with(LinkAttribute::Controller(bond)).with(LinkAttribute::LinkInfo(infos))
    }

    fn port_of(self, bridge: u32) -> Self {
        self.with(LinkAttribute::Controller(bridge))
    }
}

/// Encodes a list as the kernel sends it, and reads it.
fn list(devices: Vec<Device>) -> Interfaces {
    let mut answer = Vec::new();
    for Device(device) in devices {
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewLink(device));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let start = answer.len();
        answer.resize((start + message.buffer_len()).next_multiple_of(4), 0);
        message.serialize(&mut answer[start..]);
    }
    read(&answer)
}

#[test]
fn a_vlan_on_a_bond_has_the_rate_of_the_ports_that_work() {
    use BondPortState::{Active, Backup};
    let rate = |mode, active, second: (BondPortState, MiiStatus)| {
        let list = list(vec![
            Device::new(1, "eth0").bond_port(3, Active, MiiStatus::Up),
            Device::new(2, "eth1").bond_port(3, second.0, second.1),
            Device::new(3, "bond0").bond(mode, active),
            Device::new(4, "bond0.7").on(3, InfoKind::Vlan),
        ]);
        found(&list, 4, &[("eth0", GIGABIT), ("eth1", TEN), ("bond0.7", TEN)]).2
    };
    let eleven = Rate::gbps(11);
    let up = (Active, MiiStatus::Up);
    for (mode, both) in [
        (BondMode::BalanceRr, LinkRate::Known(eleven)),
        (BondMode::BalanceXor, LinkRate::Guess(eleven)),
        (BondMode::Ieee8023Ad, LinkRate::Guess(eleven)),
    ] {
        assert_eq!(rate(mode, 0, up), both, "{mode}");
        assert_eq!(rate(mode, 0, (Active, MiiStatus::Down)), LinkRate::Known(GIGABIT), "{mode}");
        assert_eq!(rate(mode, 0, (Backup, MiiStatus::Up)), LinkRate::Known(GIGABIT), "{mode}");
    }
    assert_eq!(rate(BondMode::Broadcast, 0, up), LinkRate::Known(GIGABIT));
    assert_eq!(rate(BondMode::ActiveBackup, 2, up), LinkRate::Known(TEN));
    assert_eq!(rate(BondMode::ActiveBackup, 1, (Backup, MiiStatus::Up)), LinkRate::Known(GIGABIT));
}

#[test]
fn a_bond_without_ports_or_with_a_silent_one_has_no_rate() {
    let up = (BondPortState::Active, MiiStatus::Up);
    let list = list(vec![
        Device::new(1, "eth0").bond_port(3, up.0, up.1),
        Device::new(2, "eth1").bond_port(3, up.0, up.1),
        Device::new(3, "bond0").bond(BondMode::BalanceXor, 0),
        Device::new(4, "bond1").bond(BondMode::Ieee8023Ad, 0),
    ]);
    assert_eq!(found(&list, 3, &[("eth0", TEN)]).2, LinkRate::Unknown);
    assert_eq!(found(&list, 4, &[("eth0", TEN)]).2, LinkRate::Unknown);
}

#[test]
fn a_bridge_has_the_rate_of_its_cards_or_guesses_the_least() {
    let bridge = |second: Device| {
        list(vec![
            Device::new(1, "eth0").port_of(4),
            second.port_of(4),
            Device::new(3, "tap0").on(9, InfoKind::Tun).port_of(4),
            Device::new(4, "br0").on(0, InfoKind::Bridge),
        ])
    };
    let two = bridge(Device::new(2, "eth1"));
    let of = |speeds: &[(&str, Rate)]| found(&two, 4, speeds).2;
    let tap = ("tap0", Rate::mbps(10));
    assert_eq!(of(&[("eth0", TEN), ("eth1", TEN), tap]), LinkRate::Known(TEN));
    assert_eq!(of(&[("eth0", TEN), ("eth1", GIGABIT), tap]), LinkRate::Guess(GIGABIT));
    assert_eq!(of(&[("eth0", TEN), tap]), LinkRate::Guess(TEN), "eth1 may be slower");
    assert_eq!(of(&[tap]), LinkRate::Unknown);
    let one = bridge(Device::new(2, "eth1").down());
    assert_eq!(found(&one, 4, &[("eth0", TEN), tap]).2, LinkRate::Known(TEN));
    let vlan = bridge(Device::new(2, "eth0.5").on(1, InfoKind::Vlan));
    assert_eq!(found(&vlan, 4, &[("eth0", TEN), tap]).2, LinkRate::Known(TEN));
}

#[test]
fn an_interface_over_another_network_or_a_circle_is_unknown() {
    let list = list(vec![
        Device::new(1, "eth0"),
        Device::new(2, "mac0").on(1, InfoKind::MacVlan).with(LinkAttribute::LinkNetNsId(0)),
        Device::new(3, "eth7.1").on(77, InfoKind::Vlan),
        Device::new(4, "a.1").on(5, InfoKind::Vlan),
        Device::new(5, "b.1").on(4, InfoKind::Vlan),
        Device::new(6, "wg0").on(0, InfoKind::Wireguard),
        Device::new(7, "mac1").on(1, InfoKind::MacVlan),
    ]);
    for index in 2..=6 {
        assert_eq!(found(&list, index, &[("eth0", TEN), ("wg0", TEN)]).2, LinkRate::Unknown);
    }
    assert_eq!(found(&list, 7, &[("eth0", TEN)]).2, LinkRate::Known(TEN));
}

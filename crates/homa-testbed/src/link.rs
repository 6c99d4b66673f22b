//! Links of the rack: veth pairs, their addresses, and the queue of every host in front of its
//! link.
//!
//! We use veth, not TAP, for two reasons. A TAP's ring takes frames off the sending socket's
//! account and drops those that do not fit, so that a host never notices its queue; and
//! /dev/net/tun is often missing or closed to users. Here a token bucket at the link's rate
//! contains the kernel's three-band priority queue and keeps waiting frames charged to their
//! socket: `SIOCOUTQ` falls frame by frame, TCP's small-queue limit works as on a real card, and a
//! socket with `SO_PRIORITY` 6 overtakes the host's bulk data.
//!
//! The bucket holds three full frames to make up for the lateness of its timer. At most three
//! frames are therefore below the queue, as in the ring of a network card.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use homa_proto::Rate;

use crate::sys;
use crate::sys::netlink::{Netlink, NetlinkRequest, disable_offloads, interface_index};
use crate::{Isolation, Namespace, RackConfig, TestbedError};

/// Name of a host's only interface.
const HOST_INTERFACE: &str = "eth0";
/// Bytes of a full Ethernet frame as the host counts them, header included, checksum not.
const FULL_FRAME: u32 = 1514;
/// Checksum 4, preamble 8, gap 12: bytes of a frame on the wire that the host does not count.
pub(crate) const FRAME_OVERHEAD: u32 = 24;
/// The shortest frame on the wire, overhead included.
pub(crate) const SHORTEST_FRAME: u32 = 84;

/// TCP's minimum RTO, if the kernel lets us set it.
pub const TCP_RTO_MIN: Duration = Duration::from_millis(5);
/// The kernel's TCP_RTO_MIN, if it does not.
pub(crate) const KERNEL_RTO_MIN: Duration = Duration::from_millis(200);

const VETH_PEER: u16 = 1;
const TBF_PARAMETERS: u16 = 1;
const TBF_BURST: u16 = 6;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// The hardware address of a host; the switch forwards by its last two bytes.
pub(crate) fn mac(host: usize) -> [u8; 6] {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    [0x02, 0, 0, 0, high, low]
}

/// The host of a hardware address, if it is one of ours.
pub(crate) fn host_of(mac: &[u8]) -> Option<usize> {
    match mac {
        [0x02, 0, 0, 0, high, low] => usize::from(u16::from_be_bytes([*high, *low])).checked_sub(1),
        _ => None,
    }
}

/// The address of a host: 10.77.0.1 is host 0.
pub fn address(host: usize) -> Ipv4Addr {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// Makes the link of a host: returns the switch's interface index for it, and whether TCP's timer
/// there is [`TCP_RTO_MIN`].
pub(crate) fn connect_host(
    namespace: &Namespace,
    host: usize,
    rack: &RackConfig,
) -> Result<(u32, bool), TestbedError> {
    let port = format!("port{host}");
    let failed = |what: &'static str| {
        move |e: io::Error| TestbedError::setup(format!("{what} of host {host}"), e)
    };
    quiet_ipv6();
    let netlink = Netlink::open().map_err(failed("open a netlink socket for the link"))?;
    let pair = veth_request(&port, HOST_INTERFACE, Some(mac(host)), namespace);
    netlink.call(pair).map_err(failed("make the link (veth)"))?;
    let index = interface_index(&port).map_err(failed("find the switch port"))?;
    disable_offloads(&port).map_err(failed("turn off offloads at the switch port"))?;
    netlink.call(up_request(index)).map_err(failed("start the switch port"))?;
    let timer_set = namespace.run(|| {
        quiet_ipv6();
        let timer_set = tune_tcp();
        let netlink = Netlink::open().map_err(failed("open a netlink socket for the address"))?;
        let interface = interface_index(HOST_INTERFACE).map_err(failed("find the interface"))?;
        disable_offloads(HOST_INTERFACE).map_err(failed("turn off offloads"))?;
        let loopback = interface_index("lo").map_err(failed("find the loopback"))?;
        netlink.call(up_request(loopback)).map_err(failed("start the loopback"))?;
        let own = address_request(interface, address(host), 16);
        netlink.call(own).map_err(failed("set the address"))?;
        netlink.call(up_request(interface)).map_err(failed("start the interface"))?;
        for peer in (0..rack.hosts).filter(|&peer| peer != host) {
            let entry = neighbour_request(interface, address(peer), mac(peer));
            netlink.call(entry).map_err(failed("add the neighbours"))?;
        }
        let shaper = shaper_request(interface, rack.link);
        netlink.call(shaper).map_err(failed("set the queue discipline tbf"))?;
        let bands = bands_request(interface);
        netlink.call(bands).map_err(failed("set the queue discipline pfifo_fast"))?;
        Ok(timer_set)
    })?;
    Ok((index, timer_set))
}

/// Bytes that a socket sent and the kernel still holds, in the kernel's accounting (for UDP that
/// includes the packet structures: about 2.3 kB for a full frame). On a rack's host it falls by one
/// frame each time the link takes one; the frame being serialised no longer counts.
pub fn unsent_bytes(socket: &impl AsFd) -> io::Result<u32> {
    sys::unsent_bytes(socket.as_fd())
}

/// Two hosts joined by one veth pair without a switch, with the kernel's default offloads, for
/// benchmarks of software alone. Addresses are [`VethPair::ADDRESSES`].
#[derive(Debug)]
pub struct VethPair {
    /// The two ends.
    pub ends: [Namespace; 2],
}

impl VethPair {
    /// The addresses of the two ends.
    pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];

    /// Makes the pair, whose ends take IP packets of up to `mtu` bytes: 1500 is Ethernet's, 9000
    /// that of jumbo frames.
    pub fn new(inside: &Isolation, mtu: u32) -> Result<Self, TestbedError> {
        let ends = [Namespace::new(inside)?, Namespace::new(inside)?];
        let failed = |what: &'static str| move |e: io::Error| TestbedError::setup(what, e);
        ends[0].run(|| {
            quiet_ipv6();
            let pair = veth_request(HOST_INTERFACE, HOST_INTERFACE, None, &ends[1]);
            let netlink = Netlink::open().map_err(failed("open a netlink socket"))?;
            netlink.call(pair).map_err(failed("make a veth pair"))
        })?;
        for (end, own) in ends.iter().zip(Self::ADDRESSES) {
            end.run(|| {
                quiet_ipv6();
                let netlink = Netlink::open().map_err(failed("open a netlink socket"))?;
                let loopback = interface_index("lo").map_err(failed("find the loopback"))?;
                let interface =
                    interface_index(HOST_INTERFACE).map_err(failed("find the interface"))?;
                let address = address_request(interface, own, 24);
                netlink.call(address).map_err(failed("set the address of a veth"))?;
                netlink.call(up_request(loopback)).map_err(failed("start the loopback"))?;
                let up = up_request(interface).attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
                netlink.call(up).map_err(failed("start a veth"))
            })?;
        }
        Ok(Self { ends })
    }
}

/// Tunes TCP as the operator of a datacenter would: an idle connection keeps its window, and the
/// minimum RTO is 5 ms, not 200 (a setting of a namespace since Linux 6.11). If /proc/sys is
/// read-only or the kernel older, the defaults stay. Returns true if the timer took effect.
fn tune_tcp() -> bool {
    let _ = fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0");
    let least = TCP_RTO_MIN.as_micros().to_string();
    fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", least).is_ok()
}

/// Turns off router solicitations and duplicate-address probes on our links, if the kernel allows
/// it.
fn quiet_ipv6() {
    for scope in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}

fn interface_message(index: u32, flags: u32) -> [u8; 16] {
    let mut message = [0; 16];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    message[12..16].copy_from_slice(&flags.to_ne_bytes());
    message
}

fn veth_request(
    near: &str,
    far: &str,
    far_mac: Option<[u8; 6]>,
    into: &Namespace,
) -> NetlinkRequest {
    let descriptor = into.as_fd().as_raw_fd() as u32;
    let request = NetlinkRequest::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
        .fixed(&interface_message(0, 0))
        .text(libc::IFLA_IFNAME, near);
    let (request, information) = request.begin(libc::IFLA_LINKINFO);
    let (request, data) = request.text(libc::IFLA_INFO_KIND, "veth").begin(libc::IFLA_INFO_DATA);
    let (request, peer) = request.begin(VETH_PEER);
    let mut request = request
        .fixed(&interface_message(0, 0))
        .text(libc::IFLA_IFNAME, far)
        .attribute(libc::IFLA_NET_NS_FD, &descriptor.to_ne_bytes());
    if let Some(mac) = far_mac {
        request = request.attribute(libc::IFLA_ADDRESS, &mac);
    }
    request.end(peer).end(data).end(information)
}

fn up_request(index: u32) -> NetlinkRequest {
    NetlinkRequest::new(libc::RTM_NEWLINK, 0).fixed(&interface_message(index, libc::IFF_UP as u32))
}

fn address_request(index: u32, address: Ipv4Addr, prefix: u8) -> NetlinkRequest {
    let mut message = [libc::AF_INET as u8, prefix, 0, 0, 0, 0, 0, 0];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    NetlinkRequest::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
        .fixed(&message)
        .attribute(libc::IFA_LOCAL, &address.octets())
        .attribute(libc::IFA_ADDRESS, &address.octets())
}

fn neighbour_request(index: u32, address: Ipv4Addr, mac: [u8; 6]) -> NetlinkRequest {
    let mut message = [0; 12];
    message[0] = libc::AF_INET as u8;
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    NetlinkRequest::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
        .fixed(&message)
        .attribute(libc::NDA_DST, &address.octets())
        .attribute(libc::NDA_LLADDR, &mac)
}

fn queue_message(index: u32, handle: u32, parent: u32) -> [u8; 20] {
    let mut message = [0; 20];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[8..12].copy_from_slice(&handle.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    message
}

/// A token bucket at the link's rate that counts the same wire bytes as the switch. It only keeps
/// the queue in the host, because the switch serialises each uplink exactly. Its timer is late by
/// tens of microseconds on a virtual machine, and a bucket of one frame would lose that time from
/// the rate: a fifth of it at 100 Mbit/s. Therefore two more frames may leave at once, as into the
/// ring of a network card.
fn shaper_request(index: u32, rate: Rate) -> NetlinkRequest {
    const ROOT: u32 = 0xffff_ffff;
    const ETHERNET: u8 = 1;
    let mut parameters = [0; 36];
    parameters[1] = ETHERNET;
    parameters[2..4].copy_from_slice(&(FRAME_OVERHEAD as u16).to_ne_bytes());
    parameters[6..8].copy_from_slice(&(SHORTEST_FRAME as u16).to_ne_bytes());
    let bytes_per_second = u32::try_from(rate.0 / 8).unwrap_or(u32::MAX);
    parameters[8..12].copy_from_slice(&bytes_per_second.to_ne_bytes());
    // The limit makes the kernel create an inner queue, which `bands_request` replaces.
    parameters[24..28].copy_from_slice(&1_000_000_u32.to_ne_bytes());
    let (request, options) = queue_request(index, 0x1_0000, ROOT, "tbf").begin(TCA_OPTIONS);
    request
        .attribute(TBF_PARAMETERS, &parameters)
        .attribute(TBF_BURST, &(3 * FULL_FRAME).to_ne_bytes())
        .end(options)
}

/// Three strict-priority bands inside the bucket, as the driver of a card has by default.
fn bands_request(index: u32) -> NetlinkRequest {
    queue_request(index, 0x2_0000, 0x1_0001, "pfifo_fast")
}

fn queue_request(index: u32, handle: u32, parent: u32, kind: &str) -> NetlinkRequest {
    NetlinkRequest::new(libc::RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
        .fixed(&queue_message(index, handle, parent))
        .text(TCA_KIND, kind)
}

//! Probes of sockets: each option is set and then seen to work with real packets on loopback.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use homa::driver::Driver;
use homa_testbed::{Namespace, VethPair};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::{DoctorCheck, Status, setting};
use crate::commands::driver::{grant_raw, grant_xdp};

/// IP protocol number of Homa (IANA).
const HOMA: i32 = 146;
/// Receive buffer that absorbs the unscheduled bytes of a few dozen senders, bytes.
const WANTED_BUFFER: usize = 4 << 20;

/// All of them.
pub fn all() -> Vec<DoctorCheck> {
    vec![udp(), gso(), gro(), priorities(), receive_buffer(), raw_ip(), congestion_control()]
}

/// Two connected sockets on loopback.
fn loopback() -> io::Result<(UdpSocket, UdpSocket)> {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    a.connect(b.local_addr()?)?;
    b.connect(a.local_addr()?)?;
    b.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok((a, b))
}

/// Plain UDP, without which nothing works.
fn udp() -> DoctorCheck {
    let tried = loopback().and_then(|(a, b)| {
        a.send(b"probe")?;
        b.recv(&mut [0; 16])
    });
    match tried {
        Ok(_) => {
            DoctorCheck::new("udp", Status::Ok, "loopback answers", "Homa's default driver works")
        }
        Err(error) => DoctorCheck::new(
            "udp",
            Status::Fatal,
            format!("loopback: {error}"),
            "no driver of Homa but the in-memory one can work here",
        )
        .remedy("bring loopback up (ip link set lo up); check the sandbox's socket rules"),
    }
}

/// One system call for a train of datagrams.
fn gso() -> DoctorCheck {
    let tried = loopback().and_then(|(a, b)| {
        setsockopt(&a, sockopt::UdpGsoSegment, &1000)?;
        a.send(&[1; 3000])?;
        let mut lengths = [0; 3];
        for length in &mut lengths {
            *length = b.recv(&mut [0; 4096])?;
        }
        Ok(lengths)
    });
    match tried {
        Ok([1000, 1000, 1000]) => DoctorCheck::new(
            "udp gso",
            Status::Ok,
            "3 datagrams from one call",
            "long messages and bursts cost one system call per train",
        ),
        other => DoctorCheck::new(
            "udp gso",
            Status::Missing,
            outcome(other.map(|lengths| format!("arrived as {lengths:?} B"))),
            "one system call per packet: expect a third of the rate",
        )
        .remedy("Linux 4.18 or later has it; some sandboxes (gVisor) do not"),
    }
}

/// One system call to receive a train.
fn gro() -> DoctorCheck {
    let tried = loopback().and_then(|(a, b)| {
        setsockopt(&a, sockopt::UdpGsoSegment, &1000)?;
        setsockopt(&b, sockopt::UdpGroSegment, &true)?;
        a.send(&[1; 3000])?;
        b.recv(&mut [0; 8192])
    });
    match tried {
        Ok(3000) => DoctorCheck::new(
            "udp gro",
            Status::Ok,
            "3 datagrams in one call",
            "trains are received in one system call",
        ),
        other => DoctorCheck::new(
            "udp gro",
            Status::Missing,
            outcome(other.map(|length| format!("the first call brought {length} B of 3000"))),
            "one system call per few packets received",
        )
        .remedy("Linux 5.0 or later has it"),
    }
}

/// A class per packet, which the switches on the path may honour.
fn priorities() -> DoctorCheck {
    let class_selectors = 0..6u8;
    let refused = loopback().map(|(a, _)| {
        class_selectors
            .map(|level| level << 5)
            .find(|&tos| setsockopt(&a, sockopt::Ipv4Tos, &i32::from(tos)).is_err())
    });
    match refused {
        Ok(None) => DoctorCheck::new(
            "priorities",
            Status::Ok,
            "DSCP CS0-CS5 may be set per packet",
            "Homa marks its levels; whether switches honour them is the operator's choice",
        ),
        other => DoctorCheck::new(
            "priorities",
            Status::Missing,
            outcome(other.map(|tos| format!("IP_TOS {tos:?} is refused"))),
            "one level on the wire: still better tails than TCP, but not the best",
        )
        .remedy("allow IP_TOS in the sandbox's socket rules"),
    }
}

/// Room for packets that arrive while the application is busy.
fn receive_buffer() -> DoctorCheck {
    let granted = loopback().and_then(|(a, _)| {
        setsockopt(&a, sockopt::RcvBuf, &WANTED_BUFFER)?;
        // The kernel doubles the value for its own bookkeeping and reports the double.
        Ok(getsockopt(&a, sockopt::RcvBuf)? / 2)
    });
    let granted = granted.unwrap_or(0);
    let found = format!("{} kB of the {} kB asked for", granted / 1000, WANTED_BUFFER / 1000);
    match granted >= WANTED_BUFFER {
        true => DoctorCheck::new(
            "receive buffer",
            Status::Ok,
            found,
            "bursts of many senders wait in the kernel instead of being lost",
        ),
        false => DoctorCheck::new(
            "receive buffer",
            Status::Limited,
            found,
            "when many senders start at once packets are lost and resent after milliseconds",
        )
        .remedy(format!("sudo sysctl -w net.core.rmem_max={WANTED_BUFFER}")),
    }
}

/// Homa directly over IP, as the kernel module speaks it.
fn raw_ip() -> DoctorCheck {
    match Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(HOMA))) {
        Ok(_) => DoctorCheck::new(
            "raw ip 146",
            Status::Ok,
            "may be opened",
            "`--driver raw-ip` reaches hosts that run the Linux kernel module",
        ),
        Err(error) => DoctorCheck::new(
            "raw ip 146",
            Status::Missing,
            error.to_string(),
            "Homa travels inside UDP, which needs no privilege and reaches peers that do the same",
        )
        .remedy(format!(
            "only to reach hosts that run the kernel module: {}; to try it on this machine: \
             unshare -Urn",
            grant_raw()
        )),
    }
}

/// AF_XDP, tried on one end of a veth pair in a separate network namespace. `missing`: capabilities
/// that it needs and the process lacks outside of that namespace.
pub fn xdp(missing: &[&str], end: Option<&Namespace>) -> DoctorCheck {
    let uses = "`--driver xdp` bypasses the kernel's network stack";
    let error = match (missing, end) {
        ([], None) => {
            let found = "the capabilities are there; not tried, for want of a network to try it in";
            return DoctorCheck::new("af_xdp", Status::Ok, found, uses);
        }
        ([], Some(end)) => {
            let at = SocketAddr::from((VethPair::ADDRESSES[0], 0));
            match end.run(|| Ok(<dyn Driver>::xdp(at, 1 << 20).map(drop))) {
                Ok(Ok(())) => {
                    return DoctorCheck::new(
                        "af_xdp",
                        Status::Ok,
                        "redirects frames of a veth",
                        uses,
                    );
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            }
        }
        (missing, _) => format!("this process lacks {}", missing.join(", ")),
    };
    let instead = "Homa goes through the system's UDP sockets, which reach the same peers";
    DoctorCheck::new("af_xdp", Status::Missing, error, instead)
        .remedy(format!("only for lower latency: {}, outside of containers", grant_xdp()))
}

/// The congestion controls that TCP may use in `bench`.
fn congestion_control() -> DoctorCheck {
    let available = setting("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let default = setting("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    let available = available.unwrap_or_else(|| "unknown".into());
    let found = format!("{available} (default {default})");
    match available.split(' ').any(|name| name == "cubic") {
        true => DoctorCheck::new(
            "tcp",
            Status::Ok,
            found,
            "`bench` runs its TCP rivals with cubic unless --cc names another",
        ),
        false => DoctorCheck::new(
            "tcp",
            Status::Limited,
            found,
            "cubic, which `bench` uses for its TCP rivals, is not available",
        )
        .remedy("modprobe tcp_cubic, or name one of the available with --cc"),
    }
}

fn outcome(tried: io::Result<String>) -> String {
    tried.unwrap_or_else(|error| error.to_string())
}

//! A phantom queue on one end of a real veth pair: real packets, this kernel, both ways to attach.

use std::fs::File;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::*;
use crate::{Isolation, TestbedError, VethPair, isolate, sys};

const DEVICE: &str = "eth0";
/// A megabit a second drains a packet in 8 ms, and the test sends them at once.
const SLOW: (Rate, u32) = (Rate::mbps(1), 3_000);
const PACKETS: usize = 50;
/// Bytes of a datagram, and of its frame from the Ethernet header on.
const DATAGRAM: usize = 1_000;
const FRAME: u64 = 14 + 20 + 8 + DATAGRAM as u64;
/// ECN-capable (RFC 3168 §5), and the same marked.
const ECT: libc::c_int = 0b10;
const CE: u8 = 0b11;

type Attach = fn(BorrowedFd<'_>, u32, HookPoint) -> Result<Hook, HullError>;

fn io(source: io::Error) -> TestbedError {
    TestbedError::Transport { host: 0, what: "sending", source }
}

fn hull(error: HullError) -> TestbedError {
    TestbedError::Config(error.to_string())
}

/// Sends datagrams from the first end of a pair to the second; gives their types of service there.
fn exchange(pair: &VethPair, tos: libc::c_int) -> Result<Vec<u8>, TestbedError> {
    let [from, to] = VethPair::ADDRESSES;
    pair.ends[1].run(|| {
        // A raw socket sees the header.
        let listening =
            sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP).map_err(io)?;
        let patience = [5_i64.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        sys::set_option_bytes(listening.as_fd(), level, name, &patience).map_err(io)?;
        let _port = UdpSocket::bind((to, 9_999)).map_err(io)?;
        pair.ends[0].run(|| {
            let socket = UdpSocket::bind((from, 0)).map_err(io)?;
            sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, tos).map_err(io)?;
            for _ in 0..PACKETS {
                socket.send_to(&[7; DATAGRAM], (to, 9_999)).map_err(io)?;
            }
            Ok(())
        })?;
        let (mut listening, mut packet) = (File::from(listening), [0; 2_048]);
        (0..PACKETS).map(|_| listening.read(&mut packet).map(|_| packet[1]).map_err(io)).collect()
    })
}

/// Runs packets through the queue. Returns its counters and the packets that arrived.
fn run(
    pair: &VethPair,
    (place, hook): (HookPoint, Attach),
    tos: libc::c_int,
) -> Result<(PhantomStatus, Vec<u8>), TestbedError> {
    let end = match place {
        HookPoint::Ingress => &pair.ends[1],
        HookPoint::Egress => &pair.ends[0],
    };
    let queue = end.run(|| PhantomPort::attach_by(DEVICE, place, SLOW, hook).map_err(hull))?;
    let arrived = exchange(pair, tos)?;
    let seen = queue.status().map_err(hull)?;
    let found = end.run(|| Attached::to(DEVICE).map_err(hull))?;
    assert!(found.status().map_err(hull)?.contains(&seen), "status of another process finds it");
    let other = &pair.ends[usize::from(place == HookPoint::Egress)];
    let here = other.run(|| Attached::to(DEVICE).map_err(hull))?;
    assert_eq!(here.status().map_err(hull)?, [], "the other end has the same name and index");
    // Detaching concerns the device of this network.
    let left = end.run(|| {
        drop(queue);
        Attached::to(DEVICE).and_then(|left| left.status()).map_err(hull)
    })?;
    assert_eq!(left, [], "status of another process finds no more");
    Ok((seen, arrived))
}

#[test]
fn packets_with_ect_beyond_the_threshold_arrive_marked() {
    let pair = isolate().and_then(|inside: Isolation| VethPair::new(&inside, 1500));
    let pair = match pair {
        Ok(pair) => pair,
        Err(error) => {
            println!("{error}");
            return skip::test("namespaces (see `homa doctor`)");
        }
    };
    let ways: [(HookPoint, Attach); 4] = [
        (HookPoint::Ingress, Hook::link),
        (HookPoint::Egress, Hook::link),
        (HookPoint::Ingress, Hook::filter),
        (HookPoint::Egress, Hook::filter),
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let (seen, arrived) = match run(&pair, way, ECT) {
            Ok(run) => run,
            Err(TestbedError::Config(why)) => {
                skip::part(&format!("eBPF on devices ({why})"));
                continue;
            }
            Err(error) => panic!("way {n}: {error}"),
        };
        let marked = arrived.iter().filter(|tos| *tos & CE == CE).count();
        // Neighbours may ask after each other beside them.
        let least = (PACKETS as u64, PACKETS as u64 * FRAME);
        assert!(seen.packets >= least.0 && seen.bytes >= least.1, "way {n}: {seen:?}");
        assert_eq!(seen.marked, marked as u64, "way {n}");
        // The first two find a frame at most, and a neighbour's question.
        assert!(arrived[..2].iter().all(|tos| i32::from(*tos) == ECT), "way {n}: {arrived:?}");
        assert!(marked > 0, "way {n}: {arrived:?}");
        // Attached again, it starts from zero; packets without ECT are not marked.
        let (seen, arrived) = run(&pair, way, 0).expect("it was possible before");
        assert!(seen.packets >= least.0 && seen.marked == 0, "way {n}: {seen:?}");
        assert!(arrived.iter().all(|tos| *tos == 0), "way {n}: {arrived:?}");
        // Detached: no packet is marked, with or without ECT.
        let arrived = exchange(&pair, ECT).expect("it was possible before");
        assert!(arrived.iter().all(|tos| i32::from(*tos) == ECT), "way {n}: {arrived:?}");
    }
}

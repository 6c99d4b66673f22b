//! Packets in tunnels, and datagrams that a capture has twice.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::conversation::{acks, data};
use super::formats::{PLAIN, carried};
use super::frames::{ETHERNET, Record, ipv4, ipv6, kernel_packets, records, udp};
use super::hostile::block;
use super::trains::{datagram, message, packet};
use super::{decoded, lines};

/// A frame of Ethernet in VXLAN, in Geneve with an option, and in GRE.
fn over_ethernet(frame: &[u8]) -> [(Vec<u8>, &'static str); 5] {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0], frame].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4], frame].concat();
    let gre = [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 7], frame].concat();
    [
        (ipv4(0, 17, 0, &udp(55_555, 4789, &vxlan)), "VXLAN"),
        (ipv6(0, (17, 0), &[], &udp(55_555, 4789, &vxlan)), "VXLAN over IPv6"),
        (ipv4(1, 17, 0, &udp(55_555, 8472, &vxlan)), "VXLAN at Linux's port"),
        (ipv4(0, 17, 0, &udp(55_555, 6081, &geneve)), "Geneve"),
        (ipv4(0, 47, 0, &gre), "GRE with a key"),
    ]
}

/// An IP packet in IP, and in GRE.
fn over_ip(ip: &[u8]) -> [(Vec<u8>, &'static str); 3] {
    let (protocol, kind) = if ip[0] >> 4 == 4 { (4, [8, 0]) } else { (41, [0x86, 0xdd]) };
    let gre = [&[0, 0], &kind[..], ip].concat();
    [
        (ipv4(0, protocol, 0, ip), "IP in IPv4"),
        (ipv6(0, (protocol, 0), &[], ip), "IP in IPv6"),
        (ipv6(0, (47, 0), &[60], &gre), "GRE"),
    ]
}

#[test]
fn what_a_tunnel_carries_is_read_as_if_it_stood_there() {
    let vectors = kernel_packets();
    let carried = vectors.iter().flat_map(carried).map(|(ip, _)| ip);
    // All packets of a tunnel in one file, because to start the program takes most of the time.
    let mut of_tunnel: BTreeMap<&str, [Vec<Vec<u8>>; 2]> = BTreeMap::new();
    for ip in carried {
        let inside = ETHERNET.frame(&ip);
        let tunnels = over_ethernet(&inside).into_iter().chain(over_ip(&ip));
        for (outer, name) in tunnels.filter(|(outer, _)| outer.len() < 65_000) {
            let [plain, tunnelled] = of_tunnel.entry(name).or_default();
            plain.push(inside.clone());
            tunnelled.push(ETHERNET.frame(&outer));
        }
    }
    assert_eq!(of_tunnel.len(), 8);
    for (name, files) in of_tunnel {
        let [plain, tunnelled] = files.map(|frames| PLAIN.file(1, &records(frames)));
        for format in [&[][..], &["--packets"]] {
            assert_eq!(lines(&tunnelled, format), lines(&plain, format), "{name}");
        }
    }
}

#[test]
fn tunnels_end_somewhere_and_every_frame_is_counted_once() {
    let ip = ipv4(0, 146, 3, &kernel_packets()[0].bytes);
    let deep = |times: usize| (0..times).fold(ip.clone(), |ip, _| ipv4(0, 4, 0, &ip));
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    let vxlan = |inner: &[u8]| {
        let tunnel = [&[8, 0, 0, 0, 0, 0, 42, 0], inner].concat();
        ipv4(0, 17, 0, &udp(5, 4789, &tunnel))
    };
    let frames = [
        deep(4),
        deep(5),
        vxlan(&arp),
        vxlan(&[0; 5]),
        // Not VXLAN: a flag that it has not.
        ipv4(0, 17, 0, &udp(5, 4789, &[0xff; 40])),
        // GRE of another version.
        ipv4(0, 47, 0, &[0, 1, 8, 0, 0, 0, 0, 0]),
    ];
    let file = PLAIN.file(1, &records(frames.iter().map(|ip| ETHERNET.frame(ip))));
    let totals = decoded(&file, &[])["totals"].take();
    assert_eq!(totals["homa_frames"], 1, "{totals}");
    assert_eq!(totals["unreadable"], json!({ "cut inside the headers": 1 }));
    let other = json!({ "arp": 1, "udp": 1, "ip protocol 4": 1, "ip protocol 47": 1 });
    assert_eq!(totals["other"], other);
}

/// A request of several datagrams, its response, and the acknowledgement.
fn talk() -> Vec<Vec<u8>> {
    let request = message(100, 1, 0, 2, 4_000);
    let response = message(900, 1, 1, 3, 2_000);
    let end = datagram(103, 0, 2, acks(&[2]));
    let sent = |side: u8| move |bytes: Vec<u8>| packet(true, side, &bytes);
    let mut packets: Vec<Vec<u8>> = request.into_iter().map(sent(0)).collect();
    packets.extend(response.into_iter().map(sent(1)));
    packets.push(packet(true, 0, &end));
    packets
}

fn rpcs(file: &[u8]) -> (Value, Value) {
    let mut capture = decoded(file, &["--rpcs"]);
    for key in ["first_frame", "start_ns", "first_byte_ns", "latency_ns"] {
        capture["rpcs"][0][key].take();
    }
    (capture["rpcs"].take(), capture["totals"].take())
}

#[test]
fn copies_seen_on_two_interfaces_are_one_packet() {
    let packets = talk();
    let count = packets.len();
    let once = PLAIN.file(1, &records(packets.iter().map(|ip| ETHERNET.frame(ip))));
    let (expected, alone) = rpcs(&once);
    assert_eq!((&alone["copies"], &alone["duplicates"]), (&json!(0), &json!(0)));
    // On a host's interface and, in a tunnel, on that below it.
    let tunnelled = |ip: &Vec<u8>| {
        let [(outer, _), ..] = over_ethernet(&ETHERNET.frame(ip));
        [ETHERNET.frame(ip), ETHERNET.frame(&outer)]
    };
    let twice = |ip: &Vec<u8>| [ETHERNET.frame(ip), ETHERNET.frame(ip)];
    for file in [
        PLAIN.file(1, &records(packets.iter().flat_map(twice))),
        PLAIN.file(1, &records(packets.iter().flat_map(tunnelled))),
        two_interfaces(&packets),
    ] {
        let (seen, totals) = rpcs(&file);
        assert_eq!(seen, expected);
        assert_eq!(totals["copies"], count);
        assert_eq!(totals["frames"], 2 * count);
        assert_eq!(totals["homa_frames"], 2 * count);
        for same in ["packets", "datagrams", "data_bytes", "types", "duplicates", "endings"] {
            assert_eq!(totals[same], alone[same], "{same}");
        }
    }
    let shown = lines(&PLAIN.file(1, &records(packets.iter().flat_map(twice))), &["--rpcs"]);
    let said = format!("{count} copies of datagrams captured before");
    assert!(shown.iter().any(|line| line.starts_with(&said)), "{shown:?}");
}

/// A pcapng file that has each packet on two interfaces.
fn two_interfaces(packets: &[Vec<u8>]) -> Vec<u8> {
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    let mut file = block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255]);
    file.extend(interface.repeat(2));
    for (number, ip) in (0_u32..).zip(packets) {
        for id in 0..2_u32 {
            let mut frame = ETHERNET.frame(ip);
            let length = frame.len() as u32;
            frame.resize(frame.len().next_multiple_of(4), 0);
            let fields = [id, 0, 7_000 + 10 * number + id, length, length];
            let fields = fields.map(u32::to_le_bytes).concat();
            file.extend(block(6, &[&fields[..], &frame].concat()));
        }
    }
    file
}

#[test]
fn a_datagram_with_the_number_of_another_is_no_copy() {
    // The same number for other bytes, from another socket, and long after.
    let first = datagram(7, 0, 2, data(0..1_400, 4_200, 4_200));
    let other = datagram(7, 0, 2, data(1_400..2_800, 4_200, 4_200));
    let frame = |side: u8, bytes: &[u8]| ETHERNET.frame(&packet(true, side, bytes));
    let mut frames = records([
        frame(0, &first),
        frame(0, &other),
        ETHERNET.frame(&packet(false, 0, &first)),
        frame(0, &first),
    ]);
    let late = frames.last_mut().expect("four");
    *late = Record { time: late.time + 2_000_000_000, ..late.clone() };
    let totals = decoded(&PLAIN.file(1, &frames), &[])["totals"].take();
    assert_eq!((&totals["copies"], &totals["packets"]), (&json!(0), &json!(4)), "{totals}");
    // Sent again by the protocol: a new number, and not left out.
    let again = datagram(8, 0, 2, data(0..1_400, 4_200, 4_200));
    let totals = decoded(&PLAIN.file(1, &records([frame(0, &first), frame(0, &again)])), &[]);
    assert_eq!(totals["totals"]["duplicates"], 1);
    assert_eq!(totals["totals"]["copies"], 0);
}

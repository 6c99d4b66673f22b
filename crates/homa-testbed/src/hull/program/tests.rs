//! The assembled program against the model of the simulator, packet by packet: run by a few lines
//! here, on any machine, and by the kernel's own eBPF where that is allowed.

use homa_bpf as bpf;
use homa_proto::Rate;
use homa_sim::fabric::Marks;
use homa_sim::fabric::queue::{Phantom, PhantomConfig};
use homa_sim::software_switch::{SoftwarePort, SwitchFrame};
use homa_sim::{LinkRate, SimTime};
use homa_workload::rng::Rng;
use std::os::fd::AsFd;

use super::*;

/// Runs the instructions that [`assemble`] uses.
fn interpret(code: &[u64], value: &mut [u64; WORDS], packet: (u32, u32, bool)) -> bool {
    interpret_of(code, value, packet, libc::ETH_P_IP)
}

/// The same for a packet of that protocol.
fn interpret_of(
    code: &[u64],
    value: &mut [u64; WORDS],
    (length, segments, ect): (u32, u32, bool),
    protocol: libc::c_int,
) -> bool {
    let mut r = [0_u64; 11];
    let (mut at, mut marked) = (0, false);
    loop {
        let bytes = code[at].to_ne_bytes();
        let (d, s) = (usize::from(bytes[1] & 15), usize::from(bytes[1] >> 4));
        let offset = i16::from_ne_bytes([bytes[2], bytes[3]]);
        let immediate = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let word = (offset / 8) as usize;
        let i = i64::from(immediate) as u64;
        let mut jump = |taken: bool| at += if taken { offset as usize } else { 0 };
        match bytes[0] {
            op::MOV_IMMEDIATE => r[d] = i,
            op::MOV => r[d] = r[s],
            op::ADD_IMMEDIATE => r[d] = r[d].wrapping_add(i),
            op::ADD => r[d] = r[d].wrapping_add(r[s]),
            op::SUBTRACT => r[d] = r[d].wrapping_sub(r[s]),
            op::MULTIPLY_IMMEDIATE => r[d] = r[d].wrapping_mul(i),
            op::MULTIPLY => r[d] = r[d].wrapping_mul(r[s]),
            op::LEFT_SHIFT => r[d] <<= i,
            op::RIGHT_SHIFT => r[d] >>= i,
            op::LOAD_WORD if offset == LENGTH => r[d] = u64::from(length),
            op::LOAD_WORD if offset == SEGMENTS => r[d] = u64::from(segments),
            op::LOAD_WORD if offset == PROTOCOL => r[d] = u64::from((protocol as u16).to_be()),
            op::LOAD_LONG => r[d] = value[word],
            op::STORE_LONG => value[word] = r[s],
            op::LOAD_IMMEDIATE => at += 1,
            op::ATOMIC if immediate == op::ATOMIC_ADD => value[word] += r[s],
            op::ATOMIC => {
                let found = value[word];
                if found == r[0] {
                    value[word] = r[s];
                }
                r[0] = found;
            }
            op::JUMP => jump(true),
            op::JUMP_IF_EQUAL => jump(r[d] == i),
            op::JUMP_IF_POSITIVE => jump(r[d] as i64 > immediate.into()),
            op::JUMP_IF_SAME => jump(r[d] == r[s]),
            op::JUMP_IF_AT_MOST => jump(r[d] <= r[s]),
            op::CALL if immediate == SKB_ECN_SET_CE => {
                (marked, r[0]) = (ect, u64::from(ect));
            }
            op::EXIT => {
                assert_eq!(r[0] as i32, GO_ON);
                return marked;
            }
            other => panic!("{other:#x} is not known here"),
        }
        at += 1;
    }
}

/// Time of arrival in nanoseconds, bytes from the Ethernet header on, ECN-capable.
type Packet = (u64, u32, bool);

/// Packets of a link that is a little too fast, with pauses, from time to time not ECN-capable.
fn packets(seed: u64, count: usize, link_bps: u64) -> Vec<Packet> {
    let mut rng = Rng::stream(seed, "packets");
    let mut now = 1_000_000;
    let mut draw = |_| {
        let bytes = 60 + rng.uniform_below(1_455);
        // On the wire 24 more.
        now += u64::from(bytes + 24) * 8_000_000_000 / link_bps;
        if rng.chance(0.02) {
            now += u64::from(rng.uniform_below(20_000));
        }
        (now, bytes, !rng.chance(0.1))
    };
    (0..count).map(&mut draw).collect()
}

struct Modelled(Packet, Marks);

impl SwitchFrame for Modelled {
    fn bytes(&self) -> u32 {
        self.0.1 + 24
    }
    fn priority(&self) -> u8 {
        0
    }
    fn marks(&self) -> Marks {
        self.1
    }
    fn mark(&mut self, marks: Marks) {
        self.1 = marks;
    }
}

/// Which packets the simulator marks: each begins to leave an idle port at its time.
fn modelled(packets: &[Packet], drain_bps: u64, threshold: u32) -> Vec<bool> {
    // The drain rate is a share of a link's.
    let link = Rate(2 * drain_bps);
    let config = PhantomConfig { drain_ppm: 500_000, threshold, ..PhantomConfig::PAPER };
    let queue = Phantom::new(homa_sim::fabric::StrictPriority, Some(config), link);
    // Fast enough to be idle again when the next one comes.
    let mut port = SoftwarePort::new(LinkRate::new(Rate::gbps(1_000_000)), u64::MAX, queue);
    let mark = |packet: &Packet| {
        let now = SimTime(packet.0 * 1_000);
        let frame = Modelled(*packet, Marks::NONE.with(Marks::ECT, packet.2));
        assert!(port.enqueue(now, frame).is_ok());
        port.next(SimTime::MAX).is_some_and(|left| left.frame.1.has(Marks::CE))
    };
    packets.iter().map(mark).collect()
}

/// The queues that are compared: drain rate, threshold, rate of the link before them. The times of
/// a byte are whole numbers of the program's unit.
const QUEUES: [(u64, u32, u64); 3] = [
    (8_000_000_000, 1_000, 11_500_000_000),
    (1_000_000_000, 6_000, 1_080_000_000),
    (500_000_000, 1_000, 530_000_000),
];

#[test]
fn marks_are_those_of_the_model_packet_by_packet() {
    let code = assemble(0, DrainClock::Map);
    for (drain, threshold, link) in QUEUES {
        let mut value = initial((drain, threshold), (1, 0, 0));
        let packets = packets(drain, 20_000, link);
        let mark = |&(now, bytes, ect): &Packet| {
            value[CLOCK] = now;
            interpret(&code, &mut value, (bytes, 0, ect))
        };
        let marks: Vec<bool> = packets.iter().map(mark).collect();
        let expected = modelled(&packets, drain, threshold);
        let differ = marks.iter().zip(&expected).position(|(ours, model)| ours != model);
        assert_eq!(differ, None, "of {drain} bit/s");
        let count = marks.iter().filter(|marked| **marked).count();
        assert!((1_000..19_000).contains(&count), "{count} of {drain} bit/s");
        assert_eq!((value[PACKETS], value[MARKED]), (20_000, count as u64));
        assert_eq!(value[BYTES], packets.iter().map(|packet| u64::from(packet.1)).sum::<u64>());
    }
}

#[test]
fn other_drain_rates_are_kept_to_a_millionth() {
    let code = assemble(0, DrainClock::Map);
    for drain in [1_000_000_u64, 9_500_000_000, 97_531_000_000, 1_000_000_000_000] {
        let mut value = initial((drain, 1_000), (1, 0, 0));
        let count = 100_000;
        for _ in 0..count {
            interpret(&code, &mut value, (1_514, 0, true));
        }
        let ns = value[FREE_AT] as f64 / 1_024.0;
        let expected = f64::from(count) * 1_514.0 * 8e9 / drain as f64;
        // A packet's time is a whole number of units.
        let rounding = f64::from(count) / 1_024.0;
        let bound = expected / 1e6 + rounding;
        assert!((ns - expected).abs() < bound, "{drain}: {ns} ns, not {expected}");
    }
}

#[test]
fn a_joined_frame_counts_the_headers_of_its_segments() {
    let code = assemble(0, DrainClock::Map);
    let bytes = |length, segments| {
        let mut value = initial((1_000_000_000, 1_000), (1, 0, 0));
        interpret(&code, &mut value, (length, segments, true));
        value[BYTES]
    };
    assert_eq!((bytes(1_514, 0), bytes(1_514, 1)), (1_514, 1_514));
    // Three full segments: 66 bytes of headers once, and twice more.
    assert_eq!(bytes(66 + 3 * 1_448, 3), 3 * 1_514);
}

#[test]
fn only_what_is_held_for_ip_is_marked_and_the_rest_counts() {
    let code = assemble(0, DrainClock::Map);
    let second = |protocol| {
        let mut value = initial((1_000_000, 1_000), (1, 0, 0));
        value[CLOCK] = 1_000_000;
        let packet = (1_514, 0, true);
        interpret_of(&code, &mut value, packet, protocol);
        (interpret_of(&code, &mut value, packet, protocol), value[PACKETS], value[MARKED])
    };
    for ip in [libc::ETH_P_IP, libc::ETH_P_IPV6] {
        assert_eq!(second(ip), (true, 2, 1));
    }
    for other in [libc::ETH_P_8021Q, libc::ETH_P_8021AD, libc::ETH_P_ARP] {
        assert_eq!(second(other), (false, 2, 0), "{other:#x}");
    }
}

#[test]
fn an_idle_queue_is_empty_even_when_the_clock_has_gone_round() {
    let code = assemble(0, DrainClock::Map);
    let mut value = initial((1_000_000, 1_000), (1, 0, 0));
    // A packet just before the end of the count, 12 ms of drain; the next ones after it.
    let end = u64::MAX >> UNIT_SHIFT;
    value[FREE_AT] = (end - 1_000_000) << UNIT_SHIFT;
    value[CLOCK] = end - 1_000;
    let mut mark = |now: u64| {
        value[CLOCK] = now;
        interpret(&code, &mut value, (1_514, 0, true))
    };
    assert_eq!([mark(end - 1_000), mark(end), mark(1_000_000)], [false, true, true]);
    assert!(!mark(100_000_000), "the queue was empty again");
}

/// An ECN-capable UDP packet, or one that is not.
fn packet(bytes: u32, ect: bool) -> Vec<u8> {
    let mut frame = vec![0; bytes as usize];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    (frame[14], frame[15]) = (0x45, 2 * u8::from(ect));
    frame[16..18].copy_from_slice(&(bytes as u16 - 14).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame
}

const NEEDS: &str = "root, or CAP_BPF and CAP_NET_ADMIN (bpf(2) is refused)";

#[test]
fn the_kernel_marks_the_same_packets() {
    let Ok(map) = bpf::WordMap::<WORDS>::create(c"homa_test") else { return skip::test(NEEDS) };
    let program = bpf::load(
        bpf::ProgramKind::Classifier,
        &assemble(map.descriptor(), DrainClock::Map),
        c"homa_test",
    );
    let program = program.expect("the verifier takes the program");
    for (drain, threshold, link) in QUEUES {
        let mut value = initial((drain, threshold), (1, 0, 0));
        let packets = packets(drain, 2_000, link);
        let mut mark = |&(now, bytes, ect): &Packet| {
            value[CLOCK] = now;
            map.write(&value).expect("written");
            let run = bpf::test_run(program.as_fd(), &packet(bytes, ect));
            let (out, _) = run.expect("run");
            value = map.read().expect("read");
            assert_eq!(out.len(), bytes as usize);
            out[15] & 3 == 3
        };
        let marks: Vec<bool> = packets.iter().map(&mut mark).collect();
        assert_eq!(marks, modelled(&packets, drain, threshold), "{drain} bit/s");
        let count = marks.iter().filter(|marked| **marked).count();
        assert!(count > 50, "{count} of {drain} bit/s");
        assert_eq!(value[MARKED], count as u64);
    }
}

/// The same packet in VLAN 5, whose number ends with the bits of ECT.
fn tagged(bytes: u32) -> Vec<u8> {
    let mut frame = packet(bytes, true);
    frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    frame
}

#[test]
fn the_kernel_leaves_packets_behind_a_vlan_tag_as_they_are() {
    let Ok(map) = bpf::WordMap::<WORDS>::create(c"homa_test") else { return skip::test(NEEDS) };
    map.write(&initial((1_000_000, 1_000), (1, 0, 0))).expect("written");
    let program = bpf::load(
        bpf::ProgramKind::Classifier,
        &assemble(map.descriptor(), DrainClock::Map),
        c"homa_test",
    );
    let program = program.expect("the verifier takes the program");
    for _ in 0..3 {
        let (out, _) = bpf::test_run(program.as_fd(), &tagged(1_514)).expect("run");
        assert_eq!(out, tagged(1_514), "the tag or what follows it was written to");
    }
    assert_eq!(map.read().expect("read")[MARKED], 0);
}

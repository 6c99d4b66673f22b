//! The phantom queue as an eBPF classifier, assembled here.
//!
//! The queue is a clock: the time at which a link of the drain rate would have sent everything that
//! passed. It is one word, exchanged by compare-and-swap and retried if another processor changed
//! it meanwhile, so that no packet is lost from the count. A packet is marked for the backlog that
//! others left (compare, then add; HULL §2.1). Times are counted in 2^-10 ns since boot in 64 bits,
//! so that they last 208 days and differences are right even across the wrap; a byte's time is
//! rounded to 2^-26 ns.
//!
//! Frames that the kernel merged (GRO) or has still to segment (GSO) count with the headers of each
//! segment and are marked as one. Only packets that the kernel treats as IP are marked, without a
//! VLAN tag or with one that the card or the kernel removed. If a tag is still in front of IP, the
//! kernel's marking function looks through it but writes into it, and the packet would continue in
//! another VLAN. Left out: ticks, add-then-compare.

use homa_bpf::{Assembler, op};

/// Words of the map's value.
pub(crate) const WORDS: usize = 11;
/// The time at which the virtual link is free.
pub(crate) const FREE_AT: usize = 0;
/// Time of a byte, in 2^-16 of the unit.
pub(crate) const PER_BYTE: usize = 1;
/// Time of the bytes beyond which it marks.
pub(crate) const THRESHOLD: usize = 2;
/// Packets that passed.
pub(crate) const PACKETS: usize = 3;
/// Bytes of theirs, from the Ethernet header on.
pub(crate) const BYTES: usize = 4;
/// Packets marked.
pub(crate) const MARKED: usize = 5;
/// As asked for: bits per second.
pub(crate) const DRAIN_BPS: usize = 6;
/// As asked for: bytes.
pub(crate) const THRESHOLD_BYTES: usize = 7;
/// Index of the interface.
pub(crate) const INTERFACE: usize = 8;
/// 0: ingress; 1: egress.
pub(crate) const PLACE: usize = 9;
/// Number of the network namespace that the interface is in.
pub(crate) const NAMESPACE: usize = 10;
/// The time, for [`DrainClock::Map`], which cares for no interface.
#[cfg(test)]
const CLOCK: usize = INTERFACE;

/// Units of time in a nanosecond, as a power of two.
const UNIT_SHIFT: u32 = 10;
/// Fraction of the unit in [`PER_BYTE`], as a power of two.
const FRACTION_SHIFT: u32 = 16;
/// Headers of each further segment of a frame that was joined: Ethernet, IPv4, TCP with time
/// stamps.
const SEGMENT_HEADERS: i32 = 14 + 20 + 32;
/// Times that the exchange is tried before the last one wins.
const TRIES: usize = 8;

/// The initial content of the map.
pub(crate) fn initial(
    (drain_bps, threshold_bytes): (u64, u32),
    (interface, place, namespace): (u32, u64, u64),
) -> [u64; WORDS] {
    let scale = 8_000_000_000_u128 << (UNIT_SHIFT + FRACTION_SHIFT);
    let per_byte = (scale + u128::from(drain_bps / 2)) / u128::from(drain_bps.max(1));
    let threshold = (per_byte * u128::from(threshold_bytes)) >> FRACTION_SHIFT;
    let mut value = [0; WORDS];
    value[PER_BYTE] = u64::try_from(per_byte).unwrap_or(u64::MAX);
    value[THRESHOLD] = u64::try_from(threshold).unwrap_or(u64::MAX);
    value[DRAIN_BPS] = drain_bps;
    value[THRESHOLD_BYTES] = u64::from(threshold_bytes);
    value[INTERFACE] = u64::from(interface);
    value[PLACE] = place;
    value[NAMESPACE] = namespace;
    value
}

/// Where the program reads the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainClock {
    /// The kernel's, since boot.
    Kernel,
    /// The map's, for tests that compare the program with a model.
    #[cfg(test)]
    Map,
}

/// Offsets in the context of a classifier (`struct __sk_buff`).
const LENGTH: i16 = 0;
const PROTOCOL: i16 = 16;
const SEGMENTS: i16 = 164;

/// Numbers of the kernel's functions (`enum bpf_func_id`).
const KTIME_GET_NS: i32 = 5;
const SKB_ECN_SET_CE: i32 = 97;

/// The next attached program decides (`TC_ACT_UNSPEC`, `TCX_NEXT`).
const GO_ON: i32 = -1;

/// The program over the map of that descriptor, as the kernel takes it.
pub(crate) fn assemble(map: i32, clock: DrainClock) -> Vec<u64> {
    use op::*;
    let mut code = Assembler::default();
    let at = |word: usize| 8 * word as i16;
    // r6: the packet, r7: the queue, r8: its bytes.
    code.push(MOV, (6, 1), 0, 0);
    code.push(LOAD_IMMEDIATE, (7, PSEUDO_MAP_VALUE), 0, map);
    code.push(0, (0, 0), 0, 0);
    code.push(LOAD_WORD, (8, 6), LENGTH, 0);
    code.push(LOAD_WORD, (1, 6), SEGMENTS, 0);
    code.jump(JUMP_IF_EQUAL, (1, 0), "counted");
    code.push(ADD_IMMEDIATE, (1, 0), 0, -1);
    code.push(MULTIPLY_IMMEDIATE, (1, 0), 0, SEGMENT_HEADERS);
    code.push(ADD, (8, 1), 0, 0);
    code.label("counted");
    code.push(MOV_IMMEDIATE, (1, 0), 0, 1);
    code.push(ATOMIC, (7, 1), at(PACKETS), ATOMIC_ADD);
    code.push(ATOMIC, (7, 8), at(BYTES), ATOMIC_ADD);
    // r9: its time at the drain rate.
    code.push(LOAD_LONG, (9, 7), at(PER_BYTE), 0);
    code.push(MULTIPLY, (9, 8), 0, 0);
    code.push(RIGHT_SHIFT, (9, 0), 0, FRACTION_SHIFT as i32);
    // r8: now.
    match clock {
        DrainClock::Kernel => code.push(CALL, (0, 0), 0, KTIME_GET_NS),
        #[cfg(test)]
        DrainClock::Map => code.push(LOAD_LONG, (0, 7), at(CLOCK), 0),
    }
    code.push(MOV, (8, 0), 0, 0);
    code.push(LEFT_SHIFT, (8, 0), 0, UNIT_SHIFT as i32);
    // r1: when the virtual link is free, r2: what it finds waiting, r3: when it will be.
    code.push(LOAD_LONG, (1, 7), at(FREE_AT), 0);
    for busy in BUSY {
        code.push(MOV, (2, 1), 0, 0);
        code.push(SUBTRACT, (2, 8), 0, 0);
        code.jump(JUMP_IF_POSITIVE, (2, 0), busy);
        code.push(MOV_IMMEDIATE, (2, 0), 0, 0);
        code.label(busy);
        code.push(MOV, (3, 8), 0, 0);
        code.push(ADD, (3, 2), 0, 0);
        code.push(ADD, (3, 9), 0, 0);
        code.push(MOV, (0, 1), 0, 0);
        code.push(ATOMIC, (7, 3), at(FREE_AT), ATOMIC_COMPARE_EXCHANGE);
        code.jump(JUMP_IF_SAME, (0, 1), "counted in");
        code.push(MOV, (1, 0), 0, 0);
    }
    code.push(STORE_LONG, (7, 3), at(FREE_AT), 0);
    code.label("counted in");
    code.push(LOAD_LONG, (1, 7), at(THRESHOLD), 0);
    code.jump(JUMP_IF_AT_MOST, (2, 1), "out");
    code.push(LOAD_WORD, (1, 6), PROTOCOL, 0);
    code.jump_by(JUMP_IF_EQUAL, (1, 0), network_order(libc::ETH_P_IP), "is IP");
    code.jump_by(JUMP_IF_EQUAL, (1, 0), network_order(libc::ETH_P_IPV6), "is IP");
    code.jump(JUMP, (0, 0), "out");
    code.label("is IP");
    code.push(MOV, (1, 6), 0, 0);
    code.push(CALL, (0, 0), 0, SKB_ECN_SET_CE);
    code.jump(JUMP_IF_EQUAL, (0, 0), "out");
    code.push(MOV_IMMEDIATE, (1, 0), 0, 1);
    code.push(ATOMIC, (7, 1), at(MARKED), ATOMIC_ADD);
    code.label("out");
    code.push(MOV_IMMEDIATE, (0, 0), 0, GO_ON);
    code.push(EXIT, (0, 0), 0, 0);
    code.finish()
}

/// As the context has it.
fn network_order(protocol: libc::c_int) -> i32 {
    i32::from((protocol as u16).to_be())
}

const BUSY: [&str; TRIES] =
    ["busy 0", "busy 1", "busy 2", "busy 3", "busy 4", "busy 5", "busy 6", "busy 7"];

#[cfg(test)]
mod tests;

//! The redirect program: it redirects the frames for our UDP ports at our addresses, and passes all
//! others to the system unchanged.
//!
//! It only redirects simple frames: to the interface's Ethernet address, untagged (a VLAN's
//! interface shows them so), IPv4 without options or IPv6 without extension headers, UDP, not
//! fragmented, no longer than a frame of the socket, and complete. A frame is not complete if its
//! checksum is the sum of the pseudo header alone, because the system has left the rest to a card.
//! Such a packet never left this machine or was coalesced, and only the system knows whether it is
//! one datagram or several. All other packets arrive at the UDP socket. The driver checks lengths
//! and checksums.

use std::net::IpAddr;
use std::ops::Range;

use crate::egress::hops::Mac;
use homa_bpf::{Assembler, op::*};

/// Bytes of a key: an address (IPv4 as mapped), a port, and padding.
pub const KEY: usize = 20;

/// The key of a local address.
pub fn key(ip: IpAddr, port: u16) -> [u8; KEY] {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut key = [0; KEY];
    key[..16].copy_from_slice(&ip.octets());
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key
}

/// Offsets in the program's context (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Numbers of the kernel's functions (`enum bpf_func_id`).
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
const BUFFER_LENGTH: i32 = 188;

/// Passes the frame to the system (`enum xdp_action`).
pub const PASS: u32 = 2;

/// Offset of the key on the stack.
const AT_KEY: i16 = -24;
const STACK: u8 = 10;

/// A 16-bit value in network byte order, as a 16-bit load reads it.
fn network(value: u16) -> i32 {
    u16::from_ne_bytes(value.to_be_bytes()).into()
}

/// The parameters of the program.
pub struct Redirect {
    /// The interface's address.
    pub mac: Mac,
    /// Descriptor of the map of local addresses, [`key`].
    pub local: i32,
    /// Descriptor of the map of sockets by queue.
    pub sockets: i32,
    /// Longest frame that is redirected, bytes.
    pub longest: u32,
    /// True if fragmented frames are possible (Linux 5.18): they are passed to the system.
    pub frags: bool,
}

impl Redirect {
    /// The assembled program.
    pub fn assemble(&self) -> Vec<u64> {
        let mut code = Assembler::default();
        // r6: the context, r2: the frame, r3: its end.
        code.push(MOV, (6, 1), 0, 0);
        code.push(LOAD_WORD, (2, 6), DATA, 0);
        code.push(LOAD_WORD, (3, 6), DATA_END, 0);
        need(&mut code, 14 + 20 + 8);
        self.ethernet(&mut code);
        ipv4(&mut code);
        ipv6(&mut code);
        code.label("look up");
        code.push(MOV, (2, STACK), 0, 0);
        code.push(ADD_IMMEDIATE, (2, 0), 0, AT_KEY.into());
        code.load_map(1, self.local);
        code.push(CALL, (0, 0), 0, MAP_LOOKUP);
        code.jump(JUMP_IF_EQUAL, (0, 0), "pass");
        if self.frags {
            code.push(MOV, (1, 6), 0, 0);
            code.push(CALL, (0, 0), 0, BUFFER_LENGTH);
        } else {
            code.push(LOAD_WORD, (0, 6), DATA_END, 0);
            code.push(LOAD_WORD, (1, 6), DATA, 0);
            code.push(SUBTRACT, (0, 1), 0, 0);
        }
        code.jump_by(JUMP_IF_MORE_THAN, (0, 0), self.longest as i32, "pass");
        // To the socket of this queue; if there is none, to the system.
        code.load_map(1, self.sockets);
        code.push(LOAD_WORD, (2, 6), QUEUE, 0);
        code.push(MOV_IMMEDIATE, (3, 0), 0, PASS as i32);
        code.push(CALL, (0, 0), 0, REDIRECT_MAP);
        code.push(EXIT, (0, 0), 0, 0);
        code.label("pass");
        code.push(MOV_IMMEDIATE, (0, 0), 0, PASS as i32);
        code.push(EXIT, (0, 0), 0, 0);
        code.finish()
    }

    /// Continues for IP packets to the interface's address.
    fn ethernet(&self, code: &mut Assembler) {
        let [a, b, c, d, e, f] = self.mac;
        code.push(LOAD_WORD, (4, 2), 0, 0);
        code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), i32::from_ne_bytes([a, b, c, d]), "pass");
        code.push(LOAD_HALF, (4, 2), 4, 0);
        let rest = u16::from_ne_bytes([e, f]).into();
        code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), rest, "pass");
        code.push(LOAD_HALF, (4, 2), 12, 0);
        code.jump_by(JUMP_IF_EQUAL, (4, 0), network(0x86dd), "ipv6");
        code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), network(0x0800), "pass");
    }
}

/// Passes frames whose first fragment has less than `bytes` to the system.
fn need(code: &mut Assembler, bytes: i32) {
    code.push(MOV, (4, 2), 0, 0);
    code.push(ADD_IMMEDIATE, (4, 0), 0, bytes);
    code.jump(JUMP_IF_ABOVE, (4, 3), "pass");
}

fn ipv4(code: &mut Assembler) {
    // Version and length of the header, no fragment, UDP.
    code.push(LOAD_BYTE, (4, 2), 14, 0);
    code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), 0x45, "pass");
    code.push(LOAD_HALF, (4, 2), 20, 0);
    code.jump_by(JUMP_IF_ANY, (4, 0), network(0x3fff), "pass");
    code.push(LOAD_BYTE, (4, 2), 23, 0);
    code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), libc::IPPROTO_UDP, "pass");
    code.push(STORE_LONG_IMMEDIATE, (STACK, 0), AT_KEY, 0);
    let mapped = i32::from_ne_bytes([0, 0, 0xff, 0xff]);
    code.push(STORE_WORD_IMMEDIATE, (STACK, 0), AT_KEY + 8, mapped);
    code.push(LOAD_WORD, (4, 2), 30, 0);
    code.push(STORE_WORD, (STACK, 4), AT_KEY + 12, 0);
    code.push(LOAD_HALF, (4, 2), 36, 0);
    store_port(code);
    pass_incomplete(code, 26..34, 38);
    code.jump(JUMP, (0, 0), "look up");
}

fn ipv6(code: &mut Assembler) {
    code.label("ipv6");
    need(code, 14 + 40 + 8);
    code.push(LOAD_BYTE, (4, 2), 20, 0);
    code.jump_by(JUMP_IF_OTHER_WORD, (4, 0), libc::IPPROTO_UDP, "pass");
    for at in [0, 4, 8, 12] {
        code.push(LOAD_WORD, (4, 2), 38 + at, 0);
        code.push(STORE_WORD, (STACK, 4), AT_KEY + at, 0);
    }
    code.push(LOAD_HALF, (4, 2), 56, 0);
    store_port(code);
    pass_incomplete(code, 22..54, 58);
}

/// Passes packets whose checksum is the sum of the pseudo header alone to the system. The pseudo
/// header consists of the addresses, the protocol, and the length of UDP, after which the checksum
/// is stored.
fn pass_incomplete(code: &mut Assembler, addresses: Range<i16>, length: i16) {
    code.push(LOAD_HALF, (7, 2), length, 0);
    code.push(ADD_IMMEDIATE, (7, 0), 0, network(libc::IPPROTO_UDP as u16));
    for at in addresses.step_by(4) {
        code.push(LOAD_WORD, (8, 2), at, 0);
        code.push(ADD, (7, 8), 0, 0);
    }
    // Folds the 32-bit words to a sum of 16 bits (RFC 1071).
    for _ in 0..4 {
        code.push(MOV, (8, 7), 0, 0);
        code.push(RIGHT_SHIFT, (8, 0), 0, 16);
        code.push(AND_IMMEDIATE, (7, 0), 0, 0xffff);
        code.push(ADD, (7, 8), 0, 0);
    }
    code.push(LOAD_HALF, (8, 2), length + 2, 0);
    code.jump(JUMP_IF_SAME, (7, 8), "pass");
}

/// Stores the port in r4, and the padding after it.
fn store_port(code: &mut Assembler) {
    if cfg!(target_endian = "big") {
        code.push(LEFT_SHIFT, (4, 0), 0, 16);
    }
    code.push(STORE_WORD, (STACK, 4), AT_KEY + 16, 0);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use homa_bpf::{BpfMap, ProgramKind, load, test_run};

    const MAC: Mac = [2, 0, 0, 0xab, 0xcd, 0xef];

    /// A frame to an address and port.
    fn frame(to: IpAddr, port: u16, payload: usize) -> Vec<u8> {
        let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 9]].concat();
        let length = (8 + payload as u16).to_be_bytes();
        let udp = [[0x9c, 0x40], port.to_be_bytes(), length, [0x12, 0x34]].concat();
        match to {
            IpAddr::V4(to) => {
                frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 9]);
                frame.extend(to.octets());
            }
            IpAddr::V6(to) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
                frame.extend([9; 16]);
                frame.extend(to.octets());
            }
        }
        frame.extend(udp);
        frame.resize(frame.len() + payload, 7);
        frame
    }

    #[test]
    fn the_program_redirects_our_ports_and_passes_the_rest() {
        let tables = BpfMap::<KEY>::hash(c"homa_test", 8)
            .and_then(|local| Ok((local, BpfMap::<4>::sockets(c"homa_test", 1)?)));
        let Ok((local, sockets)) = tables else {
            return skip::test("root, or CAP_BPF and CAP_NET_ADMIN (bpf(2) is refused)");
        };
        let ours: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        ours.iter().for_each(|&ip| local.insert(&key(ip, 4000), 0).unwrap());
        for frags in [true, false] {
            let redirect = Redirect {
                mac: MAC,
                local: local.descriptor(),
                sockets: sockets.descriptor(),
                longest: 1514,
                frags,
            };
            let program =
                load(ProgramKind::Xdp { frags }, &redirect.assemble(), c"homa_test").unwrap();
            // A test has no socket, so a redirected frame gets the verdict for an empty entry,
            // which is PASS. Therefore the map is also tried with another verdict.
            let mut code = redirect.assemble();
            let verdict = code.len() - 5;
            code[verdict] = with_immediate(code[verdict], 1);
            let marked = load(ProgramKind::Xdp { frags }, &code, c"homa_test").unwrap();
            let takes = |frame: &[u8]| {
                let verdict = test_run(program.as_fd(), frame).unwrap().1;
                assert_eq!(verdict, PASS, "no socket is there");
                test_run(marked.as_fd(), frame).unwrap().1 == 1
            };
            for ip in ours {
                let frame = |port| frame(ip, port, 1400);
                assert!(takes(&frame(4000)), "{ip}");
                assert!(!takes(&frame(4001)), "the port of another");
                let mut left_to_a_card = frame(4000);
                let (addresses, length) = if ip.is_ipv4() { (26..34, 38) } else { (22..54, 58) };
                let sum = |bytes: &[u8]| -> u32 {
                    let word = |two: &[u8]| u32::from(u16::from_be_bytes([two[0], two[1]]));
                    bytes.chunks(2).map(word).sum()
                };
                let words =
                    sum(&left_to_a_card[addresses]) + sum(&left_to_a_card[length..length + 2]) + 17;
                let partial = ((words & 0xffff) + (words >> 16)) as u16;
                left_to_a_card[length + 2..length + 4].copy_from_slice(&partial.to_be_bytes());
                assert!(!takes(&left_to_a_card), "perhaps joined from several");
                // Changes each byte that decides.
                let deciding: &[usize] = match ip {
                    IpAddr::V4(_) => &[0, 3, 5, 12, 13, 14, 20, 21, 23, 30, 33, 36, 37],
                    IpAddr::V6(_) => &[0, 3, 5, 12, 13, 20, 38, 45, 53, 56, 57],
                };
                for &at in deciding {
                    let mut other = frame(4000);
                    other[at] ^= 0x21;
                    assert!(!takes(&other), "byte {at} of a frame to {ip}");
                }
            }
            assert!(!takes(&frame(ours[0], 4000, 1480)), "longer than a frame of the socket");
            assert!(takes(&frame(ours[0], 4000, 0)));
            assert!(!takes(&frame(ours[0], 4000, 0)[..41]), "cut off");
            assert!(!takes(&frame(ours[1], 4000, 0)[..61]), "cut off");
        }
    }

    /// An instruction with another immediate.
    fn with_immediate(instruction: u64, immediate: i32) -> u64 {
        let mut bytes = instruction.to_ne_bytes();
        bytes[4..].copy_from_slice(&immediate.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }
}

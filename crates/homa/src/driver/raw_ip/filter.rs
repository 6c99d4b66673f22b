//! The filter of a raw socket, as a program that the kernel runs on each packet (classic BPF).
//! Without it, a raw socket would receive every packet of its protocol that reaches the host.
//!
//! The offsets are those of the Homa header (Linux `homa_wire.h`, branch main), which has the form
//! of a TCP header.

/// Most ports that one program can check, because jumps are limited to 255 instructions.
const PORTS_MAX: usize = 200;

/// SYN and RST, which TCP never combines: the first mark of a TCP-hijacked packet.
pub const HIJACK_FLAGS: u8 = 0x06;
/// The second mark.
pub const HIJACK_URGENT: u16 = 0xb97d;
/// A server asks whether its response arrived (Linux NEED_ACK).
pub const NEED_ACK: u8 = 0x17;
/// Offsets of the marks, the ports, and the type.
pub const AT_DESTINATION: usize = 2;
pub const AT_TYPE: usize = 11;
pub const AT_FLAGS: usize = 13;
pub const AT_URGENT: usize = 18;

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// A program that accepts nothing.
pub fn nothing() -> Vec<libc::sock_filter> {
    vec![instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0)]
}

/// A program that accepts packets to `ports`, and NEED_ACK to any port, because its process may be
/// gone. With `hijacked`, it accepts only TCP packets with both marks. IPv4 sockets see the IP
/// header (`v4`), IPv6 sockets do not. `None` if there are more ports than a program can check.
pub fn program(v4: bool, hijacked: bool, ports: &[u16]) -> Option<Vec<libc::sock_filter>> {
    if ports.len() > PORTS_MAX {
        return None;
    }
    // X: where the Homa header begins.
    let mut code = vec![match v4 {
        true => instruction(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        false => instruction(libc::BPF_LDX | libc::BPF_IMM, 0, 0, 0),
    }];
    let load = |size, at: usize| instruction(libc::BPF_LD | size | libc::BPF_IND, 0, 0, at as u32);
    let is =
        |value, jt, jf| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value);
    let count = ports.len() as u8;
    if hijacked {
        // A jump counts instructions after the next one; the refusal follows the last port.
        code.push(load(libc::BPF_B, AT_FLAGS));
        code.push(is(HIJACK_FLAGS.into(), 0, count + 5));
        code.push(load(libc::BPF_H, AT_URGENT));
        code.push(is(HIJACK_URGENT.into(), 0, count + 3));
    }
    code.push(load(libc::BPF_B, AT_TYPE));
    code.push(is(NEED_ACK.into(), count + 2, 0));
    code.push(load(libc::BPF_H, AT_DESTINATION));
    for (index, &port) in ports.iter().enumerate() {
        code.push(is(port.into(), count - index as u8, 0));
    }
    let result = |bytes| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, bytes);
    code.push(result(0));
    code.push(result(u32::MAX));
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does; true if it accepts the packet.
    fn accepts(code: &[libc::sock_filter], packet: &[u8]) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0);
        loop {
            let i = &code[at];
            at += 1;
            let k = i.k as usize;
            match u32::from(i.code) {
                c if c == libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH => {
                    x = u32::from(packet[k] & 15) * 4;
                }
                c if c == libc::BPF_LDX | libc::BPF_IMM => x = i.k,
                c if c == libc::BPF_LD | libc::BPF_B | libc::BPF_IND => {
                    let Some(&byte) = packet.get(x as usize + k) else { return false };
                    a = byte.into();
                }
                c if c == libc::BPF_LD | libc::BPF_H | libc::BPF_IND => {
                    let from = x as usize + k;
                    let Some(two) = packet.get(from..from + 2) else { return false };
                    a = u16::from_be_bytes([two[0], two[1]]).into();
                }
                c if c == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if a == i.k { i.jt } else { i.jf });
                }
                c if c == libc::BPF_RET | libc::BPF_K => return i.k > 0,
                other => panic!("unexpected instruction {other:#x}"),
            }
        }
    }

    fn packet(v4: bool, port: u16, flags: u8, urgent: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[2..4].copy_from_slice(&port.to_be_bytes());
        packet[13] = flags;
        packet[18..20].copy_from_slice(&urgent.to_be_bytes());
        let header = if v4 { vec![0x46; 24] } else { Vec::new() };
        [header, packet].concat()
    }

    #[test]
    fn a_server_that_asks_for_an_ack_is_heard_at_any_port() {
        for (v4, ports) in [(true, vec![4000, 4001]), (false, Vec::new())] {
            let plain = program(v4, false, &ports).unwrap();
            let tcp = program(v4, true, &ports).unwrap();
            let mut asks = packet(v4, 50_000, 6, 0xb97d);
            assert!(!accepts(&plain, &asks) && !accepts(&tcp, &asks));
            let header = asks.len() - 28;
            asks[header + AT_TYPE] = NEED_ACK;
            assert!(accepts(&plain, &asks) && accepts(&tcp, &asks));
            asks[header + AT_FLAGS] = 2;
            assert!(accepts(&plain, &asks) && !accepts(&tcp, &asks), "TCP of others");
        }
    }

    #[test]
    fn only_our_ports_pass_and_tcp_only_with_both_marks() {
        let ports: Vec<u16> = (4000..4000 + PORTS_MAX as u16).collect();
        for v4 in [true, false] {
            let plain = program(v4, false, &ports).unwrap();
            let tcp = program(v4, true, &ports).unwrap();
            for (port, ours) in [(3999, false), (4000, true), (4199, true), (4200, false)] {
                assert_eq!(accepts(&plain, &packet(v4, port, 0, 0)), ours, "{port}");
                assert_eq!(accepts(&tcp, &packet(v4, port, 6, 0xb97d)), ours, "{port}");
                for (flags, urgent) in [(2, 0xb97d), (4, 0xb97d), (6, 0), (0x0e, 0xb97d)] {
                    assert!(!accepts(&tcp, &packet(v4, port, flags, urgent)), "{flags} {urgent}");
                }
            }
            let whole = packet(v4, 4000, 6, 0xb97d);
            assert!(!accepts(&tcp, &whole[..whole.len() - 10]), "cut before the second mark");
        }
        assert!(program(true, true, &[1; 201]).is_none());
    }
}

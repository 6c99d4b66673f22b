//! Steering: which of several sockets at one address receives a datagram. It is always the same one
//! for a sender.
//!
//! The kernel runs a classic BPF program on each datagram for the group (SO_REUSEPORT), which needs
//! no privilege. It hashes the sender's address and UDP port. [`Steering::shard_of`] computes the
//! same hash, to find the socket that will receive the datagrams of a peer that we are about to
//! call. The hash has a secret factor, so attackers cannot find senders that share a socket.
//!
//! The kernel does not always follow the program. It does not find the port behind IPv6 extension
//! headers, which no engine sends. If a socket of the group is closed, the last one takes over its
//! number, and if the program returns a number that is not in use, the kernel uses another hash. A
//! process of the same user may join the group or replace its program. Therefore each driver drops
//! and counts datagrams for which [`Steering::shard_of`] returns another number.
//!
//! Network reports (ICMP) are not steered: see [`super::member`].

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// Offsets from here on are relative to the network header (`linux/filter.h`).
const NETWORK: u32 = 0xfff0_0000;
/// Next header of IPv6: UDP.
const UDP: u32 = 17;
/// Factors and shifts of the last step, which makes every bit of the result depend on every bit of
/// the sum (MurmurHash3's finalizer).
const LAST: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];
const SHIFTS: [u32; 3] = [16, 13, 16];

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    factor: u32,
    shards: u32,
}

impl Steering {
    /// Steering to `shards` sockets; `secret` must not be shared.
    pub fn new(shards: u16, secret: u64) -> Self {
        // An odd factor is invertible.
        Self { factor: (secret >> 32) as u32 | 1, shards: shards.max(1).into() }
    }

    /// The number of sockets.
    pub fn shards(&self) -> usize {
        self.shards as usize
    }

    /// The socket that receives the datagrams of a sender.
    pub fn shard_of(&self, peer: SocketAddr) -> usize {
        let sum = |words: &[u8]| {
            let (words, _) = words.as_chunks::<4>();
            let add = |sum: u32, word: &[u8; 4]| {
                sum.wrapping_mul(self.factor).wrapping_add(u32::from_be_bytes(*word))
            };
            words.iter().fold(0, add)
        };
        let address = match peer.ip().to_canonical() {
            IpAddr::V4(ip) => sum(&ip.octets()),
            IpAddr::V6(ip) => sum(&ip.octets()),
        };
        let mut hash = address.wrapping_mul(self.factor).wrapping_add(peer.port().into());
        hash = hash.wrapping_mul(self.factor);
        for (shift, factor) in SHIFTS.into_iter().zip(LAST) {
            hash = (hash ^ hash >> shift).wrapping_mul(factor);
        }
        (hash ^ hash >> SHIFTS[2]) as usize % self.shards()
    }

    /// The same as a program, whose result is the number of a socket.
    fn program(&self) -> Vec<libc::sock_filter> {
        use libc::{
            BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA,
            BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM, BPF_MISC, BPF_MOD, BPF_MUL,
            BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_X, BPF_XOR,
        };
        let plain = |code, k| instruction(code, 0, 0, k);
        let load = |size, at: u32| plain(BPF_LD | size | BPF_ABS, NETWORK + at);
        let with = |operation, k| plain(BPF_ALU | operation | BPF_K, k);
        let with_x = |operation| plain(BPF_ALU | operation | BPF_X, 0);
        let to_x = plain(BPF_MISC | BPF_TAX, 0);
        let is = |value, no| instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, no, value);
        let keep_port = plain(BPF_ST, 0);
        let times = with(BPF_MUL, self.factor);

        // The port is behind the IPv4 header, whose length is in the header.
        let v4 = [
            load(BPF_B, 0),
            with(BPF_AND, 15),
            with(BPF_LSH, 2),
            to_x,
            plain(BPF_LD | BPF_H | BPF_IND, NETWORK),
            keep_port,
            load(BPF_W, 12),
        ];
        let mut v6 = vec![
            load(BPF_B, 6),
            is(UDP, 2),
            load(BPF_H, 40),
            plain(BPF_JMP | BPF_JA, 1),
            plain(BPF_LD | BPF_IMM, 0),
            keep_port,
            load(BPF_W, 8),
        ];
        for at in [12, 16, 20] {
            v6.extend([times, to_x, load(BPF_W, at), with_x(BPF_ADD)]);
        }
        let mut code = vec![load(BPF_B, 0), with(BPF_AND, 0xf0), is(0x40, v4.len() as u8 + 1)];
        code.extend(v4);
        code.push(plain(BPF_JMP | BPF_JA, v6.len() as u32));
        code.extend(v6);
        code.extend([times, plain(BPF_LDX | BPF_MEM, 0), with_x(BPF_ADD), times]);
        let mix = |shift| [to_x, with(BPF_RSH, shift), with_x(BPF_XOR)];
        for (shift, factor) in SHIFTS.into_iter().zip(LAST) {
            code.extend(mix(shift));
            code.push(with(BPF_MUL, factor));
        }
        code.extend(mix(SHIFTS[2]));
        code.extend([with(BPF_MOD, self.shards), plain(BPF_RET | BPF_A, 0)]);
        code
    }

    /// Attaches the program to the complete group of `socket`.
    pub fn attach(&self, socket: RawFd) -> io::Result<()> {
        attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, self.program())
    }
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Makes a socket receive nothing until [`open_up`].
pub fn shut(socket: RawFd) -> io::Result<()> {
    let nothing = vec![instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0)];
    attach(socket, libc::SO_ATTACH_FILTER, nothing)
}

/// Reverts [`shut`].
pub fn open_up(socket: RawFd) -> io::Result<()> {
    super::socket::set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

fn attach(socket: RawFd, option: i32, mut code: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the pointer is to a program header whose size is passed and whose array has the
    // length it says; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::super::socket::open_group;
    use super::*;
    use crate::driver::wait;

    /// The socket of a group that receives a sender's datagram to `to`.
    fn receiver(group: &[UdpSocket], from: &UdpSocket, to: SocketAddr) -> usize {
        from.send_to(b"hello", to).unwrap();
        let handles: Vec<_> = group.iter().map(AsRawFd::as_raw_fd).collect();
        wait(&handles, None, None).unwrap();
        let mut bytes = [0; 8];
        let got = |socket: &UdpSocket| socket.recv(&mut bytes).is_ok();
        group.iter().position(got).unwrap()
    }

    #[test]
    fn the_kernel_chooses_the_socket_that_the_hash_says() {
        for (at, to, from) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("::1", "::1", "::1"),
            ("::", "::1", "::1"),
            ("::", "127.0.0.1", "127.0.0.3"),
            ("::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ] {
            let [at, to, from] = [at, to, from].map(|ip| ip.parse::<IpAddr>().unwrap());
            for shards in [2, 3, 8] {
                let steering = Steering::new(shards, 0x0123_4567_89ab_cdef * u64::from(shards));
                let at = SocketAddr::new(at.to_canonical(), 0);
                let group = open_group(at, 1 << 16, &steering).unwrap();
                let to = SocketAddr::new(to, group[0].local_addr().unwrap().port());
                let mut counts = vec![0; shards.into()];
                for _ in 0..100 {
                    let sender = UdpSocket::bind((from, 0)).unwrap();
                    let shard = steering.shard_of(sender.local_addr().unwrap());
                    for _ in 0..2 {
                        assert_eq!(receiver(&group, &sender, to), shard, "{from} to {to}");
                    }
                    counts[shard] += 1;
                }
                assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
            }
        }
    }

    #[test]
    fn peers_of_one_host_and_hosts_of_one_port_spread() {
        for secret in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let steering = Steering::new(16, secret);
            let ports = |port: u16| SocketAddr::from(([10, 0, 0, 1], 30_000 + port));
            let v4 = |n: u16| SocketAddr::from(([10, 0, n.to_be_bytes()[0], n as u8], 4000));
            let v6 = |n| SocketAddr::from(([0xfd00, 0, 0, n, 0, 0, 0, 1], 4000));
            for peers in [&ports as &dyn Fn(u16) -> SocketAddr, &v4, &v6] {
                let mut counts = [0; 16];
                (0..1600).for_each(|n| counts[steering.shard_of(peers(n))] += 1);
                assert!(counts.iter().all(|count| (50..200).contains(count)), "{counts:?}");
            }
            let mapped = "[::ffff:10.0.0.1]:4000".parse().unwrap();
            let plain = "10.0.0.1:4000".parse().unwrap();
            assert_eq!(steering.shard_of(mapped), steering.shard_of(plain));
        }
    }

    #[test]
    fn no_engine_joins_and_a_socket_of_this_user_receives_nothing() {
        let steering = Steering::new(2, 7);
        let group = open_group("127.0.0.1:0".parse().unwrap(), 1 << 16, &steering).unwrap();
        let at = group[0].local_addr().unwrap();
        assert!(UdpSocket::bind(at).is_err() && open_group(at, 1 << 16, &steering).is_err());
        // A program of this user that asks the system to share may join. (It could also replace the
        // steering program, or bind a more specific address.)
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
        let joined = socket.unwrap();
        joined.set_reuse_port(true).unwrap();
        joined.set_nonblocking(true).unwrap();
        joined.bind(&at.into()).unwrap();
        for _ in 0..50 {
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            receiver(&group, &sender, at);
        }
        let nothing = UdpSocket::from(joined).recv(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}

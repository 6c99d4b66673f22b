//! Hosts as an attacker has them: a socket, and packets that it writes itself.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use homa::proto::wire::datagram;
use homa::proto::{Acks, Body, Data, MessageId, Packet, PeerId, RpcId, Span};

/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// What one host sent and got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes {
    /// In datagrams.
    pub payload: usize,
    /// In IP packets.
    pub wire: usize,
}

impl Bytes {
    fn count(&mut self, datagram: usize) {
        self.payload += datagram;
        self.wire += datagram + HEADERS;
    }

    /// Three times as many of either kind cover `got`.
    pub fn cover(&self, got: &Self) -> bool {
        got.payload <= 3 * self.payload && got.wire <= 3 * self.wire
    }
}

/// A host.
pub struct Host {
    socket: UdpSocket,
    pub sent: Bytes,
    pub got: Bytes,
}

impl Host {
    /// A host that is not there but for sending to `server`.
    pub fn new(server: SocketAddr) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, server)
    }

    /// The same at an address of loopback.
    pub fn at(ip: Ipv4Addr, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(IpAddr::V4(ip), 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, sent: Bytes::default(), got: Bytes::default() }
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.socket.local_addr().unwrap().ip()
    }

    /// Sends a datagram; what the socket has no room for is lost.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.socket.send(bytes).is_ok() {
            self.sent.count(bytes.len());
        }
    }

    /// Reads what lies in its socket.
    pub fn read(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 65_536];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    self.got.count(len);
                    all.push(buffer[..len].to_vec());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
                Err(_) => {}
            }
        }
    }

    /// Reads the packets that lie in its socket, and confirms what is to be confirmed, as every
    /// client does.
    pub fn answer(&mut self) -> Vec<Packet> {
        let datagrams = self.read();
        let packets: Vec<Packet> = datagrams.iter().flat_map(|bytes| packets(bytes)).collect();
        for packet in &packets {
            if let Body::NeedAck | Body::Challenge { .. } = packet.body {
                self.send(&control(packet.id.client(), Body::Ack(Acks::default())));
            }
        }
        packets
    }
}

/// The packets of a datagram.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    let datagram = datagram::decode(bytes).unwrap();
    datagram.packets(PeerId(0), 0).map(|decoded| decoded.unwrap().packet).collect()
}

/// A packet about RPC `id` as any host could write it.
pub fn control(id: RpcId, body: Body) -> Vec<u8> {
    let packet = Packet { peer: PeerId(0), priority: 0, local_port: 1, remote_port: 2, id, body };
    let mut bytes = vec![0; 200];
    let len = datagram::encode(&packet, 1, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// A part of a request, or of a response.
pub fn part(id: u64, offset: u32, payload: &[u8], total: u32) -> Vec<u8> {
    let span = Span { message: MessageId(0), offset, len: payload.len() as u32 };
    let data = Data {
        span,
        message_length: total,
        incoming: total.min(60_000),
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        incast: None,
    };
    let body = Body::Data(data);
    let packet =
        Packet { peer: PeerId(0), priority: 0, local_port: 1, remote_port: 2, id: RpcId(id), body };
    let mut bytes = vec![0; 200];
    let len = datagram::encode(&packet, 1, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes
}

/// The first packet of a request of `total` bytes, with `len` of them.
pub fn first(id: u64, len: usize, total: u32) -> Vec<u8> {
    part(id, 0, &vec![7; len], total)
}

//! Hosts of an attacker: a socket, and packets that the attacker writes itself.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use homa::proto::wire::datagram;
use homa::proto::{Acks, Body, Data, MessageId, Packet, PeerId, RpcId, Span};

/// The length of IPv4 and UDP headers.
const HEADERS: usize = 28;

/// The bytes that one host sent or received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes {
    /// Bytes in datagrams.
    pub payload: usize,
    /// Bytes in IP packets.
    pub wire: usize,
}

impl Bytes {
    fn count(&mut self, datagram: usize) {
        self.payload += datagram;
        self.wire += datagram + HEADERS;
    }

    /// True if three times these bytes cover `got`, in datagrams and in IP packets.
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
    /// Creates a host that sends to `server`, at a new loopback address.
    pub fn new(server: SocketAddr) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, server)
    }

    /// Creates a host at a given loopback address.
    pub fn at(ip: Ipv4Addr, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(IpAddr::V4(ip), 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, sent: Bytes::default(), got: Bytes::default() }
    }

    /// Returns its address.
    pub fn ip(&self) -> IpAddr {
        self.socket.local_addr().unwrap().ip()
    }

    /// Sends a datagram. The datagram is lost if the socket's buffer is full.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.socket.send(bytes).is_ok() {
            self.sent.count(bytes.len());
        }
    }

    /// Returns the datagrams in its socket.
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

    /// Returns the packets in its socket, and confirms the challenges among them, as every client
    /// does.
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

/// Returns the packets of a datagram.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    let datagram = datagram::decode(bytes).unwrap();
    datagram.packets(PeerId(0), 0).map(|decoded| decoded.unwrap().packet).collect()
}

/// Builds a control packet about RPC `id`, as any host could.
pub fn control(id: RpcId, body: Body) -> Vec<u8> {
    let packet = Packet { peer: PeerId(0), priority: 0, local_port: 1, remote_port: 2, id, body };
    let mut bytes = vec![0; 200];
    let len = datagram::encode(&packet, 1, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Builds a packet with a part of a request or of a response.
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

/// Builds the first packet of a request of `total` bytes. It carries `len` of them.
pub fn first(id: u64, len: usize, total: u32) -> Vec<u8> {
    part(id, 0, &vec![7; len], total)
}

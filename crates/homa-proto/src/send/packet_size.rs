//! The packet size of the path to a peer, which may change while messages are in progress (RFC 8899
//! §3: the packetization layer segments by the path's MTU). Finding the size out is left to the
//! environment.

use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::{PeerId, RpcId};
use crate::rpc::{Rpc, RpcState};
use crate::units::Time;
use alloc::vec::Vec;

impl Endpoint {
    /// Sets how many message bytes fit in one packet to a peer from now on. Messages in progress
    /// continue in packets of that size, and so do retransmissions.
    pub fn set_max_payload(&mut self, peer: PeerId, max_payload: u32) {
        if let Some(peer) = self.peer_mut(peer) {
            peer.set_max_payload(max_payload);
        }
    }

    /// Environment in: large packets to the peer were lost lately, so new ones should be shorter.
    /// Requests start over, under their ids, if the peer has sent nothing about them: if the server
    /// were asked about one that it has nothing of, the call might end as
    /// [`RpcError::Indeterminate`](crate::RpcError::Indeterminate), because the server cannot say
    /// that it was never executed. Missing bytes of other messages will be asked for.
    pub fn restart_unanswered(&mut self, now: Time, peer: PeerId) {
        self.begin(now);
        let Some(known) = self.peer(peer) else { return };
        let (payload, count) = (known.info.max_payload, known.rpcs() as usize);
        // A peer without RPCs costs no search: `take` ends it at once.
        let of_peer = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer).take(count);
        let unanswered = |rpc: &Rpc| {
            // A message that fits in one shorter packet lost nothing to its size.
            let sent = rpc.out.length > payload && rpc.out.sent > 0;
            rpc.state == RpcState::ClientOutgoing && !rpc.is_seen_by_peer() && sent
        };
        let unanswered: Vec<RpcHandle> =
            of_peer.filter(|(_, rpc)| unanswered(rpc)).map(|(handle, _)| handle).collect();
        unanswered.into_iter().for_each(|handle| self.restart_request(handle));
    }

    /// True while the RPC that a packet of ours or of the peer names is in progress with it.
    pub fn is_in_progress(&self, peer: PeerId, id: RpcId) -> bool {
        self.find_client(peer, id).or_else(|| self.find_server(peer, id.client())).is_some()
    }

    /// RPCs in progress with a peer.
    pub fn rpcs_with(&self, peer: PeerId) -> u32 {
        self.peer(peer).map_or(0, |peer| peer.rpcs())
    }

    /// RPCs in progress with a peer that we began, and that it began.
    pub fn rpcs_by_side(&self, peer: PeerId) -> (u32, u32) {
        let known = self.peer(peer);
        known.map_or((0, 0), |peer| (peer.rpcs() - peer.served(), peer.served()))
    }

    /// When any packet of a peer last arrived; [`Time::ZERO`]: never.
    pub fn last_heard(&self, peer: PeerId) -> Time {
        self.peer(peer).map_or(Time::ZERO, |peer| peer.loss.last_heard())
    }

    /// The ports, ours and the peer's, of any RPC in progress with the peer.
    pub fn ports_to(&self, peer: PeerId) -> Option<(u16, u16)> {
        self.peer(peer).filter(|peer| peer.rpcs() > 0)?;
        let (_, rpc) = self.rpcs.iter().find(|(_, rpc)| rpc.peer == peer)?;
        Some(rpc.ports())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::event::{Event, Request, Submit};
    use crate::packet::{Body, Packet};
    use crate::peer::PeerInfo;
    use crate::units::{Duration, Rate};

    const PEER: PeerId = PeerId(0);
    const LENGTH: u32 = 100_000;

    fn endpoint(config: Config) -> Endpoint {
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        endpoint.open_peer(PEER, PeerInfo { host: 1, max_payload: 1_400 });
        endpoint.listen(4_000);
        endpoint.expire(Time::ZERO);
        endpoint
    }

    /// The packet as the other end receives it.
    fn arrive(packet: Packet) -> Packet {
        let (local_port, remote_port) = (packet.remote_port, packet.local_port);
        Packet { local_port, remote_port, ..packet }
    }

    #[test]
    fn packet_sizes_may_change_while_a_message_arrives() {
        for config in [Config::for_users(Rate::gbps(10)), Config::linux()] {
            let (mut client, mut server) = (endpoint(config.clone()), endpoint(config));
            let request = Request {
                peer: PEER,
                local_port: 9,
                remote_port: 4_000,
                length: LENGTH,
                deadline: Time::ZERO + Duration::secs(1_000),
                idempotent: false,
                head: 0,
                cookie: 0,
            };
            client.submit(Time::ZERO, Submit::Request(request)).unwrap();
            let (mut now, mut sent, mut delivered) = (Time::ZERO, 0u32, false);
            while !delivered {
                now += Duration::micros(100);
                assert!(now < Time::ZERO + Duration::secs(20), "{:?}", server.counters());
                // After the first packets, those of up to 1,100 bytes arrive, except every third.
                let size = [1_400, 1_100, 476, 1_000][(now.0 / 3_000_000 % 4) as usize];
                client.set_max_payload(PEER, size);
                for _ in 0..4 {
                    let Some(packet) = client.transmit(now) else { break };
                    let mut lost = false;
                    if let Body::Data(data) = packet.body {
                        assert!(data.span.len <= size, "{} of {size}", data.span.len);
                        sent += 1;
                        lost = sent.is_multiple_of(3) || data.span.len > 1_100 && sent > 10;
                    }
                    if !lost {
                        let _ = server.receive(now, &arrive(packet));
                    }
                }
                while let Some(packet) = server.transmit(now) {
                    let _ = client.receive(now, &arrive(packet));
                }
                client.expire(now);
                server.expire(now);
                while client.event().is_some() {}
                while let Some(event) = server.event() {
                    delivered |= matches!(event, Event::Delivered(_));
                }
            }
        }
    }
}

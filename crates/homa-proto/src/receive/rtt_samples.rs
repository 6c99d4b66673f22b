//! Samples of RTTbytes: from a GRANT of ours to the first byte that it allowed, and from the first
//! packet of a message of ours to its first GRANT.

use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::link::LinkInfo;
use crate::packet::PeerId;
use crate::units::{Duration, Time};

impl Endpoint {
    /// The first bytes that a GRANT allowed arrived: takes a sample.
    pub(crate) fn sample_rtt(&mut self, now: Time, handle: RpcHandle, offset: u32) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let peer = rpc.peer;
        let Some(inc) = &mut rpc.inc else { return };
        // Earlier bytes were allowed by an earlier GRANT.
        let Some(probe) = inc.probe.filter(|probe| offset >= probe.from) else { return };
        inc.probe = None;
        if self.config.measure_rtt_bytes {
            self.note_rtt(now, peer, now.since(probe.sent), probe.ahead);
        }
    }

    /// A GRANT for a message of ours arrived: takes a sample.
    pub(crate) fn sample_rtt_as_sender(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle).filter(|_| self.config.measure_rtt_bytes) else {
            return;
        };
        let (peer, age) = (rpc.peer, rpc.out.age);
        let Some(begun) = self.peer_mut(peer).and_then(|p| p.cold.rtt.answered(age)) else {
            return;
        };
        self.note_rtt(now, peer, now.since(begun), 0);
    }

    fn note_rtt(&mut self, now: Time, peer: PeerId, delay: Duration, ahead: u64) {
        let LinkInfo { rate, rtt_bytes_max: max } = self.link_of(peer).info;
        if let Some(peer) = self.peer_mut(peer) {
            match rate {
                Some(rate) => peer.cold.rtt.sample(now, delay, ahead, rate, max),
                None => peer.cold.rtt.sample_of_unknown(now, delay, ahead, max),
            }
            peer.update_rtt_bytes();
        }
    }
}

//! Prefetching, for an environment with thousands of endpoints such as a simulator. There every
//! input is a sequence of reads, and each read waits for memory and for the one before. If the
//! environment knows several inputs in advance, it has their reads done together.
//!
//! Invariants: no effect. A step needs what the step before has read, and its own reads do not
//! depend on each other. A wrong guess (for example of the next message to send) costs a useless
//! read.
//!
//! Left out: what only whole messages, timers and losses read.

use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::Packet;
use crate::send::control::Control;

impl Endpoint {
    /// Steps of [`Endpoint::prefetch`], to be taken one after the other.
    pub const PREFETCH_STEPS: u32 = 4;

    /// Reads what `receive` of a packet will read, or `transmit` if there is no packet. The result
    /// means nothing; it keeps the compiler from removing the reads.
    #[inline]
    pub fn prefetch(&self, step: u32, packet: Option<&Packet>) -> u64 {
        match step {
            0 => self.prefetch_endpoint(),
            1 => self.prefetch_queues(packet),
            2 => self.prefetch_rpc(packet),
            _ => self.prefetch_incoming(packet),
        }
    }

    /// The lines of the endpoint itself that nearly every input touches.
    #[inline]
    fn prefetch_endpoint(&self) -> u64 {
        let queues = self.events.len() ^ self.control.len();
        let tables = self.peers.len() ^ self.rpcs.servers() ^ self.rpcs.clients();
        let counts = self.counters.data_sent ^ self.counters.data_received;
        let settings = u64::from(self.config.rtt_bytes) ^ u64::from(self.levels.top());
        let times = self.now.0 ^ self.timers.deadline().map_or(0, |at| at.0);
        let sender = u64::from(self.send_queue.has_packet());
        (queues ^ tables) as u64 ^ self.grants.touch() ^ counts ^ settings ^ times ^ sender
    }

    /// The first entries of tables and queues.
    #[inline]
    fn prefetch_queues(&self, packet: Option<&Packet>) -> u64 {
        let due = self.grants.next_due().map_or(0, |at| at.0);
        let about = self.guess(packet);
        due ^ u64::from(self.next_to_send().index ^ about.index)
    }

    /// The RPC that the packet is about or that sends next, and the rest of the packet's peer.
    #[inline]
    fn prefetch_rpc(&self, packet: Option<&Packet>) -> u64 {
        let rpc = self.rpcs.get(self.guess(packet));
        let peer = packet.and_then(|packet| self.peer(packet.peer));
        rpc.map_or(0, |rpc| rpc.id.0 ^ rpc.loss.last_heard().0 ^ rpc.request_sent().0)
            ^ peer.map_or(0, |peer| peer.cold.grants.memory())
    }

    /// The message that it receives, and its peer.
    #[inline]
    fn prefetch_incoming(&self, packet: Option<&Packet>) -> u64 {
        let Some(rpc) = self.rpcs.get(self.guess(packet)) else { return 0 };
        let peer = self.peer(rpc.peer).map_or(0, |peer| peer.rtt_bytes());
        let inc = rpc.inc.as_ref().map_or(0, |inc| inc.bytes.length() ^ inc.readable());
        u64::from(peer ^ inc)
    }

    /// The RPC that probably sends the next packet.
    #[inline]
    fn next_to_send(&self) -> RpcHandle {
        match self.control.front() {
            Some(Control::Grant(handle)) => *handle,
            Some(_) => RpcHandle::NONE,
            None => self.send_queue.first().unwrap_or(RpcHandle::NONE),
        }
    }

    /// The RPC that a packet is probably about; without a packet, the one that sends.
    #[inline]
    fn guess(&self, packet: Option<&Packet>) -> RpcHandle {
        match packet {
            None => self.next_to_send(),
            Some(packet) if packet.id.from_server() => self.rpcs.guess_client(packet.id),
            Some(packet) => {
                self.peer(packet.peer).map_or(RpcHandle::NONE, |peer| peer.recent_rpc())
            }
        }
    }
}

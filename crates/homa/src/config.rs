//! What an engine can be told: limits, pacing, priorities, and the protocol's own parameters.

use std::time::Duration;

use homa_proto::wire::datagram::TraceContext;
use homa_proto::{GrantWindow, Rate, ValidConfig};

use crate::PriorityMap;
use crate::driver::{ETHERNET_MTU, Encapsulation};
use crate::error::OpenError;

/// Parameters of an engine. Start from [`Config::default`] and change fields, which have methods of
/// their names for that.
///
/// ```
/// let config = homa::Config::default();
/// let protocol = config.protocol.clone().readable_events(true);
/// let config = config.protocol(protocol).mtu(9000).send_memory(64 << 20);
/// let config = config.link_rate(homa::proto::Rate::gbps(10));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The protocol's parameters. `levels` follows `priority_map`, `receive_buffer` is what the
    /// kernel granted, and `seed` is drawn at random unless `seed` below is set. Default:
    /// [`homa_proto::Config::for_users`] with windows for any link. Its `link_rate` is `None`: what
    /// the route to each peer says ([`crate::egress`]); where that is unknown, as in many virtual
    /// machines, windows and timeouts are measured. `memory_budget` is for messages on their way
    /// here and requests that nobody accepted; responses that are here and that nobody took come on
    /// top, at most `max_message` for each call in progress.
    pub protocol: homa_proto::Config,
    /// How levels travel in the IP header. Default: six levels, CS0 to CS5.
    pub priority_map: PriorityMap,
    /// Rate of the link below, for the pacer and the protocol: one link for all peers. `None`
    /// (default): of the interface that the kernel's route to each peer takes, and where nobody
    /// knows it, by what is still queued. Set it where the kernel cannot know, as on a tunnel or
    /// TAP device.
    pub link_rate: Option<Rate>,
    /// Largest IP packet to send, bytes; at least 576. `None` (default): what the route to each
    /// peer takes, up to jumbo frames of 9000 bytes, or, where frames are taken from interfaces
    /// ([`Engine::xdp`](crate::Engine::xdp)), up to what one of those holds. Packets begin with at
    /// most 1500 bytes. Larger ones are sent once the peer has answered one of their size, which
    /// is tried with the first long message to it, and smaller ones as soon as the path takes no
    /// more (RFC 8899): nobody has to know what the path takes. A short message may wait for one
    /// packet in front of it, at 1 Gbit/s 72 µs for one of 9000 bytes and 12 µs for one of 1500.
    pub mtu: Option<u16>,
    /// Receive queue to ask the kernel for, bytes. Default 4 MiB; the kernel grants at most
    /// `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// Bytes of outgoing messages held at a time (kept until acknowledged); calls and replies
    /// beyond are refused. Default 1 GiB.
    pub send_memory: u64,
    /// How long a thread that blocks for a response or request looks for it before it sleeps, as
    /// long as that succeeds often enough to pay: falling asleep and waking up take longer. Default
    /// 50 µs; zero never spins. Unless it is zero, threads of shared engines also spin through
    /// waits of up to 100 µs for room on the link: a sleep ends some 50 µs late (the system's timer
    /// slack), four packets of a link of 1 Gbit/s. Callers of inline engines choose how they wait.
    pub spin: Duration,
    /// Most peers remembered at a time; idle ones make room. With them it is forgotten which of
    /// their requests were executed here: a copy that the network delivers after that is executed
    /// again. Default 65,536.
    pub max_peers: u32,
    /// Seeds the first RPC id. `None` (default): random. Two engines that talk to the same servers
    /// from the same address and port one after the other must not share a seed. Each of a group
    /// ([`Engine::sharded`](crate::Engine::sharded)) makes its own of this.
    pub seed: Option<u64>,
}

homa_proto::setters!(Config {
    protocol: homa_proto::Config,
    priority_map: PriorityMap,
    link_rate: impl Into<Option<Rate>>,
    mtu: impl Into<Option<u16>>,
    receive_buffer: usize,
    send_memory: u64,
    spin: Duration,
    max_peers: u32,
    seed: impl Into<Option<u64>>,
});

/// What the protocol is told of loopback, which has no rate: windows as large as any.
pub(crate) const LOOPBACK: Rate = Rate::gbps(100);

/// Most RTTbytes in time: a kernel takes up to this long to turn a grant into data, and windows
/// have to last.
const RTT_MAX: homa_proto::Duration = homa_proto::Duration::micros(40);
/// Most RTTbytes on a link of a gigabit or so, and whatever the link, bytes: more would only fill
/// the buffers of switches.
const RTT_BYTES_SLOW: u32 = 60_000;
const RTT_BYTES_MAX: u32 = 240_000;

/// Most RTTbytes on a link of the given rate, bytes; where that is unknown they are measured.
pub(crate) fn rtt_bytes_max(link: Option<Rate>) -> u32 {
    let window = link.map_or(u64::MAX, |rate| rate.bytes_in(RTT_MAX));
    window.clamp(RTT_BYTES_SLOW.into(), RTT_BYTES_MAX.into()) as u32
}

/// The users' profile, with windows for any link.
fn users() -> homa_proto::Config {
    let mut protocol = homa_proto::Config::for_users(None);
    protocol.rtt_bytes_max = RTT_BYTES_MAX;
    if let GrantWindow::RttBytesShared { max_incoming } = &mut protocol.window {
        *max_incoming = (*max_incoming).max(4 * protocol.rtt_bytes_max);
    }
    protocol
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: users(),
            priority_map: PriorityMap::default(),
            link_rate: None,
            mtu: None,
            receive_buffer: 4 << 20,
            send_memory: 1 << 30,
            spin: Duration::from_micros(50),
            max_peers: 65_536,
            seed: None,
        }
    }
}

impl Config {
    /// For hosts that run the Linux kernel module (branch main): its rules, timers and eight
    /// levels, for [`Engine::raw_ip`](crate::Engine::raw_ip). It gives up on a server after 100 ms
    /// of silence, and so do we; but where a module's server asks for an acknowledgement for ever,
    /// ours asks ever more seldom and stops after 2 s.
    pub fn linux() -> Self {
        let protocol = homa_proto::Config::linux();
        Self { protocol, priority_map: PriorityMap::Linux, ..Self::default() }
    }

    /// Most engines that the limits can be divided between: each may call and be called, know a
    /// peer, grant a packet, take in one of a stranger, for which there is an eighth of the memory,
    /// and send a message as long as any.
    pub(crate) fn most_shards(&self) -> u64 {
        let protocol = &self.protocol;
        let packet = u64::from(self.mtu.unwrap_or(ETHERNET_MTU)).max(1);
        let longest = u64::from(protocol.max_message).min(self.send_memory).max(1);
        let granted = match protocol.window {
            GrantWindow::Shared { max_incoming } | GrantWindow::RttBytesShared { max_incoming } => {
                max_incoming.into()
            }
            _ => u64::MAX,
        };
        let most = [
            protocol.max_rpcs.into(),
            self.max_peers.into(),
            self.send_memory / longest,
            protocol.memory_budget / (8 * packet),
            granted / packet,
        ];
        most.into_iter().min().unwrap_or(0).max(1)
    }

    /// The part of one of `shards` engines.
    pub(crate) fn part(&self, number: usize, shards: u16) -> Self {
        let mut part = self.clone();
        let protocol = &mut part.protocol;
        protocol.memory_budget /= u64::from(shards);
        protocol.max_rpcs /= u32::from(shards);
        part.send_memory /= u64::from(shards);
        part.max_peers /= u32::from(shards);
        // Far apart: seeds that follow each other, as those of runs may, have no parts in common.
        part.seed = self.seed.map(|seed| seed.wrapping_add((number as u64) << 48));
        part
    }

    /// The largest packets to send, where a driver does well with those of up to `good` bytes: no
    /// larger than what may be granted at a time, or they would never be.
    pub(crate) fn largest_packet(&self, good: u16) -> u16 {
        let granted = match self.protocol.window {
            GrantWindow::Shared { max_incoming } | GrantWindow::RttBytesShared { max_incoming } => {
                u16::try_from(max_incoming).unwrap_or(u16::MAX)
            }
            _ => u16::MAX,
        };
        self.mtu.unwrap_or_else(|| good.min(granted).max(ETHERNET_MTU))
    }

    /// Completes and checks the protocol's part.
    pub(crate) fn complete(
        &self,
        receive_buffer: u32,
        encapsulation: Encapsulation,
    ) -> Result<ValidConfig, OpenError> {
        if let Some(mtu) = self.mtu.filter(|&mtu| mtu < 576) {
            return Err(OpenError::Mtu { mtu });
        }
        let mut protocol = self.protocol.clone();
        protocol.levels = protocol.levels.min(self.priority_map.levels());
        protocol.receive_buffer = receive_buffer;
        protocol.unguessable_ids = true;
        // A kernel module could not answer.
        protocol.validate_addresses = encapsulation == Encapsulation::Datagram;
        if let Some(rate) = self.link_rate {
            protocol.link_rate = Some(rate);
        }
        protocol.seed = self.seed.unwrap_or_else(random);
        Ok(protocol.validate()?)
    }
}

/// A random number from the system's entropy, by way of the keys of the standard hash tables.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Parameters of one call. Start from [`CallOptions::deadline`] or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long the caller will wait. Default 10 s. The server hears of it, over UDP, and does not
    /// begin what nobody waits for any more.
    pub deadline: Duration,
    /// The request may be executed more than once: then a call whose server lost it, in a restart
    /// or for another reason, or is not there, is made again until its deadline, and no
    /// [`CallError::Indeterminate`](crate::CallError::Indeterminate) comes of it.
    /// Without effect in the profiles of the kernel module and of the paper, where any request may
    /// be.
    pub idempotent: bool,
    /// The distributed trace that the request belongs to. The server hears of it
    /// ([`Request::trace_context`](crate::Request::trace_context)), over UDP. Default: that of the
    /// request on whose behalf the client calls, if any.
    pub trace: Option<TraceContext>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), idempotent: false, trace: None }
    }
}

impl CallOptions {
    /// The default options with another deadline.
    pub fn deadline(deadline: Duration) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// Says that the request may be executed twice.
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// Names the distributed trace that the request belongs to.
    pub fn trace(self, context: TraceContext) -> Self {
        Self { trace: Some(context), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_parts_of_engines_that_share_an_address_come_to_no_more_than_the_whole() {
        for whole in [Config::default().seed(7), Config::linux().seed(7)] {
            for shards in [1, 3, 64] {
                let parts: Vec<_> = (0..shards).map(|n| whole.part(n.into(), shards)).collect();
                let of = |limit: fn(&Config) -> u64| {
                    let (all, each) = (limit(&whole), parts.iter().map(limit));
                    let sum: u64 = each.sum();
                    assert!(sum <= all && sum > all - all / 100, "{sum} of {all} by {shards}");
                };
                of(|config| config.protocol.memory_budget);
                of(|config| config.protocol.max_rpcs.into());
                of(|config| config.send_memory);
                of(|config| config.max_peers.into());
                assert!(parts.iter().all(|part| part.complete(1, Encapsulation::Datagram).is_ok()));
                // No two name their first RPC alike.
                let mut seeds: Vec<_> = parts.iter().map(|part| part.seed).collect();
                seeds.dedup();
                assert_eq!(seeds.len(), usize::from(shards));
            }
        }
        // What all are granted together is worth a packet for each, even a large one.
        let most = |config: Config| config.send_memory(1 << 40).most_shards();
        assert_eq!(most(Config::default().mtu(9_000)), 106, "960,000 bytes granted at a time");
        assert_eq!(most(Config::default()), 640);
    }

    #[test]
    fn no_engine_has_the_seed_of_another_of_its_group_or_of_one_with_the_next_seed() {
        let seeds = [0, 1, 2, u64::MAX, 1 << 32, (1 << 32) + 1];
        let parts = |seed| {
            let config = Config::default().seed(seed);
            (0..64).map(move |number| config.part(number, 64).seed.unwrap())
        };
        let all: HashSet<_> = seeds.into_iter().flat_map(parts).collect();
        assert_eq!(all.len(), seeds.len() * 64);
        assert_eq!(Config::default().part(1, 2).seed, None);
    }
}

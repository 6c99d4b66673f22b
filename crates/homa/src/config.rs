//! Engine configuration: limits, pacing, priorities, and the parameters of the protocol.

mod windows;

use std::sync::Arc;
use std::time::Duration;

use homa_proto::{GrantWindow, Rate, ValidConfig};

use crate::PriorityMap;
#[cfg(feature = "encryption")]
use crate::driver::sealed::Admission;
use crate::driver::{ETHERNET_MTU, Encapsulation};
use crate::error::OpenError;
use crate::handover::Handover;
use crate::padding::Padding;
#[cfg(feature = "encryption")]
use crate::secure::{Keys, PeerIdentity};
pub(crate) use windows::{LOOPBACK, rtt_bytes_max};

/// Parameters of an engine. Start from [`Config::default`] and call methods.
///
/// Users set these: limits (`max_message`, `max_rpcs`, `max_peers`, `max_calls_per_server`,
/// `memory_budget`, `send_memory`), the network (`link_rate`, `mtu`, `receive_buffer`,
/// `priority_map`), and waiting (`spin`, `readable_events`). Each has a method. All other
/// parameters of the protocol are in `protocol`, for studies.
///
/// ```
/// use homa::proto::Rate;
///
/// let config = homa::Config::default().mtu(9000).send_memory(64 << 20).readable_events(true);
/// let config = config.link_rate(Rate::gbps(10));
/// // A parameter of the protocol: at most four messages are granted at a time.
/// let protocol = config.protocol.clone().overcommitment(homa::proto::Overcommitment::Fixed(4));
/// let config = config.protocol(protocol);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Parameters of the protocol. Three of them are set when the engine opens: `levels` follows
    /// `priority_map`, `receive_buffer` is what the kernel granted, and `seed` is random unless
    /// `seed` below is set. Default: [`homa_proto::Config::for_users`], with windows for any link
    /// rate. If its `link_rate` is `None`, the rate is that of the route to each peer; if that is
    /// unknown, as in many virtual machines, windows and timeouts are measured. `memory_budget`
    /// covers messages that are arriving and requests that are not accepted yet. Responses that
    /// have arrived and are not taken yet are not included: at most `max_message` for each call in
    /// progress.
    pub protocol: homa_proto::Config,
    /// The mapping from priority levels to the IP header. Default: six levels, CS0 to CS5.
    pub priority_map: PriorityMap,
    /// Rate of the link, for the pacer and the protocol; all peers then share one link. `None`
    /// (default): the rate of the interface on the kernel's route to each peer. If that is unknown,
    /// sending is paced by the kernel's queue and windows are measured. Set the rate if the kernel
    /// cannot know it, for example on a tunnel or a TAP device.
    pub link_rate: Option<Rate>,
    /// Largest IP packet to send, in bytes, at least 576. `None` (default): what the route to each
    /// peer takes, up to jumbo frames of 9000 bytes, or up to the size of a frame with
    /// [`Engine::xdp`](crate::Engine::xdp). Packets have at most 1500 bytes at first. Larger ones
    /// are probed with the first long message to a peer, and smaller ones are used as soon as the
    /// path takes no more (RFC 8899), so you do not have to know the path. A short message may wait
    /// for one packet in front of it: at 1 Gbit/s, 72 µs if it has 9000 bytes and 12 µs if it has
    /// 1500.
    pub mtu: Option<u16>,
    /// Size of the receive queue that is requested from the kernel, in bytes. Default: 4 MiB. The
    /// kernel grants at most `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// Memory for outgoing messages, in bytes. A message is kept until it is acknowledged. Calls
    /// and replies beyond the limit are refused. Default: 1 GiB.
    pub send_memory: u64,
    /// How long a blocking thread polls before it sleeps, as long as polling succeeds often enough
    /// to pay; sleeping and waking takes longer than a short poll. Default: 50 µs. Zero never
    /// spins. Unless it is zero, threads of a shared engine also spin through waits of up to 100 µs
    /// for the link. A sleep would end some 50 µs late because of the system's timer slack, which
    /// is the time of four packets at 1 Gbit/s. Callers of inline engines choose how they wait.
    pub spin: Duration,
    /// Most peers that are remembered; idle ones are forgotten first. The engine then also forgets
    /// which of their requests were executed here, so a copy that the network delivers later is
    /// executed again. Default: 65,536.
    pub max_peers: u32,
    /// Most calls in progress to one server, so that a server that hangs does not take all of
    /// `max_rpcs`; at least one. Over raw IP, to one host. Another call is refused
    /// ([`CallError::TooManyCallsTo`](crate::CallError::TooManyCallsTo)), and
    /// [`Client::ready_to`](crate::Client::ready_to) waits. `None` (default): no limit.
    pub max_calls_per_server: Option<u32>,
    /// Seed of the first RPC id. `None` (default): random. Two engines must not share a seed if
    /// they call the same servers from the same address and port, one after the other. Each engine
    /// of a group ([`Engine::sharded`](crate::Engine::sharded)) derives its seed from this one.
    pub seed: Option<u64>,
    /// What an earlier engine at this address executed. Default: `None`.
    pub(crate) handover: Option<Arc<Handover>>,
    /// A name for the engine in metrics, where it is the label `engine`: for programs with several
    /// engines. Default: none, and then there is no such label.
    pub name: Option<String>,
    /// The keys with which every datagram is encrypted and both ends prove who they are (UDP and
    /// AF_XDP). Peers need keys that fit: see [`Keys`]. `None` (default): plaintext, on loopback
    /// or by choice ([`Self::plaintext`]).
    #[cfg(feature = "encryption")]
    pub keys: Option<Keys>,
    /// Decides which verified peers may exchange packets with this engine. Default: all of them.
    #[cfg(feature = "encryption")]
    pub(crate) admission: Admits,
    /// The lengths of encrypted datagrams. Default: [`Padding::None`]. It has no effect without
    /// keys. Peers need not set it, and may be of any version.
    pub padding: Padding,
    /// What the engine may do if it has no keys.
    pub(crate) without_keys: WithoutKeys,
}

/// What an engine without keys may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WithoutKeys {
    /// Open on loopback.
    #[default]
    OnLoopback,
    /// Open anywhere, and call servers on loopback.
    CallLoopback,
    /// Exchange plaintext with all hosts, by choice.
    Plaintext,
}

/// A policy about verified peers.
#[cfg(feature = "encryption")]
#[derive(Clone, Default)]
pub(crate) struct Admits(pub(crate) Option<Arc<Admission>>);

#[cfg(feature = "encryption")]
impl std::fmt::Debug for Admits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "a policy" } else { "all" })
    }
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
    max_calls_per_server: impl Into<Option<u32>>,
    seed: impl Into<Option<u64>>,
    padding: Padding,
});

/// Knobs whose values the protocol keeps.
impl Config {
    /// Longest message that is sent or accepted, in bytes. Default: 16 MiB.
    pub fn max_message(mut self, bytes: u32) -> Self {
        self.protocol.max_message = bytes;
        self
    }

    /// Most calls in progress, and most requests of others in progress.
    pub fn max_rpcs(mut self, rpcs: u32) -> Self {
        self.protocol.max_rpcs = rpcs;
        self
    }

    /// Memory for messages that are arriving and for requests that are not accepted yet, in bytes.
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.protocol.memory_budget = bytes;
        self
    }

    /// Takes the place of an engine that [handed it over](crate::Engine::hand_over). For one
    /// engine: clear it (`None`) in configurations of others. Default: none.
    #[must_use]
    pub fn handover(mut self, handover: impl Into<Option<Handover>>) -> Self {
        self.handover = handover.into().map(Arc::new);
        self
    }

    /// Names the engine in its metrics: [`Self::name`](field@Self::name).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Reports long messages while they arrive: see [`Call::arrived`](crate::Call::arrived) and
    /// [`inline::Engine::read`](crate::inline::Engine::read). Default: off.
    pub fn readable_events(mut self, on: bool) -> Self {
        self.protocol.readable_events = on;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: windows::users(),
            priority_map: PriorityMap::default(),
            link_rate: None,
            mtu: None,
            receive_buffer: 4 << 20,
            send_memory: 1 << 30,
            spin: Duration::from_micros(50),
            max_peers: 65_536,
            max_calls_per_server: None,
            seed: None,
            handover: None,
            name: None,
            #[cfg(feature = "encryption")]
            keys: None,
            #[cfg(feature = "encryption")]
            admission: Admits::default(),
            padding: Padding::None,
            without_keys: WithoutKeys::default(),
        }
    }
}

/// Encryption.
#[cfg(feature = "encryption")]
impl Config {
    /// Encrypts every datagram, and verifies every peer: [`Self::keys`](field@Self::keys).
    ///
    /// ```
    /// use homa::{Client, Config, Engine, Keys};
    ///
    /// // All hosts share a secret; `Keys::from_file` reads it from a file of `homa key new`.
    /// let config = Config::default().keys(Keys::cluster([7; 32])?);
    /// let server = Engine::bind("127.0.0.1:0".parse()?, config.clone())?.serve()?;
    /// # let address = server.local_addr();
    /// # std::thread::spawn(move || server.accept().map(|request| request.reply("pong")));
    /// let client = Engine::bind("127.0.0.1:0".parse()?, config)?.client();
    /// assert_eq!(&client.call(address, "ping")?[..], b"pong");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keys(mut self, keys: impl Into<Option<Keys>>) -> Self {
        self.keys = keys.into();
        self
    }

    /// Refuses peers whose verified identity `admits` does not accept: no packet of theirs is
    /// processed, and none is sent to them. It is called for each session, and before requests are
    /// sent as early data, by the thread that drives the engine, so it should return at once. It
    /// needs keys ([`OpenError::PolicyWithoutKeys`]).
    #[must_use]
    pub fn admit(mut self, admits: impl Fn(&PeerIdentity) -> bool + Send + Sync + 'static) -> Self {
        self.admission = Admits(Some(Arc::new(admits)));
        self
    }
}

impl Config {
    /// Sends and accepts plaintext, by choice: an attacker on the path can read and forge
    /// everything. It removes the keys. Without keys and without this choice, an engine over UDP or
    /// AF_XDP opens on loopback only ([`OpenError::Unprotected`]).
    ///
    /// ```
    /// use homa::{Config, Engine, OpenError};
    ///
    /// let at = "0.0.0.0:0".parse()?;
    /// let refused = Engine::bind(at, Config::default());
    /// assert!(matches!(refused, Err(OpenError::Unprotected { .. })));
    /// Engine::bind(at, Config::default().plaintext())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn plaintext(self) -> Self {
        #[cfg(feature = "encryption")]
        let config = self.keys(None);
        #[cfg(not(feature = "encryption"))]
        let config = self;
        Self { without_keys: WithoutKeys::Plaintext, ..config }
    }

    /// For an engine that only makes calls. Without keys it opens at any address, but it refuses
    /// calls to servers that are not on loopback ([`CallError::Unprotected`]) and has no server,
    /// unless plaintext was chosen before. [`Client::new`](crate::Client::new) uses it.
    ///
    /// [`CallError::Unprotected`]: crate::CallError::Unprotected
    #[must_use]
    pub fn calls_only(mut self) -> Self {
        if self.without_keys == WithoutKeys::OnLoopback {
            self.without_keys = WithoutKeys::CallLoopback;
        }
        self
    }
}

impl Config {
    /// For peers that run the Linux kernel module (branch main), over
    /// [`Engine::raw_ip`](crate::Engine::raw_ip): its rules, timers, and eight levels. As the
    /// module does, it gives up on a server after 110 ms of silence. One rule differs: a module's
    /// server asks for an acknowledgement forever, but ours asks less and less often, and stops
    /// after 2 s.
    pub fn linux() -> Self {
        let protocol = homa_proto::Config::linux();
        Self { protocol, priority_map: PriorityMap::Linux, ..Self::default() }
    }

    /// For peers that run the series of patches for the upstream Linux kernel (v19, April 2026),
    /// over [`Engine::raw_ip`](crate::Engine::raw_ip): as [`Self::linux`], but every byte of a
    /// message is sent unasked, at one level. `protocol.memory_budget` bounds what arrives.
    pub fn linux_upstream() -> Self {
        Self { protocol: homa_proto::Config::linux_upstream(), ..Self::linux() }
    }

    /// Also speaks the wire that public forks of the kernel module have had since September 2026,
    /// to peers that show that they do: a message longer than its unscheduled bytes is announced
    /// with a packet of type `opcode`, and nothing of it is sent before a grant. Goes with
    /// [`Self::linux`]. Not tested with such a module.
    #[must_use]
    pub fn start_msg(mut self, opcode: u8, layout: homa_proto::DataLayout) -> Self {
        self.protocol = self.protocol.start_msg(opcode, layout);
        self
    }

    /// Most engines that can share these limits. Each of them must be able to make a call, receive
    /// one, know a peer, grant a packet, receive a packet of an unvalidated sender (which may use
    /// an eighth of the memory), and send a message of any length.
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

    /// The configuration of one of `shards` engines.
    pub(crate) fn part(&self, number: usize, shards: u16) -> Self {
        let mut part = self.clone();
        let protocol = &mut part.protocol;
        protocol.memory_budget /= u64::from(shards);
        protocol.max_rpcs /= u32::from(shards);
        part.send_memory /= u64::from(shards);
        part.max_peers /= u32::from(shards);
        // Far apart, so that consecutive seeds, as a series of runs may have, give different
        // engines.
        part.seed = self.seed.map(|seed| seed.wrapping_add((number as u64) << 48));
        part
    }

    /// The largest packets to send if the driver recommends at most `good` bytes. No larger than
    /// what may be granted at a time, because a larger packet would never be granted.
    pub(crate) fn largest_packet(&self, good: u16) -> u16 {
        let granted = match self.protocol.window {
            GrantWindow::Shared { max_incoming } | GrantWindow::RttBytesShared { max_incoming } => {
                u16::try_from(max_incoming).unwrap_or(u16::MAX)
            }
            _ => u16::MAX,
        };
        self.mtu.unwrap_or_else(|| good.min(granted).max(ETHERNET_MTU))
    }

    /// Completes and validates the parameters of the protocol.
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
        windows::fit(&mut protocol, receive_buffer);
        protocol.unguessable_ids = true;
        // A kernel module could not answer a challenge.
        protocol.validate_addresses = encapsulation == Encapsulation::Datagram;
        if let Some(rate) = self.link_rate {
            protocol.link_rate = Some(rate);
        }
        protocol.seed = self.seed.unwrap_or_else(random);
        Ok(protocol.validate()?)
    }
}

/// A random number from the system's entropy, taken from the keys of the standard hash tables.
/// In the thread of a network of `homa::testing`, that network draws it.
pub(crate) fn random() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(drawn) = crate::testing::random() {
        return drawn;
    }
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_limits_of_all_shards_add_up_to_the_configured_ones() {
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
                // No two engines start with the same RPC id.
                let mut seeds: Vec<_> = parts.iter().map(|part| part.seed).collect();
                seeds.dedup();
                assert_eq!(seeds.len(), usize::from(shards));
            }
        }
        // The bytes granted to all of them together hold a packet for each, even a large one.
        let most = |config: Config| config.send_memory(1 << 40).most_shards();
        assert_eq!(most(Config::default().mtu(9_000)), 106, "960,000 bytes granted at a time");
        assert_eq!(most(Config::default()), 640);
    }

    #[test]
    fn no_two_engines_of_close_seeds_or_one_group_share_a_seed() {
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

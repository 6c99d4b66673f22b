//! Several engines of one process at one UDP address, one per core, behind one handle.
//!
//! Each shard is an engine with a socket, a lock, and timers. The kernel steers the datagrams of a
//! peer to one shard (`driver/udp/steering.rs`), and calls to that peer leave from there, so a peer
//! belongs to one shard. Shards share the links by current need (`engine/net/shard_group.rs`). They
//! share one fact of the protocol: if the address of a client changes and it reaches another shard,
//! a directory (`driver/udp/directory.rs`) tells that shard that the client was known elsewhere,
//! and its calls in progress count as possibly executed.
//!
//! Left out: moving peers between shards, so one busy peer is the work of one core; sharing an
//! address between processes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::config::{Config, random};
use crate::driver::udp::{Steering, UdpDriver};
use crate::engine::Engine;
use crate::error::{DrainTimeout, OpenError};
use crate::handover::HandoverError;
use crate::metrics::Metrics;
use crate::server::Server;

/// Most engines at one address.
pub(crate) const SHARDS_MAX: usize = 256;

/// Engines that share an address, from [`Engine::sharded`]. Clones are handles of the same engines,
/// which live as long as the last handle, client, server, call, or request of any of them.
#[derive(Clone)]
pub struct Sharded(Engine);

impl std::fmt::Debug for Sharded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (local, shards) = (self.local_addr(), self.engines().len());
        f.debug_struct("Sharded").field("local", &local).field("shards", &shards).finish()
    }
}

impl Engine {
    /// Opens `shards` engines at one UDP address (port 0: any), for a process that has more work
    /// than one core can do: one engine per core, with a server each ([`Sharded::serve`]) and one
    /// client for all ([`Sharded::client`]). To peers they are one host at one address.
    ///
    /// The system delivers the datagrams of a peer always to the same shard, chosen by a hash of
    /// the peer's address and port with a secret of this group; calls to that peer leave from that
    /// shard. Many peers spread evenly. One peer is never more than the work of one core, so choose
    /// no more shards than cores are busy.
    ///
    /// Limits are split evenly across shards: [`memory_budget`](homa_proto::Config::memory_budget),
    /// [`send_memory`](Config::send_memory), [`max_rpcs`](homa_proto::Config::max_rpcs), and
    /// [`max_peers`](Config::max_peers). Link bandwidth is shared on demand: shards that send at
    /// the same time share a link's rate, if it is known, and shards that wait for granted bytes
    /// share the bytes granted at a time (at least a packet each, in profiles that bound grants
    /// together: `default` and `linux`). A shard that is busy alone can use all of it. A host's
    /// share, for example half of the memory for replies, is a share of each shard's part. Each
    /// shard's socket has a receive queue of [`receive_buffer`](Config::receive_buffer) bytes, and
    /// all links of a shard use that socket.
    ///
    /// To its servers, a sharded client is several clients at one address: each shard is validated
    /// once, and several times if more than 4 shards call several ports of one server.
    ///
    /// All shards together execute a call at most once. If a translator (NAT) changes the address
    /// or port of a client, it may reach another shard, which does not know the executed calls. Its
    /// calls in progress, and the first one after that, may then end as
    /// [`Indeterminate`](crate::CallError::Indeterminate) unless they are idempotent.
    ///
    /// Sockets of other users cannot join the address. A program of the same user can divert
    /// datagrams if it sets SO_REUSEPORT: it can bind a more specific address, join while the group
    /// is being opened, or join and replace the steering program. Shards drop and
    /// [count](crate::metrics::DriverCounters::trains_misdirected) datagrams that were steered
    /// wrongly, and the affected calls fail. Programs that do not trust each other should run as
    /// different users.
    ///
    /// # Errors
    /// [`OpenError::Shards`] if `shards` is zero, greater than 256, or too many for the limits
    /// (each shard must be able to hold a message of any length, a call, and a peer, and to grant
    /// and receive a packet); [`OpenError::InUse`] if the port is taken, also by another such
    /// group; [`OpenError::Steering`] if the system cannot steer datagrams.
    ///
    /// ```
    /// use homa::{Client, Config, Engine};
    ///
    /// let sharded = Engine::sharded("127.0.0.1:0".parse()?, 2, Config::default())?;
    /// for server in sharded.serve()? {
    ///     // A thread for each, best on a separate core.
    ///     std::thread::spawn(move || {
    ///         while let Some(request) = server.accept() {
    ///             let _ = request.reply("done");
    ///         }
    ///     });
    /// }
    /// assert_eq!(Client::new()?.call(sharded.local_addr(), "work")?, *b"done");
    /// sharded.drain(std::time::Duration::from_secs(5))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sharded(at: SocketAddr, shards: usize, config: Config) -> Result<Sharded, OpenError> {
        let (drivers, steering) = drivers(at, shards, &config)?;
        Engine::over(drivers, steering, &config).map(Sharded)
    }
}

/// The drivers of a group of engines.
pub(crate) fn drivers(
    at: SocketAddr,
    shards: usize,
    config: &Config,
) -> Result<(Vec<UdpDriver>, Steering), OpenError> {
    let most = usize::try_from(config.most_shards()).unwrap_or(SHARDS_MAX).min(SHARDS_MAX);
    if config.handover.is_some() {
        return Err(HandoverError::Sharded.into());
    }
    if shards == 0 || shards > most {
        return Err(OpenError::Shards { shards, most });
    }
    // Independent of `config.seed`, because the seed may be public and must not reveal which peers
    // share a shard.
    let steering = Steering::new(shards as u16, random());
    Ok((UdpDriver::group(at, config.receive_buffer, steering)?, steering))
}

impl Sharded {
    /// The shared address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// The engines, one per shard, for example to read the [counters](Engine::metrics) of each. A
    /// client of any of them is a client of all; a server of one, and its drain, belong to that
    /// shard only.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = Engine> {
        self.0.shards()
    }

    /// A client of all shards. Each call leaves from the shard that receives the server's replies.
    pub fn client(&self) -> Client {
        self.0.client()
    }

    /// Opens a server for each shard. All of them must be served, each by a thread or task, best on
    /// its core, because a client's requests reach only one of them. They wait there if the server
    /// does not accept, and are refused if the server was dropped, for example because its thread
    /// panicked. Such a shard gets a new server from its engine: [`Self::engines`],
    /// [`Engine::serve`].
    ///
    /// # Errors
    /// [`OpenError::Served`] if a shard has a server, and those of [`Engine::serve`]; no shard gets
    /// a server then.
    pub fn serve(&self) -> Result<Vec<Server>, OpenError> {
        for (shard, engine) in self.engines().enumerate() {
            engine.vacant().map(drop).map_err(|error| match error {
                OpenError::InUse { at } => OpenError::Served { at, shard },
                other => other,
            })?;
        }
        self.engines().map(|engine| engine.serve()).collect()
    }

    /// Finishes gracefully, all shards at once: see [`Engine::drain`].
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        let until = Instant::now().checked_add(timeout);
        self.engines().for_each(|engine| engine.refuse());
        match self.unfinished(until) {
            (0, 0) => {
                self.engines().for_each(|engine| engine.finish_handshakes(until));
                Ok(())
            }
            (calls, requests) => Err(DrainTimeout { calls, requests }),
        }
    }

    /// Waits until everything in progress is finished; returns the numbers of calls and requests
    /// that are not.
    pub(crate) fn unfinished(&self, until: Option<Instant>) -> (usize, usize) {
        let left = self.engines().map(|engine| engine.finish(until));
        left.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1))
    }

    /// The sum of the counters of all shards. The list of busiest peers covers all shards.
    pub fn metrics(&self) -> Metrics {
        Metrics::sum(self.engines().map(|engine| engine.metrics()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_does_not_tell_which_peers_share_a_shard() {
        let config = Config::default().seed(1);
        let open = || drivers("127.0.0.1:0".parse().unwrap(), 16, &config).unwrap().1;
        let [one, other] = [open(), open()];
        let peers = (0..64).map(|host| SocketAddr::from(([10, 0, 0, host], 4000)));
        let alike = peers.filter(|&peer| one.shard_of(peer) == other.shard_of(peer)).count();
        assert!(alike < 32, "{alike} of 64 peers at the same shard of two groups");
    }
}

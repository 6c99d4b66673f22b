//! Several engines of one process at one UDP address, one per core, as one handle.
//!
//! Each shard is an engine with a socket, a lock and timers of its own. The kernel steers what a
//! peer sends to one of them (`driver/udp/steering.rs`), and calls to a peer leave from there, so
//! that a peer is known to one shard alone. They share the links, each with its part of what is
//! used at the time (`engine/net/shard_group.rs`), and of what the protocol knows one thing: where a
//! client's address changes and it comes to another shard, a directory tells that shard that the
//! client was known elsewhere, and what it has in progress counts as executed
//! (`driver/udp/directory.rs`).
//!
//! Left out: moving peers, and what they had executed, between shards, so that one busy peer is one
//! core's work; sharing an address between processes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::config::{Config, random};
use crate::driver::udp::{Steering, UdpDriver};
use crate::engine::Engine;
use crate::error::{DrainTimeout, OpenError};
use crate::metrics::Metrics;
use crate::server::Server;

/// Most engines at one address.
pub(crate) const SHARDS_MAX: usize = 256;

/// Engines that share an address, from [`Engine::sharded`]. Clones are handles of the same engines,
/// which live as long as the last handle, client, server, call or request of any.
#[derive(Clone)]
pub struct Sharded(Engine);

impl std::fmt::Debug for Sharded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (local, shards) = (self.local_addr(), self.engines().len());
        f.debug_struct("Sharded").field("local", &local).field("shards", &shards).finish()
    }
}

impl Engine {
    /// `shards` engines at one UDP address (port 0: any), for a process that has more work than one
    /// core does: one engine per core, with a server each ([`Sharded::serve`]) and one client for
    /// all ([`Sharded::client`]). Others see one host at one address.
    ///
    /// The system gives what a peer sends always to the same shard, by a hash of the peer's address
    /// and port with a secret of this group's; calls to that peer leave from that shard. Peers
    /// spread evenly if they are many; one peer is never more than one core's work.
    ///
    /// Each shard has an equal part of what `config` allows, so that all together have that:
    /// [`memory_budget`](homa_proto::Config::memory_budget),
    /// [`send_memory`](Config::send_memory), [`max_rpcs`](homa_proto::Config::max_rpcs) and
    /// [`max_peers`](Config::max_peers). The links are shared by need: those that send at the time
    /// part a link's rate alike, where it is known, and those that wait for granted bytes part what
    /// is granted at a time to all senders (in profiles whose grants are bounded together,
    /// `default` and `linux`), a packet at least; one that is busy alone has all. What a host may
    /// take of a shard
    /// (half of the memory for replies, say) is a share of the shard's part: a host with one port
    /// has that of one shard, one with many ports that of each. Each shard's socket has a
    /// receive queue of [`receive_buffer`](Config::receive_buffer) bytes.
    ///
    /// So choose no more shards than cores are busy.
    ///
    /// To those it calls, a sharded client is as many clients as shards, at one address: a server
    /// of ours has each prove the address once, and where more than 4 shards call several ports of
    /// one server, several times.
    ///
    /// The links that packets leave by share each shard's socket.
    ///
    /// Calls are executed at most once by all together. A client whose address or port a translator
    /// (NAT) changes may come to another shard, which does not know what the first one executed:
    /// calls in progress then, and the first one after that, may end as
    /// [`Indeterminate`](crate::CallError::Indeterminate), unless they are idempotent.
    ///
    /// No other user's socket gets in. A program of the same user can take datagrams away, if it
    /// asks the system to share the port (SO_REUSEPORT): by binding a more specific address, of
    /// which it gets everything; or by joining the address and replacing the rule that steers, or
    /// joining while the group is opened. Shards drop and
    /// [count](crate::driver::DriverCounters::trains_misdirected) what is steered wrong; their
    /// clients' calls then fail. Programs that do not trust each other need users of their own.
    ///
    /// # Errors
    /// [`OpenError::Shards`] for none, and for more than the limits can be divided between (each
    /// shard has to hold a message of any length, a call and a peer, and to grant and take in a
    /// packet; 256 at most); [`OpenError::InUse`] where the port is taken, be it by such a group:
    /// all of a group are opened together; [`OpenError::Steering`] where the system cannot do that.
    ///
    /// ```
    /// use homa::{Client, Config, Engine};
    ///
    /// let sharded = Engine::sharded("127.0.0.1:0".parse()?, 2, Config::default())?;
    /// for server in sharded.serve()? {
    ///     // A thread for each, best on a core of its own.
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
    if shards == 0 || shards > most {
        return Err(OpenError::Shards { shards, most });
    }
    // Whatever the seed: who knows it must not know which peers share a shard.
    let steering = Steering::new(shards as u16, random());
    Ok((UdpDriver::group(at, config.receive_buffer, steering)?, steering))
}

impl Sharded {
    /// The address that they share.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// The engines, one per shard: to look at what each [counted](Engine::metrics), say. A client
    /// of any is one of all; a server of one, and its drain, are its own.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = Engine> {
        self.0.shards()
    }

    /// A client of all shards: each call leaves from the one to which its server's answers come.
    pub fn client(&self) -> Client {
        self.0.client()
    }

    /// A server for each shard. All must be served, by a thread or task each, best on a core each:
    /// a client's requests come to one of them alone. They wait there while nobody accepts them,
    /// and where the server was dropped, as by a thread that panicked, they are refused. Such a
    /// shard alone gets a new server by its engine: [`Self::engines`], [`Engine::serve`].
    ///
    /// # Errors
    /// [`OpenError::Served`] where a shard has a server, and those of [`Engine::serve`]; no shard
    /// gets a server then.
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
        let left = self.engines().map(|engine| engine.finish(until));
        match left.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1)) {
            (0, 0) => Ok(()),
            (calls, requests) => Err(DrainTimeout { calls, requests }),
        }
    }

    /// What all counted together. The peers with most RPCs are those of all.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        self.engines().for_each(|engine| metrics.add(engine.metrics()));
        metrics
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

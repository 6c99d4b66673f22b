//! Rows of engines that share an address: pairs of a client and a shard of the server, each pair on
//! a core that it shares, beside one such pair.
//!
//! Both sides of a pair sleep when they have nothing to do, since the other needs the core. How a
//! pair fares beside itself on a second core says what the shards cost each other; more cores than
//! two cannot be shown on the machine this was made for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homa::Config;
use homa::inline::{Engine, Wait};

use super::homa_rows::{Caller, answer_ready};
use super::pair::{CLIENT, Pair, SERVER, Side, joined};
use super::tcp_batched::{CountedWindow, RateLoad};

/// A shard looks so often whether it may end.
const LOOK: Duration = Duration::from_millis(1);

/// RPCs per second of `pairs` pairs, each with `load`, which is for one peer.
pub fn rate(pair: &Pair, pairs: usize, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let config = Config::default().mtu(pair.mtu).plaintext();
    let of_server = config.clone();
    let open = move || Engine::sharded((SERVER, 0).into(), pairs, of_server);
    let mut shards = pair.at(Side::Server, move || open().map_err(io::Error::other))?;
    shards.iter_mut().try_for_each(Engine::listen).map_err(io::Error::other)?;
    let address = shards[0].local_addr();
    let clients = shards.iter().map(|shard| client_of(pair, shard, &config));
    let clients = clients.collect::<io::Result<Vec<_>>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    let window = CountedWindow::starting_now(time);
    let mut threads = Vec::new();
    for ((shard, client), core) in shards.into_iter().zip(clients).zip(pair.cores()) {
        let (stop, load) = (Arc::clone(&stop), load.clone());
        let server = pair.spawn_on(Side::Server, core, move || serve(shard, &stop));
        let client = pair.spawn_on(Side::Client, core, move || {
            Caller::over(client, Wait::Forever, &[address], load).completed_per_second(window)
        });
        threads.push((server, client));
    }
    let (servers, clients): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
    let rates: Vec<_> = clients.into_iter().map(joined).collect();
    stop.store(true, Ordering::Relaxed);
    servers.into_iter().try_for_each(joined)?;
    rates.into_iter().sum()
}

/// A client at a port from which what it sends comes to `shard`.
fn client_of(pair: &Pair, shard: &Engine, config: &Config) -> io::Result<Engine> {
    loop {
        let config = config.clone();
        let open = move || Engine::bind((CLIENT, 0).into(), config);
        let client = pair.at(Side::Client, move || open().map_err(io::Error::other))?;
        if shard.hears(client.local_addr()) {
            return Ok(client);
        }
    }
}

/// Echoes at a shard.
fn serve(mut shard: Engine, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        shard.poll(Wait::For(LOOK))?;
        answer_ready(&mut shard, homa::Message::into_vec)?;
    }
    Ok(())
}

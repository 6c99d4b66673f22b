//! Rows of services that are written with futures: Homa's engine driven by a tokio runtime, one
//! thread and one core a side. Each request is answered in a task of its own, and each call in
//! progress belongs to a task, as in a service. Nothing spins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use homa::{Client, Config, Engine};
use tokio::runtime::Runtime;

use super::echo::time_exchanges;
use super::homa_rows::GOODBYE;
use super::pair::{CLIENT, Pair, SERVER, ServerSide};
use super::stats::Tail;
use super::tcp_batched::{RateLoad, rate_of_tasks, runtime};

/// An engine that the runtime drives.
fn engine(runtime: &Runtime, at: IpAddr, mtu: u16) -> io::Result<Engine> {
    let _inside = runtime.enter();
    let config = Config::default().mtu(mtu).spin(Duration::ZERO).plaintext();
    let engine = Engine::bind((at, 0).into(), config).map_err(io::Error::other)?;
    engine.drive_on_tokio().map_err(io::Error::other)?;
    Ok(engine)
}

/// Echoes until the client says goodbye.
fn serve(side: &ServerSide, mtu: u16) -> io::Result<()> {
    let runtime = runtime()?;
    let engine = engine(&runtime, SERVER, mtu)?;
    let server = engine.serve().map_err(io::Error::other)?;
    side.listening(server.local_addr());
    let serving = runtime.spawn(async move {
        while let Some(mut request) = server.accept_async().await {
            let bytes = request.take_bytes();
            let last = *bytes == *GOODBYE;
            // A client that ends its round cancels its calls in progress.
            let answering = tokio::spawn(async move { drop(request.reply_async(bytes).await) });
            if last {
                return answering.await;
            }
        }
        Ok(())
    });
    runtime.block_on(serving)??;
    // The last reply leaves, or the client has gone: both are fine.
    let _ = engine.drain(Duration::from_millis(100));
    Ok(())
}

/// Runs a client against [`serve`].
fn run<T: Send + 'static>(
    pair: &Pair,
    client: impl FnOnce(&Runtime, Client, SocketAddr) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let mtu = pair.mtu;
    pair.run(
        move |side| serve(side, mtu),
        move |address| {
            let runtime = runtime()?;
            let caller = engine(&runtime, CLIENT, mtu)?.client();
            let measured = client(&runtime, caller.clone(), address)?;
            let last = runtime.block_on(caller.call_async(address, GOODBYE));
            last.map_err(io::Error::other)?;
            Ok(measured)
        },
    )
}

/// Echo, one at a time.
pub fn echo(pair: &Pair, bytes: usize, time: Duration) -> io::Result<Tail> {
    run(pair, move |runtime, client, address| {
        let request = vec![7; bytes];
        time_exchanges(time, || {
            let call = client.call_async(address, request.clone());
            runtime.block_on(call).map(drop).map_err(io::Error::other)
        })
    })
}

/// RPCs per second of `load`, which is for one peer.
pub fn rate(pair: &Pair, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let load = load.clone();
    run(pair, move |runtime, client, address| {
        let request = vec![7; load.sizes[0] as usize];
        rate_of_tasks(runtime, &load, time, move || {
            let call = client.call_async(address, request.clone());
            async { call.await.map(drop).map_err(io::Error::other) }
        })
    })
}

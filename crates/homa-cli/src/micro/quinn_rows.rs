//! The encrypted rival: QUIC by quinn, one stream for each call over one connection, one thread and
//! one core a side (feature `quinn`).
//!
//! TLS 1.3 with aws-lc-rs, as in Homa's sealed rows. Left out: several connections, and 0-RTT.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use tokio::runtime::Runtime;

use super::echo::time_exchanges;
use super::pair::{CLIENT, Pair, SERVER, ServerSide};
use super::stats::Tail;
use super::tcp_batched::{RateLoad, rate_of_tasks, runtime};

/// The name in the server's certificate.
const NAME: &str = "bench";
/// Longest message, bytes.
const MESSAGE_MAX: usize = 1 << 20;
/// Streams in progress: more than any row has.
const STREAMS_MAX: u32 = 1024;

/// Configurations of both sides, with a new certificate.
fn configs() -> io::Result<(ServerConfig, ClientConfig)> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(io::Error::other)?;
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(key).into();
    let server = ServerConfig::with_single_cert(vec![certificate], key);
    let mut server = server.map_err(io::Error::other)?;
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(STREAMS_MAX.into());
    server.transport_config(Arc::new(transport));
    Ok((server, client))
}

/// Serves until the client is done.
fn serve(side: &ServerSide, config: ServerConfig) -> io::Result<()> {
    runtime()?.block_on(async {
        let endpoint = Endpoint::server(config, (SERVER, 0).into())?;
        side.listening(endpoint.local_addr()?);
        let serving = async {
            while let Some(incoming) = endpoint.accept().await {
                if let Ok(connection) = incoming.await {
                    tokio::spawn(answer(connection));
                }
            }
        };
        let stopped = async {
            while !side.stopped() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = serving => {}
            () = stopped => {}
        }
        Ok(())
    })
}

/// Answers each stream of a connection in a task, until the client closes it.
async fn answer(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let request = receive.read_to_end(MESSAGE_MAX).await.map_err(io::Error::other)?;
            send.write_all(&request).await.map_err(io::Error::other)?;
            send.finish().map_err(io::Error::other)
        });
    }
}

async fn ask(connection: &Connection, request: &[u8]) -> io::Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(request).await?;
    send.finish().map_err(io::Error::other)?;
    receive.read_to_end(MESSAGE_MAX).await.map(drop).map_err(io::Error::other)
}

fn run<T: Send + 'static>(
    pair: &Pair,
    client: impl FnOnce(&Runtime, Connection) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (server, config) = configs()?;
    pair.run(
        move |side| serve(side, server),
        move |address: SocketAddr| {
            let runtime = runtime()?;
            let connection = runtime.block_on(async {
                let mut endpoint = Endpoint::client((CLIENT, 0).into())?;
                endpoint.set_default_client_config(config);
                let connecting = endpoint.connect(address, NAME).map_err(io::Error::other)?;
                connecting.await.map_err(io::Error::other)
            })?;
            client(&runtime, connection)
        },
    )
}

/// Echo, one at a time.
pub fn echo(pair: &Pair, bytes: usize, time: Duration) -> io::Result<Tail> {
    run(pair, move |runtime, connection| {
        let request = vec![7; bytes];
        time_exchanges(time, || runtime.block_on(ask(&connection, &request)))
    })
}

/// RPCs per second of `load`, which is for one peer.
pub fn rate(pair: &Pair, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let load = load.clone();
    run(pair, move |runtime, connection| {
        let request: Arc<[u8]> = vec![7; load.sizes[0] as usize].into();
        rate_of_tasks(runtime, &load, time, move || {
            let (connection, request) = (connection.clone(), request.clone());
            async move { ask(&connection, &request).await }
        })
    })
}

//! The search service, written once for both transports. A root asks all shards of an index at
//! once. Each of the 20 leaves has a shard, and a copy of the shard before it. If a leaf is slow or
//! fails, the root also asks the one with the copy, and drops the slower call. It does so for at
//! most one call in 20, because otherwise overload would double the load.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use homa_tonic::{ConnectError, Endpoint, ServeError, Server};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

#[allow(missing_docs, unused_qualifications, clippy::all)]
mod generated {
    include!("generated/search.rs");
}

pub use generated::search_client::SearchClient;
use generated::search_server::{Search, SearchServer};
pub use generated::{Hit, Query, Results};

/// Leaves of the root.
pub const LEAVES: usize = 20;

/// The time that a user waits.
pub const DEADLINE: Duration = Duration::from_millis(100);

/// Searches that the root has in progress at a time. Over Homa, others wait in the engine, which
/// refuses those that would be late. Over TCP, others are refused at once: tonic's limit alone
/// would let them wait until their deadline, and the root would begin those that are nearly late.
/// Without a limit, a root with too much to do begins all of them and completes few in time.
pub const SEARCHES: usize = 16;

/// After this time without an answer, the leaf with the copy is asked, too.
const HEDGE: Duration = Duration::from_millis(10);

/// One search in this many waits at a leaf, and for how long: for a disk, or a collector.
const STRAGGLES: u32 = 1_000;
const STRAGGLER: Duration = Duration::from_millis(30);

/// What carries the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcTransport {
    /// homa-tonic.
    Homa,
    /// tonic over TCP.
    Tcp,
}

/// A channel of either transport.
pub type Channel = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// A server of a part of the index.
struct Leaf(u32);

#[tonic::async_trait]
impl Search for Leaf {
    async fn find(&self, request: Request<Query>) -> Result<Response<Results>, Status> {
        let Query { words, number } = request.into_inner();
        // Spread over the leaves, so that about every fiftieth search has one that waits.
        if (number.wrapping_mul(7_919) ^ self.0.wrapping_mul(104_729)).is_multiple_of(STRAGGLES) {
            sleep(STRAGGLER).await;
        }
        let hits = (0..5).map(|n| Hit {
            document: u64::from(self.0) << 32 | n,
            score: 1.0 / (n + 1) as f32,
            title: format!("{words}, document {n} of shard {}", self.0),
        });
        Ok(Response::new(Results { hits: hits.collect(), shards: 1 }))
    }
}

/// The server that users call.
struct Root {
    leaves: Vec<SearchClient<Channel>>,
    hedges: Arc<HedgeBudget>,
}

/// Counts calls, and 20 for each hedge.
#[derive(Default)]
struct HedgeBudget(AtomicI64);

impl HedgeBudget {
    fn call(&self) {
        let saved = self.0.fetch_add(1, Ordering::Relaxed);
        // No more than a burst of 20 hedges is saved.
        if saved >= 400 {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        let left = |calls| (calls >= 20).then_some(calls - 20);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

/// Asks a leaf about its shard, and the leaf with the copy if the first is slow or fails.
async fn ask(
    [first, copy]: [SearchClient<Channel>; 2],
    query: Query,
    hedges: Arc<HedgeBudget>,
) -> Option<Results> {
    hedges.call();
    let [first, copy] = [first, copy].map(|mut leaf| {
        let mut request = Request::new(query.clone());
        // The rest of the time is for the answer of the root.
        request.set_timeout(DEADLINE * 3 / 4);
        async move { leaf.find(request).await.map(Response::into_inner) }
    });
    let mut first = pin!(first);
    let found = match timeout(HEDGE, &mut first).await {
        Ok(Ok(found)) => Ok(found),
        slow_or_failed if !hedges.take() => match slow_or_failed {
            Ok(failed) => failed,
            Err(_) => first.await,
        },
        Ok(Err(_)) => copy.await,
        Err(_) => tokio::select! {
            Ok(found) = first => Ok(found),
            found = copy => found,
        },
    };
    found.ok()
}

/// Waits for all of some futures, which begin at once.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|context| {
        let mut waits = false;
        for (future, output) in &mut futures {
            match future.as_mut().map(|future| future.as_mut().poll(context)) {
                Some(Poll::Ready(ready)) => (*future, *output) = (None, Some(ready)),
                Some(Poll::Pending) => waits = true,
                None => {}
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

#[tonic::async_trait]
impl Search for Root {
    async fn find(&self, request: Request<Query>) -> Result<Response<Results>, Status> {
        let query = request.into_inner();
        let leaf = |n: usize| self.leaves[n % LEAVES].clone();
        let pairs: Vec<_> = (0..LEAVES).map(|n| [leaf(n), leaf(n + 1)]).collect();
        let ask = |pair| ask(pair, query.clone(), self.hedges.clone());
        let found = all(pairs.into_iter().map(ask)).await;
        let mut merged = Results::default();
        for results in found.into_iter().flatten() {
            merged.shards += results.shards;
            merged.hits.extend(results.hits);
        }
        merged.hits.sort_by(|a, b| b.score.total_cmp(&a.score));
        merged.hits.truncate(10);
        Ok(Response::new(merged))
    }
}

/// A running service; dropping it ends its servers.
pub struct Running {
    /// Calls the root.
    pub client: SearchClient<Channel>,
    _servers: JoinSet<()>,
}

/// The service of a leaf.
pub fn leaf(number: u32) -> SearchServer<impl Search> {
    SearchServer::new(Leaf(number))
}

/// The service of the root.
pub fn root(leaves: Vec<SearchClient<Channel>>) -> SearchServer<impl Search> {
    SearchServer::new(Root { leaves, hedges: Arc::default() })
}

/// Serves over Homa until `stop` resolves, for example at SIGTERM. Then it finishes what is in
/// progress.
pub async fn serve_homa(
    server: homa::Server,
    service: SearchServer<impl Search>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    Server::builder().add_service(service).serve_on(server, stop).await
}

/// Calls a server over Homa.
pub async fn connect_homa(
    at: SocketAddr,
    client: &homa::Client,
) -> Result<SearchClient<Channel>, ConnectError> {
    let endpoint = Endpoint::from_shared(format!("homa://{at}"))?.client(client.clone());
    Ok(SearchClient::new(BoxCloneSyncService::new(endpoint.connect().await?)))
}

/// Starts the leaves and the root on loopback, in the current runtime.
pub async fn start(transport: GrpcTransport) -> Result<Running, BoxError> {
    let mut servers = JoinSet::new();
    let mut leaves = Vec::new();
    let shared = homa::Client::new()?;
    shared.engine().drive_on_tokio()?;
    for number in 0..LEAVES as u32 {
        let at = serve(transport, leaf(number), usize::MAX, &mut servers).await?;
        leaves.push(connect(transport, at, &shared).await?);
    }
    let at = serve(transport, root(leaves), SEARCHES, &mut servers).await?;
    let user = homa::Client::new()?;
    user.engine().drive_on_tokio()?;
    let client = connect(transport, at, &user).await?;
    Ok(Running { client, _servers: servers })
}

async fn serve(
    transport: GrpcTransport,
    service: SearchServer<impl Search>,
    concurrency: usize,
    servers: &mut JoinSet<()>,
) -> Result<SocketAddr, BoxError> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    match transport {
        GrpcTransport::Homa => {
            let engine = homa::Engine::bind(any, homa::Config::default())?;
            engine.drive_on_tokio()?;
            let (at, server) = (engine.local_addr(), engine.serve()?.concurrency(concurrency));
            servers.spawn(async move {
                let _ = serve_homa(server, service, std::future::pending()).await;
            });
            Ok(at)
        }
        GrpcTransport::Tcp => {
            let incoming = TcpIncoming::bind(any)?.with_nodelay(Some(true));
            let at = incoming.local_addr()?;
            let mut builder = tonic::transport::Server::builder();
            if concurrency < usize::MAX {
                builder = builder.concurrency_limit_per_connection(concurrency).load_shed(true);
            }
            let router = builder.add_service(service);
            servers.spawn(async move {
                let _ = router.serve_with_incoming(incoming).await;
            });
            Ok(at)
        }
    }
}

async fn connect(
    transport: GrpcTransport,
    at: SocketAddr,
    client: &homa::Client,
) -> Result<SearchClient<Channel>, BoxError> {
    Ok(match transport {
        GrpcTransport::Homa => connect_homa(at, client).await?,
        GrpcTransport::Tcp => {
            let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{at}"))?;
            let channel = endpoint.tcp_nodelay(true).connect().await?;
            let status = |error| Status::from_error(Box::new(error));
            SearchClient::new(BoxCloneSyncService::new(channel.map_err(status)))
        }
    })
}

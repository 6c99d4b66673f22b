//! RPCs over gRPC (feature `grpc`), by tonic's client and server: over TCP, or unchanged through a
//! `homa proxy` beside the client and another one beside the server.
//!
//! | file | what |
//! |---|---|
//! | `echo` | the service |
//! | `proxies` | the processes of `homa proxy` |
//! | `cpu` | processor time of other threads and processes |
//!
//! Every host has a thread with a runtime for its client and server, because those cannot be driven
//! by the thread of the rack. There is one connection of HTTP/2 for each pair of hosts, as gRPC's
//! channels have it, or in each host from the client to its proxy for each server.
//!
//! Left out: retries. A call that ends with another status than OK has failed.

mod cpu;
mod echo;
mod proxies;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::homa::CallError;
use bytes::Bytes;
use homa_proto::Rate;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};

use super::homa::request;
use super::{Done, RackRpc, RpcTransport};
use crate::Host;
use crate::link::address;
use crate::sys;
use cpu::Cpu;
pub use echo::RawCodec;
use echo::{GrpcEcho, METHOD};
use proxies::Proxy;

/// Of the servers, and of the proxies beside them over Homa.
const PORT: u16 = 7_200;
/// Of the proxies beside clients.
const CLIENTS_PORT: u16 = 7_300;

/// A host whose server listens.
pub(crate) struct ListeningGrpc {
    listener: TcpListener,
    /// The program with the command `proxy`, if calls pass proxies, and the proxy of the server.
    proxied: Option<(PathBuf, Proxy)>,
    peers: Vec<usize>,
    link: Rate,
}

impl ListeningGrpc {
    /// Listens; behind a proxy of `program` if it is given.
    pub(crate) fn open(host: Host<'_>, program: Option<PathBuf>) -> io::Result<Self> {
        let (outside, link) = (SocketAddr::from((host.address(), PORT)), host.rack.link);
        let inside = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let listener = TcpListener::bind(if program.is_some() { inside } else { outside })?;
        listener.set_nonblocking(true)?;
        let proxied = program.map(|program| {
            let proxy = Proxy::of_server(&program, (outside, inside), link)?;
            io::Result::Ok((program, proxy))
        });
        let (proxied, peers) = (proxied.transpose()?, host.peers().collect());
        Ok(Self { listener, proxied, peers, link })
    }

    /// Starts the runtime with the server and the clients.
    pub(crate) fn connect(self) -> io::Result<GrpcTransport> {
        let Self { listener, proxied, peers, link } = self;
        let front = SocketAddr::from((Ipv4Addr::LOCALHOST, CLIENTS_PORT));
        let (mut proxies, through) = (Vec::new(), proxied.is_some());
        if let Some((program, proxy)) = proxied {
            proxies.extend([proxy, Proxy::of_clients(&program, front, link)?]);
        }
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        let ended = Arc::new(EndedRpcs { bell, done: Mutex::default() });
        let (submit, rpcs) = unbounded_channel();
        let (served, (began, begins)) = (Arc::<AtomicU64>::default(), mpsc::channel());
        let (ends, echo) = (ended.clone(), GrpcEcho(served.clone()));
        let thread = thread::Builder::new().name("grpc".into()).spawn(move || {
            let _ = began.send(Cpu::of_this_thread());
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let server = Server::builder().add_service(echo);
                tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
                let clients = clients(&peers, through.then_some(front))?;
                call_all(rpcs, &clients, &ends).await;
                Ok(())
            })
        })?;
        let mut busy: Vec<Cpu> = proxies.iter().map(Proxy::cpu).collect();
        busy.extend(begins.recv().ok().flatten());
        let handles = [ear.as_raw_fd()];
        let thread = Some(thread);
        Ok(GrpcTransport {
            submit: Some(submit),
            ended,
            ear,
            handles,
            served,
            busy,
            thread,
            proxies,
        })
    }
}

/// Channels to the peers, by the number of the host.
fn clients(peers: &[usize], front: Option<SocketAddr>) -> io::Result<Vec<Option<Grpc<Channel>>>> {
    let mut clients = vec![None; peers.iter().max().map_or(0, |most| most + 1)];
    for &peer in peers {
        let server = format!("http://{}:{PORT}", address(peer));
        let at = front.map_or_else(|| server.clone(), |front| format!("http://{front}"));
        let endpoint = Endpoint::from_shared(at).map_err(io::Error::other)?;
        let channel = endpoint.origin(server.parse().map_err(io::Error::other)?).connect_lazy();
        clients[peer] = Some(Grpc::new(channel).max_decoding_message_size(usize::MAX));
    }
    Ok(clients)
}

/// Makes the calls that arrive, until no more can.
async fn call_all(
    mut rpcs: UnboundedReceiver<RackRpc>,
    clients: &[Option<Grpc<Channel>>],
    ended: &Arc<EndedRpcs>,
) {
    while let Some(rpc) = rpcs.recv().await {
        let Some(client) = clients.get(rpc.server).cloned().flatten() else { continue };
        let ended = ended.clone();
        tokio::spawn(async move {
            let answered = call(client, rpc).await;
            let right = answered.is_ok_and(|bytes| bytes == rpc.response_bytes as usize);
            let error = (!right).then_some(CallError::Abandoned);
            ended.add(Done { id: rpc.id, at_ns: sys::monotonic_ns(), error });
        });
    }
}

/// One call; the length of its response.
async fn call(mut client: Grpc<Channel>, rpc: RackRpc) -> Result<usize, Status> {
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let message = Request::new(Bytes::from(request(rpc)));
    let method = PathAndQuery::from_static(METHOD);
    let response: tonic::Response<Bytes> = client.unary(message, method, RawCodec).await?;
    Ok(response.into_inner().len())
}

/// RPCs that have ended, for the thread of the rack.
struct EndedRpcs {
    bell: UnixStream,
    done: Mutex<Vec<Done>>,
}

impl EndedRpcs {
    fn add(&self, done: Done) {
        let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(done);
        if all.len() == 1 {
            // If it is full, the other end is readable.
            let _ = (&self.bell).write(&[0]);
        }
    }

    fn take(&self, into: &mut Vec<Done>) {
        into.append(&mut self.done.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// See the module's description.
pub(crate) struct GrpcTransport {
    /// `None` at the end.
    submit: Option<UnboundedSender<RackRpc>>,
    ended: Arc<EndedRpcs>,
    ear: UnixStream,
    handles: [RawFd; 1],
    served: Arc<AtomicU64>,
    /// The runtime's thread and the proxies.
    busy: Vec<Cpu>,
    thread: Option<JoinHandle<io::Result<()>>>,
    proxies: Vec<Proxy>,
}

impl RpcTransport for GrpcTransport {
    fn submit(&mut self, rpc: RackRpc) -> io::Result<()> {
        let sent = self.submit.as_ref().is_some_and(|submit| submit.send(rpc).is_ok());
        if sent { Ok(()) } else { Err(io::Error::other("the runtime of a host has ended")) }
    }

    fn turn(&mut self, readable: bool, done: &mut Vec<Done>) -> io::Result<()> {
        if readable {
            // Before the list is taken: what is added later rings again.
            let _ = self.ear.read(&mut [0; 64]);
        }
        self.ended.take(done);
        Ok(())
    }

    fn handles(&self) -> &[RawFd] {
        &self.handles
    }

    fn wake_at_ns(&mut self) -> Option<u64> {
        None
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn cpu_elsewhere(&self) -> Duration {
        self.busy.iter().map(Cpu::time).sum()
    }
}

impl Drop for GrpcTransport {
    fn drop(&mut self) {
        // The runtime ends, and with it the server, the connections, and calls in progress.
        self.submit = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.proxies.clear();
    }
}

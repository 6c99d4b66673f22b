//! Channels to several servers: all kinds of calls, retries, hedges, and typed errors.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homa::CallError;
use homa::balance::{BalanceError, Config, ResolveError};
use homa_tonic::{Channel, ConnectError, Endpoint, Idempotent};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::generated::test_service_client::TestServiceClient;
use crate::generated::{
    Empty, ResponseParameters, StreamingInputCallRequest, StreamingOutputCallRequest,
};
use crate::service::{Running, payload, serve};

/// A file of servers in the folder for tests.
struct ServerFile(PathBuf);

impl ServerFile {
    fn new(name: &str, servers: &[SocketAddr]) -> Self {
        let name = format!("grpc-{name}-{}", std::process::id());
        let file = Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        file.write(servers);
        file
    }

    fn write(&self, servers: &[SocketAddr]) {
        let lines: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        let new = self.0.with_extension("new");
        fs::write(&new, lines.join("\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("homa+file://{}", self.0.display())).unwrap()
    }
}

impl Drop for ServerFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn endpoint(at: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("homa://{at}")).unwrap()
}

/// A server whose requests nothing accepts.
fn silent() -> homa::Server {
    homa::Server::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

async fn drain(running: Running) {
    running.drain.send(()).unwrap();
    running.served.await.unwrap().unwrap();
}

async fn of_all_kinds(channel: Channel) {
    let mut client = TestServiceClient::new(channel);
    for _ in 0..20 {
        client.empty_call(Empty {}).await.unwrap();
        let inputs = [3, 4].map(|size| StreamingInputCallRequest { payload: payload(size) });
        let sum = client.streaming_input_call(tokio_stream::iter(inputs)).await.unwrap();
        assert_eq!(sum.into_inner().aggregated_payload_size, 7);
        let wanted = ResponseParameters { size: 8, interval_us: 0 };
        let request = StreamingOutputCallRequest {
            response_parameters: vec![wanted; 3],
            ..StreamingOutputCallRequest::default()
        };
        let outputs = client.streaming_output_call(request.clone()).await.unwrap().into_inner();
        assert_eq!(outputs.collect::<Vec<_>>().await.len(), 3);
        let inputs = tokio_stream::iter([request.clone(), request]);
        let outputs = client.full_duplex_call(inputs).await.unwrap().into_inner();
        assert_eq!(outputs.collect::<Vec<_>>().await.len(), 6);
    }
}

#[tokio::test]
async fn all_kinds_of_calls_go_to_all_servers_of_a_list() {
    let (one, two) = (serve().await, serve().await);
    let channel = Channel::balance_list([endpoint(one.at), endpoint(two.at)]).unwrap();
    // At the same time, because one after another all would go to the one that is a little faster.
    let callers = (0..8).map(|_| tokio::spawn(of_all_kinds(channel.clone())));
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(
        channel.servers().into_iter().collect::<HashSet<_>>(),
        HashSet::from([one.at, two.at])
    );
    for running in [&one, &two] {
        assert!(running.seen.written.load(Ordering::SeqCst) > 0, "both serve");
    }
}

#[tokio::test]
async fn a_server_that_leaves_costs_no_unary_call() {
    let (leaves, stays) = (serve().await, serve().await);
    let file = ServerFile::new("leaves", &[leaves.at, stays.at]);
    let channel = file.endpoint().connect().await.unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let callers = (0..8).map(|_| {
        let (mut client, ends) = (TestServiceClient::new(channel.clone()), ends.clone());
        tokio::spawn(async move {
            while !ends.load(Ordering::SeqCst) {
                client.empty_call(Empty {}).await.expect("no call is lost");
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    // A server that ends as soon as it has started cannot say what it has executed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It ends before the clients know.
    let left = leaves.at;
    drain(leaves).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    file.write(&[stays.at]);
    ends.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    while channel.servers().contains(&left) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn only_idempotent_calls_are_hedged() {
    let (silent, running) = (silent(), serve().await);
    let config = Config::default().hedge_after(Duration::from_millis(20)).hedge_budget(1.0);
    let channel = || {
        let silent = endpoint(silent.local_addr()).balance(config.clone());
        Channel::balance_list([silent, endpoint(running.at)]).unwrap()
    };
    let mut client = TestServiceClient::new(channel());
    for _ in 0..20 {
        let mut request = Request::new(Empty {});
        request.extensions_mut().insert(Idempotent);
        client.empty_call(request).await.unwrap();
    }
    // Another channel, which has not learned that the server is slow.
    let mut client = TestServiceClient::new(channel());
    let mut late = 0;
    for _ in 0..20 {
        let mut request = Request::new(Empty {});
        request.set_timeout(Duration::from_millis(100));
        if let Err(status) = client.empty_call(request).await {
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            late += 1;
        }
    }
    // The silent server is ejected after five of them.
    assert!((1..=6).contains(&late), "{late}");
}

#[tokio::test]
async fn a_channel_without_servers_says_why() {
    let missing = Endpoint::from_shared("homa+file:///nowhere/servers").unwrap();
    let error = missing.connect().await.unwrap_err();
    let ConnectError::NoServer { source, .. } = &error else { panic!("{error:?}") };
    let BalanceError::NoServers(reason) = &**source else { panic!("{error:?}") };
    assert!(matches!(**reason, ResolveError::File { .. }), "{reason:?}");
    let lazy = missing.connect_lazy().await.unwrap();
    let status = TestServiceClient::new(lazy).empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("/nowhere/servers"), "{status}");
    let source = status.source().and_then(|source| source.downcast_ref::<BalanceError>());
    assert!(matches!(source, Some(BalanceError::NoServers(_))), "{source:?}");
    let several = Channel::balance_list([missing]);
    assert!(matches!(several, Err(ConnectError::Several { .. })));
    let dead = silent();
    let at = dead.local_addr();
    drop(dead);
    let name = Endpoint::from_shared(format!("homa:///{at}")).unwrap();
    let error = name.connect_timeout(Duration::from_millis(300)).connect().await.unwrap_err();
    let ConnectError::NoServer { source, .. } = &error else { panic!("{error:?}") };
    let BalanceError::Call(call) = &**source else { panic!("{error:?}") };
    assert!(matches!(call, CallError::PortUnreachable | CallError::Indeterminate), "{call:?}");
}

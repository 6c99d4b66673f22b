//! The network in memory of `homa::testing`: it repeats its runs, and its faults do to callers what
//! real ones do.

mod faults;
mod repeats;

use std::time::Duration;

use homa::testing::{Host, Network};
use homa::{CallError, CallOptions, Client, Server};

/// The time that a server needs for a request.
const SERVICE: Duration = Duration::from_millis(5);

/// Echoes in tasks, until the server drains or its engine ends.
async fn echo(server: Server) {
    while let Some(mut request) = server.accept_async().await {
        let bytes = request.take_bytes();
        tokio::spawn(async move {
            tokio::time::sleep(SERVICE).await;
            let _ = request.reply_async(bytes).await; // The client may have given up.
        });
    }
}

/// A server at port 4000 of a host.
fn serve(host: &Host) {
    host.spawn(echo(host.server(4000).unwrap()));
}

/// A client, and a host with a server.
fn two(network: &Network) -> (Client, Host) {
    let (client, host) = (network.host("client"), network.host("server"));
    serve(&host);
    (client.client().unwrap(), host)
}

fn within(millis: u64) -> CallOptions {
    CallOptions::deadline(Duration::from_millis(millis))
}

#[tokio::test(start_paused = true)]
async fn long_and_short_messages_arrive_whole() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    for bytes in [0, 1, 1_400, 50_000, 3_000_000] {
        let message: Vec<u8> = (0..bytes).map(|n: u32| (n.wrapping_mul(31) >> 3) as u8).collect();
        let answer = client.call_async(host.address(4000), message.clone()).await.unwrap();
        assert!(answer == message[..], "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_in_simulated_time() {
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    let server = host.server(4000).unwrap();
    let (real, simulated) = (std::time::Instant::now(), tokio::time::Instant::now());
    let call = tokio::spawn(client.call_async(host.address(4000), "hello"));
    let request = server.accept_async().await.unwrap();
    let left = request.remaining().unwrap();
    assert!((Duration::from_secs(9)..=Duration::from_secs(10)).contains(&left), "{left:?}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(request.remaining().unwrap() + Duration::from_secs(4) <= left);
    request.cancelled().await;
    assert_eq!(request.remaining(), Some(Duration::ZERO));
    assert_eq!(call.await.unwrap(), Err(CallError::DeadlineExceeded));
    let took = simulated.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_millis(10_100)).contains(&took), "{took:?}");
    assert!(real.elapsed() < took, "the time is simulated");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_server_in_simulated_time() {
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    let began = tokio::time::Instant::now();
    let options = within(60_000).wait_for_ready();
    let call = tokio::spawn(client.call_async_with(host.address(4000), "hello", &options));
    tokio::time::sleep(Duration::from_secs(10)).await;
    serve(&host);
    assert_eq!(call.await.unwrap().unwrap(), *b"hello");
    let took = began.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_inherits_ends_in_simulated_time() {
    let network = Network::new(1);
    let (client, middle) = (network.host("client").client().unwrap(), network.host("middle"));
    let silent = network.host("silent");
    let held = silent.server(4000).unwrap();
    let (server, onward) = (middle.server(4000).unwrap(), silent.address(4000));
    let inner = middle.spawn(async move {
        let request = server.accept_async().await.unwrap();
        let began = tokio::time::Instant::now();
        let ended = request.client().call_async(onward, "onward").await;
        (ended, began.elapsed())
    });
    let outer = client.call_async_with(middle.address(4000), "a question", &within(300)).await;
    assert_eq!(outer, Err(CallError::DeadlineExceeded));
    let (ended, took) = inner.await.unwrap();
    assert_eq!(ended, Err(CallError::DeadlineExceeded));
    assert!(took <= Duration::from_millis(310), "{took:?}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_requests_in_progress() {
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    let server = host.server(4000).unwrap();
    let to = host.address(4000);
    let call = tokio::spawn(client.call_async(to, "before"));
    let request = server.accept_async().await.unwrap();
    let short = server.drain_async(Duration::from_millis(50)).await;
    assert_eq!(short.map_err(|left| left.requests), Err(1));
    let (drained, ()) = tokio::join!(server.drain_async(Duration::from_secs(5)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        request.reply("done").unwrap();
    });
    drained.unwrap();
    assert_eq!(call.await.unwrap().unwrap(), *b"done");
    assert_eq!(client.call_async(to, "after").await, Err(CallError::PortUnreachable));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "use the asynchronous one")]
async fn a_function_that_would_stop_the_time_panics() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    let _ = client.call(host.address(4000), "blocks");
}

#[tokio::test]
#[should_panic(expected = "start_paused")]
async fn a_network_needs_a_runtime_whose_time_is_paused() {
    let _ = Network::new(1);
}

#[cfg(feature = "tower")]
#[tokio::test(start_paused = true)]
async fn a_tower_service_is_served_and_drained_unchanged() {
    use homa::tower::{Incoming, serve};
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    client.engine().drive_on_tokio().unwrap();
    let slow = tower::service_fn(|request: Incoming| async move {
        tokio::time::sleep(request.remaining().unwrap() / 2).await;
        Ok::<_, std::convert::Infallible>(request.to_ascii_uppercase())
    });
    let serving = serve(host.server(4000).unwrap(), slow).unwrap();
    let call = tokio::spawn(client.call_async(host.address(4000), "hello"));
    tokio::time::sleep(SERVICE).await;
    serving.drain(Duration::from_secs(30)).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap(), *b"HELLO");
    assert!(client.engine().healthy() && host.client().unwrap().engine().healthy());
}

//! Faults, and the typed errors that they lead to.

use std::time::Duration;

use homa::testing::{LinkConditions, Network};
use homa::{CallError, CallOptions, Engine};
use tokio::time::{Instant, sleep};

use super::{serve, two, within};

#[tokio::test(start_paused = true)]
async fn a_partition_blocks_both_ways_until_it_heals() {
    let network = Network::new(1);
    let (a, b, c) = (network.host("a"), network.host("b"), network.host("c"));
    [&a, &b, &c].into_iter().for_each(serve);
    let (from_a, from_b) = (a.client().unwrap(), b.client().unwrap());
    from_a.call_async(b.address(4000), "before").await.unwrap();
    from_b.call_async(a.address(4000), "before").await.unwrap();
    network.partition(&b, &a);
    let arrived = network.counters().arrived;
    let to_b = from_a.call_async_with(b.address(4000), "lost", &within(200)).await;
    assert_eq!(to_b, Err(CallError::DeadlineExceeded));
    let to_a = from_b.call_async_with(a.address(4000), "lost", &within(200)).await;
    assert_eq!(to_a, Err(CallError::DeadlineExceeded));
    assert_eq!(network.counters().arrived, arrived);
    assert!(network.counters().blocked > 0);
    from_a.call_async(c.address(4000), "beside").await.unwrap();
    network.heal(&a, &b);
    from_a.call_async(b.address(4000), "after").await.unwrap();
    from_b.call_async(a.address(4000), "after").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_share_of_datagrams_is_lost_or_arrives_twice() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    network.set_link(LinkConditions::default().lost(0.1).duplicated(0.05));
    for _ in 0..2_000 {
        let options = CallOptions::default().idempotent();
        client.call_async_with(host.address(4000), "a question", &options).await.unwrap();
    }
    let counted = network.counters();
    let share = |part: u64| part as f64 / counted.sent as f64;
    assert!(counted.sent > 4_000, "{counted:?}");
    assert!((0.08..0.12).contains(&share(counted.lost)), "{counted:?}");
    assert!((0.035..0.055).contains(&share(counted.duplicated)), "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn latency_and_bandwidth_of_a_path_take_their_time() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    let to = host.address(4000);
    client.call_async(to, "the first call validates the client").await.unwrap();
    let user = network.host("client");
    network.set_link_between(
        &user,
        &host,
        LinkConditions::default().latency(Duration::from_millis(70)),
    );
    let began = Instant::now();
    client.call_async(to, "far").await.unwrap();
    let took = began.elapsed();
    assert!((145..155).contains(&took.as_millis()), "{took:?}");
    // A byte each microsecond, there and back.
    network.set_link_between(&user, &host, LinkConditions::default().bandwidth(8_000_000));
    let began = Instant::now();
    client.call_async(to, vec![7; 100_000]).await.unwrap();
    let took = began.elapsed();
    assert!((200..400).contains(&took.as_millis()), "{took:?}");
}

/// As `restart::a_dead_servers_calls_are_retried_or_indeterminate`, with real processes.
#[tokio::test(start_paused = true)]
async fn a_crash_has_the_errors_of_a_real_restart() {
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    let to = host.address(4000);
    let server = host.server(4000).unwrap();
    let deadline = CallOptions::deadline(Duration::from_secs(60));
    let call = |options: CallOptions| {
        let client = client.clone();
        tokio::spawn(async move { client.call_async_with(to, vec![7; 3_000], &options).await })
    };
    let (repeated, once) = (call(deadline.idempotent()), call(deadline));
    let held = [server.accept_async().await.unwrap(), server.accept_async().await.unwrap()];
    host.crash();
    assert_eq!(once.await.unwrap(), Err(CallError::Indeterminate));
    assert_eq!(client.call_async(to, "hello").await, Err(CallError::PortUnreachable));
    assert!(server.accept_async().await.is_none(), "the crashed server has ended");
    drop((server, held));
    serve(&host);
    assert_eq!(repeated.await.unwrap().unwrap().len(), 3_000);
    assert_eq!(client.call_async(to, "again").await.unwrap(), *b"again");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_executes_no_old_request_again() {
    let network = Network::new(1);
    let (client, host) = (network.host("client").client().unwrap(), network.host("server"));
    let to = host.address(4000);
    let link = LinkConditions::default().latency_between(Duration::ZERO, Duration::from_millis(20));
    network.set_link(link.duplicated(0.5));
    let mut executed = vec![0; 200];
    for number in 0..100 {
        let server = host.server(4000).unwrap();
        // The first call after a restart may be indeterminate.
        let client = client.clone();
        let calls = tokio::spawn(async move {
            let first = client.call_async_with(to, [number], &within(500)).await;
            (first, client.call_async_with(to, [number + 100], &within(500)).await)
        });
        // The copies of earlier requests arrive at this server.
        while let Ok(Some(request)) =
            tokio::time::timeout(Duration::from_millis(100), server.accept_async()).await
        {
            executed[usize::from(request[0])] += 1;
            let _ = request.reply("done"); // The client may have given up.
        }
        host.crash();
        drop(calls.await.unwrap());
    }
    assert!(executed.iter().all(|times| *times <= 1), "{executed:?}");
    assert!(executed.iter().sum::<u32>() >= 100, "{executed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_host_answers_when_it_runs_again() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    let to = host.address(4000);
    client.call_async(to, "before").await.unwrap();
    host.pause();
    let late = client.call_async_with(to, "late", &within(200)).await;
    assert_eq!(late, Err(CallError::DeadlineExceeded));
    let began = Instant::now();
    let call = tokio::spawn(client.call_async(to, "waits"));
    sleep(Duration::from_secs(2)).await;
    host.resume();
    assert_eq!(call.await.unwrap().unwrap(), *b"waits");
    let took = began.elapsed();
    assert!((2_000..2_100).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_crashed_engine_end() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    let user = network.host("client");
    network.partition(&user, &host);
    let call = tokio::spawn(client.call_async(host.address(4000), "a question"));
    let endless = user.spawn(std::future::pending::<()>());
    sleep(Duration::from_millis(20)).await;
    user.crash();
    assert!(matches!(call.await.unwrap(), Err(CallError::EngineFailed { .. })));
    assert!(endless.await.unwrap_err().is_cancelled());
    network.heal_all();
    // The same port is free again.
    let engine: Engine = user.engine(5000).unwrap();
    user.crash();
    drop(user.engine(5000).unwrap());
    drop(engine);
    let again = user.client().unwrap();
    again.call_async(host.address(4000), "after").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_without_power_is_silent() {
    let network = Network::new(1);
    let (client, host) = two(&network);
    network.isolate(&host);
    host.crash();
    let silent = client.call_async_with(host.address(4000), "hello", &within(200)).await;
    assert_eq!(silent, Err(CallError::DeadlineExceeded));
}

//! If there is no capacity, callers and servers that reply wait for it instead of trying again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homa::{CallError, Client, Config, ReplyError};
use tokio::time::timeout;

use crate::common::{engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Long enough to notice an event that must not happen.
const A_WHILE: Duration = Duration::from_millis(50);

fn narrow(max_rpcs: u32) -> Config {
    let mut config = Config::default();
    config.protocol.max_rpcs = max_rpcs;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_room_and_none_is_refused() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap();
    let at = server.local_addr();
    let client = engine("127.0.0.1", narrow(2)).client();
    let (one, two) = (client.call_async(at, "one"), client.call_async(at, "two"));
    assert_eq!(client.call_async(at, "three").await, Err(CallError::TooManyCalls { max: 2 }));
    assert!(timeout(A_WHILE, client.ready()).await.is_err(), "there is no room");
    server.accept_async().await.unwrap().reply("done").unwrap();
    timeout(GIVE_UP, client.ready()).await.expect("a call has ended").unwrap();
    // Both requests were accepted before their clients gave up. The server forgets requests that it
    // has not handed out.
    drop(server.accept_async().await);
    drop((one, two));

    let serving = tokio::spawn(async move {
        while let Some(mut request) = server.accept_async().await {
            let bytes = request.take_bytes();
            let _ = request.reply(bytes);
        }
    });
    // Any of the tasks may find that another has taken the capacity.
    let refused = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..20u64)
        .map(|task| {
            let (client, refused) = (client.clone(), refused.clone());
            tokio::spawn(async move {
                for n in 0..50 {
                    let request = message(100, task << 32 | n);
                    let response = loop {
                        client.ready().await.unwrap();
                        match client.call_async(at, request.clone()).await {
                            Err(CallError::TooManyCalls { .. }) => {
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                            other => break other.unwrap(),
                        };
                    };
                    assert!(response[..] == request);
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(GIVE_UP, task).await.expect("every waiter is woken").unwrap();
    }
    // Tasks are woken only for free capacity, so few of them find that another task was faster.
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused < 500, "{refused} of 1,000 calls were refused");

    client.engine().drain(GIVE_UP).unwrap();
    assert_eq!(client.ready().await, Err(CallError::ShuttingDown));
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_for_a_request_is_that_of_its_bytes() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap();
    let config = Config::default().send_memory(100_000);
    let client = engine("127.0.0.1", config).client();
    let call = client.call_async(server.local_addr(), message(60_000, 1));
    let request = server.accept_async().await.unwrap();
    timeout(GIVE_UP, client.ready_for(40_000)).await.unwrap().unwrap();
    assert!(timeout(A_WHILE, client.ready_for(40_001)).await.is_err());
    assert!(timeout(A_WHILE, client.ready()).await.is_err(), "any length may be sent then");
    request.reply("got it").unwrap();
    call.await.unwrap();
    timeout(GIVE_UP, client.ready()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_wait_for_room_and_all_arrive() {
    const LENGTH: usize = 70_000;
    let config = Config::default().send_memory(200_000);
    let server = engine("127.0.0.1", config).serve().unwrap();
    let at = server.local_addr();
    let client = Client::new().unwrap();
    let calls: Vec<_> = (0..30u64).map(|n| client.call_async(at, n.to_be_bytes())).collect();
    let mut replies = Vec::new();
    for _ in 0..30 {
        let request = server.accept_async().await.unwrap();
        let n = u64::from_be_bytes(request[..].try_into().unwrap());
        replies.push(tokio::spawn(request.reply_async(message(LENGTH, n))));
    }
    for (n, call) in (0..).zip(calls) {
        let response = timeout(GIVE_UP, call).await.expect("every waiter is woken").unwrap();
        assert!(response[..] == message(LENGTH, n));
    }
    for reply in replies {
        timeout(GIVE_UP, reply).await.unwrap().unwrap().expect("it was taken over");
    }
    // A message that can never be sent is refused at once, and the error returns all that a
    // different answer needs.
    let call = client.call_async(at, "long");
    let request = server.accept_async().await.unwrap();
    let refused = request.reply_async(message(300_000, 1)).await.unwrap_err();
    assert!(matches!(refused.error, ReplyError::MessageTooLong { .. }), "{refused}");
    refused.request.reply_async("short").await.unwrap();
    assert_eq!(&call.await.unwrap()[..], b"short");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_nobody_waits_for_does_not_wait() {
    let config = Config::default().send_memory(100_000);
    let server = engine("127.0.0.1", config).serve().unwrap();
    let at = server.local_addr();
    let (client, other) = (Client::new().unwrap(), Client::new().unwrap());
    // A call that the server makes itself fills its memory, because no server answers it.
    let silent = engine("127.0.0.1", Config::default()).serve().unwrap();
    let holds = server.engine().client().call_async(silent.local_addr(), message(90_000, 1));
    let held = silent.accept_async().await.unwrap();
    let call = client.call_async(at, "first");
    let request = server.accept_async().await.unwrap();
    let reply = tokio::spawn(request.reply_async(message(90_000, 2)));
    let behind = other.call_async(at, "second");
    let request = server.accept_async().await.unwrap();
    let mut second = Box::pin(request.reply_async(message(90_000, 3)));
    assert!(timeout(A_WHILE, &mut second).await.is_err(), "there is no room");
    drop(call);
    let gone = timeout(GIVE_UP, reply).await.expect("its client gave up").unwrap().unwrap_err();
    assert!(matches!(gone.error, ReplyError::Gone), "{gone}");
    held.reply("done").unwrap();
    holds.await.unwrap();
    timeout(GIVE_UP, second).await.expect("there is room").unwrap();
    assert!(behind.await.unwrap()[..] == message(90_000, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_takes_only_its_share_of_calls() {
    let [hangs, works] = [(); 2].map(|()| engine("127.0.0.1", Config::default()).serve().unwrap());
    let (stuck, at) = (hangs.local_addr(), works.local_addr());
    let client = engine("127.0.0.1", Config::default().max_calls_per_server(2)).client();
    let held = [client.call_async(stuck, "one"), client.call_async(stuck, "two")];
    let refused = client.call_async(stuck, "three").await.unwrap_err();
    assert_eq!(refused, CallError::TooManyCallsTo { server: stuck, max: 2 });
    assert!(refused.is_retryable() && refused.is_overloaded() && refused.not_executed());
    let listed = client.engine().metrics().peers;
    assert_eq!(
        listed.iter().map(|peer| (peer.peer, peer.in_progress)).collect::<Vec<_>>(),
        [(stuck, 2)]
    );

    // Calls that wait for the first server do not delay those to the other.
    let waits = || {
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                client.ready_to(stuck, 1).await.unwrap();
                match client.call_async(stuck, "waited").await {
                    // Another task was faster: room is not reserved.
                    Err(CallError::TooManyCallsTo { .. }) => {}
                    ended => break ended.unwrap(),
                }
            }
        })
    };
    let waiting = [waits(), waits(), waits()];
    tokio::time::sleep(A_WHILE).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    let serving = tokio::spawn(async move {
        while let Some(mut request) = works.accept_async().await {
            let bytes = request.take_bytes();
            let _ = request.reply(bytes);
        }
    });
    for n in 0..20u8 {
        timeout(GIVE_UP, client.ready_to(at, 1)).await.unwrap().unwrap();
        assert_eq!(client.call_async(at, [n]).await.unwrap()[..], [n]);
    }
    // They follow as the server answers, never more than two at a time.
    let serves = tokio::spawn(async move {
        for _ in 0..5 {
            hangs.accept_async().await.unwrap().reply("done").unwrap();
        }
    });
    for call in held {
        timeout(GIVE_UP, call).await.unwrap().unwrap();
    }
    for task in waiting {
        let answer = timeout(GIVE_UP, task).await.expect("every waiter is woken").unwrap();
        assert_eq!(&answer[..], b"done");
    }
    serves.await.unwrap();
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_wait_for_one_server_and_few_are_refused() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap();
    let at = server.local_addr();
    let client = engine("127.0.0.1", Config::default().max_calls_per_server(3)).client();
    let serving = tokio::spawn(async move {
        while let Some(mut request) = server.accept_async().await {
            let bytes = request.take_bytes();
            let _ = request.reply(bytes);
        }
    });
    let refused = Arc::new(AtomicUsize::new(0));
    let tasks = (0..40u64).map(|task| {
        let (client, refused) = (client.clone(), refused.clone());
        tokio::spawn(async move {
            for n in 0..25 {
                let request = message(100, task << 32 | n);
                let response = loop {
                    client.ready_to(at, request.len()).await.unwrap();
                    match client.call_async(at, request.clone()).await {
                        Err(CallError::TooManyCallsTo { .. }) => {
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        other => break other.unwrap(),
                    };
                };
                assert!(response[..] == request);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(GIVE_UP, task).await.expect("every waiter is woken").unwrap();
    }
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused < 500, "{refused} of 1,000 calls were refused");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_place_among_the_peers() {
    let [first, second] = [(); 2].map(|()| engine("127.0.0.1", Config::default()).serve().unwrap());
    let (busy, at) = (first.local_addr(), second.local_addr());
    let mut config = Config::default();
    config.max_peers = 1;
    let client = engine("127.0.0.1", config).client();
    let held = client.call_async(busy, "held");
    let refused = client.call_async(at, "one").await.unwrap_err();
    assert_eq!(refused, CallError::TooManyPeers { max: 1 });
    timeout(GIVE_UP, client.ready_to(busy, 1)).await.expect("it has its place").unwrap();
    assert!(timeout(A_WHILE, client.ready_to(at, 1)).await.is_err(), "there is no place");
    let waits = client.clone();
    let waiting = tokio::spawn(async move { waits.ready_to(at, 1).await });
    tokio::time::sleep(A_WHILE).await;
    first.accept_async().await.unwrap().reply("done").unwrap();
    held.await.unwrap();
    timeout(GIVE_UP, waiting).await.expect("a peer has no call").unwrap().unwrap();
    let call = client.call_async(at, "one");
    second.accept_async().await.unwrap().reply("done").unwrap();
    assert_eq!(call.await.unwrap(), *b"done");
}

//! Shards that are served by a thread each, with a runtime of its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use homa::{Client, Config, Engine, OpenError, Server};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

#[test]
fn the_thread_of_a_shard_handles_its_requests() {
    const CLIENTS: u8 = 12;
    let sharded = Engine::sharded("127.0.0.1:0".parse().unwrap(), 2, Config::default()).unwrap();
    let seen = Arc::new(Mutex::new(HashMap::<u8, HashSet<thread::ThreadId>>::new()));
    let notes = seen.clone();
    let serve = move |server: Server| {
        let notes = notes.clone();
        async move {
            while let Some(mut request) = server.accept_async().await {
                let notes = notes.clone();
                tokio::spawn(async move {
                    let bytes = request.take_bytes();
                    tokio::task::yield_now().await;
                    let here = thread::current().id();
                    notes.lock().unwrap().entry(bytes[0]).or_default().insert(here);
                    request.reply_async(bytes).await.unwrap();
                });
            }
            server.drain_async(GIVE_UP).await.unwrap();
        }
    };
    let threads = sharded.serve_on_threads(serve.clone()).unwrap();
    assert!(matches!(sharded.serve_on_threads(serve), Err(OpenError::Served { .. })));
    let clients: Vec<_> = (0..CLIENTS).map(|n| (n, Client::new().unwrap())).collect();
    for round in 0..20 {
        for (n, client) in &clients {
            let request = [*n, round];
            assert_eq!(client.call(sharded.local_addr(), request).unwrap()[..], request);
        }
    }
    sharded.drain(GIVE_UP).unwrap();
    let ran: HashSet<_> = threads.iter().map(|thread| thread.thread().id()).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), ran.len()), (CLIENTS.into(), 2));
    for threads in seen.values() {
        assert!(threads.len() == 1 && threads.is_subset(&ran), "{seen:?}");
    }
}

//! An in-memory key-value server with many concurrent clients, all in one process. Four threads
//! serve, and sixteen threads write and read back. Large values do not delay small ones.
//!
//! ```text
//! cargo run --release -p homa-rpc --example kv
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use homa::{CallOptions, Client, Config, Engine, Request, Server};

const SERVERS: usize = 4;
const CLIENTS: usize = 16;
const ROUNDS: usize = 500;

/// Keys and values. The first byte of a request tells what to do.
type Store = RwLock<HashMap<Vec<u8>, Vec<u8>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::bind("127.0.0.1:0".parse()?, Config::default())?;
    let server = engine.serve()?;
    let store = Store::default();
    let client = Client::new()?;
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| serve(&server, &store));
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (client, to) = (client.clone(), server.local_addr());
                scope.spawn(move || write_and_read_back(&client, to, number))
            })
            .collect();
        for client in clients {
            client.join().expect("a client does not panic").expect("every call succeeds");
        }
        // Refuses new requests, finishes the old ones, and ends the serving threads.
        engine.drain(Duration::from_secs(1)).expect("nothing is left to do");
    });
    let calls = 2 * CLIENTS * ROUNDS;
    println!("{calls} calls by {CLIENTS} clients in {:?}", started.elapsed());
    println!("{}", engine.metrics().to_openmetrics());
    Ok(())
}

fn serve(server: &Server, store: &Store) {
    while let Some(request) = server.accept() {
        let reply = answer(&request, store);
        // The client may have given up meanwhile, which is no error here. If a reply is refused,
        // the request is dropped, and the client gets an error.
        let _ = request.reply(reply);
    }
}

/// `P`, length of the key, key, value: put. `G`, key: get. Replies begin with `+` or `-`.
fn answer(request: &Request, store: &Store) -> Vec<u8> {
    match request.split_first() {
        Some((b'P', [length, rest @ ..])) if rest.len() >= usize::from(*length) => {
            let (key, value) = rest.split_at(usize::from(*length));
            let mut store = store.write().unwrap_or_else(PoisonError::into_inner);
            store.insert(key.to_vec(), value.to_vec());
            b"+".to_vec()
        }
        Some((b'G', key)) => {
            let store = store.read().unwrap_or_else(PoisonError::into_inner);
            match store.get(key) {
                Some(value) => [b"+", &value[..]].concat(),
                None => b"-no such key".to_vec(),
            }
        }
        _ => b"-bad request".to_vec(),
    }
}

fn write_and_read_back(
    client: &Client,
    server: SocketAddr,
    number: usize,
) -> Result<(), homa::CallError> {
    // Both requests can be repeated if a reply is lost.
    let options = CallOptions::deadline(Duration::from_secs(2)).idempotent();
    for round in 0..ROUNDS {
        let key = format!("{number}/{round}");
        // Every tenth value is long.
        let value = vec![number as u8; if round % 10 == 0 { 100_000 } else { 100 }];
        let put = [&[b'P', key.len() as u8], key.as_bytes(), &value].concat();
        client.call_with(server, put, &options)?;
        let got = client.call_with(server, format!("G{key}"), &options)?;
        assert_eq!(got[1..], value, "what was written is read back");
    }
    Ok(())
}

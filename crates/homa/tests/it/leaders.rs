//! Threads and tasks of one engine whose leader can leave at any time. Each gets its own response,
//! and none waits for ever. If one does, the test hangs.

use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Config};

use crate::common::{block_on, echo, engine, message};

/// How many rounds each thread makes.
const ROUNDS: u64 = 150;
const THREADS: u64 = 8;

/// Makes calls of every kind, some of which end early.
fn calls(client: &Client, servers: [SocketAddr; 2], silent: SocketAddr, thread: u64) {
    for round in 0..ROUNDS {
        let number = thread * ROUNDS + round;
        let request = message(50 + number as usize % 3000, number);
        let to = servers[number as usize / 2 % 2];
        match (number + thread) % 8 {
            // A thread that leads meanwhile leaves at its deadline.
            0 => {
                let options = CallOptions::deadline(Duration::from_micros(500));
                let result = client.call_with(silent, request, &options);
                assert_eq!(result, Err(CallError::DeadlineExceeded));
            }
            // The call is dropped before, while, or after it ends.
            1 => {
                let mut call = client.call_async(to, request);
                for _ in 0..number % 64 {
                    let _ = pin!(&mut call).poll(&mut Context::from_waker(Waker::noop()));
                    thread::yield_now();
                }
            }
            2 | 3 => {
                assert!(block_on(client.call_async(to, request.clone())).unwrap()[..] == request);
            }
            _ => assert!(client.call(to, request.clone()).unwrap()[..] == request),
        }
    }
}

#[test]
fn leaders_leave_at_any_time_and_every_call_gets_its_response() {
    let open = || engine("127.0.0.1", Config::default());
    let (shared, other, silent) = (open(), open(), open());
    let (here, there) = (shared.serve().unwrap(), other.serve().unwrap());
    let _silent = silent.serve().unwrap();
    let echoes = [echo(here.clone()), echo(here), echo(there)];
    let servers = [shared.local_addr(), other.local_addr()];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, silent) = (shared.client(), silent.local_addr());
            scope.spawn(move || calls(&client, servers, silent, thread));
        }
    });
    for engine in [shared, other] {
        engine.drain(Duration::from_secs(60)).unwrap();
    }
    let served: usize = echoes.into_iter().map(|echo| echo.join().unwrap()).sum();
    assert!(served as u64 >= THREADS * ROUNDS * 6 / 8, "{served}");
}

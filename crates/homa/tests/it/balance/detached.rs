//! A balancer in a program that has no runtime of tokio.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use homa::balance::{Balancer, Config, Target};
use homa::{CallOptions, Client, Server};

use super::{AddressFile, GIVE_UP};
use crate::common::block_on;

/// Answers in another thread, as often as it is told to.
fn serve(answers: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (at, executed) = (server.local_addr(), Arc::new(AtomicUsize::new(0)));
    let counted = executed.clone();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Some(request) = server.accept() {
            if counted.fetch_add(1, Ordering::SeqCst) < answers {
                let _ = request.reply("here");
            } else {
                kept.push(request);
            }
        }
    });
    (at, executed)
}

#[test]
fn calls_are_repeated_and_hedged_without_a_runtime() {
    // The second answers nothing, and at the third nothing listens.
    let ((first, _), (silent, asked)) = (serve(usize::MAX), serve(0));
    let absent = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = absent.local_addr();
    drop(absent);
    let config = Config::default().hedge_after(Duration::from_millis(5)).hedge_budget(1.0);
    let (client, options) = (Client::new().unwrap(), CallOptions::deadline(GIVE_UP).idempotent());
    for seed in 0..20 {
        // Each begins with another server, and knows nothing of them. Some hedge at the one that is
        // absent, and have to hedge again.
        let target = Target::list([first, silent, gone]);
        let balancer = Balancer::detached(target, config.clone().seed(seed)).unwrap();
        block_on(balancer.connected(None)).unwrap();
        assert_eq!(balancer.servers().len(), 3);
        for _ in 0..2 {
            assert_eq!(block_on(balancer.call(&client, "who?", &options)).unwrap(), *b"here");
        }
    }
    assert!(asked.load(Ordering::SeqCst) > 0, "some calls began at the silent server");
}

#[test]
fn a_name_without_servers_is_an_error_at_once() {
    let file = AddressFile::new("detached");
    let balancer = Balancer::detached(file.target(), Config::default()).unwrap();
    let error = block_on(balancer.connected(None)).unwrap_err().to_string();
    assert!(error.contains("no server is known"), "{error}");
    let (at, _) = serve(usize::MAX);
    file.write(&[at.to_string()]);
    let (client, options) = (Client::new().unwrap(), CallOptions::deadline(GIVE_UP));
    while block_on(balancer.call(&client, "who?", &options)).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(balancer.servers(), [at]);
}

//! Equal seeds give equal runs.

use std::time::Duration;

use homa::testing::{Counters, LinkConditions, Network};
use homa::{CallError, CallOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::{echo, serve};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Calls between five hosts, with every fault; returns the trace, what was counted, and how the
/// calls ended.
fn run(seed: u64) -> (u64, Counters, Vec<String>) {
    paused().block_on(async {
        let network = Network::new(seed);
        let (least, most) = (Duration::from_millis(1), Duration::from_millis(4));
        let link =
            LinkConditions::default().latency_between(least, most).lost(0.02).duplicated(0.02);
        network.set_link(link.bandwidth(100_000_000));
        let servers: Vec<_> = (0..4).map(|n| network.host(&format!("server-{n}"))).collect();
        servers.iter().for_each(serve);
        let user = network.host("user");
        let client = user.client().unwrap();
        let calls: Vec<_> = (0..200u32)
            .map(|n| {
                let (client, to) = (client.clone(), servers[n as usize % 4].address(4000));
                user.spawn(async move {
                    sleep(Duration::from_millis(u64::from(n) * 3)).await;
                    let options = CallOptions::deadline(Duration::from_millis(100));
                    let options = if n % 3 == 0 { options.idempotent() } else { options };
                    let request = vec![n as u8; (n as usize * 397) % 30_000];
                    let ended = client.call_async_with(to, request, &options).await;
                    format!("{:?}", ended.map(|answer| answer.len()))
                })
            })
            .collect();
        sleep(Duration::from_millis(100)).await;
        servers[0].crash();
        network.partition(&user, &servers[1]);
        servers[2].pause();
        sleep(Duration::from_millis(150)).await;
        servers[0].spawn(echo(servers[0].server(4000).unwrap()));
        network.heal(&user, &servers[1]);
        servers[2].resume();
        let mut ended = Vec::new();
        for call in calls {
            ended.push(call.await.unwrap());
        }
        (network.trace_hash(), network.counters(), ended)
    })
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_does_not() {
    let (first, second, other) = (run(1), run(1), run(2));
    assert_eq!(first, second);
    assert_ne!(first.0, other.0);
    let Counters { lost, duplicated, blocked, refused, .. } = first.1;
    assert!(lost > 0 && duplicated > 0 && blocked > 0 && refused > 0, "{:?}", first.1);
    for ended in ["Ok", "Err(Indeterminate)", "Err(DeadlineExceeded)"] {
        let some = first.2.iter().any(|end| end.starts_with(ended));
        assert!(some, "no call ended with {ended}: {:?}", first.2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_run_says_how_to_repeat_it() {
    const FAILS: &str = "HOMA_TEST_FAILS";
    let network = Network::new(5);
    if std::env::var_os(FAILS).is_some() {
        assert_eq!(network.seed(), 77, "this test fails if the seed is not taken");
        panic!("on purpose");
    }
    let this = std::thread::current().name().unwrap().to_owned();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &this, "--nocapture"]).env(FAILS, "1").env("HOMA_TESTING_SEED", "77");
    let output = again.output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("on purpose") && text.contains("HOMA_TESTING_SEED=77"), "{text}");
}

/// The random choices of balancers and engines come from the seed, too.
#[cfg(feature = "balance")]
#[test]
fn a_seed_repeats_the_choices_of_a_balancer() {
    let run = |seed| {
        paused().block_on(async {
            let network = Network::new(seed);
            let servers: Vec<_> = (0..4).map(|n| network.host(&format!("shop-{n}"))).collect();
            servers.iter().for_each(serve);
            network.set_name("shop", &servers);
            let (target, config) = ("homa:///shop:4000".parse().unwrap(), Default::default());
            let shop = homa::balance::Balancer::new(target, config).unwrap();
            let client = network.host("user").client().unwrap();
            for _ in 0..50 {
                shop.call(&client, "buy", &CallOptions::default()).await.unwrap();
            }
            assert!(servers.iter().map(|server| server.address(4000)).eq(shop.servers()));
            network.trace_hash()
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Not the trace: handshakes use the system's random numbers.
#[cfg(feature = "encryption")]
#[tokio::test(start_paused = true)]
async fn engines_with_keys_call_each_other() {
    use homa::{Config, Keys};
    let network = Network::new(1);
    network.set_link(LinkConditions::default().lost(0.05));
    let with = |key| Config::default().keys(Keys::cluster([key; 32]).unwrap());
    let server = network.host("server").engine_with(4000, with(1)).unwrap();
    tokio::spawn(echo(server.serve().unwrap()));
    let user = network.host("user");
    let client = user.engine_with(0, with(1)).unwrap().client();
    let to = server.local_addr();
    for bytes in [0, 100, 100_000] {
        assert_eq!(client.call_async(to, vec![7; bytes]).await.unwrap().len(), bytes);
    }
    assert!(server.metrics().driver.datagrams_opened > 0);
    let other = user.engine_with(0, with(2)).unwrap().client();
    let refused = other.call_async(to, "secret").await;
    assert!(matches!(refused, Err(CallError::HandshakeRefused { .. })), "{refused:?}");
}

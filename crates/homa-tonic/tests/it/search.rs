//! The tests of the example service: its own code, in a network in memory with simulated time. A
//! second that passes here costs the test far less.

use std::error::Error;
use std::future::{Future, pending};
use std::time::Duration;

use homa::CallError;
use homa::testing::{Host, LinkConditions, Network};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request, Status};

#[allow(dead_code)] // What measures both transports.
#[path = "../../examples/search/service.rs"]
mod service;

use service::{Channel, DEADLINE, LEAVES, Query, Results, SearchClient};

const PORT: u16 = 4000;

/// A running service. Every part has a host: `user`, `root`, and `leaf-0` to `leaf-19`.
struct Rack {
    network: Network,
    root: Host,
    leaves: Vec<Host>,
    client: SearchClient<Channel>,
    /// How the root's server ended.
    serving: JoinHandle<bool>,
}

fn start_leaf(host: &Host, number: usize) {
    let server = host.server(PORT).unwrap();
    let service = service::leaf(number as u32);
    host.spawn(service::serve_homa(server, service, pending()));
}

/// Starts the service. The root accepts `concurrency` searches at a time, until `stop` resolves.
async fn start_until(
    network: Network,
    concurrency: usize,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Rack {
    let leaves: Vec<_> = (0..LEAVES).map(|n| network.host(&format!("leaf-{n}"))).collect();
    leaves.iter().zip(0..).for_each(|(host, number)| start_leaf(host, number));
    let root = network.host("root");
    let engine = root.engine(PORT).unwrap();
    let mut clients = Vec::new();
    for leaf in &leaves {
        let connected = service::connect_homa(leaf.address(PORT), &engine.client()).await;
        clients.push(connected.unwrap());
    }
    let server = engine.serve().unwrap().concurrency(concurrency);
    let serving = service::serve_homa(server, service::root(clients), stop);
    let serving = root.spawn(async move { serving.await.is_ok() });
    let user = network.host("user").client().unwrap();
    let client = service::connect_homa(root.address(PORT), &user).await.unwrap();
    Rack { network, root, leaves, client, serving }
}

async fn start(network: Network) -> Rack {
    start_until(network, 64, pending()).await
}

impl Rack {
    /// A search, and how long it took.
    async fn search(&self, number: u32) -> (Result<Results, Status>, Duration) {
        search(self.client.clone(), number).await
    }
}

async fn search(
    mut client: SearchClient<Channel>,
    number: u32,
) -> (Result<Results, Status>, Duration) {
    let mut request = Request::new(Query { words: "cats".into(), number });
    request.set_timeout(DEADLINE);
    let began = Instant::now();
    let found = client.find(request).await;
    (found.map(|found| found.into_inner()), began.elapsed())
}

/// The shards of an answer that is there in time.
fn shards((found, took): (Result<Results, Status>, Duration)) -> usize {
    assert!(took <= DEADLINE, "{took:?}");
    found.unwrap().shards as usize
}

/// The transport's reason for a status.
fn cause(status: &Status) -> Option<&CallError> {
    status.source()?.downcast_ref()
}

#[tokio::test(start_paused = true)]
async fn every_search_finds_all_shards() {
    let rack = start(Network::new(1)).await;
    for number in 1..100 {
        let (found, took) = rack.search(number).await;
        let found = found.unwrap();
        assert_eq!(found.shards as usize, LEAVES);
        assert_eq!(found.hits.len(), 10);
        assert!(found.hits.iter().all(|hit| hit.score == 1.0), "the best of each shard");
        // Some leaf may have a straggler, whose copy answers.
        assert!(took < Duration::from_millis(40), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_is_slow_by_a_second_is_hedged() {
    let rack = start(Network::new(1)).await;
    for number in 1..=20 {
        assert_eq!(shards(rack.search(number).await), LEAVES);
    }
    let slow = LinkConditions::default().latency(Duration::from_secs(1));
    rack.network.set_link_between(&rack.root, &rack.leaves[7], slow);
    for number in 21..=60 {
        let (found, took) = rack.search(number).await;
        assert_eq!(found.unwrap().shards as usize, LEAVES);
        assert!(took < Duration::from_millis(20), "{took:?}");
    }
    // Three slow leaves need three hedges a search. The budget has one, and the 20 saved ones.
    for leaf in [2, 12] {
        rack.network.set_link_between(&rack.root, &rack.leaves[leaf], slow);
    }
    let mut missing = 0;
    for number in 61..=100 {
        missing += LEAVES - shards(rack.search(number).await);
    }
    assert!((40..=3 * 40 - 40).contains(&missing), "{missing}");
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_is_killed_in_a_call_costs_no_answer() {
    let rack = start(Network::new(1)).await;
    for number in 1..=20 {
        assert_eq!(shards(rack.search(number).await), LEAVES);
    }
    let leaf = &rack.leaves[3];
    leaf.pause(); // It does not answer the call that is to be in progress.
    let killing = async {
        sleep(Duration::from_millis(5)).await;
        leaf.crash();
    };
    let (found, ()) = tokio::join!(rack.search(21), killing);
    assert_eq!(shards(found), LEAVES);
    assert_eq!(shards(rack.search(22).await), LEAVES);
    start_leaf(leaf, 3);
    sleep(Duration::from_secs(1)).await;
    for number in 23..=60 {
        assert_eq!(shards(rack.search(number).await), LEAVES);
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_bridged_until_it_heals() {
    let rack = start(Network::new(1)).await;
    for number in 1..=20 {
        rack.search(number).await.0.unwrap();
    }
    rack.network.partition(&rack.root, &rack.leaves[5]);
    for number in 21..=40 {
        assert_eq!(shards(rack.search(number).await), LEAVES);
    }
    rack.network.heal(&rack.root, &rack.leaves[5]);
    let blocked = rack.network.counters().blocked;
    assert!(blocked > 0);
    for number in 41..=60 {
        let (found, took) = rack.search(number).await;
        assert_eq!(found.unwrap().shards as usize, LEAVES);
        assert!(took < Duration::from_millis(10), "no hedge is needed: {took:?}");
    }
    assert_eq!(rack.network.counters().blocked, blocked);
}

#[tokio::test(start_paused = true)]
async fn a_root_with_too_much_to_do_refuses_what_would_be_late() {
    let rack = start_until(Network::new(1), 2, pending()).await;
    // A search takes the root some 2 ms, so it can do one each millisecond.
    let mut searches = Vec::new();
    for number in 0..1_000 {
        searches.push(tokio::spawn(search(rack.client.clone(), number)));
        if number % 5 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let (mut answered, mut refused, mut late) = (0, 0, 0);
    for search in searches {
        match search.await.unwrap().0 {
            Ok(found) => answered += usize::from(found.shards as usize == LEAVES),
            Err(status) if status.code() == Code::DeadlineExceeded => late += 1,
            Err(status) => {
                assert_eq!(cause(&status), Some(&CallError::Overloaded), "{status}");
                assert_eq!(status.code(), Code::Unavailable);
                refused += 1;
            }
        }
    }
    let all = format!("{answered} answered, {refused} refused, {late} late");
    assert!(answered > 100 && refused > 500 && late < 50, "{all}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_loses_no_search() {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await; // As at SIGTERM.
    };
    let rack = start_until(Network::new(1), 64, stopped).await;
    let mut stop = Some(stop);
    let mut searches = Vec::new();
    for number in 1..=200 {
        if number == 100 {
            stop.take().unwrap().send(()).unwrap();
        }
        searches.push(tokio::spawn(search(rack.client.clone(), number)));
        sleep(Duration::from_millis(1)).await;
    }
    assert!(timeout(DEADLINE, rack.serving).await.unwrap().unwrap(), "it has drained");
    let mut answered = 0;
    for (number, search) in (1..).zip(searches) {
        match search.await.unwrap().0 {
            Ok(found) => {
                assert_eq!(found.shards as usize, LEAVES);
                answered += 1;
            }
            Err(status) => {
                let refused = cause(&status).is_some_and(CallError::not_executed);
                assert!(number >= 95 && refused, "search {number}: {status}");
            }
        }
    }
    assert!((94..110).contains(&answered), "{answered}");
}

/// Searches on a network with every fault; returns the trace and what was found.
fn faulty(seed: u64) -> (u64, Vec<Option<u32>>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let network = Network::new(seed);
        let (least, most) = (Duration::from_millis(1), Duration::from_millis(3));
        let rack = start(network.clone()).await;
        network.set_link(
            LinkConditions::default().latency_between(least, most).lost(0.01).duplicated(0.01),
        );
        let mut found = Vec::new();
        for number in 1..=50 {
            match number {
                10 => rack.leaves[4].crash(),
                20 => network.partition(&rack.root, &rack.leaves[9]),
                30 => network.heal_all(),
                _ => {}
            }
            found.push(rack.search(number).await.0.ok().map(|found| found.shards));
        }
        (network.trace_hash(), found)
    })
}

#[test]
fn a_seed_repeats_every_search() {
    let (first, second, other) = (faulty(1), faulty(1), faulty(2));
    assert_eq!(first, second);
    assert_ne!(first.0, other.0);
}

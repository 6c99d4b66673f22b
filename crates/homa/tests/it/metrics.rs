//! The metrics of an engine as Prometheus reads them. Every family has a description, and RPCs are
//! counted by their duration and outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use homa::metrics::{Direction, Metrics, PeerLatency, RpcOutcome};
use homa::{CallError, CallOptions, Client, Config, OpenError, Server};

use crate::common;
use crate::common::engine;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Returns how many RPCs ended with an outcome.
fn ended(metrics: &Metrics, whose: Direction, how: RpcOutcome) -> u64 {
    let mut found = metrics.latencies.iter().filter(|l| l.direction == whose && l.outcome == how);
    found.next().map_or(0, |latency| latency.times.count())
}

/// Waits until this many have.
async fn wait_for(of: &homa::Engine, whose: Direction, how: RpcOutcome, count: u64) {
    let waits = async {
        while ended(&of.metrics(), whose, how) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GIVE_UP, waits).await.expect("they end");
}

/// Returns the samples of each family. Checks that each family is described before its samples, and
/// ends.
fn families(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut current, mut kind) = (String::new(), "");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a text");
            assert!(help.len() > 10 && help.ends_with('.'), "{name}: {help:?}");
            let next = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type");
            let (typed, is) = next.split_once(' ').expect("a type");
            assert_eq!(typed, name);
            (current, kind) = (name.to_owned(), is);
            assert!(families.insert(current.clone(), Vec::new()).is_none(), "{name} twice");
        } else if line == "# EOF" {
            assert_eq!(lines.peek(), None);
            return families;
        } else {
            let name = line.split(['{', ' ']).next().expect("a name");
            let suffix = name.strip_prefix(&*current);
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_count", "_sum"],
                other => panic!("{other}"),
            };
            assert!(suffix.is_some_and(|s| suffixes.contains(&s)), "{line} in {current}, {kind}");
            let (_, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            families.get_mut(&current).expect("it was described").push(line.to_owned());
        }
    }
    panic!("no end of {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpcs_are_counted_by_direction_and_outcome_and_every_family_says_what_it_is() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap();
    let at = server.local_addr();
    let client = Client::new().unwrap();
    for n in 0..20 {
        let call = client.call_async(at, "well");
        let request = server.accept_async().await.unwrap();
        if n == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        request.reply("done").unwrap();
        call.await.unwrap();
    }
    let call = client.call_async(at, "never answered");
    drop(server.accept_async().await);
    assert_eq!(call.await, Err(CallError::Abandoned));
    let call = client.call_async(at, "never mind");
    let request = server.accept_async().await.unwrap();
    drop(call);
    request.cancelled().await;
    drop(request);
    let soon = CallOptions::deadline(Duration::from_millis(50));
    let call = client.call_async_with(at, "late", &soon);
    assert_eq!(call.await, Err(CallError::DeadlineExceeded));

    let (ours, theirs) = (client.engine(), server.engine());
    wait_for(theirs, Direction::Server, RpcOutcome::Cancelled, 2).await;
    for (outcome, calls, requests) in [
        (RpcOutcome::Ok, 20, 20),
        (RpcOutcome::Failed, 1, 0),
        (RpcOutcome::Dropped, 0, 1),
        (RpcOutcome::Cancelled, 1, 2),
        (RpcOutcome::Deadline, 1, 0),
    ] {
        assert_eq!(ended(&ours.metrics(), Direction::Client, outcome), calls, "{outcome:?}");
        assert_eq!(ended(&theirs.metrics(), Direction::Server, outcome), requests, "{outcome:?}");
    }
    for (metrics, whose) in
        [(ours.metrics(), Direction::Client), (theirs.metrics(), Direction::Server)]
    {
        let is = |l: &&homa::metrics::Latency| l.direction == whose && l.outcome == RpcOutcome::Ok;
        let times = &metrics.latencies.iter().find(is).unwrap().times;
        let (median, longest) = (times.percentile(50.0).unwrap(), times.percentile(100.0).unwrap());
        assert!(
            median < longest && longest >= Duration::from_millis(100),
            "{median:?} {longest:?}"
        );
        assert!(times.sum() >= Duration::from_millis(100));
        let [peer] = metrics.peers[..] else { panic!("{:?}", metrics.peers) };
        assert_eq!((peer.direction, peer.rpcs, peer.failures), (whose, 23, 3));
        assert_eq!(peer.ended(RpcOutcome::Ok), 20);
        if whose == Direction::Client {
            assert_eq!(peer.peer, at);
        }

        check_text(&metrics, whose, &peer);
    }
}

/// Checks the text for 20 RPCs that succeeded, of 23 with one peer.
fn check_text(metrics: &Metrics, whose: Direction, peer: &PeerLatency) {
    let families = families(&metrics.to_openmetrics());
    assert!(families.len() > 60, "{}", families.len());
    let duration = &families["homa_rpc_duration_seconds"];
    let labels = format!("direction=\"{}\",outcome=\"ok\",size=\"short\"", whose.name());
    let bucket = format!("homa_rpc_duration_seconds_bucket{{{labels}");
    let buckets: Vec<u64> = duration
        .iter()
        .filter(|line| line.starts_with(&bucket))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(buckets.is_sorted() && buckets.last() == Some(&20), "{buckets:?}");
    assert!(duration.contains(&format!("homa_rpc_duration_seconds_count{{{labels}}} 20")));
    let failures = families["homa_peer_rpc_failures"].iter().map(|line| {
        let (labels, count) = line.split_once("\"} ").unwrap();
        format!("{} {count}", labels.split_once("outcome=\"").unwrap().1)
    });
    let expected: &[_] = match whose {
        Direction::Client => {
            &["deadline 1", "cancelled 1", "overloaded 0", "unreachable 0", "failed 1"]
        }
        Direction::Server => &["deadline 0", "cancelled 2", "dropped 1", "overloaded 0"],
    };
    assert_eq!(failures.collect::<Vec<_>>(), expected);
    assert_eq!(families["homa_peer_rpcs_in_progress"].len(), 1);
    let peers = &families["homa_peer_rpcs"];
    let peer = format!("direction=\"{}\",peer=\"{}\"", whose.name(), peer.peer);
    assert_eq!(peers[..], [format!("homa_peer_rpcs_total{{{peer}}} 23")]);
}

#[test]
fn the_list_of_peers_is_bounded_and_has_those_with_most_rpcs() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap();
    let (at, of) = (server.local_addr(), server.engine().clone());
    let echo = common::echo(server);
    let (mut busiest, mut clients) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let client = engine("127.0.0.1", Config::default());
        let calls = if n % 4 == 0 { 10 } else { 1 };
        (0..calls).for_each(|_| drop(client.client().call(at, "hello").unwrap()));
        if calls == 10 {
            busiest.push(client.local_addr());
        }
        // No client gets the port of an earlier one.
        clients.push(client);
    }
    let peers = of.metrics().peers;
    assert_eq!(peers.len(), 16);
    let mut found: Vec<_> = peers.iter().filter(|p| p.rpcs == 10).map(|p| p.peer).collect();
    found.sort_unstable();
    busiest.sort_unstable();
    assert_eq!(found, busiest);
    of.drain(GIVE_UP).unwrap();
    echo.join().unwrap();
}

#[test]
fn a_second_engine_at_a_port_gets_an_error_with_advice() {
    let first = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = first.local_addr();
    for second in [Server::bind(at).map(drop), first.engine().serve().map(drop)] {
        let error = second.unwrap_err();
        assert!(matches!(error, OpenError::InUse { at: taken } if taken == at), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("with clones of one `Server`"), "{text}");
    }
    // Two threads accept at the same time, as its advice says.
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let server = first.clone();
            std::thread::spawn(move || {
                let request = server.accept().unwrap();
                std::thread::sleep(Duration::from_millis(50));
                request.reply("done").unwrap();
            })
        })
        .collect();
    let client = Client::new().unwrap();
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| client.call(at, "work").unwrap())));
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

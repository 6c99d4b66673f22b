//! Reports of scrapes that are written here.

use std::time::Duration;

use super::*;

/// What an engine with that many answered requests of 1 ms and 10 ms says, with more labels.
fn scrape_text(fast: u32, slow: u32, engine: &str) -> String {
    let labels = format!("{engine}direction=\"server\",outcome=\"ok\"");
    let dropped = "direction=\"server\",outcome=\"dropped\"";
    let all = fast + slow;
    format!(
        "homa_rpc_duration_seconds_bucket{{{labels},le=\"0.0005\"}} 0\n\
         homa_rpc_duration_seconds_bucket{{{labels},le=\"0.001\"}} {fast}\n\
         homa_rpc_duration_seconds_bucket{{{labels},le=\"0.01\"}} {all}\n\
         homa_rpc_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {all}\n\
         homa_rpc_duration_seconds_count{{{labels}}} {all}\n\
         homa_rpc_duration_seconds_sum{{{labels}}} {}\n\
         homa_rpc_duration_seconds_count{{{engine}{dropped}}} {slow}\n\
         homa_peer_rpcs_total{{{engine}direction=\"server\",peer=\"10.0.0.1:9\"}} {all}\n\
         homa_peer_rpc_seconds_total{{{engine}direction=\"server\",peer=\"10.0.0.1:9\"}} 1\n\
         homa_peer_rpc_failures_total{{{engine}{dropped},peer=\"10.0.0.1:9\"}} {slow}\n\
         homa_peer_rpc_failures_total{{{engine}direction=\"server\",outcome=\"deadline\",\
         peer=\"10.0.0.1:9\"}} {slow}\n\
         homa_peer_rpcs_in_progress{{{engine}direction=\"server\",peer=\"10.0.0.1:9\"}} {slow}\n\
         homa_protocol_drops_total{{{engine}reason=\"overlap\"}} {slow}\n\
         homa_protocol_drops_total{{{engine}reason=\"truncated\"}} 0\n\
         homa_engine_peers 1\n",
        f64::from(fast) * 1e-3 + f64::from(slow) * 1e-2,
    )
}

/// A scrape of one engine without a name.
fn scrape(fast: u32, slow: u32, seconds: u64) -> Scrape {
    let mut scrape = Scrape::parse(&scrape_text(fast, slow, ""));
    scrape.taken += Duration::from_secs(seconds);
    scrape
}

#[test]
fn a_report_is_about_the_time_between_its_scrapes() {
    let report = Report::between(&scrape(1_000, 0, 0), &scrape(1_900, 100, 10));
    let [client, server] = &report.rpcs[..] else { panic!("{report:?}") };
    assert!(client.ok_per_s == 0.0 && client.p99_us.is_none(), "{client:?}");
    let near = |got: Option<f64>, want: f64| got.is_some_and(|got| (got / want - 1.0).abs() < 0.01);
    assert!((server.ok_per_s - 100.0).abs() < 0.1, "{server:?}");
    assert!((server.other_per_s - 10.0).abs() < 0.1, "{server:?}");
    assert!(near(server.mean_us, 1_900.0), "{server:?}");
    assert!(near(server.p50_us, 777.8), "within the bucket from 0.5 to 1 ms: {server:?}");
    assert!(near(server.p99_us, 9_100.0), "within the bucket from 1 to 10 ms: {server:?}");
    assert_eq!(report.drops_per_s.keys().collect::<Vec<_>>(), ["overlap"]);
    let [peer] = &report.busiest[..] else { panic!("{report:?}") };
    assert!(peer.peer == "10.0.0.1:9" && (peer.rpcs_per_s - 100.0).abs() < 0.1, "{peer:?}");
    assert!((peer.failures_per_s - 20.0).abs() < 0.1, "of both outcomes: {peer:?}");
    assert_eq!(peer.in_progress, 100.0);
}

#[test]
fn two_engines_of_an_endpoint_are_reported_together() {
    let both = |fast, slow, seconds| {
        let mut text = scrape_text(fast, slow, "engine=\"front\",");
        text.push_str(&scrape_text(2 * fast, slow, "engine=\"back\","));
        let mut scrape = Scrape::parse(&text.replace("peers 1", "peers{engine=\"x\"} 1"));
        scrape.taken += Duration::from_secs(seconds);
        scrape
    };
    let report = Report::between(&both(0, 0, 0), &both(900, 100, 10));
    let server = &report.rpcs[1];
    assert!((server.ok_per_s - 290.0).abs() < 0.1, "{server:?}");
    assert_eq!((report.peers, report.busiest.len()), (2.0, 2), "{report:?}");
    assert!((report.drops_per_s["overlap"] - 20.0).abs() < 0.1, "{report:?}");
    let p50 = server.p50_us.unwrap();
    // 1,450 of the 2,700 that took 0.5 to 1 ms.
    assert!((p50 - 768.5).abs() < 5.0, "{server:?}");
}

#[test]
fn sizes_have_their_own_percentiles() {
    let scrape = |short: u32, long: u32| {
        let rows = [("short", "0.001", short), ("long", "0.1", long)].map(|(size, le, count)| {
            let labels = format!("direction=\"client\",outcome=\"ok\",size=\"{size}\"");
            let of = |le: &str, count: u32| {
                format!("homa_rpc_duration_seconds_bucket{{{labels},le=\"{le}\"}} {count}\n")
            };
            let ends = ["0.001", "0.1"].map(|end| of(end, if end < le { 0 } else { count }));
            format!("{}{}{}", ends[0], ends[1], of("+Inf", count))
        });
        Scrape::parse(&rows.concat())
    };
    let mut after = scrape(990, 110);
    after.taken += Duration::from_secs(10);
    let report = Report::between(&scrape(0, 10), &after);
    let [short, long] = &report.rpcs[0].sizes[..] else { panic!("{report:?}") };
    assert_eq!((short.size.as_str(), long.size.as_str()), ("short", "long"));
    assert!((long.ok_per_s - 10.0).abs() < 0.1 && (short.ok_per_s - 99.0).abs() < 0.5);
    assert!(short.p99_us.unwrap() < 1e3 && long.p50_us.unwrap() > 1e3, "{report:?}");
    assert!(report.rpcs[0].p50_us.unwrap() < 1e3, "{report:?}");
}

#[test]
fn a_peer_that_enters_a_full_list_is_shown_from_then_on() {
    let scrape = |peers: std::ops::Range<u32>, rpcs: u32| {
        let row = |n: u32| {
            format!("homa_peer_rpcs_total{{direction=\"server\",peer=\"10.0.0.{n}:1\"}} {rpcs}\n")
        };
        Scrape::parse(&peers.map(row).collect::<String>())
    };
    let full = Report::between(&scrape(0..16, 100), &scrape(1..17, 110));
    assert!(full.busiest.iter().all(|peer| peer.peer != "10.0.0.16:1"), "{full:?}");
    assert_eq!(full.busiest.len(), MOST_PEERS);
    let few = Report::between(&scrape(0..2, 100), &scrape(0..3, 110));
    assert_eq!(few.busiest[0].peer, "10.0.0.2:1", "it has made 110 RPCs: {few:?}");
}

#[test]
fn a_counter_that_became_smaller_has_no_negative_rate() {
    let report = Report::between(&scrape(1_000, 50, 0), &scrape(30, 0, 1));
    assert!((report.rpcs[1].ok_per_s - 30.0).abs() < 0.1, "{report:?}");
    assert_eq!(report.rpcs[1].other_per_s, 0.0);
}

#[test]
fn quantiles_of_histograms_stay_within_their_buckets() {
    let buckets = [(1.0, 0.0), (2.0, 50.0), (4.0, 100.0), (f64::INFINITY, 101.0)];
    let at = |share| quantile(&buckets, share).unwrap();
    assert!((1.0..=2.0).contains(&at(0.01)) && (2.0..=4.0).contains(&at(0.9)));
    assert_eq!(at(1.0), 4.0, "longer than the last finite bucket");
    assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn the_most_frequent_reasons_of_drops_are_listed() {
    let reasons = |count: u32| {
        let each = (1..=count).map(|n| (format!("reason{n}"), f64::from(n)));
        dropped(&each.collect())
    };
    assert_eq!(reasons(0), None);
    assert_eq!(reasons(2).as_deref(), Some("dropped packets: reason2 2.0/s, reason1 1.0/s"));
    let eight = reasons(8).expect("a line");
    assert!(eight.ends_with("reason2 2.0/s, reason1 1.0/s"), "{eight}");
    let many = reasons(50_000).expect("a line");
    assert!(many.starts_with("dropped packets: reason50000 50000/s, reason49999 "), "{many}");
    assert!(many.ends_with("reason49993 49993/s, and 49992 more"), "{many}");
}

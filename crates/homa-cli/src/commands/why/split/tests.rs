//! Pages that are written here.

use std::time::Duration;

use super::*;

#[test]
fn several_engines_have_the_shortest_wait_of_any() {
    let scrape = |waits: &str| Scrape::parse(waits);
    let two = scrape(concat!(
        "homa_rpc_shortest_wait_seconds{engine=\"a\"} 0.00004\n",
        "homa_rpc_shortest_wait_seconds{engine=\"b\"} 0.00003\n",
    ));
    assert_eq!(shortest_wait(&two), 0.00003);
    assert_eq!(shortest_wait(&scrape("")), 0.0);
}

/// The counters of 40 calls to a server, as its page has them: 36 took 50 us. The others
/// took 1 ms: 600 us waiting for grants, 100 us until the first byte left, 200 us waiting for
/// the response and 100 us receiving it.
const CALLS: &str = concat!(
    "homa_rpc_shortest_wait_seconds 0.00002\n",
    "homa_egress_rate_bits_per_second{source=\"driver\"} 10000000000\n",
    "homa_rpc_stage_rpcs_total{direction=\"client\",size=\"medium\",up_to=\"0.000066\"} 36\n",
    "homa_rpc_stage_rpcs_total{direction=\"client\",size=\"medium\",up_to=\"0.001049\"} 4\n",
    "homa_rpc_stage_bytes_total{direction=\"client\",size=\"medium\",up_to=\"0.001049\"} ",
    "50000\n",
    "homa_rpc_stage_seconds_total{direction=\"client\",size=\"medium\",up_to=\"0.000066\",",
    "stage=\"wait\"} 0.0018\n",
);

#[test]
fn the_slowest_calls_are_split_by_what_they_waited_for() {
    let stage = |stage: &str, seconds: f64| {
        let labels = "direction=\"client\",size=\"medium\",up_to=\"0.001049\"";
        format!("homa_rpc_stage_seconds_total{{{labels},stage=\"{stage}\"}} {seconds}\n")
    };
    let times = [("grant", 600.0), ("queue", 100.0), ("wait", 200.0), ("receive", 100.0)];
    let times = times.map(|(name, us)| stage(name, us * 4e-6)).concat();
    let (before, after) = (Scrape::parse(""), Scrape::parse(&format!("{CALLS}{times}")));
    let evidence = Evidence::between((&before, &after), None);
    let [slow] = &evidence.slow[..] else { panic!("{evidence:?}") };
    assert_eq!((slow.rpcs, slow.of), (4.0, 40.0));
    let us = |cause: Cause| (slow.time(cause) * 1e6).round();
    // A round trip of 20 us, and 10 us for the bytes.
    let expected = [30.0, 100.0, 600.0, 0.0, 0.0, 90.0, 180.0, 0.0, 0.0, 0.0];
    assert_eq!(Cause::ALL.map(us), expected);
    assert_eq!((slow.mean * 1e6).round(), 1_000.0);
    assert_eq!((slow.best * 1e6).round(), 30.0);
}

#[test]
fn short_messages_need_no_grants_so_their_peer_held_them_up() {
    let page = |direction: &str, size: &str| {
        let labels = format!("direction=\"{direction}\",size=\"{size}\",up_to=\"0.001\"");
        Scrape::parse(&format!(
            "homa_rpc_stage_rpcs_total{{{labels}}} 2\n\
             homa_rpc_stage_seconds_total{{{labels},stage=\"grant\"}} 0.001\n"
        ))
    };
    let none = Scrape::parse("");
    let table = [
        ("client", "short", Cause::Server),
        ("client", "medium", Cause::Grant),
        ("server", "short", Cause::Network),
        ("server", "long", Cause::Grant),
    ];
    for (direction, size, cause) in table {
        let evidence = Evidence::between((&none, &page(direction, size)), None);
        let [slow] = &evidence.slow[..] else { panic!("{evidence:?}") };
        assert_eq!(slow.share(cause), 1.0, "{direction} {size}: {slow:?}");
    }
}

/// Pages of a client and of its server. Slow calls of this size waited for 900 us, and the server
/// needed 600 us of that. Given: the shortest wait, and how many of the calls the server followed.
fn waited(size: &str, shortest: f64, at_server: u32) -> [Scrape; 2] {
    let page = |direction: &str, rpcs: u32, stage: &str, us: f64| {
        let labels = format!("direction=\"{direction}\",size=\"{size}\",up_to=\"0.001\"");
        let seconds = f64::from(rpcs) * us * 1e-6;
        Scrape::parse(&format!(
            "homa_rpc_shortest_wait_seconds {shortest}\n\
             homa_rpc_stage_rpcs_total{{{labels}}} {rpcs}\n\
             homa_rpc_stage_seconds_total{{{labels},stage=\"{stage}\"}} {seconds}\n"
        ))
    };
    [page("client", 40, "wait", 900.0), page("server", at_server, "application", 600.0)]
}

#[test]
fn what_a_server_did_not_follow_is_not_blamed_on_the_network() {
    let none = Scrape::parse("");
    let split = |server: Option<&Scrape>| {
        let [client, _] = waited("short", 20e-6, 0);
        let server = server.map(|server| (&none, server));
        let evidence = Evidence::between((&none, &client), server);
        let us = |cause| (evidence.slow[0].time(cause) * 1e6).round();
        [Cause::Link, Cause::Network, Cause::Server, Cause::Application].map(us)
    };
    let server = |size, followed| {
        let [_, server] = waited(size, 0.0, followed);
        server
    };
    assert_eq!(split(None), [20.0, 0.0, 880.0, 0.0]);
    assert_eq!(split(Some(&server("short", 10))), [20.0, 280.0, 0.0, 600.0]);
    let unknown = [20.0, 0.0, 880.0, 0.0];
    assert_eq!(split(Some(&server("short", 9))), unknown, "too few");
    assert_eq!(split(Some(&server("long", 90))), unknown, "another size");
    assert_eq!(split(Some(&none)), unknown, "an idle server");
}

#[test]
fn a_round_trip_that_was_never_seen_is_assumed() {
    let none = Scrape::parse("");
    let of = |shortest: f64, followed: u32| {
        let [client, server] = waited("short", shortest, followed);
        let evidence = Evidence::between((&none, &client), Some((&none, &server)));
        let us = |seconds: f64| (seconds * 1e6).round();
        let slow = &evidence.slow[0];
        (us(slow.best), us(slow.plain), evidence.too_long().is_some())
    };
    assert_eq!(of(200e-6, 40), (200.0, 0.0, false));
    // The fastest took the server 600 us, which a wait of 840 us contains.
    assert_eq!(of(840e-6, 40), (250.0, 0.0, true));
    assert_eq!(of(900e-6, 40), (250.0, 50.0, true));
}

#[test]
fn a_link_without_a_limit_is_not_one_of_unknown_rate() {
    let of = |samples: &[(&str, &str)]| {
        let line = |(source, rate): &(&str, &str)| {
            format!("homa_egress_rate_bits_per_second{{source=\"{source}\"}} {rate}\n")
        };
        FastestLink::of(&Scrape::parse(&samples.iter().map(line).collect::<String>()))
    };
    let none = FastestLink::default();
    let unlimited = ("unlimited", "+Inf");
    assert_eq!(of(&[]), none);
    assert_eq!(of(&[unlimited]), FastestLink { unlimited: true, ..none });
    assert_eq!(of(&[("unknown", "NaN")]), FastestLink { unsure: true, ..none });
    assert_eq!(of(&[unlimited, ("unknown", "NaN")]), FastestLink { unsure: true, ..none });
    let known = FastestLink { rate: Some(1e10), ..none };
    assert_eq!(of(&[("driver", "10000000000"), ("driver", "1000")]), known);
    assert_eq!(of(&[("driver", "10000000000"), unlimited]), known);
}

#[test]
fn stalls_are_counted_over_the_time_that_was_watched() {
    let page = |times: u32, seconds: f64| {
        Scrape::parse(&format!(
            "homa_protocol_stalls_total {times}\nhoma_engine_stalled_seconds_total {seconds}\n"
        ))
    };
    let (before, mut after) = (page(3, 9.0), page(13, 10.0));
    after.taken = before.taken + Duration::from_secs(20);
    let evidence = Evidence::between((&before, &after), Some((&before, &before)));
    assert_eq!(evidence.stalls, Stalls { times: 10.0, seconds: 1.0, share: 0.05 });
    assert_eq!(evidence.server_stalls, Some(Stalls::default()));
    // All of the slowest 5 % waited, for half of 0.1 s.
    assert_eq!(evidence.stalls.unseen(), 0.05);
    let rare = Stalls { share: 0.01, ..evidence.stalls };
    assert!((rare.unseen() - 0.01).abs() < 1e-9);
    let half = Stalls { share: 0.5, ..evidence.stalls };
    assert!((half.unseen() - 0.095).abs() < 1e-9);
    assert_eq!(Stalls::default().unseen(), 0.0);
}

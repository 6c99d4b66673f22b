//! Evidence, and the sentences that follow.

use super::super::server::ServerTime;
use super::super::split::FastestLink;
use super::*;

#[test]
fn few_rpcs_end_with_how_to_get_more() {
    let of = |seconds, asked, rpcs| {
        let evidence = Evidence { seconds, asked, ..Evidence::default() };
        let mut slow = Slow::with("client", 1e-5, &[(Cause::Loss, 1e-2)]);
        slow.rpcs = rpcs;
        advice(&evidence, Some(&slow), Advice::TooFew)
    };
    let table = [
        (30.0, 30.0, 9.0, 60),
        (30.0, 30.0, 3.0, 300),
        (0.1, 0.1, 1.0, 10),
        (30.0, 30.0, 1.0, 600),
        (9e3, 9e3, 9.0, 18_000),
        (300.0, 300.0, 1.0, 3_600),
        (600.0, 600.0, 0.0, 3_600),
        // A process was replaced shortly before the end.
        (1.0, 31.0, 9.0, 120),
        (1.0, 30.0, 1.0, 60),
        (1.0, 9e3, 1.0, 18_000),
    ];
    for (seconds, asked, rpcs, longer) in table {
        let text = of(seconds, asked, rpcs);
        assert!(text.starts_with("Change nothing yet: only "), "{text}");
        assert!(text.ends_with(&format!("for longer: --for {longer}s.")), "{text}");
    }
    let (seconds, asked) = (1.0, 31.0);
    let none = Evidence { seconds, asked, ..Evidence::default() };
    let none = advice(&none, None, Advice::NoRpcs);
    assert!(none.ends_with("for longer (--for 120s)."), "{none}");
}

/// The report about slow RPCs.
fn whole(evidence: &Evidence, slow: &Slow) -> String {
    report(([127, 0, 0, 1], 9).into(), &[], evidence, Some(slow), Advice::Fast)
}

#[test]
fn the_best_says_what_it_is() {
    let of = |direction, best: f64, shortest: f64, link: FastestLink| {
        let slow = Slow::with(direction, best, &[(Cause::Network, 1e-3)]);
        let text = whole(&Evidence { shortest, link, ..Evidence::default() }, &slow);
        let line = text.lines().find(|line| line.contains("on average.")).expect("a line");
        line.split_once("on average. ").expect("more").1.to_owned()
    };
    let unknown = FastestLink::default();
    let unlimited = FastestLink { unlimited: true, ..unknown };
    let known = FastestLink { rate: Some(1e10), ..unknown };
    let no_limit = "The link has no limit, so its bytes take no time.";
    let not_known = "The link's rate is not known, so the time of the bytes is not counted.";
    let bytes = "the time of their bytes on the link.";
    assert_eq!(of("server", 1e-5, 0.0, known), format!("The best is 10.0 us, {bytes}"));
    assert_eq!(of("server", 0.0, 0.0, unlimited), no_limit);
    assert_eq!(of("server", 0.0, 0.0, unknown), not_known);
    let seen = "The best is 41.0 us, the shortest wait that was seen";
    assert_eq!(of("client", 41e-6, 41e-6, known), format!("{seen} and {bytes}"));
    assert_eq!(of("client", 41e-6, 41e-6, unlimited), format!("{seen}. {no_limit}"));
    assert_eq!(of("client", 41e-6, 41e-6, unknown), format!("{seen}. {not_known}"));
    let assumed = of("client", 250e-6, 1.1e-3, known);
    let expected = "a round trip that is assumed, because no wait this short was seen (the \
                    shortest was 1.10 ms) and the time of";
    assert!(assumed.contains(expected), "{assumed}");
}

#[test]
fn a_client_says_what_its_server_does_not_tell() {
    let lines = |direction, server: ServerView, server_stalls: Option<Stalls>| {
        let mut slow = Slow::with(direction, 1e-5, &[(Cause::Server, 1e-3)]);
        slow.server = server;
        let text = whole(&Evidence { server_stalls, ..Evidence::default() }, &slow);
        let of_server = text.lines().filter(|line| line.starts_with("The server"));
        let advice = ask_server(Some(&slow), 90.0);
        (of_server.collect::<Vec<_>>().join("\n"), advice.contains("not of another one"))
    };
    let known = ServerView::Known(ServerTime::default());
    assert_eq!(lines("client", ServerView::NotAsked, None), (String::new(), false));
    assert_eq!(lines("client", known, Some(Stalls::default())), (String::new(), false));
    let (none, other) = lines("client", ServerView::Few(0.0), None);
    assert!(none.starts_with("The server followed no such requests") && other, "{none}");
    assert!(none.ends_with("is it the right one?"), "{none}");
    let (few, other) = lines("client", ServerView::Few(3.0), None);
    assert!(few.starts_with("The server followed only 3 such requests") && other, "{few}");
    let stalls = Stalls { times: 14.0, seconds: 2.1, share: 0.3 };
    let (stalled, _) = lines("client", known, Some(stalls));
    assert_eq!(
        stalled,
        "The server's process did not run in time meanwhile: 14 times, 2.10 s in all."
    );
    assert_eq!(lines("server", known, Some(stalls)).0, "");
}

#[test]
fn mixed_causes_end_with_the_remedy_of_the_largest() {
    let causes = [(Cause::Link, 3e-4), (Cause::Loss, 4e-4), (Cause::Queue, 3.5e-4)];
    let slow = Slow::with("client", 3e-4, &causes);
    let evidence = Evidence { overflows: 7.0, ..Evidence::default() };
    let text = advice(&evidence, Some(&slow), Advice::Mixed);
    assert!(text.contains("The largest takes 38 %; begin there. Raise net.core"), "{text}");
    assert!(!text.contains("Change nothing"), "{text}");
}

#[test]
fn a_server_says_what_it_cannot_see_if_that_matters() {
    let stalls = Stalls { times: 3.0, seconds: 0.6, share: 0.02 };
    let lost = Evidence { overflows: 7.0, ..Evidence::default() };
    let stalled = Evidence { stalls, ..lost.clone() };
    let said = |direction, evidence: &Evidence| {
        let slow = Slow::with(direction, 0.0, &[(Cause::Network, 1e-3)]);
        let text = whole(evidence, &slow);
        let line = text.lines().find(|line| line.starts_with("These times begin when"));
        line.map(str::to_owned)
    };
    let expect = |line: Option<String>, part: &str| {
        assert!(line.as_ref().is_some_and(|line| line.contains(part)), "{line:?}");
    };
    expect(said("server", &stalled), "did not run (3 times, 600.00 ms in all)");
    expect(said("server", &lost), "its queue was full and lost 7 datagrams");
    assert_eq!(said("server", &Evidence::default()), None);
    assert_eq!(said("client", &stalled), None);
}

#[test]
fn a_full_link_has_a_rate_and_a_direction() {
    let on = |cause, sent, received, rate| {
        let link = FastestLink { rate: Some(rate), ..FastestLink::default() };
        let evidence = Evidence { sent, received, link, ..Evidence::default() };
        let slow = Slow::with("client", 1e-5, &[(cause, 1e-3)]);
        advice(&evidence, Some(&slow), Advice::LinkFull)
    };
    let slow = on(Cause::Queue, 1.9e6, 5e3, 2e6);
    assert_eq!(slow, "Send less, or use a faster link: 1.9 Mbit/s of 2.0 Mbit/s are used.");
    let fast = on(Cause::Receive, 1e9, 9.5e9, 1e10);
    assert_eq!(fast, "Receive less, or use a faster link: 9.5 Gbit/s of 10.0 Gbit/s are used.");
}

//! Scrapes of processes that are replaced.

use super::*;

/// The page of a process that was opened at a time, `seconds` after `start`.
fn page(start: Instant, opened: u32, calls: u32, seconds: u64) -> Scrape {
    let mut page = Scrape::parse(&format!(
        "homa_engine_opened_timestamp_seconds {opened}\n\
         homa_protocol_requests_sent_total {calls}\n"
    ));
    page.taken = start + Duration::from_secs(seconds);
    page
}

fn sent(window: Window<'_>) -> [f64; 2] {
    [window.0, window.1].map(|page| page.value("homa_protocol_requests_sent_total"))
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[test]
fn both_scrapes_are_of_the_process_that_is_there_at_the_end() {
    let start = Instant::now();
    let page = |opened, calls, seconds| page(start, opened, calls, seconds);
    let engine = Watch::new(at(9464), page(1, 10, 0));
    let mut watches = Watches { engine, server: None, unanswered: None };
    watches.engine.see(page(1, 20, 10));
    assert_eq!((watches.restarts(), watches.notes()), (0, vec![]));
    assert_eq!(sent(watches.windows().0), [10.0, 20.0]);
    // It grew past the old one's count before it was seen.
    watches.engine.see(page(2, 30, 12));
    assert_eq!(sent(watches.windows().0), [30.0, 30.0]);
    watches.engine.see(page(2, 34, 30));
    assert_eq!((watches.restarts(), sent(watches.windows().0)), (1, [30.0, 34.0]));
    let notes = watches.notes();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("127.0.0.1:9464 was restarted, at the latest 12 s after"), "{note}");
    assert!(note.ends_with("about the 18 s since."), "{note}");
    watches.engine.see(page(3, 1, 31));
    assert!(watches.notes()[0].contains("restarted 2 times"));
}

/// The windows and notes after both processes were seen each second for 30 s, and replaced at
/// these times.
fn after(engine: Option<u64>, server: Option<u64>) -> ([f64; 2], Option<[f64; 2]>, Vec<String>) {
    let start = Instant::now();
    let opened = |replaced: Option<u64>, now| 1 + u32::from(replaced.is_some_and(|at| now >= at));
    let begin = |port| Watch::new(at(port), page(start, 1, 0, 0));
    let mut watches = Watches { engine: begin(1), server: Some(begin(2)), unanswered: None };
    for now in 1..=30 {
        // Calls count on, so a window tells when it begins.
        let page = |replaced| page(start, opened(replaced, now), now as u32, now);
        let engine = watches.engine.see(page(engine));
        let server = watches.server.as_mut().is_some_and(|of| of.see(page(server)));
        watches.seen(engine, server);
    }
    let (of_engine, of_server) = watches.windows();
    (sent(of_engine), of_server.map(sent), watches.notes())
}

#[test]
fn an_engine_and_its_server_are_compared_over_the_same_time() {
    let whole = [0.0, 30.0];
    let since = |begin: f64| [begin, 30.0];
    assert_eq!(after(None, None), (whole, Some(whole), vec![]));
    let (engine, server, notes) = after(None, Some(8));
    assert_eq!((engine, server), (since(8.0), Some(since(8.0))));
    assert!(notes[0].starts_with("The server's process at 127.0.0.1:2 was restarted"), "{notes:?}");
    assert!(notes[0].ends_with("counts anew: this is about the 22 s since."), "{notes:?}");
    let (engine, server, notes) = after(Some(8), None);
    assert_eq!((engine, server), (since(8.0), Some(since(8.0))));
    assert!(notes[0].starts_with("The process at 127.0.0.1:1 was restarted"), "{notes:?}");
    let (engine, server, notes) = after(Some(12), Some(20));
    assert_eq!((engine, server, notes.len()), (since(20.0), Some(since(20.0)), 2));
    let (engine, server, _) = after(Some(20), Some(12));
    assert_eq!((engine, server), (since(20.0), Some(since(20.0))));
    // Too little of the server is left, or nothing.
    for late in [28, 30] {
        let (engine, server, notes) = after(None, Some(late));
        assert_eq!((engine, server), (whole, None), "{late}");
        assert!(notes[0].ends_with("is too little, so this is without it."), "{notes:?}");
    }
}

//! Texts of endpoints that are right, and of some that are not.

use super::*;

#[test]
fn samples_are_read_with_their_labels() {
    let scrape = Scrape::parse(concat!(
        "# HELP homa_x words\n",
        "homa_x{peer=\"a \\\"b\\\", c}\",of=\"1\"} 2.5\n",
        "homa_egress_rate_bits_per_second{} +Inf\n",
        "homa_y 7 1234567\n",
        "broken{peer=\"a\n",
        "no value\n\n",
    ));
    let [first] = scrape.all("homa_x") else { panic!("{scrape:?}") };
    assert_eq!((first.label("peer"), first.label("of"), first.value), ("a \"b\", c}", "1", 2.5));
    assert_eq!(scrape.value(RATE), f64::INFINITY);
    assert_eq!((scrape.value("homa_y"), scrape.value("missing")), (7.0, 0.0));
    assert!(scrape.all("broken").is_empty() && scrape.all("no").is_empty());
    let before = Scrape::parse("homa_x{of=\"1\",peer=\"a \\\"b\\\", c}\"} 1\n");
    assert_eq!(before.same("homa_x", first), 1.0, "the order of labels has no meaning");
}

#[test]
fn numbers_that_no_engine_has_are_errors() {
    for value in ["NaN", "+Inf", "-Inf", "-1", "1e300"] {
        let error = Scrape::read(&format!("homa_engine_peers {value}\n")).unwrap_err();
        assert!(error.starts_with("homa_engine_peers is "), "{error}");
        assert!(Scrape::read(&format!("temperature {value}\n")).is_ok(), "of the application");
    }
    let rate = |value: &str| Scrape::read(&format!("{RATE} {value}\n"));
    assert!(rate("NaN").is_ok() && rate("+Inf").is_ok() && rate("-Inf").is_err());
    let cut = Scrape::read("homa_engine_peers{engine=\"\x1b[2Ja").unwrap_err();
    assert_eq!(cut, r#"this line has no value: "homa_engine_peers{engine="\u{1b}[2Ja""#);
}

#[test]
fn labels_cannot_control_a_terminal() {
    let scrape = Scrape::parse("homa_x{peer=\"\x1b[2J\u{9b}1m\u{202e}\\n\"} 1\n");
    assert_eq!(scrape.all("homa_x")[0].label("peer"), r"\u{1b}[2J\u{9b}1m\u{202e}\n");
}

#[test]
fn another_process_is_recognized() {
    let page = |opened: &str, calls: u32, peers: u32| {
        let opened = opened.split_whitespace().enumerate();
        let opened = opened.map(|(n, at)| format!("{OPENED}{{engine=\"{n}\"}} {at}\n"));
        let opened = opened.collect::<String>();
        Scrape::parse(&format!(
            "{opened}homa_protocol_requests_sent_total {calls}\nhoma_engine_peers {peers}\n\
             homa_peer_rpcs_total{{peer=\"a\"}} {peers}\n"
        ))
    };
    let before = page("100.5", 50, 7);
    assert!(!page("100.5", 60, 3).is_another_engine_than(&before), "gauges and peers fall");
    assert!(page("104.5", 60, 7).is_another_engine_than(&before), "its counters grew past");
    assert!(page("", 60, 7).is_another_engine_than(&before));
    assert!(page("100.5", 49, 7).is_another_engine_than(&before));
    let two = page("100.5 200.5", 50, 7);
    assert!(page("100.5 300", 60, 7).is_another_engine_than(&two), "one of its engines");
    let old = page("", 50, 7);
    assert!(page("", 2, 7).is_another_engine_than(&old), "without the time");
    assert!(!page("", 50, 7).is_another_engine_than(&old));
}

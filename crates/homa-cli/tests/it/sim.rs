//! `homa sim` as a user sees it: defaults, the documented document, traces, checks of physics.

use crate::common::{code, document, homa, keys, stderr};
use crate::folder::Folder;
use crate::lab::SMALL;

#[test]
fn a_scenario_that_is_refused_leaves_an_earlier_trace_alone() {
    let folder = Folder::new("trace");
    let trace = folder.file("sim.pcapng", "an earlier one");
    let read = || std::fs::read(&trace).expect("it is there");
    for refused in [["--scheme", "wishful"], ["--flows", "/nonexistent.csv"]] {
        let output = homa(&[&["sim", "--trace", &trace][..], &refused, &SMALL].concat());
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert_eq!(read(), b"an earlier one", "{refused:?}");
    }
    let output = homa(&[&["sim", "--trace", &trace][..], &SMALL].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(read().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    let nowhere = folder.path("none/sim.pcapng");
    let output = homa(&[&["sim", "--trace", &nowhere][..], &SMALL].concat());
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(said.contains(&format!("{nowhere}: No such file")), "{said}");
    assert!(said.ends_with("hint: choose another --trace\n"), "{said}");
}

/// One-way messages and RPCs have equal packets; the trace says which they are.
#[test]
fn a_trace_tells_one_way_messages_from_rpcs() {
    let folder = Folder::new("one-way");
    let traced = |exchange: &str| {
        let (trace, exchange) = (folder.path("sim.pcapng"), format!("traffic.exchange={exchange}"));
        let sim = ["sim", "--trace", &trace, "--set", &exchange];
        assert_eq!(code(&homa(&[&sim[..], &SMALL].concat())), 0);
        let seen = document(&homa(&["pcap", &trace, "--rpcs", "--format", "json"]));
        seen["captures"][0].clone()
    };
    let messages = traced("one-way");
    assert_eq!(messages["totals"]["endings"], serde_json::json!({"one_way": 400}));
    for message in messages["rpcs"].as_array().expect("a list") {
        assert_eq!(
            (&message["one_way"], &message["ending_text"]),
            (&true.into(), &"complete, one-way".into())
        );
        assert!(message["latency_ns"].is_u64(), "{message}");
    }
    let rpcs = traced("echo");
    assert!(rpcs["totals"]["endings"].get("one_way").is_none(), "{}", rpcs["totals"]);
    assert!(rpcs["rpcs"].as_array().expect("a list").iter().all(|rpc| rpc["one_way"] == false));
}

#[test]
fn sim_says_what_of_physics_was_checked() {
    let verified = [&["sim", "--verify", "--scheme", "homa"][..], &SMALL].concat();
    let output = homa(&verified);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().last().unwrap_or_default();
    assert!(said.starts_with("physics holds: ") && said.contains(" 0 B lost"), "{text}");
    // The same packets as without, and a document is nothing but the document.
    let json = homa(&[&verified[..], &["--format", "json"]].concat());
    assert!(stderr(&json).contains(said), "{}", stderr(&json));
    let plain = homa(&[&["sim", "--scheme", "homa", "--format", "json"][..], &SMALL].concat());
    assert_eq!(document(&json)["trace_hash"], document(&plain)["trace_hash"]);
    assert!(!stderr(&plain).contains("physics"));
}

#[test]
fn sim_gives_the_documented_shape() {
    let mut arguments = vec!["sim", "--scheme", "homa-sim", "--workload", "w2", "--load", "0.5"];
    arguments.extend(SMALL);
    arguments.extend(["--seed", "3", "--format", "json"]);
    let output = homa(&arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let outcome = document(&output);
    let documented = [
        "scheme",
        "workload",
        "load",
        "messages",
        "seed",
        "trace_hash",
        "packet_hops",
        "cpu_seconds",
        "hops_per_cpu_second",
        "peak_rss_bytes",
        "slowdown",
        "queues",
        "priority_share",
        "wasted_bandwidth",
        "wasted_ci",
        "utilisation",
        "goodput",
    ];
    for key in documented {
        assert!(keys(&outcome).contains(&key), "{key} is missing");
    }
    assert_eq!((&outcome["scheme"], &outcome["seed"]), (&"homa-sim".into(), &3.into()));
    assert_eq!((&outcome["load"], &outcome["messages"]), (&0.5.into(), &400.into()));
    let bucket = &outcome["slowdown"]["buckets"][0];
    for key in ["cum_share", "max_bytes", "count", "p50", "p99"] {
        assert!(keys(bucket).contains(&key), "{key} is missing");
    }
    assert_eq!(outcome["priority_share"].as_array().map(Vec::len), Some(8));
    assert!(keys(&outcome["queues"]["tor_down"]).contains(&"mean_bytes"));
    let again = document(&homa(&arguments));
    assert_eq!(outcome["trace_hash"], again["trace_hash"], "the same seed, the same packets");
}

#[test]
fn a_default_run_says_whether_its_load_is_sustained() {
    let said = |arguments: &[&str]| {
        let output = homa(&[&["sim"], arguments].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = said(&[]);
    assert!(text.starts_with("homa on w1 at load 0.8 "), "{text}");
    assert!(text.contains("\nthis load is sustained: "), "{text}");
    // A sample that is too short names one that is not.
    let text = said(&["--messages", "1000"]);
    let (_, needed) = text.split_once("(--messages ").expect("what to do");
    let needed = needed.split(',').next().expect("a number");
    let text = said(&["--messages", needed]);
    assert!(text.contains("\nthis load is sustained: "), "{needed}: {text}");
}

#[test]
fn a_load_in_per_cent_is_answered_with_the_share() {
    let folder = Folder::new("per-cent");
    let (fraction, table) = ("[scenario]\nload.fraction = 80\n", "[scenario]\nload = 80\n");
    let (fraction, table) =
        (folder.file("fraction.toml", fraction), folder.file("load.toml", table));
    for (arguments, said) in [
        (&["--load", "80"][..], "below 10: 0.8?"),
        (&["--set", "load.fraction=80"], "below 10: 0.8?"),
        (&["--max-load", "50..90"], "below 10: 0.5?"),
        (&[&fraction], "fraction.toml:2: `scenario.load.fraction`: "),
        (&[&fraction], "below 10: 0.8?"),
        (&[&table], "load.toml:2: `scenario.load`: "),
        (&[&table], "write `load.fraction = 0.8`"),
    ] {
        let output = homa(&[&["sim"], arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn threads_change_nothing_in_a_network_in_partitions() {
    let shape = "fabric.shape={kind='leaf-spine',racks=3,hosts_per_rack=2,spines=2}";
    let small = ["sim", "--messages", "400", "--set", shape, "--partitions"];
    let outcome = |threads: &str| {
        let divided = ["3", "--threads", threads, "--format", "json"];
        let mut outcome = document(&homa(&[&small[..], &divided].concat()));
        for cost in ["cpu_seconds", "hops_per_cpu_second", "peak_rss_bytes"] {
            outcome[cost].take();
        }
        outcome
    };
    let one = outcome("1");
    assert_eq!((&one["partitions"], &one["messages"]), (&3.into(), &400.into()));
    assert_eq!(outcome("2"), one);
    for (given, said) in [("0", "must be at least 1"), ("99", "must be 1 to 3")] {
        let output = homa(&[&small[..], &[given]].concat());
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

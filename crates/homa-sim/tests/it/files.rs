//! Files of other simulators as traffic, under several schemes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use homa_sim::experiment::{Observers, foresee, run, run_watched, validate};
use homa_sim::scenario::{
    Exchange, Fabric, FlowFormat, Scenario, ScenarioOutcome, Shape, SlowdownBy, Span, Traffic,
};

/// A file that is removed when it goes out of scope.
struct Written(PathBuf);

impl Written {
    fn new(name: &str, text: &str) -> Self {
        // Two tests may write files of one name at a time.
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("homa-files-{}-{count}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Two racks of four hosts that exchange the messages of the file.
    fn scenario(&self, scheme: &str) -> Scenario {
        let file = self.0.to_str().unwrap().to_owned();
        Scenario {
            scheme: scheme.to_owned(),
            fabric: Fabric {
                shape: Shape::LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2 },
                ..Fabric::default()
            },
            traffic: Traffic::Flows { file, format: None, exchange: Exchange::OneWay },
            slowdown: SlowdownBy::Idle,
            ..Scenario::default()
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

#[test]
fn the_same_messages_in_any_format_are_the_same_run() {
    let list = Written::new(
        "list.csv",
        "id,src,dst,bytes,start_ns\n0,0,5,14600,0\n1,6,5,1460,0\n2,3,1,2920,2000\n",
    );
    let others = [
        Written::new(
            "matrix.cm",
            "Nodes 8\nConnections 3\n0->5 id 1 start 0 size 14600\n6->5 id 2 start 0 size 1460\n\
             3->1 id 3 start 2000000 size 2920\n",
        ),
        Written::new(
            "flow.txt",
            "3\n0 5 3 100 14600 2.0\n6 5 3 100 1460 2.000000000\n3 1 3 100 2920 2.000002\n",
        ),
        Written::new(
            "trace.txt",
            "0 1.0 0 0 10 0 0 0 5\n1 1.0 0 0 1 0 0 6 5\n2 1.000002 0 0 2 0 0 3 1\n",
        ),
    ];
    for scheme in ["homa", "ndp", "dctcp", "pfabric", "ideal"] {
        let expected = outcome(&list.scenario(scheme));
        assert_eq!((expected.messages, expected.undelivered), (3, 0), "{scheme}");
        for other in &others {
            let found = outcome(&other.scenario(scheme));
            assert_eq!(found.trace_hash, expected.trace_hash, "{scheme} {}", other.0.display());
            assert!(found.completion.is_none());
        }
    }
}

/// Four messages of one size, each to the next host.
fn chain(word: &str) -> Written {
    let text = format!(
        "Nodes 8\nConnections 4\nTriggers 3\n\
         0->1 id 1 start 0 size 30000 {word} 1\n\
         1->2 id 2 trigger 1 size 30000 {word} 2\n\
         2->3 id 3 trigger 2 size 30000 {word} 3\n\
         3->0 id 4 trigger 3 size 30000\n\
         trigger id 1 oneshot\ntrigger id 2 multishot\ntrigger id 3 barrier count 1\n"
    );
    Written::new(&format!("chain-{word}.cm"), &text)
}

#[test]
fn a_chain_of_triggers_takes_the_sum_of_its_messages() {
    let alone = Written::new("alone.cm", "0->1 start 0 size 30000\n");
    let (received, sent) = (chain("recv_done_trigger"), chain("send_done_trigger"));
    for scheme in ["homa", "homa-sim", "ndp", "dctcp", "pfabric", "phost", "sird", "ideal"] {
        let one = outcome(&alone.scenario(scheme)).slowdown.buckets[0].p50_us.unwrap();
        let us = |file: &Written| {
            let outcome = outcome(&file.scenario(scheme));
            assert_eq!((outcome.messages, outcome.submitted), (4, 4), "{scheme}");
            outcome.completion.unwrap().us.unwrap()
        };
        let (received, sent) = (us(&received), us(&sent));
        assert!((received / one - 4.0).abs() < 0.2, "{scheme}: {received} us, each {one} us");
        // Three times an acknowledgement comes back within the rack: 1.75 us and two links.
        let back = 3.0 * (1.75 + 2.0 * 84.0 * 8.0 / 10_000.0);
        assert!((sent - received - back).abs() < 0.5, "{scheme}: {sent} us, {received} us");
    }
}

/// Both receive the other's message, in programs of these operations.
fn exchange(first: &str, second: &str) -> Written {
    let rank = |rank: u32, text: &str| {
        format!("rank {rank} {{\n{}}}\n", text.replace('P', &(1 - rank).to_string()))
    };
    let text = format!("num_ranks 2\n{}{}", rank(0, first), rank(1, second));
    Written::new(&format!("exchange-{}.goal", first.len() + second.len()), &text)
}

#[test]
fn a_receive_has_begun_when_it_is_posted() {
    let both = "r: recv 1000b from P tag 1\ns: send 1000b to P tag 1\n";
    // A send that is posted behind its receive, as non-blocking programs have it.
    let posted = exchange(&format!("{both}s irequires r\n"), &format!("{both}s requires r\n"));
    // The last task is a receive that waits for its own send.
    let last = format!("{both}r requires s\n");
    for file in [posted, exchange(&last, &last)] {
        for scheme in ["homa", "ndp", "ideal"] {
            let completion = outcome(&file.scenario(scheme)).completion.unwrap();
            assert_eq!((completion.messages, completion.arrived), (2, 2), "{scheme}");
            assert!(completion.us.is_some(), "{scheme}: {completion:?}");
        }
    }
}

#[test]
fn a_program_of_goal_takes_its_computations_and_messages() {
    let alone = Written::new("one.cm", "0->1 start 0 size 30000\n");
    let text = "num_ranks 2\nrank 0 {\n a: calc 10000\n b: send 30000b to 1 tag 1\n b requires \
                a\n c: recv 30000b from 1 tag 2\n d: calc 7000\n d requires c\n}\nrank 1 {\n a: \
                recv 30000b from 0 tag 1\n b: calc 2000 cpu 0\n e: calc 3000 cpu 0\n b requires \
                a\n e requires a\n c: send 30000b to 0 tag 2\n c requires b\n c requires e\n}\n";
    let program = Written::new("program.goal", text);
    for scheme in ["homa", "ndp", "dctcp", "ideal"] {
        let one = outcome(&alone.scenario(scheme)).slowdown.buckets[0].p50_us.unwrap();
        let outcome = outcome(&program.scenario(scheme));
        let us = outcome.completion.unwrap().us.unwrap();
        let expected = 10.0 + one + 5.0 + one + 7.0;
        assert!((us - expected).abs() < 0.1, "{scheme}: {us} us, {expected} expected");
        assert_eq!((outcome.messages, outcome.undelivered), (2, 0), "{scheme}");
    }
}

#[test]
fn a_lost_message_ends_the_run_and_is_told() {
    let file = chain("recv_done_trigger");
    let mut scenario = file.scenario("homa");
    // One-way messages of Homa are forgotten by their sender with the last byte.
    scenario.fabric.loss_ppm = 400_000;
    scenario.stop.drain_limit = Span::millis(200);
    let broken = outcome(&scenario);
    let completion = broken.completion.unwrap();
    assert!(completion.us.is_none() && completion.arrived < 4, "{completion:?}");
    assert!(broken.simulated_seconds < 1.0, "{}", broken.simulated_seconds);
    assert!(broken.alarms()[0].contains("traffic.exchange"), "{:?}", broken.alarms());
}

#[test]
fn doubts_are_warnings_and_mistakes_name_file_and_line() {
    let short = Written::new("short.cm", "0->1 start 0 size 9\n1->0 start 20 size 9\n");
    let warnings = foresee(&short.scenario("homa")).unwrap();
    assert!(warnings[0].contains("short.cm`: the last `start` is 20 ps"), "{warnings:?}");
    assert_eq!(outcome(&short.scenario("homa")).warnings, warnings);
    let refused = |file: &Written, format| {
        let mut scenario = file.scenario("homa");
        let Traffic::Flows { format: named, .. } = &mut scenario.traffic else { panic!("no file") };
        *named = format;
        validate(&scenario).unwrap_err().to_string()
    };
    let bad = Written::new("bad.cm", "Nodes 9\n0->1 start 0 size 9\n0->8 start 0 sise 9\n");
    let error = refused(&bad, None);
    assert!(error.contains("bad.cm: line 3: unknown word `sise`"), "{error}");
    let far = Written::new("far.cm", "Nodes 9\n0->8 start 0 size 9\n");
    let error = refused(&far, None);
    assert!(error.contains("0 to 8 but only 8 hosts"), "{error}");
    let error = refused(&short, Some(FlowFormat::Hpcc));
    assert!(error.contains("short.cm: line 1: expected the number of flows"), "{error}");
}

#[test]
fn a_network_of_htsim_has_the_delays_of_its_file() {
    let tree = "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down \
                4\nRadix_Up 2\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 300\nTier \
                1\nDownlink_speed_Gbps 200\nRadix_Down 2\nDownlink_Latency_ns 500\n";
    let tree = Written::new("tree.topo", tree);
    let list = Written::new("far.csv", "src,dst,bytes,start_ns\n0,5,1000,0\n");
    for scheme in ["homa", "ndp", "dctcp"] {
        let mut scenario = list.scenario(scheme);
        let file = tree.0.to_str().unwrap().to_owned();
        scenario.fabric.shape = Shape::Graph { file, format: None };
        let outcome = outcome(&scenario);
        let us = outcome.slowdown.buckets[0].p50_us.unwrap();
        // Two links of hosts, two of TORs, a latency in each TOR, and a frame of 1050 to 1120
        // bytes on four links.
        let delays = 2.0 * 1.0 + 2.0 * 0.5 + 2.0 * 0.3;
        let frames = us - delays - 2.0 * 1_085.0 * 8.0 * (1.0 / 100_000.0 + 1.0 / 200_000.0);
        assert!(frames.abs() < 0.02, "{scheme}: {us} us");
    }
}

#[test]
fn flows_of_hpcc_go_between_the_nodes_of_its_network() {
    let network = "6 2 5\n0 3\n1 0 100Gbps 1000ns 0\n2 0 100Gbps 1000ns 0\n4 3 100Gbps 1000ns \
                   0\n5 3 100Gbps 1000ns 0\n0 3 100Gbps 1000ns 0\n";
    let network = Written::new("topology.txt", network);
    let with = |flows: &Written| {
        let mut scenario = flows.scenario("ndp");
        let file = network.0.to_str().unwrap().to_owned();
        scenario.fabric.shape = Shape::Graph { file, format: None };
        scenario.measures.flows_above = Some(0);
        scenario
    };
    let flows = Written::new("nodes.txt", "2\n1 5 3 100 1000 2\n4 2 3 100 1000 2.1\n");
    let outcome = outcome(&with(&flows));
    let senders: Vec<u32> = outcome.flows.iter().map(|flow| flow.src).collect();
    assert_eq!(senders, [0, 2], "nodes 1 and 4 are the first and the third host");
    let wrong = Written::new("switch.txt", "1\n1 3 3 100 1000 2\n");
    let error = validate(&with(&wrong)).unwrap_err().to_string();
    assert!(error.contains("switch.txt: node 3 is a switch"), "{error}");
}

#[test]
fn results_are_written_as_hpcc_writes_them() {
    let network = "6 2 5\n0 3\n1 0 100Gbps 1000ns 0\n2 0 100Gbps 1000ns 0\n4 3 100Gbps 1000ns \
                   0\n5 3 100Gbps 1000ns 0\n0 3 100Gbps 1000ns 0\n";
    let network = Written::new("written.txt", network);
    let flows = "3\n1 5 3 100 1000 2\n4 2 3 100 20000 2.000001\n1 2 3 100 1000 2.001\n";
    let flows = Written::new("to-write.txt", flows);
    let mut scenario = flows.scenario("ndp");
    let file = network.0.to_str().unwrap().to_owned();
    scenario.fabric.shape = Shape::Graph { file, format: None };
    let mut written = Vec::new();
    let observers = Observers { fct: Some(&mut written), ..Observers::default() };
    let (watched, _) = run_watched(&scenario, observers, &mut |_| ()).unwrap();
    let plain = outcome(&scenario);
    assert_eq!((&watched.trace_hash, &watched.flows), (&plain.trace_hash, &vec![]));
    let text = String::from_utf8(written).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|row| row.split(' ').collect()).collect();
    let heads: Vec<_> = rows.iter().map(|row| row[..6].join(" ")).collect();
    let expected = [
        "0b000101 0b000501 10000 100 1000 2000000000",
        "0b000401 0b000201 10000 100 20000 2000001000",
        "0b000101 0b000201 10001 100 1000 2001000000",
    ];
    assert_eq!(heads, expected);
    let slowdown = |row: &Vec<&str>| {
        let [took, alone] = [6, 7].map(|field| row[field].parse::<f64>().unwrap());
        took / alone
    };
    // Messages that do not meet take as long as alone.
    assert!(rows.iter().all(|row| (slowdown(row) - 1.0).abs() < 0.001), "{text}");
}

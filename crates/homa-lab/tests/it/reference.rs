//! `docs/simulator.md` has every key of a plan, every column of the tables, every key of the JSON,
//! and no key that there is not.

mod options;

use std::collections::BTreeSet;

use homa_lab::cell::Cell;
use homa_lab::results;
use homa_lab::store::Stored;
use homa_sim::experiment::run;
use homa_sim::scenario::outcome::ScenarioOutcome;
use homa_sim::scenario::{
    Bandwidth, Buffer, Burst, CollectiveTraffic, Diverging, Exchange, Fabric, FlowFormat,
    FlowGroup, GraphFormat, Groups, Impaired, LoadedLinks, Measures, NicOptions, OfferedLoad,
    Operation, Paused, Probes, RankPlacement, Routing, Scenario, SchemeOptions, SecondScheme,
    Shape, SlowdownBy, Span, Stop, SwitchOptions, Traffic, TrafficEnding, WorkflowClass,
    WorkflowTraffic,
};
use toml::{Table, Value};

use crate::page;
use options::options;

const PAGE: &str = include_str!("../../../../docs/simulator.md");

/// Tables of several kinds, which the page shows as a plan writes them.
const INLINE: [&str; 6] = [
    "fabric.shape",
    "fabric.buffer",
    "fabric.impaired",
    "fabric.paused",
    "traffic.groups",
    // The same keys as `options`.
    "beside.options",
];

fn traffics() -> Vec<Traffic> {
    let (workload, max_bytes, exchange) = ("w1".to_owned(), Some(1), Exchange::OneWay);
    let group = FlowGroup { from: 1, count: 1, to: 1, spread: true };
    vec![
        Traffic::AllToAll { workload: workload.clone(), exchange, max_bytes },
        Traffic::ManyToOne { workload: workload.clone(), senders: 1 },
        Traffic::ClientsServers { workload, clients: 1, servers: 1, max_bytes },
        Traffic::Incast {
            servers: 1,
            concurrent: 1,
            request_bytes: 1,
            response_bytes: 1,
            together: true,
        },
        Traffic::Permutation { bytes: 1 },
        Traffic::FanIn { senders: 1, bytes: 1 },
        Traffic::LongFlows { senders: 1, groups: vec![group] },
        Traffic::Workflows(workflows()),
        Traffic::Collective(collective()),
        Traffic::Flows { file: String::new(), format: Some(FlowFormat::List), exchange },
    ]
}

fn collective() -> CollectiveTraffic {
    CollectiveTraffic {
        operation: Operation::AllToAll,
        bytes: 4_000,
        ranks: Some(4),
        placement: RankPlacement::InOrder,
        window: Some(1),
    }
}

fn workflows() -> WorkflowTraffic {
    let burst = Some(Burst { every: Span(2), length: Span(1), per_second: 1.0 });
    let class = WorkflowClass {
        response_bytes: vec![1],
        steps: 1,
        fan_out: vec![1],
        per_second: Some(1.0),
        burst,
        concurrent: Some(1),
        level: Some(0),
    };
    WorkflowTraffic {
        clients: Some(1),
        alternate: true,
        alternate_block: Some(8),
        request_bytes: 1,
        classes: [("NAME".to_owned(), class)].into(),
    }
}

fn shapes() -> Vec<Shape> {
    vec![
        Shape::SingleSwitch { hosts: 2 },
        Shape::LeafSpine { racks: 2, hosts_per_rack: 2, spines: 2 },
        Shape::FatTree { k: 4, oversubscription: 1 },
        Shape::Pods { pods: 2, racks: 2, hosts_per_rack: 2, aggrs: 2, cores: 2 },
        Shape::Graph { file: String::new(), format: Some(GraphFormat::Links) },
    ]
}

fn fabric(shape: Shape, buffer: Buffer) -> Fabric {
    let impaired = Impaired {
        from: "h0".to_owned(),
        to: "tor0".to_owned(),
        one_way: true,
        at: Span(0),
        until: Some(Span(1)),
        rate: Some(Bandwidth::gbps(1)),
        loss_ppm: Some(1),
    };
    Fabric {
        shape,
        buffer,
        routing: Some(Routing::Spray),
        core_link: Some(Bandwidth::gbps(1)),
        thresholds: Some(vec![1]),
        faults_until: Some(Span(1)),
        impaired: vec![impaired],
        paused: vec![Paused { host: "h0".to_owned(), at: Span(0), until: Span(1) }],
        ..Fabric::default()
    }
}

/// Paths of all keys below a table; entries of a list have no number.
fn collect(path: &str, value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                let whole = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(&whole, value, keys);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            items.iter().for_each(|item| collect(path, item, keys));
        }
        _ => _ = keys.insert(path.to_owned()),
    }
}

/// Every key that some scenario has.
fn scenario_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut add = |scenario: Scenario| {
        let table = Table::try_from(&scenario).expect("a scenario is a table");
        collect("", &Value::Table(table), &mut keys);
    };
    let diverging = Diverging::Continue;
    let stop = Stop { messages: Some(1), time: Some(Span(1)), diverging, ..Stop::default() };
    let load = OfferedLoad { links: LoadedLinks::Core, ..Scenario::default().load };
    for traffic in traffics() {
        let groups = Some(Groups { up_to: vec![1], percentiles: vec![50.0] });
        let measures = Measures { groups, flows_above: Some(1), ..Measures::default() };
        let (from, to, every, bytes) = (0, 1, Span(1), 1);
        let (lost_after, instrument) = (Some(every), Some(every));
        let probes = Some(Probes { from, to, every, bytes, lost_after, instrument });
        let scenario = Scenario { traffic, stop, load, probes, measures, ..Scenario::default() };
        let beside = Some(SecondScheme { options: options(), ..beside("tcp") });
        add(Scenario { options: options(), beside, ..scenario });
    }
    let buffer = Buffer::Shared { bytes: 1, alpha_percent: 1 };
    for shape in shapes() {
        add(Scenario { fabric: fabric(shape, buffer), ..Scenario::default() });
    }
    keys
}

/// Whether a word of the page is this one.
fn has_word(word: &str) -> bool {
    PAGE.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|other| other == word)
}

/// All that the page writes as code within a line.
fn codes() -> impl Iterator<Item = &'static str> {
    page::codes(PAGE)
}

#[test]
fn every_key_of_a_scenario_is_in_the_reference_and_no_other() {
    let keys = scenario_keys();
    for key in &keys {
        match INLINE.iter().find(|table| key.starts_with(&format!("{table}."))) {
            Some(table) => {
                assert!(codes().any(|code| code == *table), "`{table}` is missing");
                let last = key.rsplit('.').next().unwrap_or_default();
                assert!(has_word(last), "`{last}` of `{table}` is missing");
            }
            None => assert!(codes().any(|code| code == key), "`{key}` is missing"),
        }
    }
    let tables: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    for code in codes() {
        let known = |key: &String| key == code || key.starts_with(&format!("{code}."));
        let path = code.split_once('.').is_some_and(|(table, _)| tables.contains(table));
        assert!(!path || keys.iter().any(known), "there is no `{code}`");
    }
    for key in ["title", "seeds", "[scenario]", "[axes]"] {
        assert!(codes().any(|code| code == key), "`{key}` is missing");
    }
}

/// A small simulation that measures all there is.
fn with_ledger() -> Stored {
    let mut scenario = Scenario::default();
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 4 };
    scenario.stop.messages = Some(2_000);
    scenario.slowdown = SlowdownBy::Idle;
    let every = Span(1_000_000);
    let (lost_after, instrument) = (None, None);
    let probes = Probes { from: 0, to: 1, every, bytes: 1_000, lost_after, instrument };
    scenario.probes = Some(probes);
    // The only profile of Homa whose degree of overcommitment is fixed.
    scenario.scheme = "homa-sim".to_owned();
    scenario.measures = Measures {
        queues: true,
        priorities: true,
        wasted_bandwidth: true,
        tail_delay: true,
        ledger: true,
        groups: Some(Groups { up_to: vec![1], percentiles: vec![50.0] }),
        flows_above: Some(1_000_000),
    };
    let outcome = run(&scenario, &mut |_| ()).expect("it runs");
    let cell = Cell { axes: Vec::new(), scenario };
    Stored { version: String::new(), program: String::new(), cell, outcome }
}

#[test]
fn every_column_is_in_the_reference() {
    let (_, tables) = PAGE.split_once("\nCSV and Parquet").expect("the part about tables");
    let (before, slowdown) = tables.split_once("\n### slowdown").expect("its second half");
    let (slowdown, ledger) = slowdown.split_once("\n### ledger").expect("the third table");
    let (ledger, _) = ledger.split_once("\n## ").expect("its end");
    let kept = results::ledger(&[with_ledger()]).expect("a ledger was kept");
    let tables =
        [(results::summary(&[]), before), (results::slowdown(&[]), slowdown), (kept, ledger)];
    for (table, text) in tables {
        for column in table.columns() {
            if column.name == "seed" {
                assert!(page::codes(before).any(|code| code == "seed"), "all tables begin with it");
                continue;
            }
            // Of eight levels the first and the last stand for all.
            let between = (1..7).any(|level| column.name == format!("priority_{level}_share"));
            let there = between || page::codes(text).any(|code| code == column.name);
            assert!(there, "`{}` is missing", column.name);
        }
    }
}

/// What NICs report, beside the numbers of the others.
fn with_offloads() -> Stored {
    let mut scenario = Scenario { scheme: "tcp-droptail".to_owned(), ..Scenario::default() };
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 4 };
    scenario.stop.messages = Some(200);
    scenario.options.nic = Some(NicOptions { rx_frames: Some(1), ..NicOptions::default() });
    let outcome = run(&scenario, &mut |_| ()).expect("it runs");
    let cell = Cell { axes: Vec::new(), scenario };
    Stored { version: String::new(), program: String::new(), cell, outcome }
}

/// The same of workflows over switches that pause, too late to be safe.
fn with_workflows() -> ScenarioOutcome {
    let mut scenario = Scenario { scheme: "detail".to_owned(), ..Scenario::default() };
    let (pause, unpause) = (Some(100_000), Some(1_000));
    let switch = SwitchOptions { pause, unpause, ..SwitchOptions::default() };
    scenario.options.switch = Some(switch);
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 4 };
    let class = WorkflowClass { concurrent: None, ..workflows().classes["NAME"].clone() };
    let classes = [("page".to_owned(), class)].into();
    let traffic =
        WorkflowTraffic { alternate: false, alternate_block: None, classes, ..workflows() };
    scenario.traffic = Traffic::Workflows(traffic);
    scenario.stop.messages = Some(100);
    run(&scenario, &mut |_| ()).expect("it runs")
}

fn beside(scheme: &str) -> SecondScheme {
    SecondScheme { scheme: scheme.to_owned(), share: 0.5, options: SchemeOptions::default() }
}

/// The same of hosts of two kinds.
fn with_two_kinds() -> ScenarioOutcome {
    let mut scenario = Scenario { beside: Some(beside("tcp")), ..Scenario::default() };
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 4 };
    scenario.stop.messages = Some(100);
    run(&scenario, &mut |_| ()).expect("it runs")
}

#[test]
fn every_key_of_the_json_is_in_the_reference() {
    let with_nic = with_offloads().outcome;
    assert!(with_nic.nic.is_some());
    let paths = page::paths(&serde_json::to_value(&with_nic).expect("JSON"));
    for path in paths.iter().filter(|path| path.starts_with("nic.")) {
        let key = path.trim_start_matches("nic.");
        assert!(PAGE.contains(&format!("\"{key}\"")), "\"{key}\" is missing");
    }
    let outcome = with_ledger().outcome;
    assert!(outcome.tail_delay.as_ref().is_some_and(|tail| !tail.around.is_empty()));
    let rounds = Traffic::Incast {
        servers: 2,
        concurrent: 2,
        request_bytes: 10,
        response_bytes: 10,
        together: true,
    };
    let flows = Traffic::LongFlows { senders: 2, groups: Vec::new() };
    let of = |traffic| {
        let mut scenario = Scenario { traffic, scheme: "tcp".to_owned(), ..Scenario::default() };
        scenario.fabric.shape = Shape::SingleSwitch { hosts: 4 };
        scenario.stop =
            Stop { time: Some(Span::millis(1)), ending: TrafficEnding::Cut, ..scenario.stop };
        run(&scenario, &mut |_| ()).expect("it runs")
    };
    let joined = of(Traffic::Collective(collective()));
    assert!(joined.collective.is_some() && joined.completion.is_some());
    let outcomes = [outcome, of(rounds), of(flows), joined, with_workflows(), with_two_kinds()];
    assert!(outcomes[1].rounds.is_some() && outcomes[2].flow_groups.len() == 1);
    let paths = outcomes
        .iter()
        .flat_map(|outcome| page::paths(&serde_json::to_value(outcome).expect("JSON")));
    // Below `options` are the keys of a plan.
    let paths = paths.filter(|path| !path.contains("options."));
    let mut keys: BTreeSet<String> =
        paths.filter_map(|path| Some(path.rsplit('.').next()?.to_owned())).collect();
    keys.extend(["port", "levels", "since_us", "waits_for"].map(String::from));
    let keys = keys.iter().map(String::as_str);
    for key in keys.chain(["sustained", "diverging", "outcome"]) {
        assert!(PAGE.contains(&format!("\"{key}\"")), "\"{key}\" is missing");
    }
}

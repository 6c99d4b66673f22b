//! The resolved options of a bench: as they stand in the result, and as the command that repeats
//! it. Both name only options that had an effect.

use homa_testbed::Rack;
use serde::Serialize;

use super::args::{Args, Switch};
use super::fabric::FabricShape;
use crate::values;

/// The network of the RPCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The rack inside this machine.
    Rack,
    /// The network between this machine and a server.
    Peer,
}

/// The resolved request, as it stands in the result; what took no part is absent.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    version: &'static str,
    network: Network,
    transports: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<&'static str>,
    /// Server ports of `--cp-node`, and whether responses are short.
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_responses: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<f64>,
    /// RPCs in progress of `--incast`.
    #[serde(skip_serializing_if = "Option::is_none")]
    incast: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incast_control: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<usize>,
    /// `--fabric` and what belongs to it; absent with one switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    fabric: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<Vec<String>>,
    /// Servers of a workflow, and bytes of each response.
    #[serde(skip_serializing_if = "Option::is_none")]
    fan_out: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_bytes: Option<u32>,
    link_bps: u64,
    duration_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffer_bytes: Option<u64>,
    /// `--phantom-queue` and `--ecn-threshold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    phantom_drain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phantom_threshold_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ecn_threshold_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cc: Option<String>,
    /// How soon TCP sends a lost segment again, which some kernels do not let the rack set.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_rto_min_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<f64>,
    seed: u64,
}

impl Config {
    /// The options `args`, resolved for RPCs over `network`.
    pub fn new(args: &Args, network: Network) -> Self {
        let rack = network == Network::Rack;
        let ours = rack;
        let loaded = args.incast.is_none();
        let sized = loaded && args.fan_out.is_none();
        let fabric = rack && args.network.fabric != FabricShape::SingleSwitch;
        let degraded = || args.network.degrade.iter().map(ToString::to_string).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            network,
            transports: match rack {
                true => args.transports().iter().map(|t| t.name()).collect(),
                false => vec!["homa"],
            },
            peer: args.peer.map(|server| server.to_string()),
            driver: args.peer.map(|_| args.driver.name()),
            ports: args.cp_node.then_some(args.ports),
            short_responses: args.cp_node.then_some(args.short_responses),
            workload: sized.then(|| args.workload.to_string()),
            load: loaded.then_some(args.load),
            incast: args.incast,
            incast_control: ours.then_some(args.incast_control == Switch::On),
            hosts: ours.then_some(args.hosts()),
            fabric: fabric.then(|| args.network.fabric.name()),
            forwarding: fabric.then(|| args.network.forwarding.name()),
            degraded: fabric.then(degraded),
            fan_out: args.fan_out,
            response_bytes: args.fan_out.map(|_| args.response),
            link_bps: args.link(),
            duration_s: args.duration().as_secs_f64(),
            buffer_bytes: rack.then_some(args.buffer),
            phantom_drain: args.marks.phantom_queue.filter(|_| rack).map(|queue| queue.drain),
            phantom_threshold_bytes: args.marks.phantom_queue.filter(|_| rack).map(|q| q.threshold),
            ecn_threshold_bytes: args.marks.ecn_threshold.filter(|_| rack),
            cc: rack.then(|| args.cc.clone()),
            tcp_rto_min_ms: None,
            loss: ours.then_some(args.loss),
            duplicate: ours.then_some(args.duplicate),
            seed: args.seed,
        }
    }

    /// The same, as it turned out on a rack that was built.
    pub fn of_rack(args: &Args, rack: &Rack) -> Self {
        let least = rack.tcp_rto_min().as_millis() as u64;
        Self { tcp_rto_min_ms: Some(least), ..Self::new(args, Network::Rack) }
    }
}

/// The line that repeats a run, everything that takes part written out.
pub fn command_line(args: &Args) -> String {
    let mut line = String::from("homa bench");
    let mut add = |name: &str, value: &str| line += &format!(" --{name} {value}");
    match args.peer {
        Some(server) => {
            add("peer", &server.to_string());
            add("driver", args.driver.name());
        }
        None => {
            let names: Vec<&str> = args.transports().iter().map(|t| t.name()).collect();
            add("transport", &names.join(","));
            add("hosts", &args.hosts().to_string());
            if args.network.fabric != FabricShape::SingleSwitch {
                add("fabric", args.network.fabric.name());
                add("forwarding", args.network.forwarding.name());
            }
            args.network.degrade.iter().for_each(|degrade| add("degrade", &degrade.to_string()));
            add("buffer", &args.buffer.to_string());
            args.marks
                .phantom_queue
                .iter()
                .for_each(|queue| add("phantom-queue", &queue.to_string()));
            args.marks
                .ecn_threshold
                .iter()
                .for_each(|bytes| add("ecn-threshold", &bytes.to_string()));
            add("cc", &args.cc);
            add("loss", &args.loss.to_string());
            add("duplicate", &args.duplicate.to_string());
            add("incast-control", args.incast_control.name());
        }
    }
    match args.incast {
        Some(outstanding) => add("incast", &outstanding.to_string()),
        None => {
            match args.fan_out {
                Some(parts) => {
                    add("fan-out", &parts.to_string());
                    add("response", &args.response.to_string());
                }
                None => add("workload", &quoted(&args.workload.to_string())),
            }
            add("load", &args.load.to_string());
        }
    }
    add("link", &values::show_rate(args.link()));
    add("duration", &values::show_duration(args.duration()));
    add("seed", &args.seed.to_string());
    if args.cp_node {
        add("ports", &args.ports.to_string());
    }
    let flags = [
        (args.cp_node, " --cp-node"),
        (args.short_responses, " --short-responses"),
        (args.twin, " --twin"),
    ];
    line.extend(flags.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
    line
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::super::setup::rack_config;
    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Args {
        let cli = Cli::try_parse_from(line.split_whitespace());
        match cli.unwrap_or_else(|error| panic!("{line}: {error}")).command {
            Command::Bench(args) => *args,
            other => panic!("{line} is {other:?}"),
        }
    }

    fn config(args: &Args) -> Value {
        let network = if args.peer.is_some() { Network::Peer } else { Network::Rack };
        serde_json::to_value(Config::new(args, network)).expect("plain data")
    }

    #[test]
    fn another_seed_loses_other_frames() {
        let faults = |line| rack_config(&parsed(line)).faults;
        let one = faults("homa bench --loss 0.01 --seed 1");
        let two = faults("homa bench --loss 0.01 --seed 2");
        assert_ne!(one, two);
    }

    #[test]
    fn the_line_that_repeats_a_run_is_accepted_and_means_the_same() {
        for line in [
            "homa bench",
            "homa bench --twin --transport homa,tcp --load 0.25 --workload w5 --hosts 3",
            "homa bench --incast-control off --loss 0.01 --duplicate 0.001 --cc reno",
            "homa bench --incast 300 --incast-control off --buffer 200000 --seed 7",
            "homa bench --transport tcp-ecn --phantom-queue 0.95,1KB --ecn-threshold 30KB",
            "homa bench --fabric leaf-spine --forwarding alb --degrade spine1:10",
            "homa bench --fan-out 10 --response 2KB --load 0.4",
            "homa bench --peer 127.0.0.1:4000",
            "homa bench --peer [::1]:4000 --driver raw-ip --link 1Gbps --duration 300ms",
            "homa bench --peer 127.0.0.1:4000 --cp-node --ports 3 --short-responses",
        ] {
            let args = parsed(line);
            let again = parsed(&command_line(&args));
            assert_eq!(config(&again), config(&args), "{line}");
            assert_eq!(again.twin, args.twin, "{line}");
        }
    }

    #[test]
    fn the_result_names_what_took_part_and_nothing_else() {
        let keys = |line: &str| {
            let config = config(&parsed(line));
            config.as_object().expect("an object").keys().cloned().collect::<Vec<_>>()
        };
        let peer = config(&parsed("homa bench --peer 127.0.0.1:4000"));
        assert_eq!(peer["transports"], serde_json::json!(["homa"]));
        for absent in ["hosts", "buffer_bytes", "cc", "loss", "incast_control", "ports"] {
            assert!(peer.get(absent).is_none(), "{absent} in {peer}");
        }
        let incast = keys("homa bench --incast 30");
        assert!(incast.contains(&"incast_control".to_owned()), "{incast:?}");
        for absent in ["workload", "load", "peer"] {
            assert!(!incast.contains(&absent.to_owned()), "{absent} in {incast:?}");
        }
    }

    #[test]
    fn a_path_is_one_word_to_a_shell() {
        assert_eq!(quoted("w3"), "w3");
        assert_eq!(quoted("my sizes.csv"), "'my sizes.csv'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn options_that_would_do_nothing_are_refused() {
        for rest in [
            "--micro --link 1Gbps",
            "--micro --loss 0.1",
            "--micro --buffer 200000",
            "--micro --cc reno",
            "--micro --incast-control on",
            "--peer 127.0.0.1:9 --loss 0.1",
            "--peer 127.0.0.1:9 --duplicate 0.1",
            "--peer 127.0.0.1:9 --incast-control off",
            "--peer 127.0.0.1:9 --phantom-queue 0.95,1KB",
            "--micro --ecn-threshold 30KB",
            "--micro --fabric leaf-spine",
            "--fan-out 3 --workload w1",
            "--response 2KB",
            "--incast 3 --workload w1",
            "--incast 3 --load 0.5",
            "--incast 0",
        ] {
            let line = format!("homa bench {rest}");
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{rest}");
        }
    }
}

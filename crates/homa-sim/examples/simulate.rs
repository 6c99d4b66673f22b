//! Runs one scenario and prints its outcome as JSON:
//! `simulate SCHEME WORKLOAD LOAD MESSAGES SEED [all]`. Every argument has a default. If `all` is
//! given, everything is measured, e.g. the parts of each message's latency.

use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Scenario, Traffic};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &'static str| args.get(index).map_or(default, |arg| arg);
    let mut scenario = Scenario {
        scheme: arg(0, "homa").to_owned(),
        traffic: Traffic::AllToAll {
            workload: arg(1, "w3").to_owned(),
            exchange: Exchange::OneWay,
            max_bytes: None,
        },
        seed: arg(4, "1").parse()?,
        ..Scenario::default()
    };
    scenario.load.fraction = arg(2, "0.8").parse()?;
    scenario.stop.messages = Some(arg(3, "20000").parse()?);
    if arg(5, "") == "all" {
        scenario.measures.wasted_bandwidth = true;
        scenario.measures.tail_delay = true;
        scenario.measures.ledger = true;
    }
    let outcome = run(&scenario, &mut |progress| eprintln!("{progress:?}"))?;
    println!("{}", serde_json::to_string_pretty(&outcome)?);
    Ok(())
}

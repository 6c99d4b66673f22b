//! `homa hull headroom`: the paper's rules for one's own network, beside a simulation.

use std::time::Duration;

use homa_lab::headroom::{Answer, HeadroomError, Pair, Question, Seen};
use homa_proto::Rate;
use homa_sim::measure::headroom::DCTCP_SHORTFALL;
use serde::Serialize;

use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};
use crate::values;

/// Arguments of `homa hull headroom`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rate of the links.
    #[arg(long, value_name = "RATE", default_value = "10Gbps", value_parser = values::rate)]
    link: u64,
    /// Round trip of a full packet and its acknowledgement in the idle network.
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = values::duration)]
    rtt: Duration,
    /// Number of long flows that share a link.
    #[arg(long, value_name = "N", default_value_t = 4)]
    flows: u32,
    /// Share of the link that traffic takes, 0.01 or more.
    #[arg(long, default_value = "0.4", value_parser = values::load)]
    load: f64,
    /// Drain rate of phantom queues, as a share of the link below 1. [default: what the rule says]
    #[arg(long, value_name = "SHARE", value_parser = drain)]
    drain: Option<f64>,
    /// Bytes of a large flow, 100kB to 100MB.
    #[arg(long, value_name = "BYTES", default_value = "10MB", value_parser = values::message_bytes)]
    flow: u32,
    /// Print what the rules say, and simulate nothing.
    #[arg(long)]
    rule_only: bool,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = values::seed)]
    seed: u64,
    /// Output format on stdout.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn drain(text: &str) -> Result<f64, String> {
    let must = "a drain rate is a share of the link above 0 and below 1, such as 0.95";
    values::load(text).map_err(|_| must.into())
}

/// The request.
#[derive(Debug, Serialize)]
struct Config {
    link_bps: u64,
    rtt_us: f64,
    flows: u32,
    load: f64,
    flow_bytes: u32,
    seed: u64,
}

#[derive(Debug, Serialize)]
struct HeadroomReport {
    config: Config,
    rule: homa_lab::headroom::Rule,
    simulation: Option<HeadroomResult>,
}

#[derive(Debug, Serialize)]
struct HeadroomResult {
    long_flows: Pair,
    at_load: Pair,
    slowdown: f64,
    saved_mean_us: f64,
    saved_p99_us: f64,
}

impl From<Answer> for HeadroomResult {
    fn from(answer: Answer) -> Self {
        let Answer { long_flows, at_load, slowdown, .. } = answer;
        let (saved_mean_us, saved_p99_us) = (answer.saved_mean_us, answer.saved_p99_us);
        Self { long_flows, at_load, slowdown, saved_mean_us, saved_p99_us }
    }
}

fn refused(error: HeadroomError) -> Failure {
    let hint = match error {
        HeadroomError::NotCarried { load, .. } if load + DCTCP_SHORTFALL < 0.95 => {
            "choose a lower --load, fewer --flows, a faster --link, or say yourself what phantom \
             queues drain: --drain 0.95"
        }
        HeadroomError::NotCarried { .. } => "choose a lower --load",
        HeadroomError::Large { .. } => "--rule-only prints what the rules say without simulating",
        HeadroomError::Question(_) | HeadroomError::Scenario(_) => {
            "`homa hull headroom --help` lists what is accepted, with units and defaults"
        }
    };
    Failure::new(error, hint)
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let &Args { link, rtt, flows, load, drain, flow: flow_bytes, rule_only, seed, format } = args;
    let nanos = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
    let rtt = homa_proto::Duration(nanos);
    let question = Question { link: Rate(link), rtt, flows, load, drain, flow_bytes, seed };
    let rule = question.rule().map_err(refused)?;
    let simulation = match rule_only {
        true => None,
        false => {
            let answer = question.answer(|what| eprintln!("simulating {what}"));
            Some(HeadroomResult::from(answer.map_err(refused)?))
        }
    };
    let rtt_us = nanos as f64 / 1e3;
    let config = Config { link_bps: link, rtt_us, flows, load, flow_bytes, seed };
    let document = HeadroomReport { config, rule, simulation };
    match format {
        Format::Json => json(&document)?,
        Format::Table => print(&document),
    }
    Ok(Verdict::Passed)
}

fn print(document: &HeadroomReport) {
    let HeadroomReport { config, rule, simulation } = document;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    line(format!(
        "{} long flow{} on {} with a round trip of {} us, {:.1} full packets",
        config.flows,
        if config.flows == 1 { "" } else { "s" },
        values::show_rate(config.link_bps),
        config.rtt_us,
        rule.packets_in_flight
    ));
    line(format!(
        "headroom (HULL eq. 5): more than {} of the link{}; phantom queues drain {}",
        percent(rule.headroom),
        if rule.headroom < 1.0 { "" } else { ", so that none suffices" },
        percent(rule.drain)
    ));
    line(format!(
        "large flows at load {} (eq. 3): {:.2} times as long; {:.2} with the 8 % of the link that \
         DCTCP stays below",
        config.load, rule.slowdown, rule.slowdown_dctcp
    ));
    let Some(simulation) = simulation else { return };
    line("");
    let right = |title, width| (title, Align::Right, width);
    let table = TextTable::new(&[
        ("simulated", Align::Left, 38),
        right("link used", 9),
        right("wait, mean us", 13),
        right("99 %, us", 9),
        right("completion, ms", 14),
    ]);
    line(table.head());
    let row = |what: String, seen: Seen| {
        let completion = seen.completion_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.2}"));
        let cells = [
            what,
            percent(seen.used),
            format!("{:.1}", seen.wait_mean_us),
            format!("{:.1}", seen.wait_p99_us),
            completion,
        ];
        line(table.row(&cells));
    };
    row("long flows, DCTCP".into(), simulation.long_flows.without);
    row("long flows, with headroom".into(), simulation.long_flows.with);
    let megabytes = f64::from(config.flow_bytes) / 1e6;
    row(
        format!("flows of {megabytes:.1} MB at load {}, DCTCP", config.load),
        simulation.at_load.without,
    );
    row("the same, with headroom".into(), simulation.at_load.with);
    line("");
    let saved =
        |us: f64| format!("{:.1} us {}", us.abs(), if us < 0.0 { "longer" } else { "less" });
    line(format!(
        "large flows took {:.2} times as long; packets waited {} on average, {} at 99 %",
        simulation.slowdown,
        saved(simulation.saved_mean_us),
        saved(simulation.saved_p99_us)
    ));
}

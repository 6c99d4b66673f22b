//! The families of stages in OpenMetrics text.

use std::time::Duration;

use super::{RpcStage, StageTimes};
use crate::metrics::Text;

/// Writes the families of stages.
pub(in crate::metrics) fn write(
    stages: &[StageTimes],
    shortest_wait: Option<Duration>,
    text: &mut Text,
) {
    let seconds = |time: Duration| time.as_nanos() as f64 / 1e9;
    let up_to: Vec<String> = stages.iter().map(|of| seconds(of.up_to).to_string()).collect();
    let labels = |n: usize| {
        let (direction, size) = (stages[n].direction.name(), stages[n].size.name());
        [("direction", direction), ("size", size), ("up_to", &*up_to[n])]
    };
    let name = "rpc_stage_seconds";
    let help = "Time of RPCs in each stage (one in 16 is followed), by how long they took (up_to, \
                in seconds).";
    text.family(name, "counter", help);
    for (n, of) in stages.iter().enumerate() {
        for stage in RpcStage::ALL.into_iter().filter(|&stage| !of.time(stage).is_zero()) {
            let [direction, size, up_to] = labels(n);
            let all = [direction, size, up_to, ("stage", stage.name())];
            text.sample(&format!("{name}_total"), &all, seconds(of.time(stage)));
        }
    }
    text.family("rpc_stage_rpcs", "counter", "RPCs whose stages were measured.");
    for (n, of) in stages.iter().enumerate() {
        text.sample("rpc_stage_rpcs_total", &labels(n), of.rpcs);
    }
    text.family(
        "rpc_stage_bytes",
        "counter",
        "Bytes of the messages of RPCs whose stages were measured.",
    );
    for (n, of) in stages.iter().enumerate() {
        text.sample("rpc_stage_bytes_total", &labels(n), of.bytes);
    }
    let name = "rpc_shortest_wait_seconds";
    let help = "The shortest time from the last byte of a request to the first of its response, of \
                RPCs whose stages were measured: at least a round trip.";
    text.family(name, "gauge", help);
    if let Some(wait) = shortest_wait {
        text.sample(name, &[], seconds(wait));
    }
}

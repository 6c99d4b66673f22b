//! `homa bench`: the main job. One command answers three questions: how long do the same RPCs take
//! over Homa and over kernel TCP on a loaded rack (default), how fast is each without load
//! (`--micro`), and how fast is a running server (`--peer`)? `--grpc` compares gRPC over both.
//!
//! Files depend downwards only: `args` and the values it parses (`fabric`, `marking`), `units`;
//! `decide` (pure) and `setup` (racks, offered RPCs); `results` (documents, tables, sentences,
//! chart); `twin` (the simulator's rows); `measure` (the loop over trials, rates and rows); and one
//! file per pattern: `load`, `incast`, `workflow`, `peer`, `cp_node`.

mod args;
mod config;
mod cp_node;
mod decide;
mod fabric;
mod incast;
mod load;
mod marking;
mod measure;
mod open_loop;
mod peer;
mod results;
mod rows;
mod setup;
mod trial;
mod twin;
mod units;
mod workflow;

pub use args::Args;
pub use load::find;
pub use marking::threshold;

use homa_testbed::Transport;

use crate::failure::{Failure, Outcome, Verdict};
use crate::micro;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.protection.is_given() && args.peer.is_none() {
        let error = anyhow::anyhow!(
            "--key and --plaintext are for --peer: the rest is measured in plaintext"
        );
        return Err(Failure::new(error, "leave it away, or name a server with --peer"));
    }
    if args.micro {
        let time = args.duration.unwrap_or(args::MICRO_DURATION);
        micro::run(time, &args.only, args.mtu, args.seed, args.format)?;
        return Ok(Verdict::Passed);
    }
    if args.grpc {
        return grpc(args);
    }
    if !cfg!(feature = "grpc") && args.transports().into_iter().any(Transport::is_grpc) {
        return Err(Failure::without_grpc("gRPC on the rack"));
    }
    let Some(server) = args.peer else { return load::run(args) };
    // Results name the driver that was used, so `auto` is settled first.
    let driver = args.driver.settle(args.driver.address_for(server));
    let args = &Args { driver, ..args.clone() };
    match args.cp_node {
        true => cp_node::run(args, server),
        false => peer::run(args, server),
    }
}

#[cfg(feature = "grpc")]
fn grpc(args: &Args) -> Outcome {
    crate::grpc::run(args.duration.unwrap_or(args::GRPC_DURATION), args.format)?;
    Ok(Verdict::Passed)
}

#[cfg(not(feature = "grpc"))]
fn grpc(_: &Args) -> Outcome {
    Err(Failure::without_grpc("`homa bench --grpc`"))
}

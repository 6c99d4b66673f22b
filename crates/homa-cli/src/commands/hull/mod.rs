//! `homa hull`: HULL's trade of bandwidth for latency (NSDI 2012), one file per subcommand.

mod attach;
mod headroom;

use clap::Subcommand;

use crate::failure::Outcome;

/// Arguments of `homa hull`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Put a phantom queue on a real port: packets are marked before the link is full.
    ///
    /// Needs CAP_BPF and CAP_NET_ADMIN. With senders that run DCTCP
    /// (net.ipv4.tcp_congestion_control = dctcp) and pace (fq), this is HULL; with other congestion
    /// control and ECN (net.ipv4.tcp_ecn = 1) a mark halves the window, which costs more
    /// throughput; without ECN nothing is ever marked.
    Attach(attach::Args),
    /// How much bandwidth to give up for how much latency: the paper's rules for your network,
    /// beside a quick simulation of it.
    Headroom(headroom::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Attach(args) => attach::run(args),
        What::Headroom(args) => headroom::run(args),
    }
}

//! The command line: one variant per subcommand, each with its arguments beside its code.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, call, completions, doctor, hull, key, pcap, pfc, pias_thresholds, ping, proxy, report,
    repro, schemes, serve, sim, swarm, sweep, tail, top, why, workloads,
};
use crate::pages::located_help;

/// Homa for everyone: RPCs with low tail latency over UDP, and a laboratory to measure them.
///
/// Results go to stdout, progress and logs to stderr. Exit codes: 0 ok, 1 a check failed,
/// 2 a usage or environment error.
#[derive(Debug, Parser)]
#[command(name = "homa", version = env!("HOMA_VERSION"), arg_required_else_help = true)]
#[command(after_help = "Documentation: docs/introduction.md")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands, the main job first.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare Homa with kernel TCP on a rack inside this machine: the same RPCs, p50 and p99 of
    /// each.
    Bench(Box<bench::Args>),
    /// Answer RPCs until Ctrl-C.
    Serve(serve::Args),
    /// Call a server and print the answer, or measure many calls.
    Call(call::Args),
    /// Carry gRPC and HTTP between unmodified programs over Homa: one proxy beside the clients, one
    /// beside the server.
    Proxy(proxy::Args),
    /// Time small RPCs to a server, one at a time.
    Ping(ping::Args),
    /// Show what a running engine does: RPCs per second, percentiles, losses, its busiest peers.
    Top(top::Args),
    /// Say where the time of a running engine's slow RPCs goes, and the one thing to change.
    Why(why::Args),
    /// Make the key with which the hosts of a cluster encrypt their packets.
    Key(key::Args),
    /// Simulate one scenario: latency by message size, queues, priorities, load.
    Sim(Box<sim::Args>),
    /// Simulate every combination of a plan's axes and seeds, on all cores, resumable.
    Sweep(sweep::Args),
    /// Simulate published figures again and compare them with the published numbers.
    Repro(repro::Args),
    /// Trade bandwidth for latency (HULL): what headroom gains, and phantom queues on real ports.
    Hull(hull::Args),
    /// Draw a folder of results as one self-contained HTML page.
    Report(report::Args),
    /// Decode captures of Homa traffic: packets, and what became of each RPC.
    Pcap(pcap::Args),
    /// Derive thresholds of priority flow control (PFC) at which lossless ports lose nothing.
    Pfc(pfc::Args),
    /// Show what a long tail of round-trip times costs fan-outs and sequences of retrievals.
    Tail(tail::Args),
    /// List what can be simulated.
    Schemes(schemes::Args),
    /// List the message-size workloads W1-W5 with their key figures.
    Workloads(workloads::Args),
    /// Find PIAS's demotion thresholds for message sizes.
    PiasThresholds(pias_thresholds::Args),
    /// Report what this machine and its loopback path can do, what limits Homa there, and remedies.
    Doctor(doctor::Args),
    /// Run random small scenarios with faults, and some with a hostile host, under an independent
    /// checker of the protocol's promises.
    Swarm(swarm::Args),
    /// Print the completions of a shell.
    Completions(completions::Args),
    /// Write the man pages of all commands.
    Man(completions::ManArgs),
}

/// The command line. A number below zero is the value of an option, which then says what is
/// allowed, instead of an unknown option.
pub fn command() -> clap::Command {
    located_help(below_zero(Cli::command()))
}

fn below_zero(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true if !arg.is_positional() => arg.allow_negative_numbers(true),
        _ => arg,
    });
    command.mut_subcommands(below_zero)
}

/// The subcommands that a command line begins with, each with a space before it: for the hint after
/// a usage error.
pub fn named(words: impl Iterator<Item = String>) -> String {
    let (mut at, mut named) = (Cli::command(), String::new());
    for word in words {
        let Some(next) = at.find_subcommand(&word).cloned() else { break };
        named += &format!(" {word}");
        at = next;
    }
    named
}

/// The build script, which asks git for the commit.
#[cfg(test)]
#[path = "../build.rs"]
#[allow(dead_code)]
mod build_script;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_a_commit_of_our_repository_alone() {
        let folder = std::env::temp_dir().join(format!("homa-version-{}", std::process::id()));
        let crate_of_another = folder.join("vendored/homa-cli");
        std::fs::create_dir_all(&crate_of_another).unwrap();
        std::fs::write(crate_of_another.join("build.rs"), "").unwrap();
        let git = |arguments: &str| {
            let words = arguments.split(' ');
            let mut git = std::process::Command::new("git");
            let output = git.arg("-C").arg(&folder).args(words).output().ok()?;
            output.status.success().then_some(output)
        };
        assert_eq!(build_script::commit(&folder), None, "without a repository");
        let by = "-c user.name=a -c user.email=a@b -c commit.gpgsign=false";
        if git("init --quiet").is_some() {
            git(&format!("{by} commit --quiet --allow-empty --message=x")).expect("a commit");
            assert_eq!(build_script::commit(&crate_of_another), None, "it is not of this crate");
            git("add vendored").expect("an index");
            let head = git("rev-parse HEAD").expect("a commit").stdout;
            let commit = build_script::commit(&crate_of_another).expect("a commit");
            assert_eq!(commit.as_bytes(), &head[..12]);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_subcommands_are_named_in_hints() {
        let named = |words: &str| named(words.split(' ').map(str::to_owned));
        assert_eq!(named("bench --load x"), " bench");
        assert_eq!(named("pfc thresholds --link 5"), " pfc thresholds");
        assert_eq!((named("--load sim"), named("nonsense")), (String::new(), String::new()));
    }

    /// The mistake in the value of an option; `None` if only other options are missing.
    fn wrong(path: &[String], option: &str, value: &str) -> Option<String> {
        let words = ["homa"].into_iter().chain(path.iter().map(String::as_str));
        let line = words.chain([option, value]);
        let error = command().try_get_matches_from(line).err()?;
        (error.kind() == clap::error::ErrorKind::ValueValidation).then(|| error.to_string())
    }

    /// Every option whose value has that name, below the commands on the way.
    fn options(command: &clap::Command, path: &[String], name: &str) -> Vec<(Vec<String>, String)> {
        let named = |arg: &&clap::Arg| arg.get_value_names().is_some_and(|names| names == [name]);
        let own = command.get_arguments().filter(named).filter_map(clap::Arg::get_long);
        let mut found: Vec<_> = own.map(|long| (path.to_vec(), format!("--{long}"))).collect();
        for below in command.get_subcommands() {
            let path = [path, &[below.get_name().to_owned()]].concat();
            found.extend(options(below, &path, name));
        }
        found
    }

    #[test]
    fn every_option_of_a_quantity_accepts_the_same_forms() {
        let quantities: [(&str, &[&str], &[&str]); 4] = [
            ("RATE", &["25G", "25Gbps", "100Mbps", "100Mbit/s"], &["25", "25GB", "fast"]),
            ("TIME", &["20s", "500ms", "500000us", "1m"], &["5", "5 sec", "soon"]),
            ("BYTES", &["1500", "1.5KB", "2KiB", "1500B"], &["1.5", "2kb", "many"]),
            ("LENGTH", &["100m", "2km"], &["100", "5ft"]),
        ];
        for (name, accepted, refused) in quantities {
            let options = options(&command(), &[], name);
            assert!(!options.is_empty(), "{name}");
            for (path, option) in &options {
                for form in accepted {
                    assert_eq!(wrong(path, option, form), None, "{path:?} {option} {form}");
                }
                for form in refused {
                    let said = wrong(path, option, form).unwrap_or_default();
                    let named = said.contains(&format!("'{form}' for '{option} <{name}>'"));
                    assert!(named && said.contains("write "), "{path:?} {option} {form}: {said}");
                }
            }
        }
    }
}

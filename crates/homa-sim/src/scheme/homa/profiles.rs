//! The configurations of the schemes that run `homa-proto`, on any network.
//!
//! Left out: options, which change them (`apply` in the parent).

use homa_proto::{Config, PriorityAllocation};
use homa_workload::cutoffs::configured;
use homa_workload::sizes::Workload;

use super::{LEVELS, NO_LIMIT, PAPER_RTT_BYTES, rule, split};
use crate::headers::Headers;
use crate::scheme::Environment;

/// The authors' simulator (Homa §5.2). If the network is theirs, RTTbytes are 10,000 wire bytes,
/// and their workloads have the splits and cutoffs that they configured. Otherwise RTTbytes are
/// those of the network, and splits and cutoffs follow their rule.
pub fn simulator(environment: &Environment<'_>) -> (Config, Headers) {
    let rtt = if environment.rtt_bytes == PAPER_RTT_BYTES { 10_000 } else { environment.rtt_bytes };
    let config = Config::sigcomm18_sim(environment.link).with_rtt_wire_bytes(rtt);
    let known =
        Workload::parse(environment.workload).ok().and_then(|workload| configured(&workload));
    let cutoffs = match known {
        Some(split) if rtt == 10_000 => split.cutoffs.to_vec(),
        _ => rule(&config, LEVELS - split(&config, environment)).cutoffs(environment.sizes),
    };
    let priorities = PriorityAllocation::precomputed(LEVELS, &cutoffs);
    let priorities = priorities.unwrap_or(config.priorities);
    (config.priorities(priorities), Headers::Authors)
}

/// Homa as the paper describes it.
pub fn paper(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::sigcomm18(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Authors)
}

/// The defaults of the `homa` crate.
pub fn default(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::for_users(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Ip146)
}

/// The Linux kernel module (branch main). Its constants do not follow the network.
pub fn linux(environment: &Environment<'_>) -> (Config, Headers) {
    // The module has no messages beyond 1,000,000 bytes, its largest cutoff.
    let cutoffs = [0, 0, 0, 0, NO_LIMIT, 15_000, 2_800, 200];
    let config = Config::linux().priorities(PriorityAllocation::Fixed { cutoffs });
    (longer(config, environment), Headers::Ip146)
}

/// The series of patches for the upstream Linux kernel.
pub fn linux_upstream(environment: &Environment<'_>) -> (Config, Headers) {
    (longer(Config::linux_upstream(), environment), Headers::Ip146)
}

/// Lets a kernel's profile take messages of any length, at the network's rate. Its memory for
/// incoming messages stays limited.
fn longer(config: Config, environment: &Environment<'_>) -> Config {
    config.link_rate(environment.link).max_message(NO_LIMIT).max_rpcs(1 << 24)
}

/// [`paper`] on a network with `N` levels. Adjacent levels are merged, and the degree of
/// overcommitment stays the same (HomaP4, HomaP2, HomaP1 of Homa Figure 8).
pub fn merged<const N: u8>(environment: &Environment<'_>) -> (Config, Headers) {
    let (config, framing) = paper(environment);
    (config.network_levels(N), framing)
}

/// The transport that Homa Figure 8 calls Basic.
pub fn basic(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::basic(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Authors)
}

/// Lifts limits that only protect real hosts, and raises the caps on RTTbytes and on all granted
/// bytes with the network, so that hosts can measure larger ones than they begin with.
fn large(config: Config, environment: &Environment<'_>) -> Config {
    let rtt_bytes_max = config.rtt_bytes_max.max(environment.rtt_bytes.saturating_mul(2));
    config
        .windows_up_to(rtt_bytes_max)
        .max_message((1 << 31) - 1)
        .max_rpcs(1 << 24)
        .memory_budget(1 << 60)
        .receive_buffer(u32::MAX)
}

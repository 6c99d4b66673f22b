//! Homa as a host transport of the simulator: which profile, which sizes, which levels.

use homa_proto::{
    Completion, Config, Duration, Endpoint, GrantWindow, Overcommitment, PriorityAllocation,
    Profile, UnscheduledLevel, UnscheduledLimit, ValidConfig,
};
use homa_workload::cutoffs::{CutoffRule, CutoffSize, configured};
use homa_workload::framing::PaperWire;
use homa_workload::sizes::Workload;

use crate::headers::Headers;
use crate::scenario::{FramingName, ScenarioError, SchemeOptions};
use crate::scheme::Environment;
use crate::topology::HostId;
use crate::traffic::SERVER_PORT;
use crate::transport::Homa;

/// Homa hosts, configured.
#[derive(Clone, Debug)]
pub struct HomaConfig {
    config: ValidConfig,
    /// Headers around packets.
    pub framing: Headers,
    /// Largest IP packet, bytes.
    pub mtu: u32,
}

/// How a scheme makes its configuration.
pub type Build = fn(&Environment<'_>) -> (Config, Headers);

/// The authors' simulator (Homa §5.2): RTTbytes of 10,000 wire bytes where the network is theirs,
/// else of the network; there their splits and cutoffs for their workloads, else by their rule.
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

/// The paper's text.
pub fn paper(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::sigcomm18(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Authors)
}

/// As users get it.
pub fn default(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::for_users(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Ip146)
}

/// The paper's text on a network with `N` levels: adjacent ones merged, the degree of
/// overcommitment kept (HomaP4, HomaP2, HomaP1 of Homa Figure 8).
pub fn merged<const N: u8>(environment: &Environment<'_>) -> (Config, Headers) {
    let (config, framing) = paper(environment);
    (config.network_levels(N), framing)
}

/// The transport that Homa Figure 8 calls Basic.
pub fn basic(environment: &Environment<'_>) -> (Config, Headers) {
    let config = Config::basic(environment.link);
    (large(config.rtt_bytes(environment.rtt_bytes), environment), Headers::Authors)
}

const LEVELS: u8 = 8;
/// RTTbytes of the paper's network as computed from its delays: 7.744 us at 10 Gbit/s.
const PAPER_RTT_BYTES: u32 = 9680;

/// Scheduled levels: on the authors' network as they configured them for their workloads (W3's 4 of
/// 8 is configured, the rule gives 5; W2's 3 is configured, Figure 4 of the paper shows 2), else by
/// the share of the wire bytes that `config` sends unscheduled (Homa §3.4).
fn split(config: &Config, environment: &Environment<'_>) -> u8 {
    let known =
        Workload::parse(environment.workload).ok().and_then(|workload| configured(&workload));
    if let Some(split) = known.filter(|_| environment.rtt_bytes == PAPER_RTT_BYTES) {
        return split.scheduled_levels;
    }
    let limit = match config.unscheduled {
        UnscheduledLimit::RttBytes => config.rtt_bytes,
        UnscheduledLimit::Fixed(bytes) => bytes,
    };
    // Control packets travel with the unscheduled ones.
    let unscheduled = |wire: PaperWire| wire.unscheduled + wire.grants;
    let part = |of: &dyn Fn(PaperWire) -> u64| {
        environment.sizes.mean_of(|bytes| of(PaperWire::new(bytes, limit)) as f64)
    };
    let share = part(&unscheduled) / part(&|wire| unscheduled(wire) + wire.scheduled);
    LEVELS - (f64::from(LEVELS) * share).round().clamp(1.0, 7.0) as u8
}

/// The authors' rule for cutoffs, as a configuration applies them.
fn rule(config: &Config, unscheduled_levels: u8) -> CutoffRule {
    let by = match config.unscheduled_level {
        UnscheduledLevel::BytesLeft => CutoffSize::BytesLeft,
        UnscheduledLevel::MessageLength => CutoffSize::MessageLength,
    };
    let mut rule = CutoffRule { by, ..CutoffRule::simulator(unscheduled_levels) };
    rule.last_wire_bytes = u64::from(config.tail_boost);
    if let GrantWindow::WireBytes(bytes) = config.window {
        rule.first_wire_bytes = u64::from(bytes);
    }
    if let UnscheduledLimit::Fixed(bytes) = config.unscheduled {
        rule.unscheduled_bytes = bytes;
    }
    rule
}

/// Limits that protect a real host, lifted, and a cap on RTTbytes that leaves room to measure them.
fn large(config: Config, environment: &Environment<'_>) -> Config {
    let rtt_bytes_max = config.rtt_bytes_max.max(environment.rtt_bytes.saturating_mul(2));
    config
        .max_message((1 << 31) - 1)
        .max_rpcs(1 << 24)
        .memory_budget(1 << 60)
        .receive_buffer(u32::MAX)
        .rtt_bytes_max(rtt_bytes_max)
}

impl HomaConfig {
    /// A scheme's configuration with a scenario's changes.
    pub fn new(
        build: Build,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<Self, ScenarioError> {
        let (mut config, mut framing) = build(environment);
        if let Some(name) = options.framing {
            framing = match name {
                FramingName::Paper => Headers::Authors,
                FramingName::Ip146 => Headers::Ip146,
                FramingName::Udp => Headers::Udp,
            };
        }
        let mtu = options.mtu.unwrap_or(Headers::MTU);
        if !(Headers::MTU..=9_000).contains(&mtu) {
            return Err(ScenarioError::field("options.mtu", "be 1500 to 9000 bytes"));
        }
        apply(&mut config, options, environment)?;
        let config = config.validate().map_err(|error| ScenarioError::Field {
            field: "options",
            must: format!("make a valid configuration: {error}"),
        })?;
        Ok(Self { config, framing, mtu })
    }

    /// RTTbytes that hosts begin with, as the profile counts them.
    pub fn rtt_bytes(&self) -> u32 {
        match self.config.window {
            GrantWindow::WireBytes(bytes) => bytes,
            _ => self.config.rtt_bytes,
        }
    }

    /// The largest message of each level, 0 for scheduled levels; `None` where it is measured.
    pub fn cutoffs(&self) -> Option<[u32; 8]> {
        match self.config.priorities {
            PriorityAllocation::Fixed { cutoffs } => Some(cutoffs),
            PriorityAllocation::Measured => None,
        }
    }

    /// The degree of overcommitment; `None` where it is measured or has no limit.
    pub fn degree(&self) -> Option<usize> {
        match (self.config.overcommitment, self.config.priorities) {
            (Overcommitment::Fixed(degree), _) => Some(usize::from(degree)),
            (Overcommitment::ScheduledLevels, PriorityAllocation::Fixed { cutoffs }) => {
                let scheduled = cutoffs.iter().take_while(|&&cutoff| cutoff == 0).count();
                Some(scheduled.max(1))
            }
            _ => None,
        }
    }

    /// A server may execute a request again that it has forgotten.
    pub fn may_repeat(&self) -> bool {
        !matches!(self.config.completion, Completion::Acked { suppress_duplicates: true, .. })
    }

    /// The transport of a host in its `life`-th life.
    pub fn host(&self, host: HostId, life: u32, seed: u64) -> Homa {
        let seed = seed ^ u64::from(host.0) << 20 ^ u64::from(life) << 50;
        let config = (*self.config).clone().seed(seed);
        // Only the seed changed, which has no rule.
        let config = config.validate().unwrap_or_else(|_| self.config.clone());
        let mut endpoint = Endpoint::new(config);
        endpoint.listen(SERVER_PORT);
        Homa::new(endpoint, self.framing).with_mtu(self.mtu)
    }
}

fn apply(
    config: &mut Config,
    options: &SchemeOptions,
    environment: &Environment<'_>,
) -> Result<(), ScenarioError> {
    if let Some(bytes) = options.rtt_bytes {
        config.rtt_bytes = bytes;
        config.rtt_bytes_max = config.rtt_bytes_max.max(bytes);
        if config.profile == Profile::Sigcomm18Sim {
            *config = config.clone().with_rtt_wire_bytes(bytes);
        }
    }
    if let Some(bytes) = options.unscheduled_bytes {
        config.unscheduled = UnscheduledLimit::Fixed(bytes);
    }
    if let Some(levels) = options.network_levels {
        config.network_levels = levels;
    }
    if options.tail_boost == Some(true) && config.tail_boost == 0 {
        let must = "stay out: this scheme has no boost of the last bytes";
        return Err(ScenarioError::field("options.tail_boost", must));
    }
    if options.tail_boost == Some(false) {
        config.tail_boost = 0;
    }
    if options.incast_control == Some(true) && config.incast.is_none() {
        let must = "stay out: this scheme has no incast control";
        return Err(ScenarioError::field("options.incast_control", must));
    }
    if options.incast_control == Some(false) {
        config.incast = None;
    }
    if let Some(silence) = options.resend_after {
        if config.loss.resend_after == Duration::MAX {
            let must = "stay out: this scheme asks for nothing again";
            return Err(ScenarioError::field("options.resend_after", must));
        }
        config.loss.resend_after = Duration(silence.0 / 1_000);
    }
    apply_levels(config, options, environment)?;
    if let Some(degree) = options.overcommitment {
        config.overcommitment = Overcommitment::Fixed(degree);
    }
    Ok(())
}

/// How many levels, how they are split, and where the cutoffs are.
fn apply_levels(
    config: &mut Config,
    options: &SchemeOptions,
    environment: &Environment<'_>,
) -> Result<(), ScenarioError> {
    let SchemeOptions { levels, scheduled_levels, cutoffs, cutoff_weight, .. } = options;
    let untouched = levels.is_none() && scheduled_levels.is_none() && cutoffs.is_none();
    if untouched && cutoff_weight.is_none() {
        return Ok(());
    }
    let no_weight = |must: &str| ScenarioError::field("options.cutoff_weight", must);
    if cutoff_weight.is_some() && cutoffs.is_some() {
        return Err(no_weight("stay out where `options.cutoffs` say where the cutoffs are"));
    }
    let wrong = || {
        let must = "leave at least one unscheduled of 1 to 8 levels";
        ScenarioError::field("options.levels, scheduled_levels and cutoffs", must)
    };
    config.levels = levels.unwrap_or(config.levels);
    if !(1..=LEVELS).contains(&config.levels) {
        return Err(wrong());
    }
    let given = cutoffs.as_ref().map(Vec::as_slice);
    if given.is_some_and(|given| given.len() >= usize::from(LEVELS) || !given.is_sorted()) {
        let must = "be at most 7 sizes, ascending";
        return Err(ScenarioError::field("options.cutoffs", must));
    }
    let given = given.map(|given| given.len() as u8 + 1);
    let by_scheduled = scheduled_levels.and_then(|scheduled| config.levels.checked_sub(scheduled));
    let unscheduled = match (given, scheduled_levels) {
        (Some(given), _) => given,
        (None, Some(_)) => by_scheduled.ok_or_else(wrong)?,
        // As many as before, if they fit.
        (None, None) if config.priorities == PriorityAllocation::Measured => {
            let must = "stay out: this scheme measures its cutoffs unless \
                        `options.scheduled_levels` are given";
            return if cutoff_weight.is_some() { Err(no_weight(must)) } else { Ok(()) };
        }
        (None, None) => (LEVELS - split(config, environment)).min(config.levels),
    };
    if unscheduled == 0 || (scheduled_levels.is_some() && by_scheduled != Some(unscheduled)) {
        return Err(wrong());
    }
    let weight = cutoff_weight.unwrap_or(1.0);
    let rule = CutoffRule { weight, ..rule(config, unscheduled) };
    let cutoffs = cutoffs.clone().unwrap_or_else(|| rule.cutoffs(environment.sizes));
    config.priorities =
        PriorityAllocation::precomputed(config.levels, &cutoffs).ok_or_else(wrong)?;
    Ok(())
}

#[cfg(test)]
mod tests;

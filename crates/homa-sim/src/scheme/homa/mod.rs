//! Homa as a host transport of the simulator: profiles, RTTbytes, levels and cutoffs.

mod profiles;

use std::fmt;

use homa_proto::{
    Completion, Config, Duration, Endpoint, GrantWindow, Overcommitment, PriorityAllocation,
    Profile, UnscheduledLevel, UnscheduledLimit, ValidConfig,
};
use homa_workload::cutoffs::{CutoffRule, CutoffSize, configured};
use homa_workload::framing::PaperWire;
use homa_workload::sizes::Workload;

use crate::engine::MakeTransport;
use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::fabric::queue::Combined;
use crate::headers::Headers;
use crate::nic::{self, NicConfig};
use crate::scenario::{FramingName, Scenario, ScenarioError, SchemeOptions, Span};
use crate::topology::HostId;
use crate::traffic::SERVER_PORT;
use crate::transport::Homa;
use crate::transport::either::Either;
use crate::transport::tcp::Tcp;

use super::hosts::unsupported;
use super::{Environment, Family, HostConfig, HostKind, HostScheme, Nic, SwitchQueue, hull};
pub use profiles::{basic, default, linux, linux_upstream, merged, paper, simulator};

/// Hosts that run the code of `homa-proto`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HomaHosts {
    /// Name of the profile.
    pub profile: &'static str,
    /// Makes its configuration.
    pub build: Build,
}

impl fmt::Display for HomaHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "homa-proto, profile {}", self.profile)
    }
}

impl HostKind for HomaHosts {
    fn family(&self) -> Family {
        Family::Homa
    }

    fn options(&self) -> &'static [&'static str] {
        &["options.nic"]
    }

    fn has_rule(&self, field: &str, environment: &Environment<'_>) -> bool {
        has_rule(&(self.build)(environment).0, field)
    }

    fn configure(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        let nic = hull::offloads(options.nic)?;
        let config = HomaConfig::new(self.build, environment, options)?;
        Ok(Box::new(ConfiguredHoma { config, nic }))
    }

    fn resolved(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let config = HomaConfig::new(self.build, environment, options)?;
        let nic = options.nic.map(hull::nic_options);
        Ok(SchemeOptions { nic, ..config.options(options) })
    }
}

/// Homa behind a NIC.
#[derive(Clone, Debug)]
struct ConfiguredHoma {
    config: HomaConfig,
    nic: NicConfig,
}

impl HostScheme for ConfiguredHoma {
    fn framing(&self) -> homa_workload::framing::Framing {
        self.config.framing.priced()
    }

    fn packet_framing(&self) -> Option<Headers> {
        Some(self.config.framing)
    }

    fn rtt_bytes(&self, _: u32) -> u32 {
        self.config.rtt_bytes()
    }

    fn cutoffs(&self) -> Option<[u32; 8]> {
        self.config.cutoffs()
    }

    fn degree(&self) -> Option<usize> {
        self.config.degree()
    }

    fn may_repeat(&self) -> bool {
        self.config.may_repeat()
    }

    fn check(&self, _: &Scenario, queue: SwitchQueue) -> Result<(), ScenarioError> {
        match queue {
            SwitchQueue::Ecn(_) | SwitchQueue::Phantom(..) => {
                unsupported("Homa over ports that mark congestion: its hosts do not react to marks")
            }
            _ => Ok(()),
        }
    }

    fn shared(&self, seed: u64) -> Option<MakeTransport<Either<Homa, Tcp>>> {
        let config = self.config.clone();
        let make = move |host, life| Either::First(config.host(host, life, seed));
        self.nic.is_plain().then(|| Box::new(make) as MakeTransport<_>)
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let (config, seed) = (self.config.clone(), start.seed());
        let nic = NicConfig { instrument: start.instrument(), ..self.nic };
        let make = move |host, life| config.host(host, life, seed);
        match (self.nic.is_plain(), start.queue()) {
            (true, SwitchQueue::Combined(_)) => start.with(make, |_| Combined),
            (true, _) => start.with_homa(make),
            (false, queue) => {
                let make =
                    move |host, life| nic::Nic::new(make(host, life), nic, host, (life, seed));
                match queue {
                    SwitchQueue::Combined(_) => start.with(make, |_| Combined),
                    _ => start.with(make, |_| StrictPriority),
                }
            }
        }
    }
}

/// The configuration of Homa on hosts.
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

const LEVELS: u8 = 8;
/// The cutoff of the lowest unscheduled level.
const NO_LIMIT: u32 = i32::MAX as u32;
/// RTTbytes of the paper's network, computed from its delays: 7.744 us at 10 Gbit/s.
const PAPER_RTT_BYTES: u32 = 9680;

/// The number of scheduled levels. On the authors' network their workloads have the number that
/// they configured, which the rule does not always give: for W3 they configured 4 of 8, but the
/// rule gives 5; for W2 they configured 3, but Figure 4 of the paper shows 2. Otherwise the number
/// follows from the share of the wire bytes that `config` sends unscheduled (Homa §3.4).
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
    // Control packets use the levels of unscheduled packets.
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

/// Whether a profile has the rule that the option `field` changes.
fn has_rule(config: &Config, field: &str) -> bool {
    match field {
        "options.tail_boost" => config.tail_boost > 0,
        "options.incast_control" => config.incast.is_some(),
        "options.resend_after" => config.loss.resend_after != Duration::MAX,
        // The kernel module has constants instead.
        "options.rtt_bytes" => !matches!(config.window, GrantWindow::Shared { .. }),
        "options.framing" | "options.mtu" => true,
        // There everything is sent unasked, at one level.
        _ => config.profile != Profile::LinuxUpstream,
    }
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
                FramingName::UdpSealed => Headers::UdpSealed,
            };
        }
        let mtu = options.mtu.unwrap_or(Headers::MTU);
        if !(Headers::MTU..=9_000).contains(&mtu) {
            return Err(ScenarioError::field("options.mtu", "be 1500 to 9000 bytes"));
        }
        apply(&mut config, options, environment)?;
        let config = config.validate().map_err(|error| {
            ScenarioError::field("options", format!("make a valid configuration: {error}"))
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

    /// The largest message of each level, 0 for scheduled levels; `None` if hosts measure cutoffs.
    pub fn cutoffs(&self) -> Option<[u32; 8]> {
        match self.config.priorities {
            PriorityAllocation::Fixed { cutoffs } => Some(cutoffs),
            PriorityAllocation::Measured => None,
        }
    }

    /// The options with which the scheme has this configuration. `given` are those of the plan.
    /// What hosts measure has no option, and neither has a rule that the profile lacks.
    fn options(&self, given: &SchemeOptions) -> SchemeOptions {
        let config = &self.config;
        let framing = match self.framing {
            Headers::Authors => FramingName::Paper,
            Headers::Ip146 => FramingName::Ip146,
            Headers::Udp => FramingName::Udp,
            Headers::UdpSealed => FramingName::UdpSealed,
        };
        let cutoffs = self.cutoffs().map(|table| {
            let allocated = table.iter().take(usize::from(config.levels)).rev();
            allocated.copied().take_while(|&cutoff| cutoff > 0 && cutoff < NO_LIMIT).collect()
        });
        let has = |field| has_rule(config, field);
        let resend_after = Span(config.loss.resend_after.0.saturating_mul(1_000));
        let always = SchemeOptions {
            framing: Some(framing),
            mtu: Some(self.mtu),
            rtt_bytes: has("options.rtt_bytes").then(|| self.rtt_bytes()),
            tail_boost: has("options.tail_boost").then_some(true).or(given.tail_boost),
            incast_control: has("options.incast_control").then_some(true).or(given.incast_control),
            resend_after: has("options.resend_after").then_some(resend_after),
            ..given.clone()
        };
        if !has("options.levels") {
            return always;
        }
        SchemeOptions {
            unscheduled_bytes: match config.unscheduled {
                UnscheduledLimit::RttBytes => None,
                UnscheduledLimit::Fixed(bytes) => Some(bytes),
            },
            levels: Some(config.levels),
            network_levels: Some(config.network_levels),
            scheduled_levels: self
                .cutoffs()
                .map(|table| table.iter().take_while(|&&cutoff| cutoff == 0).count() as u8),
            overcommitment: self.degree().and_then(|degree| u8::try_from(degree).ok()),
            cutoffs,
            cutoff_weight: None,
            ..always
        }
    }

    /// The degree of overcommitment; `None` if it is measured or unlimited.
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

    /// Whether a server may execute a request again after it has dropped its state.
    pub fn may_repeat(&self) -> bool {
        !matches!(self.config.completion, Completion::Acked { suppress_duplicates: true, .. })
    }

    /// The transport of a host in its `life`-th life.
    pub fn host(&self, host: HostId, life: u32, seed: u64) -> Homa {
        let seed = seed ^ u64::from(host.0) << 20 ^ u64::from(life) << 50;
        let config = (*self.config).clone().seed(seed);
        // Validation cannot fail, because only the seed has changed.
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
    if options.tail_boost == Some(false) {
        config.tail_boost = 0;
    }
    if options.incast_control == Some(false) {
        config.incast = None;
    }
    if let Some(silence) = options.resend_after {
        config.loss.resend_after = Duration(silence.0 / 1_000);
    }
    apply_levels(config, options, environment)?;
    if let Some(degree) = options.overcommitment {
        config.overcommitment = Overcommitment::Fixed(degree);
    }
    Ok(())
}

/// The number of levels, the split into scheduled and unscheduled ones, and the cutoffs.
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
    let no_weight = |why: &str| ScenarioError::unfit("options.cutoff_weight", why);
    if cutoff_weight.is_some() && cutoffs.is_some() {
        let why = "weighs cutoffs that are computed, and `options.cutoffs` gives them: leave one \
                   of the two out";
        return Err(no_weight(why));
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
        // As many unscheduled levels as before, if there are that many levels.
        (None, None) if config.priorities == PriorityAllocation::Measured => {
            let why = "weighs cutoffs that are computed, and this scheme measures them: leave it \
                       out, or give `options.scheduled_levels`, which has them computed";
            return if cutoff_weight.is_some() { Err(no_weight(why)) } else { Ok(()) };
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

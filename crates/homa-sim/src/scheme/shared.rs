//! Output-queued switches that share memory and pause their senders (`options.switch.kind =
//! "shared"`), for any hosts over ports with strict priorities. Defaults are those of HPCC's
//! simulator, revision 9f4be2a (`switch-mmu.cc`, `third.cc`, `run.py`).

use homa_proto::LEVELS;

use crate::fabric::cioq::pfc::ResponseTime;
use crate::fabric::shared::WHOLE;
use crate::fabric::{PfcConfig, SharedConfig};
use crate::scenario::{ScenarioError, SchemeOptions, SwitchKind, SwitchOptions};

use super::{NetworkScale, Scheme, SwitchQueue, between};

/// 16 MiB at 50 Gbit/s.
const MEMORY_PER_GBPS: f64 = (16 << 20) as f64 / 50.0;
const ALPHA: f64 = 0.125;
const RESERVE: u32 = 4_096;
const RESUME_GAP: u32 = 3_072;

/// True if the ports of a row may share memory: those that keep every frame that has room.
pub(crate) fn shares_memory(queue: &SwitchQueue) -> bool {
    match queue {
        SwitchQueue::Strict
        | SwitchQueue::Ecn(_)
        | SwitchQueue::Red(_)
        | SwitchQueue::Phantom(..) => true,
        SwitchQueue::PriorityDrop | SwitchQueue::Trimming(_) | SwitchQueue::Combined(_) => false,
    }
}

/// Refuses keys of `options.switch` that the switches of its `kind` do not have.
pub(super) fn check(options: &SwitchOptions) -> Result<(), ScenarioError> {
    let is_shared = options.kind == Some(SwitchKind::Shared);
    let others = [
        ("options.switch.speedup", options.speedup.is_some()),
        ("options.switch.lookup", options.lookup.is_some()),
        ("options.switch.virtual_outputs", options.virtual_outputs.is_some()),
        ("options.switch.output_drops", options.output_drops.is_some()),
        ("options.switch.pause", options.pause.is_some()),
        ("options.switch.unpause", options.unpause.is_some()),
    ];
    let own = [
        ("options.switch.memory", options.memory.is_some()),
        ("options.switch.alpha", options.alpha.is_some()),
        ("options.switch.reserve", options.reserve.is_some()),
        ("options.switch.resume_gap", options.resume_gap.is_some()),
        ("options.switch.headroom", options.headroom.is_some()),
    ];
    let (strange, why) = match is_shared {
        true => (&others[..], "only switches that queue at their inputs have it: leave it out"),
        false => (
            &own[..],
            "only switches of the `kind` \"shared\" have it: choose that, or leave it out",
        ),
    };
    match strange.iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(ScenarioError::unfit(field, why)),
        None => Ok(()),
    }
}

impl Scheme {
    /// The switches of this scheme if they share memory. The longest frame and the delay of control
    /// frames depend on the network, so the caller sets them.
    pub(crate) fn shared_switches(
        &self,
        options: &SchemeOptions,
        scale: NetworkScale,
    ) -> Result<Option<SharedConfig>, ScenarioError> {
        let given = options.switch.unwrap_or_default();
        if given.kind != Some(SwitchKind::Shared) {
            return Ok(None);
        }
        let (levels, exempt) = self.host.lossless_levels();
        let priorities = given.priorities.unwrap_or(levels);
        let most = LEVELS as u32;
        between("options.switch.priorities", priorities.into(), 1, most)?;
        let alpha = given.alpha.unwrap_or(ALPHA);
        if !(1e-6..=1.0).contains(&alpha) {
            return Err(ScenarioError::field("options.switch.alpha", "be 0.000001 to 1"));
        }
        let default = MEMORY_PER_GBPS * scale.link.0 as f64 / 1e9;
        let memory = given.memory.unwrap_or(default as u64);
        if !(10_000..=1 << 40).contains(&memory) {
            let must = "be 10000 to 1099511627776 bytes";
            return Err(ScenarioError::field("options.switch.memory", must));
        }
        let bytes = |field, given: Option<u32>, default| {
            between(field, given.unwrap_or(default), 0, 1 << 30)
        };
        let headroom = given.headroom;
        bytes("options.switch.headroom", headroom, 0)?;
        let response = given.response.map(|response| ResponseTime::After(response.duration()));
        Ok(Some(SharedConfig {
            memory,
            alpha: (alpha * f64::from(WHOLE)).round() as u32,
            link: scale.link,
            reserve: bytes("options.switch.reserve", given.reserve, RESERVE)?,
            resume_gap: bytes("options.switch.resume_gap", given.resume_gap, RESUME_GAP)?,
            headroom,
            exempt,
            pfc: PfcConfig {
                thresholds: None,
                priorities,
                frame: 0,
                cable: None,
                response: response.unwrap_or_default(),
            },
        }))
    }
}

/// The options of switches with this configuration. Headrooms and reaction times that follow each
/// link are left out, because no single number replaces them.
pub(super) fn switch_options(config: &SharedConfig, given: &SchemeOptions) -> SwitchOptions {
    SwitchOptions {
        memory: Some(config.memory),
        alpha: Some(f64::from(config.alpha) / f64::from(WHOLE)),
        reserve: Some(config.reserve),
        resume_gap: Some(config.resume_gap),
        priorities: Some(config.pfc.priorities),
        ..given.switch.unwrap_or_default()
    }
}

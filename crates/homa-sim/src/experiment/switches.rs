//! The switches of a scenario that pause their senders or queue at their inputs, and whether what
//! it sets for them is safe.

use homa_proto::Rate;

use crate::engine::{LinkChange, MOST_LINKS, earliest_pause, tightest};
use crate::fabric::{CioqConfig, SharedConfig};
use crate::scenario::{Buffer, Scenario, ScenarioError};
use crate::scheme::{NetworkScale, Scheme, SwitchQueue, detail};
use crate::time::SimTime;
use crate::topology::{PortId, Wiring};

use super::faults::Change;

/// A pause threshold of a scenario that is not safe for all links.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatePause {
    /// The link with the lowest safe threshold.
    pub link: PortId,
    pub pause: u32,
    pub safe: Option<u32>,
}

/// The configuration of switches that queue at their inputs; `None` if the scheme's switches do
/// not. If thresholds are derived, they must be safe for all links. If the scenario sets a
/// threshold, it may lose frames, which is only a warning.
pub(super) fn cioq(
    scenario: &Scenario,
    (scheme, scale): (&Scheme, NetworkScale),
    (wiring, changes): (&Wiring, &[Change]),
) -> Result<Option<(CioqConfig, Option<LatePause>)>, ScenarioError> {
    let SwitchQueue::Combined(config) = scheme.queue(&scenario.options, scale)? else {
        return Ok(None);
    };
    let fabric = &scenario.fabric;
    let mut config = detail::sized(config, fabric.buffer)?;
    if wiring.ports().len() > MOST_LINKS {
        let must = "have at most 1048576 links if switches queue at their inputs";
        return Err(ScenarioError::field("fabric.shape", must));
    }
    let Some(pfc) = &mut config.pfc else { return Ok(Some((config, None))) };
    pfc.cable = Some(fabric.propagation.duration());
    let given = pfc.thresholds.map(|thresholds| thresholds.pause);
    let late = match (earliest_pause(wiring, config, rates(changes)), given) {
        (Some((_, None)), None) => {
            let must = "hold what may come until a pause takes effect, for every level: choose \
                        more memory (`fabric.buffer`), fewer `options.switch.priorities`, shorter \
                        links, a shorter `response` to pauses, or say yourself when to `pause`; \
                        where a link is impaired in one direction only, pauses over it are slow";
            return Err(ScenarioError::field("options.switch", must));
        }
        (Some((link, safe)), Some(pause)) if safe.is_none_or(|safe| safe < pause) => {
            Some(LatePause { link, pause, safe })
        }
        _ => None,
    };
    Ok(Some((config, late)))
}

/// A headroom of a scenario that is not safe for all links.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateHeadroom {
    /// The link that needs most.
    pub link: PortId,
    pub headroom: u32,
    pub safe: u64,
}

/// The configuration of switches that share memory; `None` if the scheme's switches do not. If a
/// headroom is derived, it is safe for all links. If the scenario sets it, it may lose frames,
/// which is only a warning.
pub(super) fn shared(
    scenario: &Scenario,
    (scheme, scale, frame): (&Scheme, NetworkScale, u32),
    (wiring, changes): (&Wiring, &[Change]),
) -> Result<Option<(SharedConfig, Option<LateHeadroom>)>, ScenarioError> {
    let Some(mut config) = scheme.shared_switches(&scenario.options, scale)? else {
        return Ok(None);
    };
    let fabric = &scenario.fabric;
    if fabric.buffer != Buffer::Unlimited {
        let why = "switches of the `kind` \"shared\" have the memory that \
                   `options.switch.memory` sets: leave it out";
        return Err(ScenarioError::unfit("fabric.buffer", why));
    }
    let parts = [
        (fabric.cut_through, "cut-through in switches that share memory"),
        (fabric.preemption, "preemption in switches that share memory"),
        (scenario.beside.is_some(), "two schemes over switches that share memory"),
    ];
    if let Some((_, what)) = parts.into_iter().find(|(given, _)| *given) {
        return Err(ScenarioError::Unsupported { what: what.to_owned() });
    }
    if wiring.ports().len() > MOST_LINKS {
        let must = "have at most 1048576 links if switches pause their senders";
        return Err(ScenarioError::field("fabric.shape", must));
    }
    (config.pfc.cable, config.pfc.frame) = (Some(fabric.propagation.duration()), frame);
    let (least, late) = tightest(wiring, config, rates(changes));
    if least.pool == 0 {
        let must = format!(
            "be more than {}, what the inputs of a switch have to themselves: choose more memory, \
             fewer `options.switch.priorities`, less `reserve` or `headroom`, shorter links, or a \
             shorter `response` to pauses",
            least.aside
        );
        return Err(ScenarioError::field("options.switch.memory", must));
    }
    let late = config.headroom.zip(late);
    let late = late.map(|(headroom, (link, safe))| LateHeadroom { link, headroom, safe });
    Ok(Some((config, late)))
}

/// The rates that links will have.
fn rates(changes: &[Change]) -> impl Iterator<Item = (u32, SimTime, Rate)> {
    changes.iter().filter_map(|change| match change.what {
        LinkChange::Rate(rate) => Some((change.port.0, change.at, rate)),
        LinkChange::Fail | LinkChange::Recover => None,
    })
}

impl LatePause {
    /// The warning, given the name of the link.
    pub fn warning(&self, at: &str) -> String {
        let Self { pause, safe, .. } = *self;
        let safe = match safe {
            Some(safe) => format!("{safe}, the greatest threshold that is safe there"),
            None => "any threshold there: the memory does not hold what comes until a pause \
                     takes effect"
                .to_owned(),
        };
        format!(
            "`options.switch.pause` is {pause}, and behind {at} frames may be lost above {safe}"
        )
    }
}

impl LateHeadroom {
    /// The warning, given the name of the link.
    pub fn warning(&self, at: &str) -> String {
        let Self { headroom, safe, .. } = *self;
        format!(
            "`options.switch.headroom` is {headroom}, and behind {at} frames may be lost below \
             {safe}, the bytes that arrive until a pause takes effect and a frame"
        )
    }
}

//! The highest load that a scheme sustains (Homa Figure 12), found by bisection over runs.

use crate::scenario::{Diverging, Scenario, ScenarioError, ScenarioOutcome};

use super::demand::Demand;
use super::network::ScenarioNetwork;
use super::parts::{Parts, row};
use super::{RunProgress, run};

/// The loads to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// A load that should be sustained.
    pub low: f64,
    /// A load that should not be sustained.
    pub high: f64,
    /// The search stops if the two are this close.
    pub resolution: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The run at the highest load whose backlog is bounded; `None` if not even `low` is sustained.
    pub sustained: Option<ScenarioOutcome>,
    /// The lowest load tried whose backlog diverges; `None` if even `high` is sustained.
    pub diverging: Option<f64>,
}

/// Bisects between two loads by the rule of [`crate::measure::backlog`], with one run per load.
/// Within about three points of the limit the verdict of one run depends on chance, so try other
/// seeds to see how far the result moves. Everything else is as in the scenario. In particular its
/// stop rule must let each run last as long as the rule of the backlog needs; otherwise the search
/// returns an error.
pub fn max_load(
    scenario: &Scenario,
    range: Range,
    progress: &mut dyn FnMut(f64, RunProgress),
) -> Result<Limit, ScenarioError> {
    let network = ScenarioNetwork::new(scenario, row(&scenario.scheme)?)?;
    let demand = Demand::new(scenario, &network)?;
    if !demand.is_open() {
        let what = "the highest load of traffic whose load is no setting: use the pattern \
                    all-to-all or clients-servers";
        return Err(ScenarioError::Unsupported { what: what.to_owned() });
    }
    let at_load = |fraction: f64| {
        let mut scenario = scenario.clone();
        scenario.load.fraction = fraction;
        // Whether a load is sustained is judged by traffic of the same length at every load.
        scenario.stop.diverging = Diverging::Continue;
        scenario
    };
    for fraction in [range.high, range.low] {
        long_enough(&at_load(fraction), (&demand, &network))?;
    }
    let mut attempt = |fraction: f64| {
        let outcome = run(&at_load(fraction), &mut |at| progress(fraction, at))?;
        let is_sustained = outcome.backlog.is_sustained().ok_or_else(|| {
            let must = format!("let traffic last longer: at load {fraction} it was too short");
            ScenarioError::field("stop", must)
        })?;
        Ok::<_, ScenarioError>((outcome, is_sustained))
    };
    let (first, true) = attempt(range.low)? else {
        return Ok(Limit { sustained: None, diverging: Some(range.low) });
    };
    if let (last, true) = attempt(range.high)? {
        return Ok(Limit { sustained: Some(last), diverging: None });
    }
    let (mut sustained, mut low, mut high) = (first, range.low, range.high);
    while high - low > range.resolution.max(1e-3) {
        let middle = (low + high) / 2.0;
        match attempt(middle)? {
            (outcome, true) => (low, sustained) = (middle, outcome),
            (_, false) => high = middle,
        }
    }
    Ok(Limit { sustained: Some(sustained), diverging: Some(high) })
}

/// Refuses a stop rule that ends traffic before the rule of the backlog applies.
fn long_enough(
    scenario: &Scenario,
    (demand, network): (&Demand, &ScenarioNetwork),
) -> Result<(), ScenarioError> {
    let parts = (row(&scenario.scheme)?, network, demand);
    let price = &Parts::priced(scenario, parts)?.price;
    let Some(needs) = demand.needs_seconds(scenario, network, price) else { return Ok(()) };
    let (lasts, per_second) = demand.lasts_seconds(scenario, network, price);
    // Allow 5 % more, because samples and random arrivals may end a little early.
    let needs = needs * 1.05;
    if lasts >= needs {
        return Ok(());
    }
    let (time, messages) = (needs * 1e3, needs * per_second);
    let must = format!(
        "let traffic last {:.3} ms after the warm-up, here {:.3}: shorter traffic does not show \
         whether load {} is sustained; {:.0} messages do, such as stop = {{ messages = \
         {:.0}, time = \"{:.0}ms\" }}",
        needs * 1e3,
        lasts.max(0.0) * 1e3,
        scenario.load.fraction,
        messages.ceil(),
        messages.ceil(),
        time.ceil() + scenario.warm_up.0 as f64 / 1e9,
    );
    Err(ScenarioError::field("stop", must))
}

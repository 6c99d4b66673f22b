//! Changes of a plan by its caller, and simulations without a plan: the options of `homa sim`, and
//! the keywords of `homa.simulate` in Python.

use homa_sim::scenario::Scenario;
use toml::Value;

use crate::document::Document;
use crate::error::{LabError, PlanFault};
use crate::plan::Plan;
use crate::settings::Settings;

/// The keys of a scenario that have their own options, and any others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// A scheme of [`homa_sim::scheme`].
    pub scheme: Option<String>,
    /// `traffic.workload`: a name, a table's path, sizes with weights.
    pub workload: Option<String>,
    /// `load.fraction`.
    pub load: Option<f64>,
    /// `stop.messages`.
    pub messages: Option<u64>,
    /// `seed`.
    pub seed: Option<u64>,
    /// The path of a list of messages, in place of `workload` and `load`.
    pub flows: Option<String>,
    /// Paths from the scenario and values, which come last.
    pub set: Vec<(String, Value)>,
}

impl Changes {
    /// As keys and values, those of `set` last.
    pub fn list(&self) -> Vec<(String, Value)> {
        let text = |key: &str, value: &Option<String>| {
            value.as_ref().map(|value| (key.to_owned(), Value::String(value.clone())))
        };
        let number = |key: &str, value: Option<u64>| {
            let value = i64::try_from(value?).unwrap_or(i64::MAX);
            Some((key.to_owned(), Value::Integer(value)))
        };
        let flows = self.flows.as_ref().map(|_| "flows".to_owned());
        let mut list: Vec<(String, Value)> = [
            text("scheme", &self.scheme),
            text("traffic.pattern", &flows),
            text("traffic.file", &self.flows),
            text("traffic.workload", &self.workload),
            self.load.map(|load| ("load.fraction".to_owned(), Value::Float(load))),
            // A list is simulated whole.
            number("stop.messages", self.messages.or(self.flows.as_ref().map(|_| u64::MAX))),
            number("seed", self.seed),
        ]
        .into_iter()
        .flatten()
        .collect();
        list.extend(self.set.iter().cloned());
        list
    }

    /// A plan with these changes; without a plan, the one simulation that they describe.
    pub fn plan(&self, document: Option<&Document>) -> Result<Plan, LabError> {
        match document {
            Some(document) => Ok(Plan::parse(document, &self.list())?),
            None => {
                let changes = self.list();
                let settings = changed(&Scenario::default(), &changes)?;
                Ok(Plan::single(&settings, &changes)?)
            }
        }
    }

    /// The same if the document has one simulation; otherwise refused.
    pub fn single(&self, document: Option<&Document>) -> Result<Plan, LabError> {
        let plan = self.plan(document)?;
        match plan.cells.len() {
            1 => Ok(plan),
            cells => Err(LabError::Several { cells }),
        }
    }
}

/// A scenario with single keys changed by `--set`.
pub fn changed(scenario: &Scenario, changes: &[(String, Value)]) -> Result<Settings, PlanFault> {
    let fault = |key: &str, message| PlanFault {
        file: "--set".into(),
        line: 0,
        key: key.to_owned(),
        message,
    };
    let mut settings = Settings::of(scenario).map_err(|message| fault("", message))?;
    let listed = changes.iter().map(|(path, value)| (path.as_str(), value.clone()));
    settings.set_all(listed).map_err(|(path, message)| fault(&path, message))?;
    if let Err(message) = settings.scenario() {
        // Those changes alone for which `kept` holds.
        let only = |kept: &dyn Fn(usize) -> bool| {
            let chosen = changes.iter().enumerate().filter(|(place, _)| kept(*place));
            let chosen = chosen.map(|(_, (path, value))| (path.as_str(), value.clone()));
            let mut settings = Settings::of(scenario)?;
            settings.set_all(chosen).map_err(|(_, message)| message)?;
            settings.scenario().map(drop)
        };
        // At fault is the change without which all is well; of several, the one that alone is
        // refused in the same words.
        let culprit = (0..changes.len()).find(|&one| only(&|place| place != one).is_ok());
        let culprit = culprit.or_else(|| {
            (0..changes.len()).find(|&one| only(&|place| place == one).as_ref() == Err(&message))
        });
        let key = culprit.or(changes.len().checked_sub(1)).map_or("", |at| &changes[at].0);
        return Err(fault(key, message));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_several_simulations_is_not_taken_for_one() {
        let document = Document::new("plan.toml", "seeds = [1, 2]\n");
        let refused = Changes::default().single(Some(&document)).unwrap_err();
        assert_eq!(refused.to_string(), "the plan has 2 simulations");
        let one = Changes { seed: Some(2), ..Changes::default() };
        assert_eq!(one.single(Some(&document)).unwrap().cells[0].scenario.seed, 2);
    }

    #[test]
    fn a_list_of_messages_is_simulated_whole() {
        let flows = Changes { flows: Some("flows.csv".into()), ..Changes::default() };
        let list = flows.list();
        assert!(list.contains(&("traffic.pattern".into(), Value::String("flows".into()))));
        assert!(list.contains(&("stop.messages".into(), Value::Integer(i64::MAX))));
        let some = Changes { messages: Some(7), ..flows };
        assert!(some.list().contains(&("stop.messages".into(), Value::Integer(7))));
    }
}

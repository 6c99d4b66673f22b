//! What a caller changes in a plan, or simulates without one: the options of `homa sim`, and the
//! keywords of `homa.simulate` in Python.

use homa_sim::scenario::Scenario;
use toml::Value;

use crate::document::Document;
use crate::error::LabError;
use crate::plan::{Plan, changed};

/// The keys of a scenario that have names of their own, and any others.
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

    /// The same where it is of one simulation; else refused.
    pub fn single(&self, document: Option<&Document>) -> Result<Plan, LabError> {
        let plan = self.plan(document)?;
        match plan.cells.len() {
            1 => Ok(plan),
            cells => Err(LabError::Several { cells }),
        }
    }
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

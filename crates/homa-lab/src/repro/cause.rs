//! Why a row is outside its tolerance. A cause moves a number in one direction, so a plan says
//! which (`cause.above`, `cause.below`), and a row that is outside on the other side has no known
//! cause. An ordering has no direction.

use serde::Deserialize;
use toml::Value;

use super::comparison::Compare;

/// The reasons that a plan has for a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// If it is above its tolerance.
    pub above: Option<String>,
    /// If it is below.
    pub below: Option<String>,
}

impl Cause {
    /// Understands a check's `cause`. A text alone is for an ordering, or an unknown cause.
    pub(super) fn read(value: Value, compare: &Compare) -> Result<Self, String> {
        let ordering = matches!(compare, Compare::Ordering(_));
        match value {
            Value::String(text) if ordering || text.starts_with("unknown") => {
                Ok(Self { above: Some(text.clone()), below: Some(text) })
            }
            Value::String(_) => Err("say which way it moves the number: write `cause.above` or \
                                     `cause.below`, or begin with `unknown`"
                .to_owned()),
            _ if ordering => Err("an ordering is not above or below: write one text".to_owned()),
            table => Self::deserialize(table).map_err(|error| error.message().to_owned()),
        }
    }

    /// The reason why a number is not within these limits; of an ordering, which has none, the only
    /// one.
    pub(super) fn of(&self, measured: f64, limits: Option<(f64, f64)>) -> Option<&str> {
        match limits {
            None => self.above.as_deref(),
            Some((_, high)) if measured > high => self.above.as_deref(),
            Some((low, _)) if measured < low => self.below.as_deref(),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_cause_of_its_direction_only() {
        let text = "above = \"runs are longer\"".parse::<toml::Table>().unwrap();
        let cause = Cause::read(Value::Table(text), &Compare::Alone).unwrap();
        let limits = Some((1.0, 2.0));
        assert_eq!(cause.of(3.0, limits), Some("runs are longer"));
        assert_eq!(cause.of(0.5, limits), None, "longer runs do not make it smaller");
        let unknown = Cause::read("unknown: two attempts".into(), &Compare::Alone).unwrap();
        assert!(unknown.of(3.0, limits) == unknown.of(0.5, limits) && unknown.above.is_some());
    }

    #[test]
    fn a_cause_without_a_direction_is_refused() {
        let known = Value::from("the pacer");
        let refused = Cause::read(known.clone(), &Compare::Alone).unwrap_err();
        assert!(refused.contains("cause.above"), "{refused}");
        let ordering = Compare::Ordering(Vec::new());
        let cause = Cause::read(known, &ordering).unwrap();
        assert_eq!(cause.of(3.0, None), Some("the pacer"));
        let table = Value::Table("above = \"x\"".parse().unwrap());
        assert!(Cause::read(table, &ordering).is_err());
    }
}

//! Names of the numbers of a plan: row and metric, and if several numbers share these, the part
//! that differs, so that readers and scripts find each number by its name.

use super::comparison::Compare;
use super::plan::{Check, Point, ReproPlan};

/// A number with its row.
type Number<'a> = (&'a Check, &'a Point);

/// The names of a plan's numbers, in its order: `homa-fig10-w2-homa p99@50`, or
/// `x1 queue.max of n10 at 0.5` beside another of the same row and metric.
pub fn names(plan: &ReproPlan) -> Vec<String> {
    let numbers: Vec<Number<'_>> = plan
        .checks
        .iter()
        .flat_map(|check| check.points.iter().map(move |point| (check, point)))
        .collect();
    let plain = |(check, point): &Number<'_>| match &check.compare {
        Compare::Least(sides) => format!("{} least of {}", check.row, sides.len()),
        Compare::Greatest(sides) => format!("{} greatest of {}", check.row, sides.len()),
        _ => format!("{} {}", check.row, point.metric),
    };
    let names: Vec<String> = numbers.iter().map(plain).collect();
    let apart = numbers.iter().zip(&names).map(|(number, name)| {
        let twins = numbers.iter().zip(&names).filter(|(_, other)| *other == name);
        let twins: Vec<&Number<'_>> = twins.map(|(twin, _)| twin).collect();
        format!("{name}{}", what_differs(number, &twins))
    });
    let apart: Vec<String> = apart.collect();
    let repeated = |name: &String| apart.iter().filter(|other| *other == name).count() > 1;
    let label = |(name, (_, point)): (&String, &Number<'_>)| match &point.label {
        Some(label) if repeated(name) => format!("{name} ({label})"),
        _ => name.clone(),
    };
    apart.iter().zip(&numbers).map(label).collect()
}

/// Run, scheme and value of the axis, those in which a number differs from one of its twins.
fn what_differs((check, _): &Number<'_>, twins: &[&Number<'_>]) -> String {
    let differ = |of: fn(&Check) -> Option<String>| {
        let own = of(check);
        let several = twins.iter().any(|(twin, _)| of(twin) != own);
        own.filter(|_| several)
    };
    let run = differ(|check| check.run.clone()).map(|run| format!(" of {run}"));
    let variant = differ(|check| check.variant.clone()).map(|variant| format!(" under {variant}"));
    let at = differ(|check| check.at.map(|at| at.to_string())).map(|at| format!(" at {at}"));
    [run, variant, at].into_iter().flatten().collect()
}

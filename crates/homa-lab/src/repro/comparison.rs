//! What a check does with the number that it reads: compares it with other runs, schemes or
//! settings, or takes the least or the greatest of several.

use serde::Deserialize;
use toml::Value;

use super::metric::Metric;
use super::plan::{self, ReproPlan};
use super::tolerance::Measured;
use super::verdict::{FlowName, Results};
use crate::document::plain;

/// The use that a check makes of the number it reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Compare {
    /// The number itself.
    Alone,
    /// Divided by the same number of another side.
    Over(Side),
    /// By how many per cent it is below that of another side.
    Reduction(Side),
    /// Each side's number is below the next one's.
    Ordering(Vec<Side>),
    /// The least number of several sides, such as the cells of a figure whose text gives a range.
    Least(Vec<Side>),
    /// The greatest number of several sides.
    Greatest(Vec<Side>),
}

/// The other side of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The run.
    pub run: String,
    /// The scheme or variant; absent: the plan's first.
    pub variant: Option<String>,
    /// The value of the run's axis; absent: the check's.
    pub at: Option<f64>,
    /// The number; absent: the check's.
    pub metric: Option<Metric>,
}

/// A side of a comparison as a table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SideItem {
    run: Option<String>,
    variant: Option<String>,
    at: Option<f64>,
    metric: Option<String>,
}

impl Side {
    /// Reads one: the name of a run, or a table of what differs from the check's own. `run` is the
    /// check's.
    pub(super) fn read(run: Option<&str>, value: Value) -> Result<Self, String> {
        let item = match value {
            Value::String(run) => SideItem { run: Some(run), ..SideItem::default() },
            Value::Table(_) => {
                SideItem::deserialize(value).map_err(|error| plain(error.message()))?
            }
            _ => {
                return Err(
                    "a run, \"w4\", or { run = \"w4\", variant = \"homa\", at = 0.8 }".into()
                );
            }
        };
        let run = item.run.or(run.map(str::to_owned));
        let run = run.ok_or("needs a run: the check's `run`, or one of its own")?;
        let metric = item.metric.map(|name| name.parse()).transpose()?;
        Ok(Self { run, variant: item.variant, at: item.at, metric })
    }
}

impl Compare {
    /// The key by which a plan asks for it.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Alone => "run",
            Self::Over(_) => "over",
            Self::Reduction(_) => "reduction",
            Self::Ordering(_) => "ordering",
            Self::Least(_) => "least",
            Self::Greatest(_) => "greatest",
        }
    }

    /// Its sides.
    pub fn sides(&self) -> &[Side] {
        match self {
            Self::Alone => &[],
            Self::Over(side) | Self::Reduction(side) => std::slice::from_ref(side),
            Self::Ordering(sides) | Self::Least(sides) | Self::Greatest(sides) => sides,
        }
    }

    /// True when several sides are alike, none being the check's own.
    pub const fn is_of_sides(&self) -> bool {
        matches!(self, Self::Ordering(_) | Self::Least(_) | Self::Greatest(_))
    }
}

/// The number of a point of a row under a scheme; for an ordering, that of its first side.
pub(super) fn measure(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    metric: &Metric,
    variant: &str,
) -> Option<Measured> {
    if let Metric::Computed(computed) = metric {
        return Some(Measured::exact(computed.value()));
    }
    let own = || {
        let (place, _) = plan.run(row.run.as_deref()?)?;
        results.measure(metric, place, variant, row.at)
    };
    let of = |side: &Side| of_side(plan, results, row, metric, side, row.at);
    let ratio = |side: &Side| match *metric {
        Metric::Paired(above) => paired(plan, results, row, above, (variant, side)),
        _ => own()?.over(of(side)?),
    };
    match &row.compare {
        Compare::Alone => own(),
        Compare::Over(side) => ratio(side),
        Compare::Reduction(side) => Some(per_cent_below(ratio(side)?)),
        Compare::Ordering(sides) => of(sides.first()?),
        Compare::Least(sides) => extreme(sides.iter().map(of), f64::min),
        Compare::Greatest(sides) => extreme(sides.iter().map(of), f64::max),
    }
}

/// The least or the greatest of all numbers; `None` if one was not measured.
fn extreme(
    numbers: impl Iterator<Item = Option<Measured>>,
    better: fn(f64, f64) -> f64,
) -> Option<Measured> {
    let numbers: Vec<Measured> = numbers.collect::<Option<_>>()?;
    numbers.into_iter().reduce(|a, b| Measured {
        value: better(a.value, b.value),
        low: better(a.low, b.low),
        high: better(a.high, b.high),
    })
}

/// 100 (1 - A / B) of a ratio A / B: the ends change places.
fn per_cent_below(ratio: Measured) -> Measured {
    let percent = |ratio: f64| 100.0 * (1.0 - ratio);
    let (value, low, high) = (ratio.value, ratio.high, ratio.low);
    Measured { value: percent(value), low: percent(low), high: percent(high) }
}

/// The number of one side of a comparison.
pub(super) fn of_side(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    metric: &Metric,
    side: &Side,
    at: Option<f64>,
) -> Option<Measured> {
    let metric = side.metric.as_ref().unwrap_or(metric);
    // Runs are compared under one scheme unless they say otherwise.
    let common = row.variant.as_ref().filter(|_| row.compare.is_of_sides());
    let variant = side.variant.as_ref().or(common);
    let (place, _) = plan.run(&side.run)?;
    let read = |variant: &str| results.measure(metric, place, variant, side.at.or(at));
    let own = read(variant.or(plan.variants.first())?)?;
    match &row.below {
        Some(than) => Some(per_cent_below(own.over(read(than)?)?)),
        None => Some(own),
    }
}

/// The quotient of mean latencies over the messages that arrived under every scheme of both runs.
fn paired(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    above: u32,
    (variant, side): (&str, &Side),
) -> Option<Measured> {
    let (own, _) = plan.run(row.run.as_deref()?)?;
    let (other, _) = plan.run(&side.run)?;
    let against = side.variant.as_ref().or(plan.variants.first())?;
    let flows = |run, variant, at| results.flows(run, variant, at, above);
    let own_flows = flows(own, variant, row.at);
    let other_flows = flows(other, against, side.at.or(row.at));
    let mut all = vec![];
    for (run, at) in [(own, row.at), (other, side.at.or(row.at))] {
        all.extend(results.variants(run).into_iter().map(|variant| flows(run, variant, at)));
    }
    let everywhere = |flow: &FlowName| all.iter().all(|flows| flows.contains_key(flow));
    let common = own_flows.keys().filter(|flow| everywhere(flow));
    let pairs: Vec<(f64, f64)> =
        common.filter_map(|flow| Some((own_flows[flow], *other_flows.get(flow)?))).collect();
    let (a, b) = pairs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    (b > 0.0).then(|| Measured::exact(a / b))
}

/// Whether each side is below the next, at every value of the axis when the row names none: false
/// as soon as one is not below, `None` while intervals overlap or a side was not measured.
pub(super) fn ordered(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    metric: &Metric,
    sides: &[Side],
) -> Option<bool> {
    let first = sides.first().and_then(|side| plan.run(&side.run));
    let axis = match (row.at, first) {
        (None, Some((place, run))) if run.axis.is_some() => {
            let variant = sides[0].variant.as_ref().or(row.variant.as_ref());
            results.values(place, variant.or(plan.variants.first())?)
        }
        _ => Vec::new(),
    };
    let at = if axis.is_empty() { vec![row.at] } else { axis.into_iter().map(Some).collect() };
    let mut all = Some(true);
    for at in at {
        let read = |side: &Side| of_side(plan, results, row, metric, side, at);
        for pair in sides.windows(2) {
            match (read(&pair[0]), read(&pair[1])) {
                (Some(a), Some(b)) if a.low >= b.high => return Some(false),
                (Some(a), Some(b)) if a.high < b.low => (),
                _ => all = None,
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::repro::plan::ReproPlan;
    use crate::repro::{How, run};
    use crate::store::Store;
    use crate::sweep::Options;

    /// A plan that compares two variants in the given order.
    fn plan_of(order: [&str; 2]) -> String {
        format!(
            "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\nuse = \"set\"\n\
             [[variant]]\nname = \"near\"\nscheme = \"homa-sim\"\n\
             [[variant]]\nname = \"far\"\nscheme = \"homa-sim\"\n\
             set = {{ \"fabric.switch_delay\" = \"9us\" }}\n\
             [[check]]\nrow = \"a-b-less\"\nrun = \"at-0.4\"\n\
             reduction = {{ variant = \"far\" }}\n\
             points = {{ \"p50_us@50\" = [80, \"40..99\"] }}\nreport = [\"outcome.messages\"]\n\
             [[check]]\nrow = \"a-b-order\"\nrun = \"at-0.6\"\n\
             ordering = [{{ variant = \"{}\" }}, {{ variant = \"{}\" }}]\n\
             points = {{ \"p50_us@50\" = [] }}\n\
             [[check]]\nrow = \"a-b-gain\"\nrun = \"at-0.6\"\nbelow = \"far\"\n\
             ordering = [{{ variant = \"far\" }}, {{ variant = \"near\" }}]\n\
             points = {{ \"p50_us@50\" = [] }}\n\
             [[check]]\nrow = \"a-b-least\"\nrun = \"at-0.6\"\nbelow = \"far\"\n\
             least = [{{ variant = \"near\" }}, {{ variant = \"far\" }}]\n\
             points = {{ \"p50_us@50\" = [0, \"1\"] }}\n\
             [[check]]\nrow = \"a-b-greatest\"\nrun = \"at-0.6\"\nbelow = \"far\"\n\
             greatest = [{{ variant = \"near\" }}, {{ variant = \"far\" }}]\n\
             points = {{ \"p50_us@50\" = [0, \"1\"] }}\n\
             [[check]]\nrow = \"a-b-shape\"\nrun = \"at-0.6\"\n\
             ordering = [{{ metric = \"p50_us@50\" }}, {{ metric = \"p99_us@50\" }}]\n\
             points = {{ \"p50_us@50\" = [] }}\n",
            order[0], order[1]
        )
    }

    /// A percentage below another scheme, orderings of variants with separate settings and of two
    /// numbers of one run, the least and the greatest of two variants, a number of the outcome by
    /// its path, and the runs of a shared set that are read.
    #[test]
    fn variants_are_compared_by_reduction_and_by_order() {
        let set = "[scenario]\nfabric = { shape = { kind = \"single-switch\", hosts = 4 } }\n\
            traffic = { pattern = \"all-to-all\", workload = \"1000\" }\n\
            stop = { messages = 3_000 }\n\
            [[run]]\neach.load = [0.4, 0.6, 0.7]\nname = \"at-{load}\"\n\
            set = { \"load.fraction\" = \"{load}\" }\n";
        let sets = [Document::new("repro/a/runs/set.toml", set)];
        let done = |order| {
            let document = Document::new("repro/a/r.toml", plan_of(order));
            let plan = ReproPlan::parse(&document, &sets).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(plan.runs.len(), 2, "the third is not read");
            let root = std::env::temp_dir().join(format!(
                "homa-order-{}-{}",
                order[0],
                std::process::id()
            ));
            let store = Store::create(&root).unwrap();
            let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
            let done =
                run(&[plan], &How::default(), &store, &options, &mut |_| {}).unwrap().remove(0);
            std::fs::remove_dir_all(&root).unwrap();
            done
        };
        let there = done(["near", "far"]);
        let [less, messages, order, gain, least, greatest, shape] = &there.checks[..] else {
            panic!("{:?}", there.checks)
        };
        assert!(less.pass == Some(true) && less.measured.is_some_and(|it| it < 100.0), "{less:?}");
        assert_eq!(messages.measured, Some(0.0), "as many messages: none per cent fewer");
        assert_eq!((order.pass, order.gates()), (Some(true), true), "{order:?}");
        assert_eq!((gain.pass, gain.measured), (Some(true), Some(0.0)), "none below itself");
        assert_eq!((least.measured, least.pass), (Some(0.0), Some(true)), "far below itself");
        assert_eq!(least.others, [("far".to_owned(), Some(0.0))], "the side that is the least");
        assert_eq!(greatest.others, [("near".to_owned(), greatest.measured)]);
        assert!(greatest.measured > Some(40.0) && greatest.pass == Some(false), "{greatest:?}");
        assert_eq!((shape.pass, shape.others.len()), (Some(true), 1), "{shape:?}");
        assert_eq!(
            [&least.metric, &greatest.metric],
            ["a-b-least least of 2", "a-b-greatest greatest of 2"]
        );
        assert_eq!(there.family, "a");
        assert_eq!(done(["far", "near"]).checks[2].pass, Some(false));
    }

    /// The run of one variant ends before all its messages arrive. A row that is compared with it
    /// decides nothing, and counts these messages once. Rows of the other two variants decide.
    #[test]
    fn messages_that_a_baseline_lacks_leave_a_row_undecided() {
        let text = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n\
            [[variant]]\nname = \"late\"\nscheme = \"homa-sim\"\n\
            set = { \"stop.drain_limit\" = \"1us\" }\n\
            [[variant]]\nname = \"near\"\nscheme = \"homa-sim\"\n\
            [[variant]]\nname = \"far\"\nscheme = \"homa-sim\"\n\
            set = { \"fabric.switch_delay\" = \"9us\" }\n\
            [scenario]\nfabric = { shape = { kind = \"single-switch\", hosts = 4 } }\n\
            traffic = { pattern = \"all-to-all\", workload = \"1000\" }\n\
            stop = { messages = 3_000 }\n[[run]]\nname = \"r\"\n\
            [[check]]\nrow = \"a-b-late\"\nrun = \"r\"\n\
            points = { \"p50_us@50\" = [1, \"x99\"] }\n\
            [[check]]\nrow = \"a-b-least\"\nrun = \"r\"\nbelow = \"late\"\n\
            least = [{ variant = \"near\" }, { variant = \"far\" }]\n\
            points = { \"p50_us@50\" = [0, \"1000\"] }\n\
            [[check]]\nrow = \"a-b-greatest\"\nrun = \"r\"\nvariant = \"far\"\n\
            greatest = [{ run = \"r\" }, { variant = \"near\" }]\n\
            points = { \"p50_us@50\" = [0, \"1000\"] }\n\
            [[check]]\nrow = \"a-b-order\"\nrun = \"r\"\n\
            ordering = [{ variant = \"near\" }, { variant = \"far\" }]\n\
            points = { \"p50_us@50\" = [] }\n";
        let plan = ReproPlan::parse(&Document::new("r.toml", text), &[]);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let root = std::env::temp_dir().join(format!("homa-baseline-{}", std::process::id()));
        let store = Store::create(&root).unwrap();
        let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
        let done = run(&[plan], &How::default(), &store, &options, &mut |_| {}).unwrap().remove(0);
        std::fs::remove_dir_all(&root).unwrap();
        let [late, least, greatest, order] = &done.checks[..] else { panic!("{:?}", done.checks) };
        assert!(late.missing.as_ref().is_some_and(|it| it.ends_with(" not delivered")), "{late:?}");
        assert!(least.measured.is_some() && least.pass.is_none(), "{least:?}");
        assert_eq!(least.missing, late.missing);
        for there in [greatest, order] {
            assert_eq!((there.pass, &there.missing), (Some(true), &None), "{there:?}");
        }
    }
}

//! Details of a folder's simulations beyond one number each: slowdown by message size, how many
//! messages take longer than a time, and the backlog over time.

use std::collections::BTreeMap;

use homa_sim::scenario::outcome::SizeBucket;

use super::varied::{Run, Varied};
use super::versus::View;
use crate::chart::{Axis, Chart, Mark, Mode, Point, Scale, Series};
use crate::repro::figure::of_bins;
use crate::repro::metric::{Rank, Reading};
use crate::repro::tolerance::Measured;
use crate::store::Stored;

/// Simulations that share a figure, by curve; each curve has the simulations of all seeds.
struct Panel<'a> {
    /// Its name, which differs from that of the others.
    name: String,
    /// By place of the curve.
    curves: BTreeMap<usize, Vec<&'a Stored>>,
}

/// How figures of whole curves are laid out.
pub(super) struct Panels<'a> {
    names: Vec<String>,
    panels: Vec<Panel<'a>>,
}

impl<'a> Panels<'a> {
    /// A figure for each combination of the dimensions that are not curves: curves are schemes, or
    /// the horizontal dimension of other figures. Workloads never share a figure because their
    /// sizes differ.
    pub fn of(runs: &'a [Run], varied: &Varied, view: Option<View>) -> Self {
        let all = &varied.dimensions;
        let across = || view.map(|view| view.x).filter(|&at| !all[at].decides_sizes());
        let lines = all.iter().position(|dimension| dimension.is_scheme()).or_else(across);
        let mut panels: BTreeMap<(Vec<usize>, &str), Panel<'a>> = BTreeMap::new();
        for (listed, stored) in runs {
            let place = varied.place(listed);
            let others = (0..all.len()).filter(|&at| Some(at) != lines);
            let names: Vec<String> = others.clone().map(|at| all[at].name(place[at])).collect();
            let key = (others.map(|at| place[at]).collect(), stored.outcome.workload.as_str());
            let panel = panels
                .entry(key)
                .or_insert_with(|| Panel { name: names.join(" · "), curves: BTreeMap::new() });
            panel.curves.entry(lines.map_or(0, |at| place[at])).or_default().push(stored);
        }
        let names = match lines.map(|at| &all[at]) {
            Some(dimension) => (0..dimension.values.len()).map(|at| dimension.name(at)).collect(),
            None => vec![runs.first().map(|(_, s)| s.outcome.scheme.clone()).unwrap_or_default()],
        };
        Self { names, panels: panels.into_values().collect() }
    }

    /// Number of figures of each kind.
    pub fn count(&self) -> usize {
        self.panels.len()
    }

    /// Slowdown by message size: 99th percentile and median.
    pub fn by_size(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for panel in &self.panels {
            let merged: Vec<(String, Vec<SizeBucket>)> = self
                .curves(panel)
                .map(|(name, all)| (name.to_owned(), merged(all)))
                .filter(|(_, bins)| !bins.is_empty())
                .collect();
            for rank in [Rank::P99, Rank::P50].into_iter().filter(|_| !merged.is_empty()) {
                let mut chart = of_bins(&merged, Reading::All(rank));
                let parts = [panel.name.as_str(), &chart.subtitle];
                chart.subtitle = parts
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(" · ");
                charts.push(chart);
            }
        }
        charts
    }

    /// The share of messages that take longer than a time, from the percentiles that
    /// `measures.groups` asked for; of workflows alike.
    pub fn tails(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for panel in &self.panels {
            let mut kinds: Vec<String> = Vec::new();
            for (kind, _) in panel.curves.values().flatten().flat_map(|stored| tails(stored)) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            for kind in kinds {
                let of_kind = |stored: &&Stored| {
                    tails(stored).into_iter().find(|(own, _)| *own == kind).map(|(_, tail)| tail)
                };
                let curves = self.curves(panel).map(|(name, all)| {
                    let tails: Vec<Vec<(f64, f64)>> = all.iter().filter_map(of_kind).collect();
                    (name, mean_tail(&tails))
                });
                let curves: Vec<_> = curves.filter(|(_, points)| points.len() > 1).collect();
                if !curves.is_empty() {
                    charts.push(tail_chart(&kind, &panel.name, curves));
                }
            }
        }
        charts
    }

    /// Bytes of messages in flight over time, of the first seed.
    pub fn backlogs(&self) -> Vec<Chart> {
        let chart = |panel: &Panel<'a>| {
            let curves = self.curves(panel).filter_map(|(name, all)| {
                let points = backlog(all.first()?);
                let (name, mark) = (name.to_owned(), Mark::Curve);
                (points.len() > 2).then_some(Series { name, mark, points })
            });
            Chart {
                title: "Bytes of messages under way".to_owned(),
                subtitle: panel.name.clone(),
                mode: Mode::Plot,
                x: linear("simulated time, ms"),
                y: linear("MB, all hosts"),
                series: curves.collect(),
            }
        };
        self.panels.iter().map(chart).filter(|chart| !chart.series.is_empty()).collect()
    }

    fn curves<'b>(
        &'b self,
        panel: &'b Panel<'a>,
    ) -> impl Iterator<Item = (&'b str, &'b [&'a Stored])> {
        let name = self.names.iter().enumerate();
        name.map(|(at, name)| (name.as_str(), panel.curves.get(&at).map_or(&[][..], Vec::as_slice)))
    }
}

fn linear(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear, range: None, ticks: Vec::new() }
}

/// The bins of several seeds as one: means of their percentiles.
fn merged(all: &[&Stored]) -> Vec<SizeBucket> {
    let Some(first) = all.first() else { return Vec::new() };
    let merge = |(at, bin): (usize, &SizeBucket)| {
        let others = all.iter().map(|stored| stored.outcome.slowdown.buckets.get(at));
        let same: Vec<&SizeBucket> =
            others.flatten().filter(|other| other.cum_share == bin.cum_share).collect();
        let mean = |of: fn(&SizeBucket) -> Option<f64>| {
            let values: Vec<Measured> =
                same.iter().filter_map(|bin| of(bin)).map(Measured::exact).collect();
            Measured::pooled(&values).map(|pooled| pooled.value)
        };
        SizeBucket {
            count: same.iter().map(|bin| bin.count).min().unwrap_or(0),
            p50: mean(|bin| bin.p50),
            p99: mean(|bin| bin.p99),
            p50_ci: if all.len() > 1 { [None; 2] } else { bin.p50_ci },
            p99_ci: if all.len() > 1 { [None; 2] } else { bin.p99_ci },
            ..bin.clone()
        }
    };
    first.outcome.slowdown.buckets.iter().enumerate().map(merge).collect()
}

/// Kinds of messages, and of each the times that shares of them exceed.
fn tails(stored: &Stored) -> Vec<(String, Vec<(f64, f64)>)> {
    let above = |percent: f64| 1.0 - percent / 100.0;
    let groups = stored.outcome.groups.iter().map(|group| {
        let sizes = match (group.above_bytes, group.max_bytes) {
            (0, None) => "all sizes".to_owned(),
            (0, Some(max)) => format!("up to {max} B"),
            (least, None) => format!("above {least} B"),
            (least, Some(max)) => format!("above {least} up to {max} B"),
        };
        let class =
            if group.class > 0 { format!(", class {}", group.class) } else { String::new() };
        let tail = group.percentiles.iter().map(|one| (one.us, above(one.percent)));
        (format!("Messages of {sizes}{class}"), tail.collect())
    });
    let workflows = stored.outcome.workflows.iter().map(|workflow| {
        let fan_out = workflow.fan_out.map(|n| format!(" of {n}")).unwrap_or_default();
        let tail = workflow.percentiles.iter().map(|one| (one.us, above(one.percent)));
        (format!("Workflows {}{fan_out}", workflow.name), tail.collect())
    });
    groups.chain(workflows).collect()
}

/// The mean time of each share.
fn mean_tail(seeds: &[Vec<(f64, f64)>]) -> Vec<Point> {
    let Some(first) = seeds.first() else { return Vec::new() };
    let at = |(place, &(_, share)): (usize, &(f64, f64))| {
        let times = seeds.iter().filter_map(|tail| tail.get(place)).map(|(us, _)| us);
        let mean = times.clone().sum::<f64>() / times.count().max(1) as f64;
        Point::at(mean, share)
    };
    let points = first.iter().enumerate().map(at);
    points.filter(|point| point.x > 0.0 && point.y > 0.0).collect()
}

fn tail_chart(kind: &str, panel: &str, curves: Vec<(&str, Vec<Point>)>) -> Chart {
    let axis = |label: &str| Axis { scale: Scale::Log, ..linear(label) };
    let series = curves.into_iter().map(|(name, points)| Series {
        name: name.to_owned(),
        mark: Mark::Line,
        points,
    });
    Chart {
        title: format!("{kind}: how many take longer"),
        subtitle: panel.to_owned(),
        mode: Mode::Plot,
        x: axis("latency, µs"),
        y: axis("share of them that takes longer"),
        series: series.collect(),
    }
}

/// At most a hundred samples of the backlog.
fn backlog(stored: &Stored) -> Vec<Point> {
    const MOST: usize = 100;
    let backlog = &stored.outcome.backlog;
    let step = backlog.bytes.len().div_ceil(MOST).max(1);
    let sample = |(at, &bytes): (usize, &u64)| {
        Point::at(at as f64 * backlog.interval_seconds * 1e3, bytes as f64 / 1e6)
    };
    backlog.bytes.iter().enumerate().step_by(step).map(sample).collect()
}

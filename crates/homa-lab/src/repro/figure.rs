//! A plan's drawings: the published points in the paper's axes, and our curves for each scheme.

use homa_sim::scenario::outcome::SizeBucket;

use super::comparison::measure;
use super::metric::{Metric, Rank, Reading};
use super::plan::{Figure, FigureKind, ReproPlan, Run, drawn};
use super::verdict::Results;
use crate::chart::{Axis, Chart, Mark, Mode, Point, Scale, Series, size_label};

/// A bin with fewer messages says nothing about the percentile of all: one of them lies beyond it.
const fn enough(rank: Rank) -> u64 {
    match rank {
        Rank::P50 => 20,
        Rank::P99 => 100,
    }
}

/// True when the bin has too few messages for the reading. By receiver it takes two a receiver: of
/// one message the p99 is the message.
fn is_few(bin: &SizeBucket, reading: Reading) -> bool {
    match reading {
        Reading::All(rank) => bin.count < enough(rank),
        Reading::P99ByReceiver => {
            bin.by_receiver.is_none_or(|own| bin.count < 2 * u64::from(own.receivers))
        }
    }
}

/// The note on a figure that draws such bins because nearly all bins of a run are of this kind.
const fn said_of_few(reading: Reading) -> &'static str {
    match reading {
        Reading::All(_) => "Short run: a bin's value is about that of its slowest message",
        Reading::P99ByReceiver => {
            "Short run: under two messages a receiver in a bin, whose value is near their mean"
        }
    }
}

/// All drawings of a plan, in its order.
pub fn charts(plan: &ReproPlan, results: &Results) -> Vec<Chart> {
    let draw = |figure: &Figure| match figure.kind {
        FigureKind::Slowdown => slowdown(plan, results, figure),
        FigureKind::Curve => curve(plan, results, figure),
        FigureKind::Bars => bars(plan, results, figure),
    };
    plan.figures.iter().map(draw).collect()
}

fn variants<'a>(plan: &'a ReproPlan, run: Option<&'a Run>, figure: &Figure) -> &'a [String] {
    let own = run.and_then(|run| run.variants.as_ref());
    let all = own.unwrap_or(&plan.variants);
    if figure.first_only { &all[..1.min(all.len())] } else { all }
}

fn published(figure: &Figure, scale_x: f64) -> Vec<Series> {
    let series = figure.published.iter().map(|curve| Series {
        name: curve.name.clone(),
        mark: Mark::Published,
        points: curve.points.iter().map(|&[x, y]| Point::at(x * scale_x, y)).collect(),
    });
    series.collect()
}

/// The name of a scheme's curve: what sets it apart from the figure's others.
fn name(plan: &ReproPlan, figure: &Figure, run: &Run, variant: &str) -> String {
    let title = run.title.as_deref().unwrap_or(&run.name);
    let alone = run.variants.as_ref().is_some_and(|own| own.len() == 1);
    let has = |run: &Run| variants(plan, Some(run), figure).iter().any(|other| other == variant);
    let others = figure.runs.iter().filter(|name| **name != run.name);
    let shared = others.filter_map(|name| plan.run(name)).any(|(_, other)| has(other));
    match figure.runs.len() {
        0 | 1 => variant.to_owned(),
        _ if figure.first_only || alone => title.to_owned(),
        _ if shared => format!("{title}, {variant}"),
        _ => variant.to_owned(),
    }
}

fn slowdown(plan: &ReproPlan, results: &Results, figure: &Figure) -> Chart {
    let reading = match &figure.metric {
        _ if figure.by_receiver => Reading::P99ByReceiver,
        Some(Metric::Overall(rank)) => Reading::All(*rank),
        _ => Reading::All(Rank::P99),
    };
    let mut ticks = Vec::new();
    let mut series = Vec::new();
    let mut few = false;
    for run in &figure.runs {
        let Some((place, named)) = plan.run(run) else { continue };
        for variant in variants(plan, Some(named), figure) {
            let Some(stored) = results.of(place, variant, None).next() else { continue };
            let bins = &stored.outcome.slowdown.buckets;
            few |= has_few(bins, reading);
            if ticks.is_empty() {
                ticks = size_ticks(bins);
            }
            let (name, points) = (name(plan, figure, named, variant), steps(bins, reading));
            series.push(Series { name, mark: Mark::Step, points });
        }
    }
    series.extend(published(figure, 0.01));
    let y_label =
        figure.y_label.clone().unwrap_or_else(|| format!("slowdown, {}", reading.title()));
    let subtitle = if few { said_of_few(reading) } else { "" };
    by_size((figure.title.clone(), subtitle), &y_label, ticks, series)
}

/// Size at each tenth of the messages.
pub fn size_ticks(bins: &[SizeBucket]) -> Vec<(f64, String)> {
    let tick = |tenth: u32| {
        let share = f64::from(tenth) / 10.0;
        let bin = bins.iter().find(|bin| bin.cum_share >= share - 1e-9).or(bins.last())?;
        let bytes = if tenth == 0 { bin.min_bytes } else { bin.max_bytes };
        Some((share, size_label(bytes)))
    };
    (0..=10).filter_map(tick).collect()
}

/// True when most bins have too few messages for the reading.
fn has_few(bins: &[SizeBucket], reading: Reading) -> bool {
    2 * bins.iter().filter(|bin| is_few(bin, reading)).count() > bins.len()
}

/// A step per bin: its value from the beginning of the bin to its end. Bins of too few messages are
/// left out, unless most bins are of this kind, because then a rough curve is better than none.
pub fn steps(bins: &[SizeBucket], reading: Reading) -> Vec<Point> {
    let draws_all = has_few(bins, reading);
    let mut before = 0.0;
    let mut points = Vec::new();
    for bin in bins {
        if let Some(measured) = reading.of(bin).filter(|_| draws_all || !is_few(bin, reading)) {
            let [low, high] = measured.ends();
            let at = |x| Point { x, y: measured.value, low, high };
            points.extend([at(before), at(bin.cum_share)]);
        }
        before = bin.cum_share;
    }
    points
}

fn curve(plan: &ReproPlan, results: &Results, figure: &Figure) -> Chart {
    let metric = figure.metric.as_ref().unwrap_or(&Metric::Wasted);
    let mut series = Vec::new();
    for run in &figure.runs {
        let Some((place, named)) = plan.run(run) else { continue };
        for variant in variants(plan, Some(named), figure) {
            let points = results.values(place, variant).into_iter().filter_map(|at| {
                let read = |metric: &Metric| results.measure(metric, place, variant, Some(at));
                let measured = read(metric)?;
                let [low, high] = measured.ends();
                let x = match &figure.x_metric {
                    Some(metric) => read(metric)?.value,
                    None => at,
                };
                Some(Point { x, y: measured.value, low, high })
            });
            let points: Vec<Point> = points.collect();
            if !points.is_empty() {
                series.push(Series {
                    name: name(plan, figure, named, variant),
                    mark: Mark::Line,
                    points,
                });
            }
        }
    }
    series.extend(published(figure, 1.0));
    let label = |label: &Option<String>, or: &str| label.clone().unwrap_or_else(|| or.to_owned());
    let axis = |label| Axis { label, scale: Scale::Linear, range: None, ticks: Vec::new() };
    Chart {
        title: figure.title.clone(),
        subtitle: String::new(),
        mode: Mode::Plot,
        x: axis(label(&figure.x_label, "")),
        y: axis(label(&figure.y_label, &metric.to_string())),
        series,
    }
}

fn bars(plan: &ReproPlan, results: &Results, figure: &Figure) -> Chart {
    let shown: Vec<_> = drawn(&plan.checks, figure).collect();
    let labels = shown.iter().enumerate().map(|(place, (row, point))| {
        let text = point.label.clone().unwrap_or_else(|| match &figure.metric {
            Some(_) => row.row.trim_start_matches(&plan.id).trim_start_matches('-').to_owned(),
            None => point.metric.to_string(),
        });
        (place as f64, text)
    });
    let labels: Vec<(f64, String)> = labels.collect();
    let mut series = vec![Series {
        name: "published".to_owned(),
        mark: Mark::Published,
        points: shown
            .iter()
            .enumerate()
            .filter_map(|(x, (_, point))| Some(Point::at(x as f64, point.published?)))
            .collect(),
    }];
    for variant in variants(plan, None, figure) {
        let points = shown.iter().enumerate().filter_map(|(x, (row, point))| {
            let measured = measure(plan, results, row, &point.metric, variant)?;
            Some(Point::at(x as f64, measured.value))
        });
        let (name, points) = (variant.clone(), points.collect());
        series.push(Series { name, mark: Mark::Bar, points });
    }
    series.retain(|series| !series.points.is_empty());
    let range = [-0.5, shown.len() as f64 - 0.5];
    Chart {
        title: figure.title.clone(),
        subtitle: String::new(),
        mode: Mode::Bars,
        x: Axis {
            label: figure.x_label.clone().unwrap_or_default(),
            scale: Scale::Linear,
            range: Some(range),
            ticks: labels,
        },
        y: Axis {
            label: figure.y_label.clone().unwrap_or_default(),
            scale: Scale::Linear,
            range: None,
            ticks: Vec::new(),
        },
        series,
    }
}

/// Slowdown by size from named bins, for reports of plans that are no reproductions.
pub fn of_bins(curves: &[(String, Vec<SizeBucket>)], reading: Reading) -> Chart {
    let few = curves.iter().any(|(_, bins)| has_few(bins, reading));
    let title = format!("Slowdown by message size, {}", reading.title());
    let subtitle = if few { said_of_few(reading) } else { "" };
    let ticks = curves.first().map(|(_, bins)| size_ticks(bins)).unwrap_or_default();
    let series = curves.iter().map(|(name, bins)| Series {
        name: name.clone(),
        mark: Mark::Step,
        points: steps(bins, reading),
    });
    by_size((title, subtitle), "slowdown", ticks, series.collect())
}

/// A figure with sizes across, each with as much room as it has messages.
fn by_size(
    (title, subtitle): (String, &str),
    y_label: &str,
    ticks: Vec<(f64, String)>,
    series: Vec<Series>,
) -> Chart {
    Chart {
        title,
        subtitle: subtitle.to_owned(),
        mode: Mode::Plot,
        x: Axis {
            label: "message size in bytes; a tick is 10 % of the messages".to_owned(),
            scale: Scale::Linear,
            range: Some([0.0, 1.0]),
            ticks,
        },
        y: Axis { label: y_label.to_owned(), scale: Scale::Log, range: None, ticks: Vec::new() },
        series,
    }
}

#[cfg(test)]
mod tests {
    use homa_sim::scenario::outcome::ByReceiver;

    use super::*;

    fn bins(counts: &[u64]) -> Vec<SizeBucket> {
        let share = |place: usize| (place + 1) as f64 / counts.len() as f64;
        let bin = |(place, &count): (usize, &u64)| SizeBucket {
            cum_share: share(place),
            min_bytes: 1,
            max_bytes: 1,
            count,
            p50: Some(1.0),
            p99: Some(2.0),
            p50_ci: [None; 2],
            p99_ci: [None; 2],
            p50_us: None,
            p99_us: None,
            by_receiver: Some(ByReceiver { p99: 1.5, p99_ci: [None; 2], receivers: 15 }),
        };
        counts.iter().enumerate().map(bin).collect()
    }

    #[test]
    fn a_thin_bin_is_left_out_but_never_the_whole_curve() {
        let (p50, p99) = (Reading::All(Rank::P50), Reading::All(Rank::P99));
        assert_eq!(steps(&bins(&[200, 30, 200]), p99).len(), 4);
        assert_eq!(steps(&bins(&[200, 30, 200]), p50).len(), 6, "enough for a median");
        let thin = bins(&[30, 30, 200]);
        assert_eq!(steps(&thin, p99).len(), 6);
        assert!(has_few(&thin, p99) && !has_few(&thin, p50));
    }

    #[test]
    fn by_receiver_a_bin_is_thin_below_two_messages_a_receiver() {
        let own = Reading::P99ByReceiver;
        assert_eq!(steps(&bins(&[30, 29, 200]), own).len(), 4);
        let thin = bins(&[29, 29, 200]);
        assert!(has_few(&thin, own) && !has_few(&bins(&[30, 30, 200]), own));
        assert_eq!(steps(&thin, own).len(), 6);
    }
}

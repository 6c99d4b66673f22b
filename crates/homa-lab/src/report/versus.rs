//! Quantities against what a sweep varied: one curve per scheme, a figure for each combination of
//! what else varied, seeds merged into their mean.

use std::collections::BTreeMap;

use super::Choice;
use super::html::number;
use super::quantity::Quantity;
use super::varied::{Dimension, Run, Varied};
use crate::chart::{Axis, Chart, Mark, Mode, Point, Scale, Series};
use crate::error::LabError;
use crate::repro::tolerance::Measured;

/// A quantity that varies by less than this share is stated instead of drawn.
const FLAT: f64 = 0.01;

/// Less of a common axis than this is too little to see anything.
const SMALL: f64 = 0.3;

/// Names at an axis: more run into each other.
const NAMES: usize = 10;

/// Which dimension goes across, and which tells curves apart; the others tell figures apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct View {
    /// Place of the dimension along the axis.
    pub x: usize,
    /// Index of the dimension whose values are curves.
    pub lines: Option<usize>,
}

impl View {
    /// The view that was chosen, or one for each dimension of numbers, that of most values first.
    pub fn all(varied: &Varied, choice: &Choice) -> Result<Vec<Self>, LabError> {
        let all = &varied.dimensions;
        let mut across: Vec<usize> = match &choice.x {
            Some(name) => vec![varied.named(name)?],
            None => (0..all.len()).filter(|&at| all[at].numbers.is_some()).collect(),
        };
        across.sort_by_key(|&at| std::cmp::Reverse(all[at].values.len()));
        if across.is_empty() {
            let names =
                (0..all.len()).max_by_key(|&at| (!all[at].is_scheme(), all[at].values.len()));
            across.extend(names);
        }
        Ok(across.into_iter().map(|x| Self { x, lines: lines(all, x) }).collect())
    }

    /// The dimensions that tell figures apart.
    pub fn facets(self, varied: &Varied) -> Vec<usize> {
        let all = 0..varied.dimensions.len();
        all.filter(|&at| at != self.x && Some(at) != self.lines).collect()
    }
}

/// Schemes are curves; without several of them, what has the fewest values.
fn lines(all: &[Dimension], x: usize) -> Option<usize> {
    let others = (0..all.len()).filter(|&at| at != x);
    others.min_by_key(|&at| (!all[at].is_scheme(), all[at].values.len()))
}

/// A quantity as it was drawn or stated.
#[derive(Default)]
pub(super) struct Drawn {
    /// Its figures.
    pub charts: Vec<Chart>,
    /// Values of the quantities that hardly vary.
    pub flat: Vec<String>,
}

/// A value of one simulation and its position.
struct Sample {
    facet: Vec<usize>,
    line: usize,
    x: usize,
    measured: Measured,
}

/// A quantity against a dimension; `even_flat` when it was asked for. `None` when it was not
/// measured.
pub(super) fn draw(
    runs: &[Run],
    varied: &Varied,
    view: View,
    (quantity, even_flat): (&Quantity, bool),
) -> Option<Drawn> {
    let facets = view.facets(varied);
    let sample = |(listed, stored): &Run| {
        let place = varied.place(listed);
        Some(Sample {
            facet: facets.iter().map(|&at| place[at]).collect(),
            line: view.lines.map_or(0, |at| place[at]),
            x: place[view.x],
            measured: quantity.read(stored).filter(|measured| measured.value.is_finite())?,
        })
    };
    let samples: Vec<Sample> = runs.iter().filter_map(sample).collect();
    ends(samples.iter())?;
    let mut by_facet: BTreeMap<Vec<usize>, Vec<Sample>> = BTreeMap::new();
    for sample in samples {
        by_facet.entry(sample.facet.clone()).or_default().push(sample);
    }
    let mut drawn = Drawn::default();
    if !even_flat {
        let named = |facet: &[usize]| facet_name(varied, &facets, facet);
        by_facet.retain(|facet, samples| match flat(samples) {
            None => true,
            Some(value) => {
                let place = named(facet);
                let place = if place.is_empty() { place } else { format!(" ({place})") };
                let (title, unit) = (quantity.title(), quantity.unit());
                drawn.flat.push(format!("{title}{place}: {value} {unit}").trim_end().to_owned());
                false
            }
        });
    }
    let samples: Vec<Sample> = by_facet.into_values().flatten().collect();
    let Some((low, high)) = ends(samples.iter()) else { return Some(drawn) };
    let names = match view.lines.map(|at| &varied.dimensions[at]) {
        Some(dimension) => (0..dimension.values.len()).map(|at| dimension.name(at)).collect(),
        // The title says what a curve alone is.
        None => vec![String::new()],
    };
    let y = Axis {
        label: quantity.unit().to_owned(),
        scale: quantity.scale(low, high),
        range: Some([low, high]),
        ticks: Vec::new(),
    };
    let figure =
        VersusFigure { varied, x: view.x, facets: &facets, title: quantity.title(), y, names };
    drawn.charts = figure.charts(&samples);
    Some(drawn)
}

/// A quantity that hardly varies, in words.
fn flat(samples: &[Sample]) -> Option<String> {
    let (low, high) = ends(samples.iter())?;
    let is_flat = high - low <= FLAT * high.abs().max(low.abs());
    is_flat.then(|| match number(low) == number(high) {
        true => number(low),
        false => format!("{} to {}", number(low), number(high)),
    })
}

/// The name of a figure, which differs from those of the other figures.
fn facet_name(varied: &Varied, facets: &[usize], facet: &[usize]) -> String {
    let named = facets.iter().zip(facet);
    let names: Vec<String> = named.map(|(&at, &value)| varied.dimensions[at].name(value)).collect();
    names.join(" · ")
}

/// The use of each priority level against a dimension, if it was measured.
pub(super) fn levels(runs: &[Run], varied: &Varied, x: usize) -> Vec<Chart> {
    let facets: Vec<usize> = (0..varied.dimensions.len()).filter(|&at| at != x).collect();
    let of_run = |(listed, stored): &Run| {
        let place = varied.place(listed);
        let shares = stored.outcome.priority_share.unwrap_or_default();
        let facet: Vec<usize> = facets.iter().map(|&at| place[at]).collect();
        let x = place[x];
        shares.into_iter().enumerate().map(move |(level, share)| Sample {
            facet: facet.clone(),
            line: level,
            x,
            measured: Measured::exact(share * 100.0),
        })
    };
    let samples: Vec<Sample> = runs.iter().flat_map(of_run).collect();
    let used = |level: usize| samples.iter().any(|s| s.line == level && s.measured.value >= 0.5);
    if (0..8).filter(|&level| used(level)).count() < 2 {
        return Vec::new();
    }
    let y = Axis {
        label: "% of the receivers' links".to_owned(),
        scale: Scale::Linear,
        range: ends(samples.iter()).map(|(low, high)| [low, high]),
        ticks: Vec::new(),
    };
    let names = (0..8).map(|level| format!("level {level}")).collect();
    let title = "Use of priority levels".to_owned();
    let used: Vec<Sample> =
        samples.into_iter().filter(|sample| sample.measured.value > 0.0).collect();
    VersusFigure { varied, x, facets: &facets, title, y, names }.charts(&used)
}

/// The least and the largest value.
fn ends<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<(f64, f64)> {
    let values = samples.map(|sample| sample.measured.value);
    values.map(|value| (value, value)).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
}

/// Charts of one quantity with the same axes and the same curves.
struct VersusFigure<'a> {
    varied: &'a Varied,
    x: usize,
    facets: &'a [usize],
    title: String,
    y: Axis,
    names: Vec<String>,
}

impl VersusFigure<'_> {
    fn charts(&self, samples: &[Sample]) -> Vec<Chart> {
        let mut by_facet: BTreeMap<&[usize], Vec<&Sample>> = BTreeMap::new();
        for sample in samples {
            by_facet.entry(&sample.facet).or_default().push(sample);
        }
        let small = by_facet.values().any(|samples| self.is_small(samples));
        let y = |samples: &[&Sample]| match ends(samples.iter().copied()) {
            Some((low, high)) if small => Axis { range: Some([low, high]), ..self.y.clone() },
            _ => self.y.clone(),
        };
        let chart = |(facet, samples): (&[usize], Vec<&Sample>)| Chart {
            title: self.title.clone(),
            subtitle: facet_name(self.varied, self.facets, facet),
            mode: Mode::Plot,
            x: axis(&self.varied.dimensions[self.x]),
            y: y(&samples),
            series: self.series(&samples),
        };
        by_facet.into_iter().map(chart).collect()
    }

    /// Whether a figure would leave most of the common axis empty: then each has its own.
    fn is_small(&self, samples: &[&Sample]) -> bool {
        let own = ends(samples.iter().copied());
        let (Some((low, high)), Some([least, most])) = (own, self.y.range) else { return false };
        let part = match self.y.scale {
            Scale::Linear => (high - low.min(0.0)) / (most - least.min(0.0)),
            Scale::Log => (high / low).ln() / (most / least).ln(),
        };
        part < SMALL
    }

    fn series(&self, samples: &[&Sample]) -> Vec<Series> {
        let dimension = &self.varied.dimensions[self.x];
        let mut out = Vec::new();
        for (line, name) in self.names.iter().enumerate() {
            let mut at: BTreeMap<usize, Vec<Measured>> = BTreeMap::new();
            for sample in samples.iter().filter(|sample| sample.line == line) {
                at.entry(sample.x).or_default().push(sample.measured);
            }
            // Names have no distances: their points stand beside each other and are not joined.
            let aside = (line as f64 - (self.names.len() - 1) as f64 / 2.0) * 0.8;
            let aside = aside / self.names.len() as f64;
            let place = |x: usize| match &dimension.numbers {
                Some(numbers) => numbers[x],
                None => x as f64 + aside,
            };
            let points = at.iter().filter_map(|(&x, all)| mean(place(x), all)).collect();
            let mark = if dimension.numbers.is_some() { Mark::Band } else { Mark::Points };
            out.push(Series { name: name.clone(), mark, points });
            let several = at.iter().filter(|(_, all)| all.len() > 1);
            let singles = several
                .flat_map(|(&x, all)| all.iter().map(move |one| Point::at(place(x), one.value)));
            let points: Vec<Point> = singles.collect();
            if !points.is_empty() {
                let name = name.clone();
                out.push(Series { name, mark: Mark::Samples, points });
            }
        }
        out
    }
}

/// Fewest seeds whose spread bounds the mean. With two seeds there is one degree of freedom,
/// Student's interval is 12.7 standard errors either way, and it would cover any figure.
pub(super) const LEAST_SEEDS: usize = 3;

/// Several seeds become their mean, in Student's interval if they are enough for one; one keeps the
/// interval it has.
fn mean(x: f64, all: &[Measured]) -> Option<Point> {
    let spread: Vec<Measured> = all.iter().map(|one| Measured::exact(one.value)).collect();
    let pooled = Measured::pooled(if all.len() > 1 { &spread } else { all })?;
    let [low, high] = match all.len() {
        2..LEAST_SEEDS => [None; 2],
        _ => pooled.ends(),
    };
    Some(Point { x, y: pooled.value, low, high })
}

/// An axis whose ticks are the values that were swept.
fn axis(dimension: &Dimension) -> Axis {
    const WIDE: f64 = 20.0;
    let label = dimension.title.clone();
    let count = dimension.values.len();
    let Some(numbers) = &dimension.numbers else {
        let name = |at: usize| match dimension.is_scheme() {
            true => dimension.values[at].clone(),
            false => dimension.name(at).rsplit(' ').next().unwrap_or_default().to_owned(),
        };
        let ticks = (0..count).map(|at| (at as f64, name(at))).collect();
        let range = Some([-0.5, count as f64 - 0.5]);
        return Axis { label, scale: Scale::Linear, range, ticks };
    };
    let (low, high) = (numbers[0], numbers[count - 1]);
    let wide = low > 0.0 && high >= WIDE * low;
    let (scale, range) = if wide {
        let margin = (high / low).powf(0.04);
        (Scale::Log, [low / margin, high * margin])
    } else {
        let margin = (high - low) * 0.04;
        (Scale::Linear, [low - margin, high + margin])
    };
    let step = count.div_ceil(NAMES);
    let ticks = numbers.iter().step_by(step).map(|value| (*value, value.to_string())).collect();
    Axis { label, scale, range: Some(range), ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension(path: &str, values: &[&str], numbers: Option<&[f64]>) -> Dimension {
        Dimension {
            path: path.into(),
            title: path.into(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            numbers: numbers.map(<[f64]>::to_vec),
        }
    }

    fn varied(dimensions: Vec<Dimension>) -> Varied {
        Varied { dimensions, constants: Vec::new(), seeds: 1 }
    }

    #[test]
    fn numbers_are_the_axis_schemes_curves_and_the_rest_figures() {
        let load = dimension("load.fraction", &["0.5", "0.8"], Some(&[0.5, 0.8]));
        let scheme = dimension("scheme", &["homa", "dctcp", "ndp"], None);
        let workload = dimension("traffic.workload", &["w1", "w4"], None);
        let all = varied(vec![workload.clone(), load, scheme.clone()]);
        let views = View::all(&all, &Choice::default()).unwrap();
        assert_eq!(views, [View { x: 1, lines: Some(2) }]);
        assert_eq!(views[0].facets(&all), [0]);
        let chosen = Choice { x: Some("workload".into()), ..Choice::default() };
        assert_eq!(View::all(&all, &chosen).unwrap(), [View { x: 0, lines: Some(2) }]);
        let unknown = Choice { x: Some("colour".into()), ..Choice::default() };
        let refusal = View::all(&all, &unknown).unwrap_err().to_string();
        assert!(refusal.contains("load.fraction"), "{refusal}");
        // Without numbers, names go across; schemes only when there is nothing else.
        let names = varied(vec![scheme.clone(), workload]);
        assert_eq!(View::all(&names, &Choice::default()).unwrap()[0].x, 1);
        let alone = View { x: 0, lines: None };
        assert_eq!(View::all(&varied(vec![scheme]), &Choice::default()).unwrap(), [alone]);
        assert_eq!(View::all(&varied(Vec::new()), &Choice::default()).unwrap(), []);
    }

    #[test]
    fn two_seeds_are_their_mean_and_three_have_an_interval() {
        let exact = Measured::exact;
        let point = mean(0.8, &[exact(4.2), exact(49.9)]).unwrap();
        assert!((point.y - 27.05).abs() < 1e-9);
        assert_eq!((point.low, point.high), (None, None), "it would fill the figure");
        let point = mean(0.8, &[exact(4.2), exact(27.05), exact(49.9)]).unwrap();
        // 4.303 standard errors of 13.19.
        assert!((point.high.unwrap() - 83.82).abs() < 0.01, "{point:?}");
        let one = mean(0.8, &[Measured { value: 4.0, low: 3.0, high: 6.0 }]).unwrap();
        assert_eq!((one.low, one.high), (Some(3.0), Some(6.0)));
        // A percentile of few messages has no bound in one seed; seeds still differ.
        let open = Measured { value: 4.0, low: 3.0, high: f64::INFINITY };
        assert!(mean(0.8, &[open; 3]).unwrap().high.is_some());
    }

    #[test]
    fn the_swept_values_are_the_ticks() {
        let axis = axis(&dimension("k", &["1", "8", "64"], Some(&[1.0, 8.0, 64.0])));
        let names: Vec<&str> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((names, axis.scale), (vec!["1", "8", "64"], Scale::Log));
    }
}

//! The values of a figure as CSV, for those who draw it themselves.

use super::{Chart, Mark, Point, Series};
use crate::table::Table;

/// One row per point or step: series, place, value, and the ends of its interval. If all places
/// have names, a column has them.
pub fn csv(chart: &Chart) -> String {
    let rows = || chart.series.iter().flat_map(rows);
    let place_name = |(series, point): (&Series, &Point)| {
        let x = place(series, point);
        let tick = chart.x.ticks.iter().find(|(place, _)| *place == x);
        tick.map(|(_, name)| name.clone())
    };
    let mut table = Table::default();
    table.text("series", rows().map(|(series, _)| series.name.clone()));
    table.text("mark", rows().map(|(series, _)| mark(series.mark).to_owned()));
    let names: Option<Vec<String>> = rows().map(place_name).collect();
    if let Some(names) = names.filter(|names| names.iter().any(|name| name.parse::<f64>().is_err()))
    {
        table.text("place", names.into_iter());
    }
    let label = |label: &str, or: &str| match label {
        "" => or.to_owned(),
        label => label.to_owned(),
    };
    table.real(
        &label(&chart.x.label, "x"),
        rows().map(|(series, point)| digits(place(series, point))),
    );
    table.real(&label(&chart.y.label, "y"), rows().map(|(_, point)| digits(point.y)));
    table.real("low", rows().map(|(_, point)| digits(point.low?)));
    table.real("high", rows().map(|(_, point)| digits(point.high?)));
    table.csv()
}

/// A series and its points; of steps their ends, since both ends have one value.
fn rows(series: &Series) -> impl Iterator<Item = (&Series, &Point)> {
    let (first, step) = if series.mark == Mark::Step { (1, 2) } else { (0, 1) };
    series.points.iter().skip(first).step_by(step).map(move |point| (series, point))
}

/// A number with six digits that count: more than a figure shows.
fn digits(value: f64) -> Option<f64> {
    format!("{value:.5e}").parse().ok()
}

/// The place of a point, although it may be drawn aside.
fn place(series: &Series, point: &Point) -> f64 {
    match series.mark {
        Mark::Points => point.x.round(),
        _ => point.x,
    }
}

/// The kind of the rows of a series.
const fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Published => "published",
        Mark::Samples => "sample",
        Mark::Line | Mark::Curve | Mark::Band | Mark::Points | Mark::Step | Mark::Bar => "value",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Mode, Scale};
    use super::*;

    #[test]
    fn rows_say_series_place_and_interval() {
        let axis = |label: &str, ticks: &[(f64, String)]| Axis {
            label: label.into(),
            scale: Scale::Linear,
            range: None,
            ticks: ticks.to_vec(),
        };
        let point = Point { x: 1.0, y: 2.5, low: Some(2.0), high: None };
        let series = Series { name: "a, b".into(), mark: Mark::Line, points: vec![point] };
        let mut chart = Chart {
            title: String::new(),
            subtitle: String::new(),
            mode: Mode::Plot,
            x: axis("load", &[]),
            y: axis("", &[]),
            series: vec![series],
        };
        let rows = "series,mark,load,y,low,high\n\"a, b\",value,1.0,2.5,2.0,\n";
        assert_eq!(csv(&chart), rows);
        chart.x.ticks = vec![(1.0, "w4".into())];
        assert!(csv(&chart).ends_with("value,w4,1.0,2.5,2.0,\n"));
    }
}

//! Points that are means of samples: the area in which the mean lies, and the samples themselves.

use std::fmt::Write;

use super::colour::colour;
use super::svg::Layout;
use super::{Point, Series};

impl Layout {
    /// The area between the ends of the intervals of neighbouring points. If an end lies outside
    /// the figure, the area extends to its edge. The more `bands` a figure has, the fainter each
    /// is, so that overlapping bands leave the curves visible.
    pub(super) fn band(&self, out: &mut String, series: &Series, curve: usize, bands: usize) {
        let opacity = (0.64 / bands.max(1) as f64).min(0.16);
        let ends = |point: &Point| Some((self.x(point.x), self.y(point.low?), self.y(point.high?)));
        let known: Vec<_> = series.points.iter().map(ends).collect();
        for part in known.split(Option::is_none) {
            let part: Vec<(f64, f64, f64)> = part.iter().flatten().copied().collect();
            if part.len() < 2 || part.iter().all(|(_, low, high)| low == high) {
                continue;
            }
            let _ = write!(
                out,
                "<path class=\"b\" fill=\"{}\" fill-opacity=\"{opacity:.2}\" d=\"M",
                colour(curve)
            );
            for (x, low, _) in &part {
                let _ = write!(out, "{x:.1} {low:.1} ");
            }
            for (x, _, high) in part.iter().rev() {
                let _ = write!(out, "{x:.1} {high:.1} ");
            }
            *out += "z\"/>\n";
        }
    }

    /// A small dot for each sample.
    pub(super) fn samples(&self, out: &mut String, series: &Series, curve: usize) {
        for point in &series.points {
            let _ = writeln!(
                out,
                "<circle class=\"s\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.7\" fill=\"{}\" \
                 fill-opacity=\".6\"/>",
                self.x(point.x),
                self.y(point.y),
                colour(curve)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Chart, Mark, Mode, Scale, svg};
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        let axis = || Axis {
            label: String::new(),
            scale: Scale::Linear,
            range: Some([0.0, 10.0]),
            ticks: Vec::new(),
        };
        let (title, subtitle) = (String::new(), String::new());
        Chart { title, subtitle, mode: Mode::Plot, x: axis(), y: axis(), series }
    }

    fn series(mark: Mark, ends: &[Option<(f64, f64)>]) -> Series {
        let point = |(x, ends): (usize, &Option<(f64, f64)>)| {
            let (low, high) = (ends.map(|(low, _)| low), ends.map(|(_, high)| high));
            Point { x: x as f64, y: 5.0, low, high }
        };
        let points = ends.iter().enumerate().map(point).collect();
        Series { name: "s".into(), mark, points }
    }

    #[test]
    fn an_interval_beyond_the_figure_fills_it_from_edge_to_edge() {
        let wide = series(Mark::Band, &[Some((4.0, 6.0)), Some((-300.0, 300.0))]);
        let text = svg(&chart(vec![wide.clone()]), false);
        let layout = Layout::new(&chart(vec![wide]));
        let (right, top, base) = (layout.x(1.0), layout.y(10.0), layout.y(0.0));
        let edge = format!("{right:.1} {base:.1} {right:.1} {top:.1} ");
        assert!(text.contains(&edge), "{edge}: {text}");
    }

    #[test]
    fn points_without_an_interval_are_a_gap_of_the_area() {
        let known = Some((4.0, 6.0));
        let text = svg(&chart(vec![series(Mark::Band, &[known, known, None, known])]), false);
        assert_eq!(text.matches("class=\"b\"").count(), 1);
    }

    #[test]
    fn many_areas_on_top_of_each_other_are_fainter() {
        let opacity = |bands: usize| {
            let known = Some((4.0, 6.0));
            let text = svg(&chart(vec![series(Mark::Band, &[known, known]); bands]), false);
            let (_, after) = text.split_once("fill-opacity=\"").unwrap();
            after.split_once('"').unwrap().0.to_owned()
        };
        assert_eq!([1, 4, 8].map(opacity), ["0.16", "0.16", "0.08"]);
    }

    #[test]
    fn every_curve_looks_different_and_samples_look_like_theirs() {
        let one = |_| series(Mark::Band, &[None, None]);
        let mut all: Vec<Series> = (0..30).map(one).collect();
        all.insert(9, series(Mark::Samples, &[None]));
        let text = svg(&chart(all), false);
        let strokes = text.lines().filter(|line| line.contains("class=\"l\" "));
        let style = |line: &str| {
            let (_, after) = line.split_once("class=\"l\" ").unwrap();
            after.split_once(" d=").unwrap().0.to_owned()
        };
        let styles: Vec<String> = strokes.map(style).collect();
        let different: std::collections::BTreeSet<&String> = styles.iter().collect();
        assert_eq!((styles.len(), different.len()), (30, 30));
        assert!(text.contains("class=\"s\"") && text.contains("r=\"1.7\" fill=\"#d9640b\""));
    }
}

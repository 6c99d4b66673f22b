//! The bench's result as a figure in the paper's axes (Homa Figure 8): 99th percentile by message
//! size, the horizontal axis linear in the number of messages, one line per transport.
//! Self-contained SVG, readable on light and dark pages; the same result gives the same bytes.

use std::fmt::Write;

use super::report::{Judged, SizeBucket, TransportResult};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 128.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 62.0;
/// A 99th percentile of fewer RPCs than this is one of their extremes, and is left out.
const MIN_COUNT: usize = 30;
/// Distance between the names of two lines, pixels.
const NAME_GAP: f64 = 15.0;
/// Line colours that differ in lightness too.
const COLOURS: [&str; 5] = ["#0072b2", "#56b4e9", "#e69f00", "#cc6677", "#882255"];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#24292f}.h{font-size:15px}\
.a{stroke:#8c959f;stroke-width:1;fill:none}.g{stroke:#d0d7de;stroke-width:.6}\
.l{fill:none;stroke-width:2;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#373e47}.a{stroke:#768390}}";

/// A point of a line: share of messages, microseconds.
type Point = (f64, f64);

struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Whole decades around all points.
    fn around(lines: &[Vec<Point>]) -> Self {
        let values = || lines.iter().flatten().map(|point| point.1);
        let low = values().fold(f64::INFINITY, f64::min).max(1.0);
        let high = values().fold(low, f64::max);
        Self { low: low.log10().floor(), high: high.log10().ceil().max(low.log10().floor() + 1.0) }
    }

    fn y(&self, us: f64) -> f64 {
        let part = (us.max(1.0).log10() - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }
}

fn x(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// Text as XML has it: the path of a workload may contain anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The figure. `subtitle` describes the run.
pub fn svg(rows: &[Judged<TransportResult>], subtitle: &str) -> String {
    let subtitle = escaped(subtitle);
    let lines: Vec<Vec<Point>> = rows.iter().map(|row| line(&row.row.buckets)).collect();
    let scale = Scale::around(&lines);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <title>99th percentile latency by message size</title><style>{STYLE}</style>\n\
         <text class=\"h\" x=\"{LEFT}\" y=\"22\">99th percentile RPC latency by message size\
         </text>\n\
         <text x=\"{LEFT}\" y=\"40\">{subtitle}</text>\n"
    );
    vertical_axis(&mut out, &scale);
    horizontal_axis(&mut out, rows.first().map_or(&[], |row| &row.row.buckets));
    let mut ends: Vec<(f64, usize)> = Vec::new();
    for (index, points) in lines.iter().enumerate() {
        draw(&mut out, points, &scale, COLOURS[index % COLOURS.len()]);
        if let Some(last) = points.last() {
            ends.push((scale.y(last.1), index));
        }
    }
    for (y, index) in apart(ends) {
        let (x, colour) = (WIDTH - RIGHT + 8.0, COLOURS[index % COLOURS.len()]);
        let name = match rows[index].valid {
            true => rows[index].row.label(),
            false => format!("{} (disturbed)", rows[index].row.label()),
        };
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{:.1}\" style=\"fill:{colour}\">{name}</text>",
            y + 4.0
        );
    }
    out += "</svg>\n";
    out
}

/// Heights of the lines' names, in the order of the lines' ends and far enough apart to be read:
/// names that would overlap are spread around the middle of their ends, within the figure.
fn apart(mut ends: Vec<(f64, usize)>) -> Vec<(f64, usize)> {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Groups of names: the sum of their ends, and how many they are.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let middle = |(sum, count): (f64, usize)| sum / count as f64;
    let half = |(_, count): (f64, usize)| count as f64 * NAME_GAP / 2.0;
    let at = |group| {
        let half = half(group);
        middle(group).clamp(TOP + half, (HEIGHT - BOTTOM - half).max(TOP + half))
    };
    for &(end, _) in &ends {
        groups.push((end, 1));
        while let [.., above, below] = groups[..]
            && at(above) + half(above) > at(below) - half(below)
        {
            groups.truncate(groups.len() - 2);
            groups.push((above.0 + below.0, above.1 + below.1));
        }
    }
    let places = groups.into_iter().flat_map(|group| {
        let top = at(group) - half(group) + NAME_GAP / 2.0;
        (0..group.1).map(move |nth| top + nth as f64 * NAME_GAP)
    });
    places.zip(ends).map(|(y, (_, index))| (y, index)).collect()
}

/// The middle of each bin on the axis, and its 99th percentile.
fn line(buckets: &[SizeBucket]) -> Vec<Point> {
    let mut before = 0.0;
    let mut points = Vec::new();
    for bucket in buckets {
        let middle = (before + bucket.cum_share) / 2.0;
        before = bucket.cum_share;
        if let Some(us) = bucket.p99_us.filter(|_| bucket.count >= MIN_COUNT) {
            points.push((middle, us));
        }
    }
    points
}

fn draw(out: &mut String, points: &[Point], scale: &Scale, colour: &str) {
    let _ = write!(out, "<polyline class=\"l\" stroke=\"{colour}\" points=\"");
    for &(share, us) in points {
        let _ = write!(out, "{:.1},{:.1} ", x(share), scale.y(us));
    }
    *out += "\"/>\n";
}

fn vertical_axis(out: &mut String, scale: &Scale) {
    for decade in scale.low as i32..=scale.high as i32 {
        let us = 10f64.powi(decade);
        let label = match decade {
            ..3 => format!("{us} µs"),
            3..6 => format!("{} ms", us / 1e3),
            _ => format!("{} s", us / 1e6),
        };
        let (y, right) = (scale.y(us), WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
}

/// Ticks at every tenth of the messages, labelled with the size there unless it is the size of the
/// tick before.
fn horizontal_axis(out: &mut String, buckets: &[SizeBucket]) {
    let base = HEIGHT - BOTTOM;
    let _ = writeln!(out, "<path class=\"a\" d=\"M{LEFT} {TOP}V{base}H{}\"/>", WIDTH - RIGHT);
    let mut last = String::new();
    for tenth in 0..=10 {
        let share = f64::from(tenth) / 10.0;
        let at = buckets.iter().find(|bucket| bucket.cum_share >= share - 1e-9);
        let size = at.or(buckets.last()).map_or_else(String::new, |b| size(b.max_bytes));
        let label = if size == last { "" } else { &size };
        let x = x(share);
        let _ = writeln!(
            out,
            "<path class=\"a\" d=\"M{x:.1} {base}v5\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            base + 19.0
        );
        last = size;
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">message size, bytes (a tick is 10 % of \
         the messages)</text>",
        x(0.5),
        base + 40.0
    );
}

fn size(bytes: u32) -> String {
    match bytes {
        ..10_000 => bytes.to_string(),
        10_000..1_000_000 => format!("{}k", bytes / 1_000),
        _ => format!("{:.1}M", f64::from(bytes) / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(cum_share: f64, max_bytes: u32, count: usize, p99_us: f64) -> SizeBucket {
        SizeBucket {
            cum_share,
            max_bytes,
            count,
            p50_us: None,
            p99_us: Some(p99_us),
            p50_slowdown: None,
            p99_slowdown: None,
        }
    }

    #[test]
    fn a_larger_latency_is_drawn_higher_and_few_samples_not_at_all() {
        let buckets = [bucket(0.5, 100, 500, 200.0), bucket(1.0, 5_000, 29, 9_000.0)];
        assert_eq!(line(&buckets), [(0.25, 200.0)]);
        let scale = Scale::around(&[vec![(0.1, 250.0), (0.9, 80_000.0)]]);
        assert!(scale.y(80_000.0) < scale.y(250.0));
        assert!(scale.y(250.0) <= HEIGHT - BOTTOM && scale.y(80_000.0) >= TOP);
    }

    #[test]
    fn names_stand_in_the_order_of_the_lines_ends() {
        let near_the_bottom = HEIGHT - BOTTOM - 2.0;
        let names = apart(vec![
            (near_the_bottom, 0),
            (near_the_bottom - 1.0, 1),
            (100.0, 2),
            (103.0, 3),
            (101.0, 4),
            (200.0, 5),
        ]);
        let order: Vec<usize> = names.iter().map(|(_, index)| *index).collect();
        assert_eq!(order, [2, 4, 3, 5, 1, 0]);
        let gaps = names.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.clone().all(|gap| gap >= NAME_GAP - 1e-9), "{names:?}");
        assert!((names[1].0 - 101.3).abs() < 0.1 && names[3].0 == 200.0, "{names:?}");
        assert!(names.last().is_some_and(|(y, _)| *y <= HEIGHT - BOTTOM), "{names:?}");
    }

    #[test]
    fn ticks_do_not_repeat_a_size() {
        let mut out = String::new();
        horizontal_axis(&mut out, &[bucket(0.55, 28, 9, 1.0), bucket(1.0, 700, 9, 1.0)]);
        assert_eq!(out.matches(">28</text>").count(), 1, "{out}");
        assert_eq!(out.matches(">700</text>").count(), 1, "{out}");
    }

    #[test]
    fn the_name_of_a_workload_is_text_in_the_figure() {
        assert!(svg(&[], "R&D <x>.csv").contains(">R&amp;D &lt;x&gt;.csv</text>"));
    }

    #[test]
    fn without_a_point_there_is_still_a_figure() {
        assert!(svg(&[], "nothing").ends_with("</svg>\n"));
    }
}

//! A figure as SVG. How elements look is said in their attributes, so that a figure looks alike in
//! a page, on its own, and in a paper, whatever program draws it.

use std::fmt::Write;

use super::colour::{AXIS, Colour, FAINT, INK, PAPER, colour, stroke, style};
use super::scale::Ruler;
use super::{Chart, Mark, Mode, Point, Series};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 20.0;
const PLOT_HEIGHT: f64 = 220.0;
/// Of every figure and sheet: what all text has unless it says otherwise.
const ROOT: &str = "xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
     fill=\"#1f2328\" font-family=\"system-ui, sans-serif\" font-size=\"11\"";
/// Height of a line of text.
const LINE: f64 = 17.0;
/// Length of a curve's sample in the legend: the longest dashes show.
const SWATCH: f64 = 22.0;
/// About the width of a character of the legend.
const CHARACTER: f64 = 6.3;

/// The numbers of curves by series: those that are drawn for themselves count, empty ones too, so
/// that a curve has one look in all figures of a kind.
fn curves(chart: &Chart) -> impl Iterator<Item = (&Series, usize)> {
    let mut next = 0;
    chart.series.iter().map(move |series| {
        if !matches!(series.mark, Mark::Published | Mark::Samples) {
            next += 1;
        }
        (series, usize::max(next, 1) - 1)
    })
}

/// The figure; `alone` when no page around it carries [`style`].
pub fn svg(chart: &Chart, alone: bool) -> String {
    let layout = Layout::new(chart);
    let height = layout.height();
    let style = if alone { format!("<style>{}</style>", style()) } else { String::new() };
    let mut out = format!(
        "<svg {ROOT} viewBox=\"0 0 {WIDTH} {height}\"><title>{}</title>{style}\n",
        escaped(&chart.title)
    );
    let _ = writeln!(
        out,
        "<text font-size=\"14\" font-weight=\"600\" x=\"2\" y=\"15\">{}</text>",
        escaped(&chart.title)
    );
    if !chart.subtitle.is_empty() {
        let text = escaped(&chart.subtitle);
        let y = 15.0 + LINE;
        let _ = writeln!(out, "<text fill=\"{AXIS}\" x=\"2\" y=\"{y}\">{text}</text>");
    }
    layout.legend(&mut out, chart);
    layout.axes(&mut out, chart);
    let of = |mark| chart.series.iter().filter(|series| series.mark == mark).count();
    let (bars, bands) = (of(Mark::Bar), of(Mark::Band));
    let mut bar = 0;
    // Published points come last, on top of everything.
    for (series, curve) in curves(chart) {
        match series.mark {
            Mark::Published => {}
            Mark::Bar => {
                layout.bars(&mut out, series, curve, bar, bars);
                bar += 1;
            }
            Mark::Band => {
                layout.band(&mut out, series, curve, bands);
                layout.line(&mut out, series, curve, true);
            }
            Mark::Samples => layout.samples(&mut out, series, curve),
            Mark::Points => layout.marks(&mut out, series, curve),
            mark => layout.line(&mut out, series, curve, mark == Mark::Line),
        }
    }
    for (index, series) in published(chart).enumerate() {
        let ink = ink(chart, series);
        layout.points(&mut out, series, (index, ink), chart.mode == Mode::Bars);
    }
    out += "</svg>\n";
    out
}

/// Several figures on one sheet, two beside each other.
pub fn sheet(title: &str, charts: &[Chart]) -> String {
    const GAP: f64 = 12.0;
    let (mut body, mut top) = (String::new(), 0.0);
    for row in charts.chunks(2) {
        let heights = row.iter().map(|chart| Layout::new(chart).height());
        let tallest = heights.clone().fold(0.0, f64::max);
        for (place, (chart, height)) in row.iter().zip(heights).enumerate() {
            let left = place as f64 * (WIDTH + GAP);
            let at =
                format!("<svg x=\"{left}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{height}\" ");
            body += &svg(chart, false).replacen("<svg ", &at, 1);
        }
        top += tallest + GAP;
    }
    format!(
        "<svg {ROOT} viewBox=\"0 0 {} {}\"><title>{}</title><style>{}</style>\n{body}</svg>\n",
        2.0 * WIDTH + GAP,
        (top - GAP).max(0.0),
        escaped(title),
        style()
    )
}

/// The colour of published points: that of the first curve whose name begins with the same word.
fn ink(chart: &Chart, published: &Series) -> Colour {
    let word = published.name.split([',', ' ']).next().unwrap_or_default().to_lowercase();
    let mut drawn = curves(chart).filter(|(series, _)| series.mark != Mark::Published);
    match drawn.find(|(series, _)| series.name.to_lowercase().starts_with(&word)) {
        Some((_, curve)) if !word.is_empty() => colour(curve),
        _ => INK,
    }
}

fn published(chart: &Chart) -> impl Iterator<Item = &Series> {
    chart.series.iter().filter(|series| series.mark == Mark::Published)
}

/// Whether a series is named in the legend.
fn is_named(series: &Series) -> bool {
    series.mark != Mark::Samples && !series.points.is_empty() && !series.name.is_empty()
}

/// Positions of all parts.
pub(super) struct Layout {
    x: Ruler,
    y: Ruler,
    top: f64,
    /// Places of the legend's entries and the lines they take.
    entries: Vec<(f64, f64)>,
    turned: bool,
    below: f64,
}

impl Layout {
    pub(super) fn new(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x = Ruler::new(&chart.x, points().map(|point| point.x));
        let y = Ruler::new(&chart.y, points().map(|point| point.y));
        let head = if chart.subtitle.is_empty() { 22.0 } else { 22.0 + LINE };
        let mut entries = Vec::new();
        let (mut at, mut line) = (2.0, 0.0);
        for series in chart.series.iter().filter(|series| is_named(series)) {
            let width = SWATCH + 6.0 + CHARACTER * series.name.chars().count() as f64 + 12.0;
            if at + width > WIDTH && at > 2.0 {
                (at, line) = (2.0, line + 1.0);
            }
            entries.push((at, head + line * LINE));
            at += width;
        }
        let lines = if entries.is_empty() { 0.0 } else { line + 1.0 };
        // Names that would run into each other are turned.
        let longest = x.ticks.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
        let room = (WIDTH - LEFT - RIGHT) / x.ticks.len().max(1) as f64;
        let turned = longest as f64 * CHARACTER > room + 2.0;
        let names = if turned { longest as f64 * CHARACTER * 0.72 + 16.0 } else { 20.0 };
        let below = names + if chart.x.label.is_empty() { 2.0 } else { LINE };
        Self { x, y, top: head + lines * LINE + 24.0, entries, turned, below }
    }

    fn height(&self) -> f64 {
        (self.base() + self.below).ceil()
    }

    fn base(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.base() - self.y.place(value) * PLOT_HEIGHT
    }

    fn legend(&self, out: &mut String, chart: &Chart) {
        let mut shape = 0;
        let named = curves(chart).filter(|(series, _)| is_named(series));
        for ((series, curve), (x, y)) in named.zip(&self.entries) {
            let middle = y + 8.0;
            let _ = match series.mark {
                Mark::Published => {
                    symbol(out, (x + SWATCH / 2.0, middle), shape, ink(chart, series));
                    shape += 1;
                    Ok(())
                }
                Mark::Bar | Mark::Points => write!(
                    out,
                    "<rect x=\"{x}\" y=\"{}\" width=\"{SWATCH}\" height=\"9\" rx=\"1\" \
                     fill=\"{}\"/>",
                    middle - 4.5,
                    colour(curve)
                ),
                _ => write!(out, "<path {} d=\"M{x} {middle}h{SWATCH}\"/>", stroke(curve)),
            };
            let (name, left) = (escaped(&series.name), x + SWATCH + 6.0);
            let _ = writeln!(out, "<text x=\"{left}\" y=\"{}\">{name}</text>", middle + 4.0);
        }
    }

    fn axes(&self, out: &mut String, chart: &Chart) {
        let (base, right) = (self.base(), WIDTH - RIGHT);
        let axis = format!("fill=\"none\" stroke=\"{AXIS}\"");
        let label = escaped(&chart.y.label);
        let above = self.top - 11.0;
        let _ = writeln!(out, "<text fill=\"{AXIS}\" x=\"2\" y=\"{above}\">{label}</text>");
        for (value, name) in &self.y.ticks {
            let y = self.y(*value);
            let _ = writeln!(
                out,
                "<path stroke=\"{FAINT}\" stroke-width=\".7\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                escaped(name)
            );
        }
        let _ = writeln!(out, "<path {axis} d=\"M{LEFT} {}V{base}H{right}\"/>", self.top);
        for (value, name) in &self.x.ticks {
            let (x, name) = (self.x(*value), escaped(name));
            if chart.mode == Mode::Plot {
                let _ = write!(out, "<path {axis} d=\"M{x:.1} {base}v4\"/>");
            }
            let (anchor, turn) = if self.turned {
                ("end", format!(" transform=\"rotate(-45 {x:.1} {:.1})\"", base + 13.0))
            } else {
                ("middle", String::new())
            };
            let y = base + 15.0;
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{name}</text>"
            );
        }
        let _ = writeln!(
            out,
            "<text fill=\"{AXIS}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            self.height() - 5.0,
            escaped(&chart.x.label)
        );
    }

    fn line(&self, out: &mut String, series: &Series, curve: usize, marked: bool) {
        if series.points.is_empty() {
            return;
        }
        let _ = write!(out, "<path class=\"l\" {} d=\"", stroke(curve));
        let mut before: Option<&Point> = None;
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            let _ = match (before, series.mark) {
                (None, _) => write!(out, "M{x:.1} {y:.1}"),
                (Some(before), Mark::Step) if before.x == point.x => write!(out, "V{y:.1}"),
                (Some(before), Mark::Step) if before.y == point.y => write!(out, "H{x:.1}"),
                // A step has a gap before it if it does not begin at the end of the last one.
                (Some(_), Mark::Step) => write!(out, "M{x:.1} {y:.1}"),
                (Some(_), _) => write!(out, "L{x:.1} {y:.1}"),
            };
            before = Some(point);
        }
        *out += "\"/>\n";
        if marked {
            self.marks(out, series, curve);
        }
    }

    /// The points and their intervals.
    fn marks(&self, out: &mut String, series: &Series, curve: usize) {
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            self.interval(out, point, x, curve);
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{}\">\
                 <title>{}: {}</title></circle>",
                colour(curve),
                escaped(&series.name),
                said(point)
            );
        }
    }

    fn interval(&self, out: &mut String, point: &Point, x: f64, curve: usize) {
        if let (Some(low), Some(high)) = (point.low, point.high)
            && high > low
        {
            let (low, high) = (self.y(low), self.y(high));
            let colour = colour(curve);
            let _ = writeln!(
                out,
                "<path stroke=\"{colour}\" stroke-opacity=\".55\" \
                 d=\"M{x:.1} {low:.1}V{high:.1}\"/>"
            );
        }
    }

    fn bars(&self, out: &mut String, series: &Series, curve: usize, bar: usize, bars: usize) {
        let group = self.x(1.0) - self.x(0.0);
        let width = (group * 0.76 / bars as f64).min(22.0);
        for point in &series.points {
            let left = self.x(point.x) + (bar as f64 - bars as f64 / 2.0) * width;
            let y = self.y(point.y);
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{}\"><title>{}: {:.4}</title></rect>",
                width - 1.0,
                self.base() - y,
                colour(curve),
                escaped(&series.name),
                point.y
            );
        }
    }

    fn points(
        &self,
        out: &mut String,
        series: &Series,
        (index, ink): (usize, Colour),
        over_bars: bool,
    ) {
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            if over_bars {
                let half = (self.x(1.0) - self.x(0.0)) * 0.4;
                let _ = write!(
                    out,
                    "<path stroke=\"{INK}\" stroke-dasharray=\"3 2\" \
                     d=\"M{:.1} {y:.1}h{:.1}\"/>",
                    x - half,
                    half * 2.0
                );
            }
            symbol(out, (x, y), index, ink);
        }
    }
}

/// A point in words: `4.21 (3.9 to 4.6)`.
fn said(point: &Point) -> String {
    let value = four_digits(point.y);
    match (point.low, point.high) {
        (Some(low), Some(high)) if high > low => {
            format!("{value} ({} to {})", four_digits(low), four_digits(high))
        }
        _ => value,
    }
}

/// A number rounded to four digits that count.
fn four_digits(value: f64) -> String {
    let decimals = 3 - value.abs().max(1e-6).log10().floor() as i32;
    number_with(value, decimals.clamp(0, 6) as usize)
}

fn number_with(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A hollow mark; series after the first have other shapes.
fn symbol(out: &mut String, (x, y): (f64, f64), index: usize, ink: Colour) {
    let _ = match index % 3 {
        0 => write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\""),
        1 => write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"5.6\" height=\"5.6\"",
            x - 2.8,
            y - 2.8
        ),
        _ => write!(out, "<path d=\"M{x:.1} {:.1}l3.6 6.4h-7.2z\"", y - 3.8),
    };
    let _ = writeln!(out, " class=\"p\" fill=\"{PAPER}\" stroke=\"{ink}\" stroke-width=\"1.2\"/>");
}

/// Text in markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Scale};
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        let axis = |scale| Axis { label: "a < b".into(), scale, range: None, ticks: Vec::new() };
        Chart {
            title: "Figure".into(),
            subtitle: String::new(),
            mode: Mode::Plot,
            x: axis(Scale::Linear),
            y: axis(Scale::Log),
            series,
        }
    }

    #[test]
    fn larger_values_are_drawn_higher() {
        let points = vec![Point::at(0.0, 1.0), Point::at(1.0, 10.0)];
        let chart = chart(vec![Series { name: "s".into(), mark: Mark::Step, points }]);
        let layout = Layout::new(&chart);
        assert!(layout.y(10.0) < layout.y(1.0) && layout.x(1.0) > layout.x(0.0));
        assert!(layout.y(10.0) >= layout.top && layout.y(1.0) <= layout.base());
    }

    #[test]
    fn steps_with_nothing_between_them_are_not_joined() {
        let steps = [(0.0, 1.0), (0.2, 1.0), (0.2, 2.0), (0.4, 2.0), (0.6, 3.0), (0.8, 3.0)];
        let points = steps.map(|(x, y)| Point::at(x, y)).to_vec();
        let text = svg(&chart(vec![Series { name: "s".into(), mark: Mark::Step, points }]), false);
        let line = text.lines().find(|line| line.contains("class=\"l\"")).unwrap();
        let drawn = line.rsplit("d=").next().unwrap();
        let drawn = ['M', 'H', 'V'].map(|command| drawn.matches(command).count());
        assert_eq!(drawn, [2, 3, 1]);
    }

    #[test]
    fn text_is_escaped_and_an_empty_figure_is_one() {
        let text = svg(&chart(Vec::new()), true);
        assert!(text.ends_with("</svg>\n") && text.contains("a &lt; b") && !text.contains("a < b"));
    }

    #[test]
    fn a_figure_needs_nothing_from_outside() {
        let text = svg(&chart(Vec::new()), true);
        assert!(!text.contains("href") && !text.contains("url(") && !text.contains("<script"));
        assert!(text.contains("prefers-color-scheme:dark"));
    }

    /// Inkscape, librsvg and office suites know no custom properties and drop what has them: a
    /// figure saved for a paper was black areas without curves.
    #[test]
    fn a_figure_looks_right_without_its_style() {
        let series = |mark| Series { name: "s".into(), mark, points: vec![Point::at(0.5, 2.0); 2] };
        let marks = [Mark::Band, Mark::Samples, Mark::Step, Mark::Bar, Mark::Published];
        let text = svg(&chart(marks.map(series).to_vec()), true);
        let (before, after) = text.split_once("<style>").unwrap();
        let (style, after) = after.split_once("</style>").unwrap();
        let (scheme, dark) = style.split_once("@media(prefers-color-scheme:dark){").unwrap();
        assert!(scheme == ":root{color-scheme:light dark}" && dark.ends_with("}}"), "{style}");
        assert!(!text.contains("var(") && !after.contains("style="));
        let own = ["fill=\"", "stroke=\""].map(|role| {
            let colours = [before, after].into_iter().flat_map(|part| part.split(role).skip(1));
            colours.map(|rest| rest.split('"').next().unwrap()).collect::<Vec<_>>()
        });
        for (role, colours) in ["fill", "stroke"].into_iter().zip(own) {
            for colour in colours.into_iter().filter(|colour| *colour != "none") {
                assert!(style.contains(&format!(".fig [{role}=\"{colour}\"]{{")), "{colour}");
            }
        }
    }

    #[test]
    fn published_points_have_the_colour_of_their_curve() {
        let series = |name: &str, mark| Series {
            name: name.into(),
            mark,
            points: vec![Point::at(0.5, 2.0)],
        };
        let both = [series("homa-sim", Mark::Step), series("pFabric", Mark::Step)];
        let published = series("pFabric, published", Mark::Published);
        let chart = chart(both.into_iter().chain([published]).collect());
        let marks = format!("class=\"p\" fill=\"{PAPER}\" stroke=\"{}\"", colour(1));
        assert_eq!(svg(&chart, false).matches(&marks).count(), 2, "legend and point");
        assert_eq!(ink(&chart, &series("other", Mark::Published)), INK);
        let sheet = sheet("both", &[chart.clone(), chart.clone(), chart]);
        assert_eq!((sheet.matches("<svg").count(), sheet.matches("<style>").count()), (4, 1));
    }

    #[test]
    fn published_points_are_drawn_on_top() {
        let series = |mark| Series { name: "s".into(), mark, points: vec![Point::at(0.5, 2.0)] };
        let text = svg(&chart(vec![series(Mark::Published), series(Mark::Line)]), false);
        let last_symbol = text.rfind("class=\"p\"").unwrap();
        assert!(last_symbol > text.rfind("class=\"l\"").unwrap());
    }
}

//! Figures: what to draw, as data; and how, as SVG.
//!
//! Small, self-contained, the same bytes for the same data; readable on light and dark pages and,
//! because a figure is only 480 units wide, on a phone. Left out: interaction, scripts, fonts.

mod band;
mod colour;
mod csv;
mod scale;
mod svg;

use serde::{Deserialize, Serialize};

pub use colour::style;
pub use csv::csv;
pub use svg::{escaped, sheet, svg};

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the title; may be empty.
    pub subtitle: String,
    /// Lines or bars.
    pub mode: Mode,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// The series; later ones are drawn on top.
    pub series: Vec<Series>,
}

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Lines and points in two dimensions.
    Plot,
    /// Groups of bars at whole numbers.
    Bars,
}

/// One of two axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// How values become places.
    pub scale: Scale,
    /// Its ends, exact if `ticks` are given, otherwise values that it must contain; absent: derived
    /// from the data.
    pub range: Option<[f64; 2]>,
    /// Places and names of ticks; none: round numbers.
    pub ticks: Vec<(f64, String)>,
}

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios.
    Log,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// From left to right.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// Hollow circles in the colour of the text: what others published.
    Published,
    /// A line through its points, each marked.
    Line,
    /// A line through its points, which are too many to be marked.
    Curve,
    /// A line through its points, each marked, and the area between the ends of their
    /// intervals.
    Band,
    /// Points with their intervals, not joined: at whole numbers, moved aside a little.
    Points,
    /// Small dots in the colour of the series before it, of whose points they are the samples.
    /// They have no place in the legend.
    Samples,
    /// A line that already goes in steps.
    Step,
    /// A bar at each point.
    Bar,
}

/// A value at a place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Place.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Lower end of its confidence interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

impl Point {
    /// Without an interval.
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, low: None, high: None }
    }
}

/// A message size as a tick's name.
pub fn size_label(bytes: u32) -> String {
    match bytes {
        ..10_000 => bytes.to_string(),
        10_000..1_000_000 => format!("{}k", bytes / 1_000),
        1_000_000..100_000_000 => format!("{:.1}M", f64::from(bytes) / 1e6),
        _ => format!("{}M", bytes / 1_000_000),
    }
}

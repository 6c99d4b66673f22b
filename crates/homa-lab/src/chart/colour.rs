//! Colours. Elements carry those for light paper as plain attributes, which every program that
//! draws SVG understands (Inkscape, librsvg, office suites); a style changes them on dark pages.

use std::fmt::Write;

/// A colour on light paper.
pub(super) type Colour = &'static str;

/// Text and published points.
pub(super) const INK: Colour = "#1f2328";
/// Lines across the figure.
pub(super) const FAINT: Colour = "#d5dae0";
/// Axes and their titles.
pub(super) const AXIS: Colour = "#6e7781";
/// Inside hollow marks.
pub(super) const PAPER: Colour = "#fff";

/// Colours of curves, which differ in lightness, too, for those who do not see hues.
const CURVES: [Colour; 7] =
    ["#0b62a8", "#d9640b", "#1a8f6a", "#8a3ba8", "#b8860b", "#c2185b", "#4f5d75"];

/// Each colour and what stands for it on dark pages.
const DARK: [(Colour, &str); 11] = [
    (INK, "#e6edf3"),
    (FAINT, "#30363d"),
    (AXIS, "#8b949e"),
    (PAPER, "#0d1117"),
    (CURVES[0], "#5aaeff"),
    (CURVES[1], "#ff9d4d"),
    (CURVES[2], "#46cfa0"),
    (CURVES[3], "#d38cf0"),
    (CURVES[4], "#e3b341"),
    (CURVES[5], "#ff7eb0"),
    (CURVES[6], "#a5b4cc"),
];

/// The style of all figures: a page includes it once, and a standalone figure carries it. If the
/// figure is the whole document, dark colours need a browser with a dark background.
pub fn style() -> String {
    let mut out = ":root{color-scheme:light dark}@media(prefers-color-scheme:dark){".to_owned();
    for (light, dark) in DARK {
        for role in ["fill", "stroke"] {
            let _ = write!(out, ".fig[{role}=\"{light}\"],.fig [{role}=\"{light}\"]");
            let _ = write!(out, "{{{role}:{dark}}}");
        }
    }
    out + "}"
}

/// The colour of the curve of this number.
pub(super) fn colour(curve: usize) -> Colour {
    CURVES[curve % CURVES.len()]
}

/// How the curve of this number is stroked: seven colours, then the same ones dashed, then with a
/// dot more between the dashes each time, so that no two curves look alike.
pub(super) fn stroke(curve: usize) -> String {
    let dashes = match curve / CURVES.len() {
        0 => String::new(),
        round => format!(" stroke-dasharray=\"7 3{}\"", " 1.5 3".repeat(round - 1)),
    };
    format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{dashes}",
        colour(curve)
    )
}

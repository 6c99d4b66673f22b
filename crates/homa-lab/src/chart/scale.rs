//! From values to places, and which round numbers stand at an axis.

use super::{Axis, Scale};

/// An axis with its ends and ticks decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values and names.
    pub ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// For these values. A linear axis without given ends begins at zero; ends without ticks are
    /// values like others, so that figures beside each other have one axis.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let usable =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let ends = axis.range.into_iter().flatten().filter(|_| axis.ticks.is_empty());
        let (mut low, mut high) = values
            .chain(ends)
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        let mut ruler = match axis.scale {
            Scale::Linear => linear(low.min(0.0), high),
            Scale::Log => logarithmic(low, high),
        };
        if let Some([low, high]) = axis.range.filter(|_| !axis.ticks.is_empty()) {
            (ruler.low, ruler.high) = (low, high);
        }
        if !axis.ticks.is_empty() {
            ruler.ticks.clone_from(&axis.ticks);
        }
        ruler
    }

    /// The place of a value: 0 at the low end, 1 at the high end, clamped to them.
    pub fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        part.clamp(0.0, 1.0)
    }
}

fn linear(low: f64, high: f64) -> Ruler {
    let span = (high - low).max(1e-12);
    let step = round_step(span / 5.0);
    let (first, last) =
        ((low / step).floor(), (high / step).ceil().max((low / step).floor() + 1.0));
    let ticks = (first as i64..=last as i64).map(|k| {
        let value = k as f64 * step;
        (value, number(value))
    });
    Ruler { scale: Scale::Linear, low: first * step, high: last * step, ticks: ticks.collect() }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * decade >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * decade
}

/// Round ends around the values, in steps as fine as leave at most [`MOST`] ticks.
fn logarithmic(low: f64, high: f64) -> Ruler {
    const MOST: usize = 8;
    const STEPS: [&[f64]; 3] = [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0]];
    let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
    let mut shown = Vec::new();
    for steps in STEPS {
        let all: Vec<f64> = decades
            .clone()
            .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
            .collect();
        let below = all.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
        let above = all.iter().position(|tick| *tick >= high * (1.0 - 1e-9));
        let above = above.unwrap_or(all.len() - 1).max(below + 1);
        shown = all[below..=above].to_vec();
        if shown.len() <= MOST {
            break;
        }
    }
    Ruler {
        scale: Scale::Log,
        low: shown[0],
        high: shown[shown.len() - 1],
        ticks: shown.iter().map(|tick| (*tick, number(*tick))).collect(),
    }
}

/// A round number without rounding errors.
pub fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded.abs() {
        size if size >= 1e6 => format!("{}M", rounded / 1e6),
        size if size >= 1e4 => format!("{}k", rounded / 1e3),
        _ => rounded.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruler(scale: Scale, values: &[f64]) -> Ruler {
        let axis = Axis { label: String::new(), scale, range: None, ticks: Vec::new() };
        Ruler::new(&axis, values.iter().copied())
    }

    fn names(ruler: &Ruler) -> Vec<&str> {
        ruler.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_at_round_numbers() {
        let ruler = ruler(Scale::Linear, &[1.7, 17.3]);
        assert_eq!(names(&ruler), ["0", "5", "10", "15", "20"]);
        assert_eq!((ruler.place(0.0), ruler.place(10.0), ruler.place(99.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn logarithmic_axes_enclose_the_values() {
        assert_eq!(names(&ruler(Scale::Log, &[1.1, 2.4])), ["1", "1.5", "2", "3"]);
        let ruler = ruler(Scale::Log, &[1.3, 16.0]);
        assert_eq!(names(&ruler), ["1", "2", "5", "10", "20"]);
        assert!(ruler.place(1.3) > 0.0 && ruler.place(16.0) < 1.0);
        let ratio = ruler.place(4.0) - ruler.place(2.0);
        assert!((ruler.place(8.0) - ruler.place(4.0) - ratio).abs() < 1e-12);
    }

    #[test]
    fn wide_logarithmic_axes_name_decades_only() {
        assert_eq!(names(&ruler(Scale::Log, &[1.0, 3000.0])), ["1", "10", "100", "1000", "10k"]);
    }

    #[test]
    fn no_value_and_one_value_still_make_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [&[][..], &[1.0], &[f64::NAN, f64::INFINITY]] {
                let ruler = ruler(scale, values);
                assert!(ruler.place(1.0).is_finite() && ruler.ticks.len() >= 2, "{ruler:?}");
            }
        }
    }
}

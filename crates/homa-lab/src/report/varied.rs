//! The differences between the simulations of a folder, and the values that they share.

use homa_sim::scenario::Traffic;

use crate::error::LabError;
use crate::results::{Numbers, axis_numbers};
use crate::store::{Listed, Stored};

/// A simulation with a result; if hosts are of two kinds, the part of one kind.
pub(super) type Run = (Listed, Stored);

/// A key of the scenario with several values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dimension {
    /// Its path in the scenario, as the plan has it.
    pub path: String,
    /// Its name in figures, with its unit.
    pub title: String,
    /// Its values as the plan writes them: ascending if they are numbers, otherwise in the order of
    /// the plan.
    pub values: Vec<String>,
    /// The values as numbers of one unit, if they are numbers.
    pub numbers: Option<Vec<f64>>,
}

impl Dimension {
    /// True for what the program was, rather than what it was put into.
    pub fn is_scheme(&self) -> bool {
        self.path == "scheme"
    }

    /// True for what decides the sizes of messages, which share an axis only if they are the same.
    pub fn decides_sizes(&self) -> bool {
        self.path.starts_with("traffic")
    }

    /// A value as a curve or a figure is named by it.
    pub fn name(&self, at: usize) -> String {
        let value = &self.values[at];
        match self.path.rsplit('.').next() {
            _ if self.is_scheme() => value.clone(),
            Some("workload") => value.to_uppercase(),
            _ => format!("{} {value}", self.title.split(", ").next().unwrap_or_default()),
        }
    }
}

/// The keys that vary, and those that do not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Varied {
    /// The keys that vary, in the plan's order.
    pub dimensions: Vec<Dimension>,
    /// The values that all share, in words.
    pub constants: Vec<String>,
    /// Seeds of the combination that has most.
    pub seeds: usize,
}

impl Varied {
    /// Of these simulations.
    pub fn of(runs: &[Run]) -> Self {
        let mut paths: Vec<&str> = Vec::new();
        for (name, _) in runs.iter().flat_map(|(listed, _)| &listed.axes) {
            if !paths.contains(&name.as_str()) {
                paths.push(name);
            }
        }
        let (mut dimensions, mut constants) = (Vec::new(), Vec::new());
        for path in &paths {
            let dimension = dimension(path, runs, &paths);
            match dimension.values.as_slice() {
                [one] if *path == "scheme" => constants.push(one.clone()),
                [_] => constants.push(dimension.name(0)),
                _ => dimensions.push(dimension),
            }
        }
        constants.extend(in_common(runs, &paths));
        let mut varied = Self { dimensions, constants, seeds: 0 };
        let mut places: Vec<Vec<usize>> =
            runs.iter().map(|(listed, _)| varied.place(listed)).collect();
        places.sort_unstable();
        let seeds = places.chunk_by(|a, b| a == b).map(<[_]>::len).max();
        varied.seeds = seeds.unwrap_or(0);
        varied
    }

    /// Position of a simulation along each dimension.
    pub fn place(&self, listed: &Listed) -> Vec<usize> {
        let at = |dimension: &Dimension| {
            let value = value(listed, &dimension.path);
            dimension.values.iter().position(|known| known == value).unwrap_or(0)
        };
        self.dimensions.iter().map(at).collect()
    }

    /// The dimension of that path, or of the end of one: `fraction` for `load.fraction`.
    pub fn named(&self, name: &str) -> Result<usize, LabError> {
        let all = || self.dimensions.iter().map(|dimension| dimension.path.as_str());
        let end = |path: &str| path.rsplit('.').next() == Some(name);
        let found = all().position(|path| path == name).or_else(|| all().position(end));
        found.ok_or_else(|| LabError::Unknown {
            what: "axis",
            name: name.to_owned(),
            known: all().map(str::to_owned).collect(),
        })
    }
}

/// Value of a simulation on an axis; a dash if its plan has no such axis.
fn value<'a>(listed: &'a Listed, path: &str) -> &'a str {
    let found = listed.axes.iter().find(|(axis, _)| axis == path);
    found.map_or("–", |(_, value)| value)
}

fn dimension(path: &str, runs: &[Run], paths: &[&str]) -> Dimension {
    let mut values: Vec<&str> = Vec::new();
    for (listed, _) in runs {
        let value = value(listed, path);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let known: Vec<Option<&str>> = values.iter().copied().map(Some).collect();
    let numbers = axis_numbers(&known);
    let mut title = title(path, paths);
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    let Some(Numbers { values: all, unit }) = numbers else {
        return Dimension { path: path.to_owned(), title, values: owned(values), numbers: None };
    };
    if !unit.is_empty() {
        title = format!("{title}, {unit}");
    }
    let mut sorted: Vec<(f64, &str)> = all.into_iter().zip(values).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (numbers, values): (Vec<f64>, Vec<&str>) = sorted.into_iter().unzip();
    Dimension { path: path.to_owned(), title, values: owned(values), numbers: Some(numbers) }
}

/// The end of a path in words, or the whole path if two axes end alike.
fn title(path: &str, paths: &[&str]) -> String {
    let end = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    match path {
        "load.fraction" => "load".to_owned(),
        _ if paths.iter().filter(|other| end(other) == end(path)).count() > 1 => path.to_owned(),
        _ => end(path).replace('_', " "),
    }
}

/// Other values that all simulations share, in addition to the axes.
fn in_common(runs: &[Run], paths: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |key: &str, read: &dyn Fn(&Stored) -> Option<String>| {
        let given = paths.iter().any(|path| path.starts_with(key) || key.starts_with(*path));
        let mut values = runs.iter().map(|(_, stored)| read(stored));
        if let (false, Some(Some(first))) = (given, values.next())
            && values.all(|value| value.as_ref() == Some(&first))
        {
            out.push(first);
        }
    };
    add("scheme", &|stored| Some(stored.outcome.scheme.clone()));
    add("traffic.workload", &|stored| match &stored.cell.scenario.traffic {
        Traffic::AllToAll { .. } | Traffic::ClientsServers { .. } | Traffic::ManyToOne { .. } => {
            Some(stored.outcome.workload.to_uppercase())
        }
        _ => Some(stored.outcome.workload.clone()),
    });
    add("load.fraction", &|stored| {
        (stored.outcome.load > 0.0).then(|| format!("load {}", stored.outcome.load))
    });
    add("fabric.shape", &|stored| {
        stored.cell.scenario.fabric.shape.hosts().map(|hosts| format!("{hosts} hosts"))
    });
    add("fabric.host_link", &|stored| {
        Some(format!("host links of {}", stored.cell.scenario.fabric.host_link))
    });
    add("stop.messages", &|stored| {
        let stop = &stored.cell.scenario.stop;
        stop.messages.map(|messages| format!("{messages} messages each"))
    });
    out
}

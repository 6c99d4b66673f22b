//! One HTML page from a folder of results: figures in the paper's axes, published points beside
//! ours, tables of verdicts, and how to run it again. Nothing is loaded from elsewhere; it follows
//! the reader's choice of light or dark, and fits a phone.

mod html;
mod quantity;
mod sizes;
mod sweep;
mod varied;
mod versus;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::chart::{Chart, sheet};
use crate::error::LabError;
use crate::repro::Reproduction;
use crate::store::{Listed, Store, Stored, read_json, write_atomically};

pub use quantity::Quantity;

/// The selection of a sweep's figures, if it is not the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Instead of the usual quantities.
    pub metrics: Vec<Quantity>,
    /// The axis across, by its path or the end of it: `fraction` for `load.fraction`.
    pub x: Option<String>,
    /// Axes and values: only simulations that have all of them.
    pub only: Vec<(String, String)>,
}

impl Choice {
    /// Whether a simulation is among those chosen.
    fn takes(&self, listed: &Listed) -> bool {
        let has = |(key, value): &(String, String)| {
            let named = |path: &str| path == key || path.rsplit('.').next() == Some(key);
            let axes = listed.axes.iter();
            let seed = key == "seed" && listed.seed.to_string() == *value;
            seed || axes.into_iter().any(|(path, own)| named(path) && own == value)
        };
        self.only.iter().all(has)
    }
}

/// The pages of a folder by file name, `index.html` first. Reproductions of several papers have a
/// page for each (`hull.html`) beside the one of all; their figures are those of their plans, so
/// a choice is refused.
pub fn pages(folder: &Path, choice: &Choice) -> Result<Vec<(String, String)>, LabError> {
    let store = Store::open(folder)?;
    let manifest = store.manifest()?;
    let checks = folder.join("checks.json");
    let index = "index.html".to_owned();
    if !checks.is_file() {
        return Ok(vec![(index, sweep::page(&store, &manifest, choice)?)]);
    }
    if *choice != Choice::default() {
        let message = "the figures of a reproduction are those of its plan";
        return Err(LabError::Choice(message.into()));
    }
    let all: Vec<Reproduction> = read_json(&checks)?;
    let title = "Published figures, simulated again";
    let mut pages = vec![(index, html::reproductions(title, &manifest, &all))];
    let families: BTreeSet<&str> = all.iter().map(|one| one.family.as_str()).collect();
    for family in families.iter().filter(|_| families.len() > 1) {
        let own = all.iter().filter(|one| one.family == *family).cloned();
        let title = format!("{title}: {family}");
        let page = html::reproductions(&title, &manifest, &own.collect::<Vec<_>>());
        pages.push((format!("{family}.html"), page));
    }
    Ok(pages)
}

/// Writes the pages into the folder; returns their paths.
pub fn write(folder: &Path, choice: &Choice) -> Result<Vec<PathBuf>, LabError> {
    let written = pages(folder, choice)?.into_iter().map(|(name, page)| {
        let path = folder.join(name);
        write_atomically(&path, page.as_bytes()).map(|()| path)
    });
    written.collect()
}

/// The first drawings of the page of these simulations, for notebooks.
pub fn charts(simulations: &[(Listed, Stored)], choice: &Choice) -> Result<Vec<Chart>, LabError> {
    sweep::charts(simulations, choice)
}

/// The drawings of a folder of reproductions whose titles end so, as one SVG.
pub fn drawings(folder: &Path, titled: &str) -> Result<String, LabError> {
    let all: Vec<Reproduction> = read_json(&folder.join("checks.json"))?;
    let charts: Vec<Chart> = all.iter().flat_map(|one| one.charts.iter().cloned()).collect();
    let known = charts.iter().map(|chart| chart.title.clone()).collect();
    let wanted: Vec<Chart> =
        charts.into_iter().filter(|chart| chart.title.ends_with(titled)).collect();
    match wanted.is_empty() {
        true => Err(LabError::Unknown { what: "drawing", name: titled.to_owned(), known }),
        false => Ok(sheet(titled, &wanted)),
    }
}

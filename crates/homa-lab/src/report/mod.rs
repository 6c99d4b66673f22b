//! One HTML page from a folder of results: figures in the paper's axes, published points beside
//! ours, tables of verdicts, and how to run it again. Nothing is loaded from elsewhere; it follows
//! the reader's choice of light or dark, and fits a phone.

mod html;
mod sweep;

use std::path::Path;

use crate::error::LabError;
use crate::repro::Reproduction;
use crate::store::{Manifest, Store, read_json};

/// The page of a folder, of whichever kind.
pub fn page(folder: &Path) -> Result<String, LabError> {
    let store = Store::open(folder)?;
    let manifest = store.manifest()?;
    let checks = folder.join("checks.json");
    if checks.is_file() {
        let reproductions: Vec<Reproduction> = read_json(&checks)?;
        return Ok(reproduction_page(&manifest, &reproductions));
    }
    sweep::page(&store, &manifest)
}

/// The page of reproduced figures.
pub fn reproduction_page(manifest: &Manifest, reproductions: &[Reproduction]) -> String {
    html::reproductions(manifest, reproductions)
}

//! The records in `docs/` (`reproduction-*.txt`) are of the plans as they are. If a plan changes a
//! published value, a tolerance or a cause, its records have to be judged again: run the command in
//! the first line of the record with its folder of results, which simulates nothing twice.

use std::collections::BTreeMap;
use std::path::Path;

use super::plan::{Check, Point, ReproPlan};
use super::{numbers, plans};

/// The numbers of all plans, by name.
type Known<'a> = BTreeMap<String, (&'a Check, &'a Point)>;

const VERDICTS: [&str; 4] = ["within", "OUTSIDE", "undecided", "undecidable"];

/// File and text of all records; none in a package, which has no such folder.
fn records() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        skip::test("the folder docs, which packages do not have");
        return Vec::new();
    };
    let named = |name: &str| name.starts_with("reproduction-") && name.ends_with(".txt");
    let files = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> = files.filter(|name| named(name)).collect();
    files.sort();
    let text = |file: &String| std::fs::read_to_string(folder.join(file)).unwrap();
    files.into_iter().map(|file| (file.clone(), text(&file))).collect()
}

fn known(plans: &[ReproPlan]) -> Known<'_> {
    let mut known = Known::new();
    for plan in plans {
        let checks = plan.checks.iter();
        let points = checks.flat_map(|check| check.points.iter().map(move |point| (check, point)));
        known.extend(numbers::names(plan).into_iter().zip(points));
    }
    known
}

/// The lines of a record's tables: the name of the number, and the cells behind it.
fn rows<'a>(text: &'a str, known: &Known<'_>) -> Vec<(&'a str, Vec<&'a str>)> {
    let row = |line: &'a str| {
        let mut ends = line.rmatch_indices(' ').map(|(at, _)| line.split_at(at));
        let (name, rest) = ends.find(|(name, _)| known.contains_key(*name))?;
        Some((name, rest.split_whitespace().collect()))
    };
    text.lines().filter_map(row).collect()
}

fn verdict<'a>(cells: &[&'a str]) -> Option<&'a str> {
    cells.iter().copied().find(|cell| VERDICTS.contains(cell))
}

/// What a rule has against the rows of all records: it gets a record's text, a row's cells, and
/// the plan's check and point.
fn complaints(rule: impl Fn(&str, &[&str], (&Check, &Point)) -> Option<String>) -> String {
    let plans = plans().unwrap();
    let known = known(&plans);
    let mut all = String::new();
    for (file, text) in records() {
        for (name, cells) in rows(&text, &known) {
            if let Some(complaint) = rule(&text, &cells, known[name]) {
                all += &format!("{file}: {name}: {complaint}\n");
            }
        }
    }
    all
}

#[test]
fn records_have_the_numbers_and_tolerances_of_the_plans() {
    let old = complaints(|_, cells, (_, point)| {
        let published = point.published.map_or("-".to_owned(), |value| format!("{value:.3}"));
        let tolerance = point.tolerance.map(|tolerance| tolerance.to_string());
        let has = |wanted: &String| cells.contains(&wanted.as_str());
        let same = cells[0] == published && tolerance.iter().all(has);
        (!same).then(|| format!("now {published}, {tolerance:?}"))
    });
    assert!(old.is_empty(), "records of other plans:\n{old}");
}

#[test]
fn records_say_of_each_row_that_is_outside_what_the_plan_says() {
    let unsaid = complaints(|text, cells, (check, point)| {
        if verdict(cells) != Some("OUTSIDE") {
            return None;
        }
        let cause = check.cause.as_ref().and_then(|cause| {
            let limits = point.published.zip(point.tolerance);
            cause.of(cells[1].parse().unwrap(), limits.map(|(value, it)| it.limits(value)))
        });
        let line = format!("outside: {}: {}", check.row, cause.unwrap_or("cause unknown"));
        let is_said = text.lines().any(|said| said == line);
        (!is_said).then(|| format!("no line `{line}`"))
    });
    assert!(unsaid.is_empty(), "{unsaid}");
}

/// A row for which a short run is not enough is `full-only`.
#[test]
fn quick_looks_judge_as_the_full_runs_on_record_do() {
    let plans = plans().unwrap();
    let known = known(&plans);
    let records = records();
    let (quick, full): (Vec<_>, Vec<_>) =
        records.iter().partition(|(_, text)| text.lines().next().unwrap().contains("--quick"));
    let full = full.iter().flat_map(|(_, text)| rows(text, &known));
    let full: BTreeMap<&str, Vec<&str>> = full.collect();
    let mut differ = Vec::new();
    for (file, text) in quick {
        for (name, cells) in rows(text, &known) {
            let judged = verdict(&cells).filter(|said| ["within", "OUTSIDE"].contains(said));
            if let (Some(judged), Some(full)) = (judged, full.get(name))
                && verdict(full) != Some(judged)
            {
                differ.push(format!("{file}: {name}: {judged}, but {full:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "make these `full-only`:\n{}", differ.join("\n"));
}

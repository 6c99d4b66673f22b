//! Sweeps give the same tables however they are run: threads, shards, interruptions.

use std::path::{Path, PathBuf};

use homa_lab::document::Document;
use homa_lab::plan::Plan;
use homa_lab::report::{self, Choice};
use homa_lab::store::Store;
use homa_lab::sweep::{Options, Progress, Shard, run_plan};

const PLAN: &str = r#"
title = "Small"
seeds = [1, 2]
[scenario]
scheme = "homa-sim"
stop = { messages = 300 }
[scenario.fabric]
shape = { kind = "single-switch", hosts = 4 }
[axes]
"traffic.workload" = ["w1", "w2"]
"load.fraction" = [0.3, 0.6]
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("homa-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn store(&self) -> Store {
        Store::create(&self.0).unwrap()
    }

    fn tables(&self) -> Vec<Vec<u8>> {
        let names =
            ["summary.csv", "summary.parquet", "slowdown.csv", "slowdown.parquet", "plan.toml"];
        names.map(|name| std::fs::read(self.0.join(name)).unwrap()).to_vec()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plan() -> Plan {
    Plan::parse(&Document::new("small.toml", PLAN), &[]).unwrap()
}

/// Runs a shard; returns how many simulations ran, and whether the plan is complete.
fn sweep(folder: &Folder, threads: usize, shard: Shard) -> (usize, bool) {
    let options = Options { shard, program: "test".into(), ..Options::on(threads) };
    let mut last = Progress::default();
    let complete = run_plan(&plan(), &folder.store(), &options, &mut |progress| {
        last = progress.clone();
    });
    (last.finished, complete.unwrap())
}

fn copy_cells(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from.join("cells")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join("cells").join(entry.file_name())).unwrap();
    }
}

#[test]
fn threads_change_nothing() {
    let (one, three) = (Folder::new("one"), Folder::new("three"));
    assert_eq!(sweep(&one, 1, Shard::ALL), (8, true));
    assert_eq!(sweep(&three, 3, Shard::ALL), (8, true));
    assert_eq!(one.tables(), three.tables());
    let rows = String::from_utf8(one.tables()[0].clone()).unwrap();
    assert_eq!(rows.lines().count(), 9);
    assert!(rows.starts_with("traffic.workload,load.fraction,seed,scheme,"), "{rows}");
}

#[test]
fn a_sweep_that_was_interrupted_runs_only_what_is_missing() {
    let (whole, cut) = (Folder::new("whole"), Folder::new("cut"));
    sweep(&whole, 2, Shard::ALL);
    sweep(&cut, 2, Shard::ALL);
    let mut cells: Vec<_> = std::fs::read_dir(cut.0.join("cells"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cells.sort();
    assert_eq!(cells.len(), 8, "no file but the results");
    for path in &cells[..3] {
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(sweep(&cut, 2, Shard::ALL), (3, true));
    assert_eq!(whole.tables(), cut.tables());
    assert_eq!(sweep(&cut, 2, Shard::ALL), (0, true), "nothing is left to run");
}

#[test]
fn shards_put_together_are_the_whole() {
    let (whole, merged) = (Folder::new("all"), Folder::new("merged"));
    sweep(&whole, 2, Shard::ALL);
    merged.store();
    let mut ran = 0;
    for index in 1..=3 {
        let part = Folder::new(&format!("part{index}"));
        let (finished, complete) = sweep(&part, 1, Shard { index, count: 3 });
        assert!(!complete, "a third is not the whole");
        ran += finished;
        copy_cells(&part.0, &merged.0);
    }
    assert_eq!(ran, 8);
    assert_eq!(sweep(&merged, 1, Shard::ALL), (0, true));
    assert_eq!(whole.tables(), merged.tables());
}

#[test]
fn no_two_columns_have_one_name() {
    let folder = Folder::new("columns");
    let text = "[scenario]\nstop = { messages = 50 }\n[scenario.fabric]\nshape = { kind = \
                \"single-switch\", hosts = 4 }\n[axes]\nscheme = [\"homa\", \"homa-sim\"]\n\
                load = [{ fraction = 0.3 }]\n";
    let plan = Plan::parse(&Document::new("columns.toml", text), &[]).unwrap();
    let options = Options { program: "test".into(), ..Options::on(1) };
    assert!(run_plan(&plan, &folder.store(), &options, &mut |_| {}).unwrap());
    for table in ["summary.csv", "slowdown.csv"] {
        let text = std::fs::read_to_string(folder.0.join(table)).unwrap();
        let mut names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{table}: {names:?}");
        assert!(names.contains(&"scheme") && names.contains(&"axis.load"));
    }
}

/// The page of a folder of results, or the refusal.
fn page(folder: &Folder, choice: &Choice) -> Result<String, String> {
    let pages = report::pages(&folder.0, choice).map_err(|error| error.to_string());
    pages.map(|mut pages| pages.remove(0).1)
}

#[test]
fn the_page_of_a_sweep_draws_all_axes_and_loads_nothing() {
    let folder = Folder::new("page");
    sweep(&folder, 2, Shard::ALL);
    let page = page(&folder, &Choice::default()).unwrap();
    let (_, after) = page.split_once("<h2>Against load</h2>").unwrap();
    let (against, rest) = after.split_once("</details>").unwrap();
    let title = "<title>Slowdown of all messages, 99th percentile</title>";
    // Without schemes to tell apart, the workloads are the curves of one figure.
    assert_eq!(against.matches(title).count(), 1);
    for curve in [">W1</text>", ">W2</text>"] {
        assert!(against.contains(curve), "{curve}");
    }
    let figure = against.split("<figure").find(|figure| figure.contains(title)).unwrap();
    assert_eq!(figure.matches("class=\"b\"").count(), 0, "two seeds have no interval");
    assert_eq!(figure.matches("class=\"s\"").count(), 8, "and each seed its dot");
    assert_eq!(figure.matches(",sample,0.3,").count(), 4, "its values are with it");
    assert!(rest.contains("<h2>By message size</h2>") && rest.contains(">load 0.6</text>"));
    assert_eq!(page.matches("<p>All: homa-sim, 4 hosts, host links of 10Gbps").count(), 1);
    for lost in ["undelivered", "failed", "refused"] {
        assert!(page.contains(&format!("<th>{lost}</th>")), "{lost}");
    }
    for outside in ["src=", "url(", "@import", "<link", "https:"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn readers_choose_quantity_axis_and_simulations() {
    let folder = Folder::new("choice");
    sweep(&folder, 2, Shard::ALL);
    let choice = |metric: &str, x: Option<&str>, only: &[(&str, &str)]| Choice {
        metrics: vec![metric.parse().unwrap()],
        x: x.map(str::to_owned),
        only: only.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let own = page(&folder, &choice("utilisation", Some("workload"), &[("seed", "2")])).unwrap();
    assert!(own.contains("<h2>Against workload</h2>") && own.contains(">Utilisation</title>"));
    assert!(own.contains(",value,W1,0.0,") && !own.contains("class=\"s\""), "one seed, by name");
    assert!(!own.contains("Slowdown of all messages"));
    let refused = |choice: &Choice| page(&folder, choice).unwrap_err();
    let unmeasured = refused(&choice("p99.9_us", None, &[]));
    assert!(unmeasured.contains("measures.groups = { percentiles = [99.9] }"), "{unmeasured}");
    let nowhere = refused(&choice("p99", None, &[("load.fraction", "0.7")]));
    assert!(nowhere.contains("did you mean `load.fraction=0.3`"), "{nowhere}");
    let unknown = refused(&choice("p99", Some("colour"), &[]));
    assert!(unknown.contains("traffic.workload, load.fraction"), "{unknown}");
}

#[test]
fn damaged_and_misnamed_results_are_simulated_again() {
    let folder = Folder::new("unfit");
    assert_eq!(sweep(&folder, 1, Shard::ALL), (8, true));
    let good = folder.tables();
    let cells = folder.0.join("cells");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&cells).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    std::fs::copy(&paths[0], &paths[1]).unwrap();
    std::fs::write(&paths[2], "{").unwrap();
    assert_eq!(sweep(&folder, 1, Shard::ALL), (2, true));
    assert_eq!(folder.tables(), good);
}

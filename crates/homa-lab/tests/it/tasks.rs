//! Simulations as tasks of an external executor: the same tables as a sweep's, on machines that
//! have none of the plan's files.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use homa_lab::document::Document;
use homa_lab::error::LabError;
use homa_lab::plan::Plan;
use homa_lab::store::{Store, model};
use homa_lab::sweep::{Options, begin, finish, run_plan};
use homa_lab::task::{perform_task, store_result, tasks};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tasks").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn plan(sizes: &Path) -> Plan {
    let text = format!(
        "[scenario]\nstop = {{ messages = 200 }}\n[scenario.fabric]\n\
         shape = {{ kind = \"single-switch\", hosts = 4 }}\n[scenario.traffic]\n\
         workload = {:?}\n[axes]\n\"load.fraction\" = [0.3, 0.5, 0.7]\n",
        sizes.display().to_string()
    );
    Plan::parse(&Document::new("plan.toml", text), &[]).unwrap()
}

fn perform(task: &str) -> Result<String, LabError> {
    perform_task(task, &AtomicBool::new(false), &mut |_| ())
}

#[test]
fn tasks_in_any_order_give_the_tables_of_a_sweep() {
    let place = folder("any-order");
    let sizes = place.join("sizes.csv");
    let table = "size_bytes,cumulative_fraction\n100,0.5\n20000,1\n";
    std::fs::write(&sizes, table).unwrap();
    let plan = plan(&sizes);
    let whole = Store::create(&place.join("sweep")).unwrap();
    assert!(run_plan(&plan, &whole, &Options::on(1), &mut |_| ()).unwrap());

    let shared = Store::create(&place.join("tasks")).unwrap();
    let manifest = begin(&plan, &shared, model()).unwrap();
    let mut all = tasks(&plan.cells, &shared).unwrap();
    assert_eq!(all.len(), 3);
    assert!((all.iter().map(|one| one.share).sum::<f64>() - 1.0).abs() < 1e-9);
    // Workers have no such file, or another one of that name.
    std::fs::remove_file(&sizes).unwrap();
    let last = all.pop().unwrap();
    let results = all.iter().map(|one| perform(&one.task).unwrap());
    let results: Vec<String> = results.collect();
    std::fs::write(&sizes, "size_bytes,cumulative_fraction\n7,1\n").unwrap();
    let elsewhere = perform(&last.task).unwrap();
    std::fs::write(&sizes, table).unwrap();
    store_result(&shared, &last.key, &elsewhere).unwrap();
    assert!(!finish(&shared, &manifest).unwrap(), "two are missing");
    for (one, result) in all.iter().zip(results).rev() {
        store_result(&shared, &one.key, &result).unwrap();
    }
    assert!(finish(&shared, &manifest).unwrap());
    assert!(tasks(&plan.cells, &shared).unwrap().is_empty());
    for name in ["plan.toml", "manifest.json", "summary.csv", "slowdown.parquet"] {
        let read = |store: &Store| std::fs::read(store.root().join(name)).unwrap();
        assert!(read(&whole) == read(&shared), "{name} differs");
    }
}

#[test]
fn results_of_another_simulator_or_task_are_refused() {
    let place = folder("refused");
    let sizes = place.join("sizes.csv");
    std::fs::write(&sizes, "size_bytes,cumulative_fraction\n100,1\n").unwrap();
    let store = Store::create(&place.join("tasks")).unwrap();
    let plan = plan(&sizes);
    let all = tasks(&plan.cells, &store).unwrap();
    let refused = perform(&all[0].task.replace(model(), "0123")).unwrap_err().to_string();
    assert!(refused.contains("install the same version"), "{refused}");
    let result = perform(&all[0].task).unwrap();
    let refused = store_result(&store, &all[1].key, &result).unwrap_err().to_string();
    assert!(refused.contains(&all[1].key), "{refused}");
    assert!(store_result(&store, &all[0].key, "{}").is_err());
    assert!(perform("nonsense").is_err());
}

#[test]
fn a_task_and_a_sweep_end_when_they_are_told_to() {
    let place = folder("stopped");
    let text =
        "[scenario]\nstop = { messages = 1_000_000_000 }\n[axes]\n\"load.fraction\" = [0.7]\n";
    let plan = Plan::parse(&Document::new("plan.toml", text), &[]).unwrap();
    let store = Store::create(&place).unwrap();
    let task = &tasks(&plan.cells, &store).unwrap()[0].task;
    let stop = AtomicBool::new(false);
    let stopped = perform_task(task, &stop, &mut |_| {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(matches!(stopped, Err(LabError::Stopped)), "{stopped:?}");
    let options = Options::on(1);
    let stopped = run_plan(&plan, &store, &options, &mut |_| {
        options.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(matches!(stopped, Err(LabError::Stopped)), "{stopped:?}");
}

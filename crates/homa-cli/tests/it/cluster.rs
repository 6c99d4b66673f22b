//! A sweep as the tasks of a cluster, by the scripts in `contrib/cluster`: shards that share a
//! folder, or are copied together, give the bytes of a sweep in one place.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::folder::Folder;

const PLAN: &str = "seeds = [1, 2, 3]\n[scenario]\nstop.messages = 50\n\
                    fabric.shape = { kind = \"single-switch\", hosts = 3 }\n\
                    [axes]\n\"load.fraction\" = [0.3, 0.6]\n";

const TABLES: [&str; 5] =
    ["plan.toml", "manifest.json", "summary.csv", "summary.parquet", "slowdown.parquet"];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/cluster").join(name)
}

/// A script whose program is the one under test.
fn bash(name: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.arg(script(name)).env("HOMA", env!("CARGO_BIN_EXE_homa"));
    bash
}

#[track_caller]
fn ran(command: &mut Command) -> Output {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The tables of the plan, swept in one place, against those in another folder.
#[track_caller]
fn assert_whole(folder: &Folder, plan: &str, other: &str) {
    let whole = folder.path("whole");
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_homa"));
    ran(sweep.args(["sweep", plan, "--out", &whole]));
    for name in TABLES {
        let read = |from: &str| std::fs::read(Path::new(from).join(name)).expect("it is there");
        assert!(read(&whole) == read(other), "{name} differs");
    }
}

/// What a task of a Slurm array finds in its environment.
fn slurm(task: u32, arguments: [&str; 2]) -> Command {
    let mut command = bash("slurm.sbatch");
    command.args(arguments).env("SLURM_ARRAY_TASK_ID", task.to_string());
    command.env("SLURM_ARRAY_TASK_COUNT", "3").env("SLURM_CPUS_PER_TASK", "1");
    command
}

#[test]
fn an_array_of_slurm_sweeps_into_a_shared_folder() {
    let folder = Folder::new("slurm");
    let plan = folder.file("plan.toml", PLAN);
    let out = folder.path("out");
    let dry = ran(slurm(2, [&plan, &out]).env("DRY_RUN", "1"));
    let shown = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(shown.contains("--shard 2/3 --threads 1"), "{shown}");
    assert!(!Path::new(&out).exists(), "a dry run runs nothing");
    // All at once, as on a cluster.
    let tasks: Vec<_> =
        (1..=3).map(|task| slurm(task, [&plan, &out]).spawn().expect("it runs")).collect();
    for mut task in tasks {
        assert!(task.wait().expect("it ends").success());
    }
    assert_whole(&folder, &plan, &out);
    assert!(!slurm(4, [&plan, &out]).output().expect("it runs").status.success());
}

#[test]
fn folders_of_shards_are_merged_by_copying() {
    let folder = Folder::new("merge");
    let plan = folder.file("plan.toml", PLAN);
    // The third machine was lost.
    let shards = [1, 2].map(|task| (task, folder.path(&format!("shard-{task}"))));
    for (task, out) in &shards {
        ran(&mut slurm(*task, [&plan, out]));
    }
    let merged = folder.path("merged");
    let said = ran(bash("merge.sh").args([&plan, &merged, &shards[0].1, &shards[1].1]));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.starts_with("2 simulations run, 4 found from before"), "{said}");
    assert_whole(&folder, &plan, &merged);
}

/// The shell code of the job's container.
fn kubernetes() -> String {
    let job = std::fs::read_to_string(script("kubernetes.yaml")).expect("it is there");
    let (_, code) = job.split_once("            - |\n").expect("code of a shell");
    let inside = |line: &&str| line.starts_with("              ");
    code.lines().take_while(inside).map(|line| line.trim_start().to_owned() + "\n").collect()
}

#[test]
fn an_indexed_job_of_kubernetes_sweeps_into_a_shared_volume() {
    let folder = Folder::new("kubernetes");
    let plan = folder.file("plan.toml", PLAN);
    let out = folder.path("results");
    let code = kubernetes().replace("/plan/plan.toml", &plan).replace("/results", &out);
    let program = Path::new(env!("CARGO_BIN_EXE_homa")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    for index in ["0", "1", "2"] {
        let mut pod = Command::new("sh");
        pod.args(["-euc", &code]).env("PATH", format!("{}:{path}", program.display()));
        pod.env("JOB_COMPLETION_INDEX", index).env("SHARDS", "3").env("THREADS", "1");
        ran(&mut pod);
    }
    assert_whole(&folder, &plan, &out);
}

#[test]
fn scripts_have_no_mistakes_that_shellcheck_knows() {
    if Command::new("shellcheck").arg("--version").output().is_err() {
        skip::test("shellcheck (apt-get install shellcheck)");
        return;
    }
    let inline = std::env::temp_dir().join(format!("homa-job-{}.sh", std::process::id()));
    std::fs::write(&inline, "#!/bin/sh\n".to_owned() + &kubernetes()).expect("written");
    let ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/run");
    let mut check = Command::new("shellcheck");
    check.arg("--norc").args([script("slurm.sbatch"), script("merge.sh"), ci]).arg(&inline);
    let checked = check.output().expect("it runs");
    let _ = std::fs::remove_file(&inline);
    let said = String::from_utf8_lossy(&checked.stdout);
    // What a container's environment has, no script sets.
    let real = said.lines().filter(|line| line.contains("SC") && !line.contains("SC2154"));
    assert_eq!(real.count(), 0, "{said}");
}

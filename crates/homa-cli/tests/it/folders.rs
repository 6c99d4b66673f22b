//! What commands write, and what they leave alone.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;

use crate::common::{code, document, homa, keys, program, stderr};
use crate::folder::Folder;

const PLAN: &str = "# mine\n[scenario]\nstop.messages = 50\n\
                    fabric.shape = { kind = \"single-switch\", hosts = 3 }\n";

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there")
}

#[test]
fn files_that_are_no_results_are_not_overwritten() {
    let folder = Folder::new("own");
    let plan = folder.file("plan.toml", PLAN);
    let out = folder.path("");
    for command in ["sweep", "sim"] {
        let refused = homa(&[command, &plan, "--out", &out]);
        assert_eq!(code(&refused), 2);
        assert!(stderr(&refused).contains("would be overwritten"), "{}", stderr(&refused));
    }
    let refused = homa(&["repro", "x15", "--out", &out]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    assert_eq!(text(Path::new(&plan)), PLAN);
    assert!(!folder.0.join("cells").exists());
}

#[test]
fn a_plan_edited_among_its_results_is_not_replaced() {
    let folder = Folder::new("edited");
    let plan = folder.file("small.toml", PLAN);
    let out = folder.0.join("results");
    let out_text = out.display().to_string();
    assert_eq!(code(&homa(&["sweep", &plan, "--out", &out_text])), 0);
    let inside = out.join("plan.toml");
    let again = homa(&["sweep", &inside.display().to_string(), "--out", &out_text]);
    assert_eq!(code(&again), 0, "untouched, it goes on: {}", stderr(&again));
    assert!(!stderr(&again).contains("another version"), "{}", stderr(&again));
    let edited = format!("# edited\n{}", text(&inside));
    std::fs::write(&inside, &edited).expect("written");
    let refused = homa(&["sweep", &inside.display().to_string(), "--out", &out_text]);
    assert_eq!(code(&refused), 2);
    assert_eq!(text(&inside), edited);
}

#[test]
fn results_of_another_simulator_are_said_to_be_of_no_use() {
    let folder = Folder::new("other-simulator");
    let plan = folder.file("small.toml", PLAN);
    assert_eq!(code(&homa(&["sweep", &plan])), 0);
    let manifest = folder.0.join("small/manifest.json");
    let of_another = text(&manifest).replace("\"program\": \"", "\"program\": \"another-");
    std::fs::write(&manifest, of_another).expect("written");
    let again = stderr(&homa(&["sweep", &plan]));
    assert!(again.contains("are of another version of the simulator"), "{again}");
}

#[test]
fn a_resolved_plan_finds_its_files_from_any_folder() {
    let folder = Folder::new("anchored");
    folder.file("sizes.csv", "size_bytes,cumulative_fraction\n100,0.5\n2000,1.0\n");
    folder.file("small.toml", PLAN);
    let run = |at: &Path, arguments: &[&str]| {
        program().current_dir(at).args(arguments).output().expect("it runs")
    };
    let how = ["sim", "small.toml", "--workload", "sizes.csv", "--out", "out", "--format", "json"];
    let first = run(&folder.0, &how);
    assert!(first.status.success(), "{}", stderr(&first));
    let resolved = folder.path("out/plan.toml");
    let again = run(Path::new("/"), &["sim", &resolved, "--format", "json"]);
    assert!(again.status.success(), "{}", stderr(&again));
    let (first, again) = (document(&first), document(&again));
    assert_eq!(keys(&first), keys(&again));
    assert_eq!(first["trace_hash"], again["trace_hash"]);
}

#[test]
fn a_sweep_whose_progress_nobody_reads_goes_on() {
    let folder = Folder::new("unread");
    let plan = folder.file("small.toml", PLAN);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let swept = program().args(["sweep", &plan]).stderr(writer).output().expect("it runs");
    assert_eq!(code(&swept), 0);
    assert!(folder.0.join("small/index.html").is_file());
}

#[test]
fn results_that_stdout_does_not_take_are_an_error() {
    for arguments in [&["schemes"][..], &["schemes", "--format", "json"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let ended = program().args(arguments).stdout(full).stderr(Stdio::piped()).output();
        let ended = ended.expect("it runs");
        assert_eq!(code(&ended), 2);
        assert!(stderr(&ended).contains("stdout"), "{}", stderr(&ended));
    }
}

#[test]
fn values_that_stand_twice_and_unquoted_paths_are_refused() {
    let folder = Folder::new("twice");
    let refusal = |text: &str| {
        let plan = folder.file("twice.toml", text);
        let refused = homa(&["sweep", &plan]);
        assert_eq!(code(&refused), 2);
        stderr(&refused)
    };
    let seeds = refusal("seeds = [1, 2, 1]\n");
    assert!(seeds.contains("`seeds`: 1 stands there twice"), "{seeds}");
    let axis = refusal("[axes]\n\"load.fraction\" = [0.1, 0.2, 0.10]\n");
    assert!(axis.contains("twice.toml:2") && axis.contains("0.1 stands there twice"), "{axis}");
    let unquoted = refusal("[axes]\nload.fraction = [0.1, 0.2]\n");
    assert!(unquoted.contains("\"load.fraction\" = [0.5, 0.8]"), "{unquoted}");
}

/// Five switches in a ring, a host at each that sends two switches on: nothing moves any more.
fn ring(folder: &Folder) -> String {
    let (mut links, mut flows) = (String::new(), "id,src,dst,bytes,start_ns\n".to_owned());
    for at in 0..5 {
        links += &format!("h{at},s{at},1,5476\ns{at},s{},1,5476\n", (at + 1) % 5);
        for number in 0..10 {
            flows += &format!("{},{at},{},1000000,0\n", 10 * at + number, (at + 2) % 5);
        }
    }
    let (links, flows) = (folder.file("ring.csv", &links), folder.file("flows.csv", &flows));
    let plan = format!(
        "[scenario]\nslowdown = 'idle'\nstop = {{ time = '100ms', drain_limit = '300ms' }}\n\
         fabric.shape = {{ kind = 'graph', file = '{links}' }}\n\
         traffic = {{ pattern = 'flows', file = '{flows}' }}\n\
         [axes]\nscheme = ['detail', 'flow-hashing']\n"
    );
    folder.file("ring.toml", &plan)
}

#[test]
fn a_fabric_that_locks_up_is_told_by_table_sweep_and_page() {
    let folder = Folder::new("deadlock");
    let (plan, out) = (ring(&folder), folder.path("out"));
    let said = "DEADLOCK: each waits for the next: s0-&gt;s1 -&gt; s1-&gt;s2";
    let one = homa(&["sim", &plan, "--scheme", "detail"]);
    assert_eq!(code(&one), 0, "{}", stderr(&one));
    let table = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(table.contains(&said.replace("&gt;", ">")), "{table}");
    let swept = homa(&["sweep", &plan, "--out", &out]);
    assert_eq!(code(&swept), 0, "{}", stderr(&swept));
    let told = String::from_utf8_lossy(&swept.stdout).into_owned();
    assert!(
        told.contains(&format!("scheme=detail seed=1: {}", said.replace("&gt;", ">"))),
        "{told}"
    );
    assert!(!told.contains("flow-hashing"), "it lost frames, as it should: {told}");
    let page = std::fs::read_to_string(Path::new(&out).join("index.html")).expect("a page");
    assert!(page.contains(&format!("scheme=detail seed=1: {said}")), "the page is silent");
}

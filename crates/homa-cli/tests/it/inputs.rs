//! Files as other programs write them: with byte order marks, foreign line ends, columns in another
//! order, and names that are no UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use serde_json::json;

use crate::common::{code, document, homa, program, stderr};
use crate::folder::Folder;
use crate::lab::SMALL;

/// A text as a spreadsheet saves it.
fn of_a_spreadsheet(text: &str) -> String {
    format!("\u{feff}{}", text.replace('\n', "\r\n"))
}

#[test]
fn every_table_and_plan_of_a_spreadsheet_is_read() {
    let folder = Folder::new("spreadsheet");
    let file = |name: &str, text: &str| folder.file(name, &of_a_spreadsheet(text));
    let sizes = file("sizes.csv", "size_bytes,cumulative_fraction\n100,0.5\n1500,0.9\n9000,1\n");
    let flows = file("flows.csv", "id,src,dst,bytes,start_ns\n1,0,1,500,0\n");
    let links = file("links.csv", "from,to,gbps,delay_ns\nh0,a,10,500\nh1,a,10,500\n");
    let trips = file("trips.csv", "us,count\n250,7\n");
    let plan = file("plan.toml", "# greeting: h\u{e9}\n[scenario]\nstop = { messages = 50 }\n");
    let graph = format!("fabric.shape={{kind=\"graph\",file=\"{links}\"}}");
    let commands: [&[&str]; 8] = [
        &["sim", "--workload", &sizes, "--messages", "50"],
        &["sim", "--flows", &flows],
        &["sim", "--set", &graph, "--set", "slowdown=idle", "--messages", "50"],
        &["sim", &plan],
        &["tail", "--rtt", &trips],
        &["workloads", &sizes],
        &["pias-thresholds", &sizes],
        &["sweep", &plan, "--out", &folder.path("out")],
    ];
    for command in commands {
        let output = homa(command);
        assert_eq!(code(&output), 0, "{command:?}: {}", stderr(&output));
    }
}

#[test]
fn a_list_of_messages_is_read_by_the_names_of_its_columns() {
    let folder = Folder::new("columns");
    let ordered = "id,src,dst,bytes,start_ns\n1,3,2,200000,10\n2,1,0,200000,20\n";
    let turned = "src,dst,id,bytes,start_ns\n3,2,1,200000,10\n1,0,2,200000,20\n";
    let four = ["--set", "fabric.shape.kind=single-switch", "--set", "fabric.shape.hosts=4"];
    let hash = |name: &str, text: &str| {
        let file = folder.file(name, text);
        let output = homa(&[&["sim", "--format", "json", "--flows", &file][..], &four].concat());
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        document(&output)["trace_hash"].clone()
    };
    assert_eq!(hash("ordered.csv", ordered), hash("turned.csv", turned));
    let mistyped = folder.file("mistyped.csv", "O,0,1,1000,0\n1,1,2,1000,5\n");
    let output = homa(&[&["sim", "--flows", &mistyped][..], &four].concat());
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("mistyped.csv: line 1: no column `src`"), "{output:?}");
}

/// Points of HPCC's form, and their mean as lines and as steps.
const POINTS: &str = "0 0\n1000 40\n10000 80\n100000 95\n1000000 100\n";

#[test]
fn a_table_of_another_simulator_is_linear_and_says_so() {
    let folder = Folder::new("points");
    let file = folder.file("cdf.txt", POINTS);
    let steps = format!("steps:{file}");
    let mean = |name: &str| {
        let output = homa(&["workloads", "--format", "json", name]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let told = stderr(&output);
        let found = document(&output)[0].clone();
        assert!(told.contains(found["table"].as_str().expect("a text")), "{told}");
        (found["mean_bytes"].clone(), found["table"].clone())
    };
    let form =
        |between: &str| json!(format!("5 points, {between}, shares in per cent, sizes in bytes"));
    assert_eq!(mean(&file), (json!(38_150.0), form("linear between points")));
    assert_eq!(mean(&steps), (json!(69_400.0), form("steps")));
    // The same reader everywhere, and the plan that is kept names the same table.
    let thresholds = document(&homa(&["pias-thresholds", "--format", "json", &file]));
    assert_eq!(thresholds[0]["table"], form("linear between points"));
    let out = folder.path("out");
    let sim = ["sim", "--format", "json", "--workload", &steps, "--out", &out];
    let output = homa(&[&sim[..], &SMALL].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let first = document(&output);
    assert_eq!(first["size_table"]["form"], form("steps"));
    assert_eq!(first["size_table"]["mean_bytes"], 69_400.0);
    let again = homa(&["sim", "--format", "json", &format!("{out}/plan.toml")]);
    assert_eq!(document(&again)["trace_hash"], first["trace_hash"]);
    let shown = homa(&[&["sim", "--workload", &file][..], &SMALL].concat());
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("sizes: 5 points, linear between points, "), "{shown}");
    assert!(shown.contains("; mean 38150.0 B\n"), "{shown}");
}

#[test]
fn a_stated_mean_that_differs_is_a_warning() {
    let folder = Folder::new("stated");
    let file = folder.file("dist.txt", "1622.94\n6 0.15\n13 0.2\n133 0.6\n20000 1\n");
    let output = homa(&[&["sim", "--format", "json", "--workload", &file][..], &SMALL].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let found = document(&output);
    assert_eq!(found["size_table"]["stated_mean"], 1_622.94);
    let warning = found["warnings"][0].as_str().expect("a warning");
    assert!(
        warning.contains("states a mean of 1622.94") && warning.contains("steps:"),
        "{warning}"
    );
}

#[test]
fn a_path_of_any_bytes_is_read_or_refused() {
    let folder = Folder::new("bytes");
    let path = |name: &[u8]| -> OsString {
        folder.0.join(OsString::from_vec(name.to_vec())).into_os_string()
    };
    let write = |name: &[u8], bytes: &[u8]| {
        std::fs::write(path(name), bytes).expect("a file system that takes any name");
        path(name)
    };
    let capture =
        write(b"caf\xe9.pcap", b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0");
    let plan = write(b"\xff.toml", b"[scenario]\nstop = { messages = 50 }\n");
    let trips = write(b"\xff.csv", b"us,count\n250,7\n");
    let out = path(b"out\xfe");
    let text = OsStr::new;
    let read: [&[&OsStr]; 6] = [
        &[text("pcap"), &capture],
        &[text("tail"), text("--rtt"), &trips],
        &[text("sim"), &plan],
        &[text("sim"), &plan, text("--out"), &out],
        &[text("sweep"), &plan, text("--out"), &out],
        &[text("report"), &out],
    ];
    for arguments in read {
        let output = program().args(arguments).output().expect("the program starts");
        assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
    }
    // Paths in a plan are text, so these options refuse paths that are not UTF-8.
    let refused: [&[&OsStr]; 5] = [
        &[text("sim"), text("--flows"), &trips],
        &[text("sim"), text("--workload"), &trips],
        &[text("workloads"), &trips],
        &[text("repro"), &plan],
        &[&trips],
    ];
    for arguments in refused {
        let output = program().args(arguments).output().expect("the program starts");
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{arguments:?}: {said}");
        assert!(said.contains("hint: "), "{said}");
    }
}

//! The pages of a sweep and of a reproduction as a browser shows them, on a phone and on wide
//! screens, light and dark: all of it is there to be read, on a screen without scrolling sideways,
//! nothing comes from elsewhere, and figures can be saved.
//! Screenshots for people to look at stay in the folder `pages` of cargo's folder for tests
//! (`target/tmp`).

#[allow(dead_code)]
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{code, homa, stderr};
use crate::folder::Folder;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Pixels from which on nothing scrolls sideways.
const SCREEN: u32 = 1200;
const PLAN: &str = r#"
title = "Two schemes"
seeds = [1, 2, 3]
[scenario]
fabric.shape = { kind = "single-switch", hosts = 4 }
stop.messages = 300
measures = { queues = true, priorities = true }
[axes]
scheme = ["homa", "dctcp", "pfabric", "pias", "ndp", "phost", "tcp", "hull", "ideal"]
"load.fraction" = [0.5, 0.8]
"traffic.workload" = ["w2", "w4"]
"#;

/// A figure with the longest names of the repository's.
const FIGURE: &str = r#"
id = "homa-figure"
title = "Tail latency by message size on 144 hosts"
source = "Homa"
variants = ["homa-paper", "homa", "homa-sim", "pfabric"]
[scenario]
fabric.shape = { kind = "single-switch", hosts = 4 }
stop.messages = 300
slowdown = "idle"
[[run]]
name = "w4"
[[check]]
row = "homa-figure-receivers-w4-homa"
run = "w4"
label = "W4: Homa's p99 at 50 % of the messages below pHost's, per cent of it"
report = ["p99_to@10,50,75,90,95,99"]
[check.points]
"p99@50" = [2, "0.0001..1000000"]
"outcome.queues.receivers.max_bytes_with_residual" = 1
[[figure]]
kind = "slowdown"
title = "W4, 80 % load"
runs = ["w4"]
"#;

/// A browser without a window that shows the document at this path.
fn browser(name: &str, profile: &str, address: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    // Virtual time for scripts; it passes at once if nothing happens.
    command.args(["--virtual-time-budget=10000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={profile}")).arg(address);
    command
}

/// One that starts here.
fn any_browser(profile: &str) -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| {
        let output = browser(name, profile, "data:text/html,works").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("works"))
    })
}

/// The page in frames of these widths side by side, whatever the least width of windows is. It
/// hears from the `page.js` of each.
fn framed(page: &str, widths: &[u32]) -> String {
    let frame = |width| {
        format!("<iframe src=\"{page}\" style=\"border:0;width:{width}px;height:6000px\"></iframe>")
    };
    let frames: String = widths.iter().map(frame).collect();
    format!(
        "<meta name=\"color-scheme\" content=\"light dark\">\
         <body style=\"margin:0;white-space:nowrap\">{frames}\
         <script>onmessage = ({{data}}) => {{\
         document.body.append(Object.assign(document.createElement('pre'),\
         {{className: 'seen', textContent: data, hidden: true}}));\
         }}</script>"
    )
}

/// What the `page.js` of each frame found, in the document after its scripts.
fn seen(dom: &str) -> Vec<Value> {
    let found = dom.split("<pre class=\"seen\"").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('>')?;
        Some(rest.split_once("</pre>")?.0.replace("&amp;", "&").replace("&lt;", "<"))
    });
    found.map(|text| serde_json::from_str(&text).expect("what page.js found")).collect()
}

fn assert_readable(seen: &Value, width: u32, paper: &str) {
    let empty = Value::Array(Vec::new());
    assert_eq!(seen["width"], width, "{seen}");
    assert_eq!(seen["beyond"], 0, "only a table may be wider than the page, and scrolls: {seen}");
    assert!(width < SCREEN || seen["scrolling"] == empty, "{}", seen["scrolling"]);
    assert_eq!((&seen["clipped"], &seen["overlapping"]), (&empty, &empty));
    assert!(seen["smallest"].as_f64().is_some_and(|pixels| pixels >= 9.0), "{seen}");
    assert_eq!(seen["loaded"], 0, "{seen}");
    assert_eq!(seen["paper"], paper);
    let list = |key: &str| seen[key].as_array().expect("a list").clone();
    let (names, begin) = (list("names"), list("begin"));
    assert!(names.len() > 1 && names.len() == begin.len(), "{seen}");
    for (name, begin) in names.iter().zip(&begin) {
        let svg = name.as_str().is_some_and(|name| name.ends_with(".svg"));
        assert_eq!(begin, if svg { "<svg xm" } else { "series," }, "{name}");
    }
}

#[test]
fn a_page_is_readable_and_its_figures_can_be_saved() {
    let folder = Folder::new("pages");
    let profile = folder.path("profile");
    let Some(name) = any_browser(&profile) else {
        return skip::test("a browser (apt-get install chromium)");
    };
    let plan = folder.file("plan.toml", PLAN);
    let out = folder.path("sweep");
    let swept = homa(&["sweep", &plan, "--out", &out]);
    assert_eq!(code(&swept), 0, "{}", stderr(&swept));
    look(&folder, (name, &profile), "sweep");
    let out = folder.path("repro");
    let figure = folder.file("figure.toml", FIGURE);
    let repeated = homa(&["repro", &figure, "--quick", "--report", "--out", &out]);
    assert_ne!(code(&repeated), 2, "{}", stderr(&repeated));
    look(&folder, (name, &profile), "repro");
}

/// Has the page of a folder of results shown, everywhere.
fn look(folder: &Folder, (name, profile): (&str, &str), results: &str) {
    let page = std::fs::read_to_string(folder.0.join(results).join("index.html"));
    let told = format!("<script>{}</script></body>", include_str!("page.js"));
    folder.file("page.html", &page.expect("the page").replace("</body>", &told));
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&pictures).expect("a folder for pictures");
    let widths = [400, SCREEN, 1600];
    let around = folder.file("around.html", &framed("page.html", &widths));
    for (scheme, setting, paper) in
        [("light", 1, "rgb(255, 255, 255)"), ("dark", 0, "rgb(13, 17, 23)")]
    {
        let picture = pictures.join(format!("{results}-{scheme}.png"));
        let mut command = browser(name, profile, &format!("file://{around}"));
        command.arg(format!("--blink-settings=preferredColorScheme={setting}"));
        command.arg(format!("--window-size={},6000", widths.iter().sum::<u32>()));
        command.arg(format!("--screenshot={}", picture.display()));
        let output = command.output().expect("it starts");
        let dom = String::from_utf8_lossy(&output.stdout);
        let found = seen(&dom);
        for width in widths {
            let frame = found.iter().find(|seen| seen["width"] == width);
            let frame = frame.unwrap_or_else(|| panic!("{width}: {dom}{}", stderr(&output)));
            assert_readable(frame, width, paper);
        }
        assert!(picture.is_file(), "{}", stderr(&output));
    }
}

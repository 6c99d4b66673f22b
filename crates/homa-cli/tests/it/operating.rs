//! What operators install and look at: completions, man pages, the systemd unit, metrics.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{code, document, homa, program, stderr};
use crate::folder::Folder;
use crate::server::Server;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A server with a metrics endpoint, and the endpoint's address.
pub fn observed(server: &mut Server) -> String {
    let url = server.line("metrics at http://");
    url.strip_suffix("/metrics").expect("the path").to_owned()
}

fn server() -> (Server, String) {
    let mut server = Server::start(&["--echo", "--metrics", "127.0.0.1:0"]);
    let endpoint = observed(&mut server);
    (server, endpoint)
}

#[test]
fn top_shows_the_rpcs_of_the_time_between_two_scrapes() {
    let (server, endpoint) = server();
    let early = homa(&["call", &server.address, "--count", "5000"]);
    assert_eq!(code(&early), 0, "{}", stderr(&early));
    let mut top = program();
    top.args(["top", &endpoint, "--interval", "100ms", "--count", "20", "--format", "json"]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("homa top");
    let mut made = 0.0;
    while top.try_wait().expect("its state").is_none() {
        let calls = homa(&["call", &server.address, "--count", "20", "--size", "100"]);
        assert_eq!(code(&calls), 0, "{}", stderr(&calls));
        made += 20.0;
    }
    let output = top.wait_with_output().expect("its end");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document = document(&output);
    let reports = document["reports"].as_array().expect("reports");
    assert_eq!(reports.len(), 20);
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let mut ended = 0.0;
    for report in reports {
        let [client, server] = [0, 1].map(|n| &report["rpcs"][n]);
        assert_eq!((&client["ok_per_s"], &client["p50_us"]), (&0.0.into(), &().into()), "{report}");
        let now = number(&server["ok_per_s"]) * number(&report["seconds"]);
        if now > 0.5 {
            assert!(number(&server["p99_us"]) >= number(&server["p50_us"]), "{report}");
        }
        // The peers with most RPCs are sampled, so there may be none yet.
        if let Some(busiest) = report["busiest"].get(0) {
            assert_eq!(busiest["direction"], "server", "{report}");
        }
        ended += now;
    }
    // The 5,000 calls before the first scrape do not count, and a whole batch after it does.
    assert!(19.5 < ended && ended < made + 0.5, "{ended} of {made}: {document}");
    server.terminate();
}

#[test]
fn top_for_people_repeats_until_its_count() {
    let (server, endpoint) = server();
    let output = homa(&["top", &endpoint, "--interval", "100ms", "--count", "3"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text.matches("answered/s").count(), 3, "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no control characters: {text}");
    server.terminate();
}

#[test]
fn top_says_what_is_wrong_with_an_endpoint() {
    let closed = homa(&["top", "127.0.0.1:1"]);
    assert_eq!(code(&closed), 2);
    assert!(stderr(&closed).contains("no metrics at 127.0.0.1:1"), "{}", stderr(&closed));
    assert!(stderr(&closed).contains("homa serve --metrics"), "{}", stderr(&closed));
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = other.local_addr().expect("an address").to_string();
    let answers = std::thread::spawn(move || {
        for answer in
            ["SSH-2.0\r\n", "HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nx 1\n"]
        {
            let (mut client, _) = other.accept().expect("a client");
            let _ = client.read(&mut [0; 1024]);
            client.write_all(answer.as_bytes()).expect("an answer");
        }
    });
    for wrong in ["is not HTTP", "404", "no metrics of a Homa engine"] {
        let output = homa(&["top", &at, "--count", "1"]);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(wrong), "{wrong}: {}", stderr(&output));
    }
    answers.join().expect("answers");
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let help = homa(&["--help"]);
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: BTreeSet<&str> = commands.filter(|name| !name.is_empty()).collect();
    assert!(commands.contains("bench") && commands.contains("top"), "{commands:?}");
    let folder = Folder::new("man");
    let pages = homa(&["man", &folder.path("pages")]);
    assert_eq!(code(&pages), 0, "{}", stderr(&pages));
    for shell in ["bash", "zsh", "fish"] {
        let script = homa(&["completions", shell]);
        assert_eq!(code(&script), 0, "{}", stderr(&script));
        let script = String::from_utf8(script.stdout).expect("UTF-8");
        for command in commands.iter().filter(|name| **name != "help") {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    for command in commands.iter().filter(|name| **name != "help") {
        let page = folder.path(&format!("pages/homa-{command}.1"));
        let page = std::fs::read_to_string(&page).expect(&page);
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let bash = homa(&["completions", "bash"]).stdout;
    let mut check = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash");
    check.stdin.take().expect("a pipe").write_all(&bash).expect("a script");
    assert!(check.wait().expect("its end").success(), "bash reads its completions");
}

#[test]
fn systemd_learns_when_a_server_is_ready_and_when_it_ends() {
    let folder = Folder::new("notify");
    let at = folder.path("socket");
    let socket = UnixDatagram::bind(&at).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let said = || {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    let mut serve = program();
    serve.args(["serve", "--bind", "127.0.0.1:0", "--echo"]).env("NOTIFY_SOCKET", &at);
    let mut serve = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("homa");
    assert_eq!(said(), "READY=1");
    let kill = Command::new("kill").arg(serve.id().to_string()).status();
    assert!(kill.expect("kill is there").success());
    assert_eq!(said(), "STOPPING=1");
    assert!(serve.wait().expect("its end").success());
}

#[test]
fn the_unit_is_valid_and_exposes_little() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip::test("systemd-analyze (apt-get install systemd)");
    }
    let folder = Folder::new("unit");
    let [service, socket] = ["homa-echo.service", "homa-echo.socket"].map(|name| {
        let unit = std::fs::read_to_string(format!("{ROOT}/contrib/systemd/{name}"));
        // The program is not installed here.
        let unit = unit.expect("the unit").replace("/usr/bin/homa", env!("CARGO_BIN_EXE_homa"));
        folder.file(name, &unit)
    });
    for arguments in [
        &["verify", &socket, &service][..],
        &["security", "--offline=true", "--threshold=30", &service],
    ] {
        let output = Command::new("systemd-analyze").args(arguments).output();
        let output = output.expect("systemd-analyze");
        let said = [stderr(&output), String::from_utf8_lossy(&output.stdout).into()].concat();
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

/// Names of metrics in a text, as a scrape writes its samples.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = ["homa_protocol_", "homa_driver_", "homa_engine_", "homa_rpc_", "homa_peer_"];
    let named = words.filter(|word| ours.iter().any(|start| word.starts_with(start)));
    named.map(str::to_owned).collect()
}

#[test]
fn every_metric_that_operators_are_shown_exists() {
    let (server, endpoint) = server();
    let call = homa(&["call", &server.address, "--count", "500"]);
    assert_eq!(code(&call), 0, "{}", stderr(&call));
    let mut page = TcpStream::connect(&endpoint).expect("the endpoint");
    page.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
    let mut scrape = String::new();
    page.read_to_string(&mut scrape).expect("metrics");
    // A family without samples is described, too.
    let exist: BTreeSet<_> = scrape.lines().flat_map(metrics_in).collect();
    assert!(exist.len() > 50, "{scrape}");
    let folders = ["contrib/monitoring", "docs/operating"];
    let files = folders.iter().flat_map(|folder| {
        let files = std::fs::read_dir(Path::new(ROOT).join(folder)).expect(folder);
        files.map(|file| file.expect("a file").path())
    });
    let mut named = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        for metric in metrics_in(&text) {
            // A histogram may also be named without the suffixes of its samples.
            let exists = ["", "_count"].iter().any(|end| exist.contains(&(metric.clone() + end)));
            assert!(exists, "{}: {metric}", file.display());
            named += 1;
        }
    }
    assert!(named > 20, "the files were read");
    server.terminate();
}

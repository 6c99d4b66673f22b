//! `homa ping --priorities` over a narrow link that honours DSCP, and over one that does not. The
//! hosts are network namespaces, and the link is a queue of the first host's kernel.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::{code, document, homa, stderr};
use crate::folder::Folder;
use crate::server::Server;

/// Two hosts with a cable, gone at the end.
struct Hosts([String; 2]);

impl Hosts {
    fn new(name: &str) -> Result<Self, String> {
        let hosts = ["a", "b"].map(|host| format!("homa-{name}-{}-{host}", std::process::id()));
        let hosts = Self(hosts);
        let [a, b] = &hosts.0;
        for command in [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip link add near netns {a} type veth peer name far netns {b}"),
            format!("ip -n {a} addr add 10.9.0.1/24 dev near"),
            format!("ip -n {b} addr add 10.9.0.2/24 dev far"),
            format!("ip -n {a} link set near up"),
            format!("ip -n {b} link set far up"),
        ] {
            run(&command)?;
        }
        Ok(hosts)
    }

    /// Makes the link narrow: a queue for all packets, and another one for those of class CS0 that
    /// is served if the first is empty.
    fn narrow(&self, honours: bool) -> Result<(), String> {
        let tc = format!("ip netns exec {} tc", self.0[0]);
        let class = format!("{tc} class add dev near parent 1:1 classid");
        run(&format!("{tc} qdisc add dev near root handle 1: htb default 10"))?;
        run(&format!("{tc} class add dev near parent 1: classid 1:1 htb rate 20mbit"))?;
        run(&format!("{class} 1:10 htb rate 16mbit ceil 20mbit prio 0"))?;
        run(&format!("{class} 1:20 htb rate 1mbit ceil 20mbit prio 7"))?;
        if honours {
            let filter = "protocol ip u32 match ip tos 0 0xe0 flowid 1:20";
            run(&format!("{tc} filter add dev near parent 1: {filter}"))?;
        }
        Ok(())
    }

    /// The program, as it runs in a host.
    fn homa(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host], env!("CARGO_BIN_EXE_homa")]);
        command.args(arguments);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let _ = run(&format!("ip netns del {host}"));
        }
    }
}

fn run(command: &str) -> Result<(), String> {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap_or_default());
    let output = process.args(words).output().map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Whether a command failed because a privilege, a program, or a kind of link, queue or filter is
/// missing.
fn is_missing(why: &str) -> bool {
    let reasons = ["not permitted", "ermission denied", "nknown", "not supported", "No such file"];
    reasons.iter().any(|reason| why.contains(reason))
}

/// A process that is ended with the test.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `homa ping --priorities` finds on a narrow link; an error if this system cannot have one.
/// If the machine is so busy with other tests that probes wait for a processor longer than for the
/// link, another try finds what is expected.
fn found(honours: bool, expected: &str) -> Result<(Output, Value), String> {
    let hosts = Hosts::new(if honours { "prio" } else { "fifo" })?;
    hosts.narrow(honours)?;
    let mut serve = hosts.homa(1, &["serve", "--bind", "10.9.0.2:4000", "--plaintext"]);
    let mut serve = Ends(serve.stdout(Stdio::piped()).spawn().expect("a server"));
    let mut line = String::new();
    let stdout = serve.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("it listens");
    let ping = ["ping", "10.9.0.2:4000", "--plaintext", "--priorities", "--format", "json"];
    let mut tries = 0;
    loop {
        let output = hosts.homa(0, &ping).output().expect("a client");
        let document = document(&output);
        tries += 1;
        if document["finding"] == expected || tries == 3 {
            return Ok((output, document));
        }
    }
}

#[test]
fn a_link_that_honours_dscp_is_told_from_one_that_does_not() {
    for (honours, finding, exit) in [(true, "honoured", 0), (false, "ignored", 1)] {
        match found(honours, finding) {
            Ok((output, document)) => {
                assert_eq!(document["finding"], finding, "{document} {}", stderr(&output));
                assert_eq!(code(&output), exit, "{document}");
                assert_eq!(document["classes"].as_array().map(Vec::len), Some(6), "{document}");
            }
            Err(why) if is_missing(&why) => {
                return skip::test(&format!("network namespaces and htb ({why})"));
            }
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn all_classes_are_probed_and_only_priorities_pass() {
    let server = Server::start(&["--echo"]);
    let ping = ["ping", &server.address, "--priorities", "--count", "3", "--format", "json"];
    let output = homa(&ping);
    let document = document(&output);
    let classes = document["classes"].as_array().expect("classes");
    assert_eq!(classes.len(), 6, "{document}");
    for (n, of) in classes.iter().enumerate() {
        let number = |key: &str| of[key].as_u64().expect("a number");
        assert_eq!(number("class"), n as u64, "{document}");
        assert_eq!(number("answered") + number("lost"), 3, "{document}");
    }
    // Loopback has no queue, but a machine that is busy with other tests may delay anything.
    assert_eq!(code(&output), i32::from(document["finding"] != "honoured"), "{document}");
    server.terminate();
}

#[test]
fn a_server_that_does_not_answer_is_not_probed_for_long() {
    let folder = Folder::new("wrong-key");
    let [one, other] = ["one", "other"].map(|name| {
        let key = folder.path(name);
        assert_eq!(code(&homa(&["key", "new", &key])), 0);
        key
    });
    let server = Server::start(&["--echo", "--key", &one]);
    let ping = ["ping", &server.address, "--priorities", "--key", &other, "--deadline", "60s"];
    let wrong = homa(&ping);
    assert_eq!(code(&wrong), 1);
    assert!(stderr(&wrong).contains("--key with the same file"), "{}", stderr(&wrong));
    let gone = server.address.clone();
    server.terminate();
    let many = ["--count", "4000000000", "--deadline", "100ms"];
    let none = homa(&[&["ping", &gone, "--priorities"], &many[..]].concat());
    assert_eq!(code(&none), 1);
    assert!(stderr(&none).contains("hint: is a Homa server there?"), "{}", stderr(&none));
    let text = String::from_utf8(none.stdout).expect("UTF-8");
    assert!(text.contains("the server answered no call"), "{text}");
}

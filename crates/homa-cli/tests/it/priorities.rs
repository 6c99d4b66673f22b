//! `homa ping --priorities` over a narrow link that honours DSCP, and over one that does not. The
//! hosts are network namespaces, and the link is a queue of the first host's kernel.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::{code, document, homa, stderr};
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
        run(&format!("{tc} class add dev near parent 1: classid 1:1 htb rate 50mbit"))?;
        run(&format!("{class} 1:10 htb rate 40mbit ceil 50mbit prio 0"))?;
        run(&format!("{class} 1:20 htb rate 1mbit ceil 50mbit prio 7"))?;
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

/// A process that is ended with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `homa ping --priorities` finds on a narrow link; an error if this system cannot have one.
fn found(honours: bool) -> Result<(Output, Value), String> {
    let hosts = Hosts::new(if honours { "prio" } else { "fifo" })?;
    hosts.narrow(honours)?;
    let mut serve = hosts.homa(1, &["serve", "--bind", "10.9.0.2:4000", "--plaintext"]);
    let mut serve = Ends(serve.stdout(Stdio::piped()).spawn().expect("a server"));
    let mut line = String::new();
    let stdout = serve.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("it listens");
    let ping = ["ping", "10.9.0.2:4000", "--plaintext", "--priorities", "--format", "json"];
    let output = hosts.homa(0, &ping).output().expect("a client");
    let document = document(&output);
    Ok((output, document))
}

#[test]
fn a_link_that_honours_dscp_is_told_from_one_that_does_not() {
    for (honours, finding, exit) in [(true, "honoured", 0), (false, "ignored", 1)] {
        match found(honours) {
            Ok((output, document)) => {
                assert_eq!(document["finding"], finding, "{document} {}", stderr(&output));
                assert_eq!(code(&output), exit, "{document}");
                assert_eq!(document["classes"].as_array().map(Vec::len), Some(6), "{document}");
            }
            Err(why) => return skip::test(&format!("network namespaces and htb ({why})")),
        }
    }
}

#[test]
fn a_path_without_a_queue_decides_nothing() {
    let server = Server::start(&["--echo"]);
    let output = homa(&["ping", &server.address, "--priorities", "--count", "3"]);
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    // A machine that is busy with other tests may delay anything, but not decide for priorities.
    assert!(text.contains("CS5"), "{text}");
    let gone = server.address.clone();
    server.terminate();
    let none = homa(&["ping", &gone, "--priorities", "--count", "1", "--deadline", "100ms"]);
    assert_eq!(code(&none), 1);
    let text = String::from_utf8(none.stdout).expect("UTF-8");
    assert!(text.contains("did not answer"), "{text}");
}

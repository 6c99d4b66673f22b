//! `homa serve` as it runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::common::program;

/// A running server and its address; ended with SIGTERM, as a service manager would.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    /// Serves at a free port of loopback.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(["serve", "--bind", "127.0.0.1:0"]).args(arguments);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = process.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("its first line");
        let address = line.trim().strip_prefix("listening on ").expect("its address").to_string();
        Self { process, address }
    }

    /// Asks it to end and waits as long as a service manager would.
    pub fn terminate(mut self) -> Output {
        let pid = self.process.id().to_string();
        Command::new("kill").arg(&pid).status().expect("kill is there");
        let give_up = Instant::now() + Duration::from_secs(20);
        while self.process.try_wait().expect("it is ours").is_none() {
            if Instant::now() > give_up {
                self.process.kill().expect("it is ours");
                panic!("the server ignored SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process.wait_with_output().expect("it ended")
    }
}

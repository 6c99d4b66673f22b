//! `homa serve` as it runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::common::program;

/// A running server and its address; ended with SIGTERM, as a service manager would, or killed with
/// the test that started it.
pub struct Server {
    process: Child,
    stdout: BufReader<ChildStdout>,
    pub address: String,
}

impl Server {
    /// Serves at a free port of loopback.
    pub fn start(arguments: &[&str]) -> Self {
        Self::at("127.0.0.1:0", arguments)
    }

    /// Serves at an address.
    pub fn at(bind: &str, arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(["serve", "--bind", bind]).args(arguments);
        Self::of(command)
    }

    /// Serves as a command does.
    pub fn of(mut command: Command) -> Self {
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut server = Self { process, stdout, address: String::new() };
        server.address = server.line("listening on ");
        server
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// The rest of the next line that it prints.
    pub fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim().strip_prefix(start).unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Asks it to end and waits as long as a service manager would.
    pub fn terminate(mut self) -> Output {
        let pid = self.process.id().to_string();
        Command::new("kill").arg(&pid).status().expect("kill is there");
        let give_up = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                break status;
            }
            assert!(Instant::now() < give_up, "the server ignored SIGTERM");
            thread::sleep(Duration::from_millis(10));
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.stdout.read_to_end(&mut stdout).expect("what it printed");
        self.process.stderr.take().expect("piped").read_to_end(&mut stderr).expect("what it said");
        Output { status, stdout, stderr }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

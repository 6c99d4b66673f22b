//! A running `homa serve`.

use std::io::{self, BufRead, BufReader, Error};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A server, ended when it is dropped.
pub(super) struct Server {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts what a command says; returns it with its address.
    pub(super) fn start(serve: &mut Command) -> io::Result<(Self, String)> {
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = serve.spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Error::other("no output"))?;
        let mut server = Self { process, stdout: BufReader::new(stdout) };
        let address = server.line("listening on ")?;
        let address = address.split(' ').next().unwrap_or_default().to_owned();
        Ok((server, address))
    }

    /// The rest of the next line that it prints.
    pub(super) fn line(&mut self, start: &str) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let rest = line.trim_end().strip_prefix(start).map(str::to_owned);
        rest.ok_or_else(|| Error::other(format!("`homa serve` printed {line:?}, not {start:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Running programs that print what others have to know, such as `homa serve`.

use std::io::{self, BufRead, BufReader, Error};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A program, ended when it is dropped.
pub(super) struct RunningProgram {
    process: Child,
    stdout: BufReader<ChildStdout>,
}

impl RunningProgram {
    /// Starts a program.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Error::other("no output"))?;
        Ok(Self { process, stdout: BufReader::new(stdout) })
    }

    /// Starts `homa serve` as a command says; returns it with its address.
    pub(super) fn serve(serve: &mut Command) -> io::Result<(Self, String)> {
        let mut program = Self::start(serve)?;
        let address = program.line("listening on ")?;
        let address = address.split(' ').next().unwrap_or_default().to_owned();
        Ok((program, address))
    }

    /// The rest of the next line that it prints.
    pub(super) fn line(&mut self, start: &str) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let rest = line.trim_end().strip_prefix(start).map(str::to_owned);
        rest.ok_or_else(|| Error::other(format!("a program printed {line:?}, not {start:?}")))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

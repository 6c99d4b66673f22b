//! `homa proxy` beside the client and the server of a host, as separate processes in its network.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use homa_proto::Rate;

use super::cpu::Cpu;

/// A proxy, which is ended with the run.
#[derive(Debug)]
pub(super) struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        // If it has ended by itself, there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Proxy {
    /// Beside a server.
    pub(super) fn of_server(
        program: &Path,
        (homa, local): (SocketAddr, SocketAddr),
        link: Rate,
    ) -> io::Result<Self> {
        Self::start(program, &format!("homa://{homa}"), &format!("http://{local}"), link)
    }

    /// Beside clients.
    pub(super) fn of_clients(program: &Path, local: SocketAddr, link: Rate) -> io::Result<Self> {
        Self::start(program, &format!("http://{local}"), "homa://*", link)
    }

    /// Starts one, and waits until it listens.
    fn start(program: &Path, listen: &str, to: &str, link: Rate) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["proxy", "--plaintext", "--listen", listen, "--to", to]);
        command.args(["--link-rate", &format!("{}bps", link.0)]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut proxy = Self(child.spawn()?);
        let mut line = String::new();
        if let Some(stdout) = proxy.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.starts_with("listening on ") {
            true => Ok(proxy),
            false => {
                let text =
                    format!("`{} proxy --listen {listen}` did not listen", program.display());
                Err(io::Error::other(text))
            }
        }
    }

    /// Its processor time.
    pub(super) fn cpu(&self) -> Cpu {
        Cpu::of_process(self.0.id())
    }
}

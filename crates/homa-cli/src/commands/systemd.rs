//! The protocol between systemd and a service: inherited sockets (LISTEN_FDS), and the
//! notifications ready, alive and stopping. Without systemd it does nothing.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use homa::Engine;
use homa::driver::duplicate;
use sd_notify::NotifyState;

use crate::failure::{Failure, Hint};

/// The sockets that systemd passed (`LISTEN_FDS`), with their names (`FileDescriptorName=` in the
/// socket unit).
pub fn sockets() -> Result<Vec<(OwnedFd, String)>, Failure> {
    let hint = "start it with a socket unit, or without LISTEN_FDS and LISTEN_FDNAMES";
    let passed = sd_notify::listen_fds_with_names(false);
    let passed = passed.context("the sockets that systemd passed cannot be used").hint(hint)?;
    let owned = |(fd, name)| {
        let socket = duplicate(fd);
        let socket = socket.with_context(|| format!("descriptor {fd} of LISTEN_FDS")).hint(hint)?;
        Ok((socket, name))
    };
    passed.map(owned).collect()
}

/// Tells systemd, if it started this program (`Type=notify`). An error is no reason to end.
pub fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        eprintln!("warning: systemd was not told: {error}");
    }
}

/// Tells systemd regularly that all engines work, if it wants to know (`WatchdogSec=`), until the
/// result is dropped. An engine that is not healthy is not reported, so that systemd restarts the
/// service.
pub fn watch(engines: &[Engine]) -> Option<Sender<()>> {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return None;
    }
    let (end, ended) = mpsc::channel();
    let engines = engines.to_vec();
    // As sd_watchdog_enabled(3) recommends.
    let interval = Duration::from_micros(micros) / 2;
    thread::spawn(move || {
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            match engines.iter().all(Engine::healthy) {
                true => tell(NotifyState::Watchdog),
                false => eprintln!("warning: an engine makes no progress"),
            }
        }
    });
    Some(end)
}

//! An application that closes a descriptor of an engine by mistake. Each mistake is made in a
//! process of its own.

use std::os::fd::RawFd;
use std::thread;
use std::time::Duration;

use homa::inline::{Completion, Wait};
use homa::{CallError, CallOptions, Config, inline};

use crate::alone::process_of;
use crate::common::{echo, engine};

/// Set in the process that makes the mistake: what it closes.
const CLOSES: &str = "HOMA_TEST_CLOSES";

/// The descriptors of this process whose link in /proc begins with `kind`.
fn descriptors(kind: &str) -> Vec<RawFd> {
    let is = |fd: &RawFd| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        link.is_ok_and(|link| link.to_string_lossy().starts_with(kind))
    };
    (3..256).filter(is).collect()
}

/// Processor time of this process, in ticks of 10 ms.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields 14 and 15; the second one is a name in parentheses.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

const FAILED: CallError = CallError::EngineFailed { errno: libc::EBADF };

/// The process that makes a mistake, and otherwise an empty test.
#[test]
fn another_process_closes_a_descriptor() {
    let Ok(kind) = std::env::var(CLOSES) else { return };
    let before = descriptors(&kind);
    let server = engine("127.0.0.1", Config::default());
    let serving = echo(server.serve().unwrap());
    let ours = descriptors(&kind);
    let client = engine("127.0.0.1", Config::default());
    assert!(client.client().call(server.local_addr(), "before").is_ok());
    let idle = client.serve().unwrap();
    let accepting = thread::spawn(move || idle.accept().is_none());
    for fd in descriptors(&kind) {
        if !before.contains(&fd) && !ours.contains(&fd) {
            // This is the mistake.
            nix::unistd::close(fd).unwrap();
        }
    }
    let options = CallOptions::deadline(Duration::from_secs(600));
    for _ in 0..2 {
        let result = client.client().call_with(server.local_addr(), "after", &options);
        assert_eq!(result, Err(FAILED), "{kind}");
    }
    assert!(!client.healthy() && server.healthy(), "{kind}");
    assert!(accepting.join().unwrap(), "it waits for requests that cannot come");
    let used = cpu();
    thread::sleep(Duration::from_secs(1));
    let used = cpu() - used;
    assert!(used < 50, "{used} of 100 ticks of processor time in a second of rest");
    client.drain(Duration::from_secs(600)).unwrap();
    drop(client);
    server.drain(Duration::from_secs(5)).unwrap();
    // The first call may have left before the engine ended.
    assert!(serving.join().unwrap() <= 2);
}

#[test]
fn a_closed_descriptor_ends_the_engine_and_its_calls() {
    for kind in ["socket:", "anon_inode:[eventfd]"] {
        let name = "closed_descriptor::another_process_closes_a_descriptor";
        let done = process_of(name).env(CLOSES, kind).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{kind}: {}\n{text}", done.status);
    }
}

#[test]
fn an_inline_engine_reports_a_closed_descriptor() {
    const INLINE: &str = "inline";
    if std::env::var(CLOSES).as_deref() != Ok(INLINE) {
        let name = "closed_descriptor::an_inline_engine_reports_a_closed_descriptor";
        let done = process_of(name).env(CLOSES, INLINE).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        return assert!(done.status.success(), "{}\n{text}", done.status);
    }
    for wait in [Wait::No, Wait::Forever] {
        let before = descriptors("socket:");
        let open = || inline::Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default());
        let mut engine = open().unwrap();
        let options = CallOptions::deadline(Duration::from_secs(600));
        engine.call("127.0.0.1:9".parse().unwrap(), "lost", 7, &options).unwrap();
        let udp = descriptors("socket:").into_iter().filter(|fd| !before.contains(fd));
        // This is the mistake.
        udp.for_each(|fd| nix::unistd::close(fd).unwrap());
        let failed = loop {
            if engine.poll(wait).unwrap() {
                break engine.next().unwrap();
            }
        };
        assert!(
            matches!(&failed, Completion::Response { cookie: 7, result: Err(error), .. }
                if *error == FAILED),
            "{failed:?}"
        );
        assert_eq!(engine.poll(wait).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(engine.handles().is_empty());
    }
}

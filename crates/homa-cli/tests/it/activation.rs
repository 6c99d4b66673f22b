//! `homa serve` as a service of systemd: with a socket that is passed to it, from one process to
//! the next, and with a watchdog.

use std::fs::{Permissions, set_permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{code, homa, program, stderr};
use crate::folder::Folder;
use crate::server::Server;

/// Starts a server as systemd does: `socket` is its descriptor 3, and has a name.
fn activated(socket: impl Into<OwnedFd>, name: &str, arguments: &[&str]) -> Command {
    let start = "export LISTEN_PID=$$; exec \"$@\" 3<&0 </dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", start, "sh", env!("CARGO_BIN_EXE_homa"), "serve"]).args(arguments);
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name).env("NO_COLOR", "1");
    command.stdin(Stdio::from(socket.into()));
    command
}

#[test]
fn a_call_waits_in_the_socket_for_the_next_server() {
    let folder = Folder::new("handover");
    let (socket, files) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), folder.path(""));
    // Whatever the umask is.
    set_permissions(&folder.0, Permissions::from_mode(0o700)).expect("its owner");
    let at = socket.local_addr().expect("an address").to_string();
    let start = || {
        let socket = socket.try_clone().expect("a descriptor");
        Server::of(activated(socket, "requests", &["--echo", "--handover", &files]))
    };
    // Not idempotent: a call that may have been executed before would fail.
    let call = |data: &str| {
        let mut call = program();
        call.args(["call", &at, "--data", data, "--deadline", "60s"]);
        call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("homa call")
    };
    let mut waiting = call("before the first");
    for life in 0..3 {
        let server = start();
        assert_eq!(server.address, at);
        let output = waiting.wait_with_output().expect("its end");
        assert_eq!(code(&output), 0, "life {life}: {}", stderr(&output));
        let end = server.terminate();
        assert_eq!(code(&end), 0, "{}", stderr(&end));
        assert!(!stderr(&end).contains("warning"), "{}", stderr(&end));
        assert!(folder.0.join(&at).exists(), "what it hands over");
        waiting = call("between two");
    }
    let server = start();
    let output = waiting.wait_with_output().expect("its end");
    assert_eq!(output.stdout, b"between two", "{}", stderr(&output));
    assert!(!folder.0.join(&at).exists(), "it is used once");
    // One that cannot be read is a reason to begin anew, not to end.
    server.terminate();
    folder.file(&at, "no handover");
    let server = start();
    let end = server.terminate();
    assert!(stderr(&end).contains("warning: this is no handover"), "{}", stderr(&end));
}

/// Without a handover, the next server cannot know whether the last one ran a request before it
/// died.
#[test]
fn only_a_call_that_may_run_twice_outlives_its_server() {
    for (may_run_twice, ends) in [(None, 2), (Some("--idempotent"), 0)] {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let at = socket.local_addr().expect("an address").to_string();
        let mut call = program();
        call.args(["call", &at, "--deadline", "60s"]).args(may_run_twice);
        let call = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("homa call");
        // A server that takes the request, and dies.
        socket.recv(&mut [0; 2_000]).expect("a request");
        let server = Server::of(activated(socket, "requests", &["--echo"]));
        let output = call.wait_with_output().expect("its end");
        assert_eq!(code(&output), ends, "{may_run_twice:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).contains("may have executed"), ends != 0);
        server.terminate();
    }
}

#[test]
fn a_folder_without_a_handover_for_the_next_is_refused() {
    let folder = Folder::new("refused");
    let refused = |bind: &str, mode: u32| {
        set_permissions(&folder.0, Permissions::from_mode(mode)).expect("its owner");
        let output = homa(&["serve", "--bind", bind, "--handover", &folder.path("")]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        stderr(&output)
    };
    for mode in [0o777, 0o720, 0o702] {
        let said = refused("127.0.0.1:4000", mode);
        assert!(said.contains("others may write to") && said.contains("chmod 700"), "{said}");
    }
    let said = refused("127.0.0.1:0", 0o700);
    assert!(said.contains("port 0"), "{said}");
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder").count(), 0, "files of the trial");
    // No file can be made there, not even by root.
    let none = homa(&["serve", "--bind", "127.0.0.1:4000", "--handover", "/proc/self"]);
    assert_eq!(code(&none), 2);
    assert!(stderr(&none).contains("no file can be made in /proc/self"), "{}", stderr(&none));
}

#[test]
fn a_socket_that_cannot_be_served_is_named() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let output = activated(tcp.try_clone().expect("a descriptor"), "requests", &[]).output();
    let output = output.expect("it ends");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("ListenDatagram="), "{}", stderr(&output));
    let none = homa(&["serve"]);
    assert_eq!(code(&none), 2);
    assert!(stderr(&none).contains("give --bind"), "{}", stderr(&none));
    let nowhere = homa(&["serve", "--bind", "127.0.0.1:0", "--handover", "/nonexistent"]);
    assert_eq!(code(&nowhere), 2);
    assert!(stderr(&nowhere).contains("no folder /nonexistent"), "{}", stderr(&nowhere));
    // Beside an address, it may have the metrics.
    let at = tcp.local_addr().expect("an address");
    let server = Server::of(activated(tcp, "metrics", &["--bind", "127.0.0.1:0"]));
    let mut page = TcpStream::connect(at).expect("the endpoint");
    page.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("a request");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    server.terminate();
}

#[test]
fn the_watchdog_hears_that_the_engine_works() {
    let folder = Folder::new("watchdog");
    let at = folder.path("socket");
    let socket = UnixDatagram::bind(&at).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut watched = Command::new("sh");
    let start = "export WATCHDOG_PID=$$; exec \"$@\"";
    watched.args(["-c", start, "sh", env!("CARGO_BIN_EXE_homa"), "serve", "--bind", "127.0.0.1:0"]);
    watched.env("NOTIFY_SOCKET", &at).env("WATCHDOG_USEC", "200000");
    let server = Server::of(watched);
    let mut said = Vec::new();
    while said.iter().filter(|said| *said == "WATCHDOG=1").count() < 3 {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).expect("a message");
        said.push(String::from_utf8_lossy(&bytes[..length]).trim().to_owned());
    }
    assert!(said.iter().any(|said| said == "READY=1"), "{said:?}");
    server.terminate();
}

#[test]
fn a_datagram_activates_the_server() {
    let there = Command::new("systemd-socket-activate").arg("--version").output();
    if there.is_err() {
        return skip::test("systemd-socket-activate (apt-get install systemd)");
    }
    // A port that is free now.
    let at = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let at = at.expect("an address");
    let mut activate = Command::new("systemd-socket-activate");
    activate.args(["--datagram", "--listen", &at.to_string(), env!("CARGO_BIN_EXE_homa")]);
    activate.args(["serve", "--echo"]);
    activate.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut server = activate.spawn().expect("systemd-socket-activate");
    // To try and bind the port could take it from the program that is about to.
    let row = format!(": 0100007F:{:04X} ", at.port());
    let by = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string("/proc/net/udp").expect("sockets").contains(&row) {
        assert!(Instant::now() < by, "no socket at {at}");
        sleep(Duration::from_millis(5));
    }
    // The server starts with the first datagram.
    let call = |data| homa(&["call", &at.to_string(), "--data", data, "--deadline", "20s"]);
    let (first, again) = (call("start"), call("again"));
    let _ = server.kill();
    let _ = server.wait();
    for (output, answer) in [(first, "start"), (again, "again")] {
        assert_eq!(
            (code(&output), &output.stdout[..]),
            (0, answer.as_bytes()),
            "{}",
            stderr(&output)
        );
    }
}

//! A capture in progress: its output meanwhile, and the effect of Ctrl-C.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::conversation::{Talk, data};
use super::formats::PLAIN;
use crate::common::program;

/// Only reached when something is broken.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Two packets of an RPC.
fn talk() -> Talk {
    let mut talk = Talk::default();
    talk.say(0, 0, 2, 6, data(0..100, 100, 100));
    talk.say(50, 1, 2, 6, data(0..300, 300, 300));
    talk
}

#[test]
fn packets_are_shown_at_once_and_ctrl_c_ends_the_capture() {
    let file = talk().file();
    // The capturing program's buffer ends anywhere: here inside the second packet.
    let first = PLAIN.file(1, &talk().records[..1]).len() + 30;
    let mut child = program()
        .args(["pcap", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&file[..first]).expect("it reads");
    stdin.flush().expect("it reads");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let (shown, line) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("UTF-8");
        // The receiver may be gone if the line came too late.
        let _ = shown.send(line);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("UTF-8");
        rest
    });
    let line = line.recv_timeout(GIVE_UP).expect("the first packet is shown at once");
    assert!(line.contains(" > 10.99.0.12:4000 P6 0x2 DATA "), "{line}");
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().expect("kill is there");
    stdin.write_all(&file[first..]).expect("it reads on");
    drop(stdin);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let rest = reader.join().expect("read");
    assert!(rest.contains("10.99.0.12:4000 > ") && rest.contains("2 frames in "), "{rest}");
}

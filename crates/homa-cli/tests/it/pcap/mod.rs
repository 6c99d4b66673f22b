//! `homa pcap` and the Wireshark dissector on captures built from packets of the kernel module, in
//! every file format, link layer and encapsulation; what it says of RPCs; what damage does.

mod conversation;
mod encrypted;
mod formats;
mod frames;
mod hostile;
mod live;
mod packed;
mod summary;
mod trains;
mod tunnels;
mod wireshark;

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::common;

/// Runs `homa pcap` on the bytes of a capture, through a pipe.
fn pcap(file: &[u8], arguments: &[&str]) -> Output {
    let mut child = common::program()
        .arg("pcap")
        .args(arguments)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let bytes = file.to_vec();
    let feed = std::thread::spawn(move || {
        // A program that refuses the file closes the pipe early.
        let _ = stdin.write_all(&bytes);
    });
    let output = child.wait_with_output().expect("the program ends");
    feed.join().expect("fed");
    output
}

/// The only capture of the JSON document; the file is in order.
fn decoded(file: &[u8], arguments: &[&str]) -> Value {
    let output = pcap(file, &[&["--format", "json"], arguments].concat());
    assert_eq!(common::code(&output), 0, "{}", common::stderr(&output));
    common::document(&output)["captures"][0].take()
}

/// The lines of the table.
fn lines(file: &[u8], arguments: &[&str]) -> Vec<String> {
    let output = pcap(file, arguments);
    assert_eq!(common::code(&output), 0, "{}", common::stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

//! Runs of `homa bench` that several tests look at. Each takes seconds of time, so it is made once,
//! by the first test that asks. Ask while you hold `beside_racks`, or `alone` for `MICRO`.
//!
//! On one processor switch and hosts sleep while they wait, which takes as long as spinning on two,
//! and a fifth of the processor time. Tests of `bench` spin.

use std::process::Output;
use std::sync::LazyLock;

use serde_json::Value;

use crate::common::{code, document, homa, stderr};
use crate::one_processor::OneProcessor;

/// Hosts at one switch, without and with marks, over links that lose and repeat packets.
pub static RACK: LazyLock<Output> = LazyLock::new(|| {
    let small = ["--hosts", "2", "--link", "50Mbps", "--duration", "500ms"];
    let mix = ["--load", "0.3", "--workload", "w2", "--twin"];
    let faults = ["--loss", "0.01", "--duplicate", "0.05"];
    rack(&[&small[..], &mix, &faults, &MARKS])
});

/// Requests that go on until the link is full, without Homa's incast control.
pub static INCAST: LazyLock<Output> = LazyLock::new(|| {
    let small = ["--hosts", "3", "--link", "50Mbps", "--duration", "300ms"];
    rack(&[&small[..], &["--incast", "20", "--incast-control", "off"], &MARKS])
});

/// Workflows over a small fabric with a slow link.
pub static WORKFLOWS: LazyLock<Output> = LazyLock::new(|| {
    let fabric = ["--fabric", "leaf-spine", "--degrade", "spine1:50"];
    let small = ["--link", "50Mbps", "--duration", "300ms", "--load", "0.2"];
    rack(&[&["--fan-out", "3"][..], &small, &fabric, &MARKS])
});

/// Calls of gRPC, over TCP and through proxies.
#[cfg(feature = "grpc")]
pub static GRPC: LazyLock<Output> = LazyLock::new(|| {
    let small = ["--hosts", "2", "--link", "50Mbps", "--duration", "500ms", "--load", "0.4"];
    rack(&[&small[..], &["--workload", "w3", "--transport", "grpc,grpc-proxy"]])
});

/// The whole micro benchmark, with rounds so short that only its shape means something.
pub static MICRO: LazyLock<Output> =
    LazyLock::new(|| homa(&["bench", "--micro", "--duration", "100ms", "--format", "json"]));

const MARKS: [&str; 6] =
    ["--transport", "homa,tcp-ecn", "--phantom-queue", "0.95,1KB", "--ecn-threshold", "30KB"];

/// Shapes and counts hold on a busy machine, too, so a disturbed row is no failure. If a rate is
/// named, no others are tried.
fn rack(arguments: &[&[&str]]) -> Output {
    let _one = OneProcessor::take().expect("a processor");
    homa(&[&["bench", "--anyway", "--format", "json"], &arguments.concat()[..]].concat())
}

/// What a run printed. `None` if it could not happen for lack of namespaces; then the error must
/// say what decides.
pub fn report(output: &Output) -> Option<Value> {
    if code(output) == 2 {
        assert!(stderr(output).contains("hint: "), "{}", stderr(output));
        skip::test("namespaces (see `homa doctor`)");
        return None;
    }
    assert_eq!(code(output), 0, "{}", stderr(output));
    Some(document(output))
}

/// What a run printed, for a test that compares keys. If there was no rack, this is `None`, and the
/// test compares fewer keys. Rows may fail on a busy machine, so the exit code may be 1.
pub fn shown(output: &Output) -> Option<Value> {
    if code(output) == 2 {
        assert!(stderr(output).contains("hint: "), "{}", stderr(output));
        let error = stderr(output);
        let error = error.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        skip::part(&format!("a rack, whose keys are compared; here it ended with {error:?}"));
        return None;
    }
    Some(document(output))
}

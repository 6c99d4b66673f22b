//! Running the program as a script would.

use std::process::{Command, Output};

use serde_json::Value;

/// The program, without colours.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.env("NO_COLOR", "1");
    command
}

/// Runs it to the end.
pub fn homa(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program starts")
}

/// Its exit code.
pub fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

/// What it said beside the data.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Its data.
pub fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

/// The keys of an object, sorted.
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

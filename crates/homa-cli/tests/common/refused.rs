//! A kernel that refuses namespaces.

use std::process::{Command, Output};

use super::common::{program, stderr};

/// Runs the program in a user namespace that forbids further namespaces, which looks like a kernel
/// that refuses them. If even this is refused, the test counts as skipped: the ordinary tests cover
/// the other case.
pub fn without_namespaces(arguments: &[&str]) -> Option<Output> {
    let output = tried_without_namespaces(arguments);
    if output.is_none() {
        skip::test("user namespaces in which namespaces can be forbidden");
    }
    output
}

/// The same for a test that needs no such kernel.
pub fn tried_without_namespaces(arguments: &[&str]) -> Option<Output> {
    let forbid = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > \
                  /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut inside = Command::new("unshare");
    inside.args(["-Ur", "sh", "-c", forbid]).arg(program().get_program()).args(arguments);
    let output = inside.output().ok()?;
    let tried = !output.stdout.is_empty() || stderr(&output).contains("hint: ");
    tried.then_some(output)
}

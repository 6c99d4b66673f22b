//! A kernel that refuses namespaces.

use std::process::Command;

use super::common::{program, stderr};

/// Runs a bench in a user namespace that forbids further namespaces, which looks like a kernel that
/// refuses them.
pub fn without_namespaces(arguments: &[&str]) -> Option<std::process::Output> {
    let forbid = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > \
                  /proc/sys/user/max_user_namespaces && exec \"$0\" bench \"$@\"";
    let mut inside = Command::new("unshare");
    inside.args(["-Ur", "sh", "-c", forbid]).arg(program().get_program()).args(arguments);
    // If even this is refused, the ordinary tests cover the other case.
    let output = inside.output().ok()?;
    let tried = !output.stdout.is_empty() || stderr(&output).contains("hint: ");
    if !tried {
        skip::test("user namespaces in which namespaces can be forbidden");
    }
    tried.then_some(output)
}

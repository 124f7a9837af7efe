//! Workers in namespaces of their own, as in containers, and what to say where there are none.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// A command that runs this test program in namespaces of its own, after a script that prepares them. [`None`]: this
/// user may not make them.
pub(crate) fn contained(flags: &[&str], setup: &str) -> Option<Command> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(flags).args([
        "--fork",
        "--kill-child",
        "sh",
        "-ec",
        // Opened first: what is mounted may hide the folder that the program is in.
        &format!(
            "exec 3<\"$0\"\n{setup}\n[ ! -e \"$0\" ] || exec \"$0\" \"$@\"\nexec /proc/self/fd/3 \"$@\""
        ),
    ]);
    // Tried with a command that does nothing: a worker that could not start says only that.
    let mut probe = Command::new("unshare");
    let probe = probe.args(command.get_args()).arg("/bin/true").stdin(Stdio::null());
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    command.arg(std::env::current_exe().unwrap());
    Some(command)
}

/// Says that a test did not run, past the harness, which hides what tests print.
pub(crate) fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::io::stderr().write_all(format!("\nSKIPPED {test}: {why}\n").as_bytes()).unwrap();
}

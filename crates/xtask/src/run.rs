//! Running cargo.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// The folder of the workspace: the nearest one above that has this crate.
pub(crate) fn root() -> Result<PathBuf, String> {
    let here = env::current_dir().map_err(|error| format!("the current folder cannot be read: {error}"))?;
    let root = here.ancestors().find(|folder| folder.join("crates/xtask/Cargo.toml").is_file());
    root.map(Path::to_owned)
        .ok_or_else(|| "this is not the tidelock workspace: change to a folder of it".to_owned())
}

/// A call of the cargo that runs us.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}

/// Runs a command whose output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?} cannot run: {error}"))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Runs a command, passes each line of its standard output on as it comes, and shows it to
/// somebody else too. Says whether the command succeeded.
pub(crate) fn stream(
    command: &mut Command,
    out: &mut impl Write,
    mut see: impl FnMut(&str),
) -> Result<bool, String> {
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{command:?} cannot run: {error}"))?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // Bytes, because a test may print what is not text, and that must not end the run.
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            see(String::from_utf8_lossy(&line).trim_end());
            // The reader of our output may be gone; the count still matters for the exit code.
            let _ = out.write_all(&line).and_then(|()| out.flush());
            line.clear();
        }
    }
    let status = child.wait().map_err(|error| format!("{command:?} was lost: {error}"))?;
    Ok(status.success())
}

/// What cargo knows about the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value, String> {
    let output = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata cannot run: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata cannot be read: {error}"))
}

/// The folder that cargo builds in.
pub(crate) fn target(metadata: &Value) -> Result<PathBuf, String> {
    let folder = metadata["target_directory"].as_str().ok_or("cargo metadata names no target folder")?;
    Ok(folder.into())
}

/// Whether a program is on the path.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_shows_each_line_and_how_it_ended() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; printf 'two'; exit 3"]);
        let mut out = Vec::new();
        let success = stream(&mut command, &mut out, |line| lines.push(line.to_owned()));
        assert_eq!(success, Ok(false));
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(out, b"one\ntwo");
    }

    #[test]
    fn a_program_that_is_not_there_is_said_to_be_missing() {
        let error = run(&mut Command::new("no-such-program-anywhere")).unwrap_err();
        assert!(error.contains("no-such-program-anywhere"), "{error}");
        assert!(is_installed("sh") && !is_installed("no-such-program-anywhere"));
    }
}

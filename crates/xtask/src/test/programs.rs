//! The test programs of the workspace, run two at a time.
//!
//! `cargo test` runs them one after another, and most of them wait for leases and servers most of the time. What a
//! program prints goes to a file in `target/tests`. It is shown when the program has failed, so that what is to be
//! read is not lost among thousands of lines that say `ok`.

use std::{
    collections::VecDeque,
    env,
    fs::{self, File},
    io::{Write, stdout},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use serde_json::Value;

use super::counts::Counts;
use crate::run;

/// How many run at a time.
const AT_A_TIME: usize = 2;

/// The programs that take longest. They start first, so that none of them runs alone at the end.
const LONGEST: [&str; 5] = ["conformance", "election_faults", "redis_fleet", "mysql_store", "redis_store"];

/// How much is shown of a program that ended without a word about its tests.
const LAST_LINES: usize = 40;

/// A command that runs tests.
#[derive(Debug)]
struct Program {
    name: String,
    command: Command,
}

/// Builds all tests, runs them and counts how they went. Says which programs failed.
pub(super) fn verify(root: &Path, counts: &mut Counts) -> Result<(), String> {
    let logs = run::target(&run::metadata(root)?)?.join("tests");
    fs::create_dir_all(&logs).map_err(|error| format!("{logs:?} cannot be made: {error}"))?;
    let mut programs = build(root)?;
    programs.push(Program {
        name: "doctests".to_owned(),
        command: run::cargo(
            root,
            &["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--quiet"],
        ),
    });
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| program.name.ends_with(name)).unwrap_or(LONGEST.len())
    });
    let failed = run_all(programs, &logs, counts, &mut stdout());
    match (counts.passed + counts.failed, failed) {
        // Programs without tests must not look like success.
        (0, _) => Err("no test ran".to_owned()),
        (_, failed) if failed.is_empty() => Ok(()),
        (_, failed) => Err(format!("{counts}: {}", failed.join(", "))),
    }
}

/// Builds the programs that other steps run. With the tests, although they were built before: a command that names
/// none of them builds the library once more, with the features of fewer crates.
pub(super) fn binaries(root: &Path) -> Result<(), String> {
    let mut build = run::cargo(root, &["build", "--quiet", "--workspace", "--all-features", "--tests"]);
    run::run(build.args(["--bin", "tidelock", "--bin", "tidelock-torture"]))
}

/// Builds the test programs.
fn build(root: &Path) -> Result<Vec<Program>, String> {
    let args =
        ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let mut programs = Vec::new();
    let libraries = libraries(root)?;
    let mut see = |line: &str| {
        if let Some(program) = program(line, &libraries) {
            programs.push(program);
        }
    };
    match run::stream(&mut run::cargo(root, &args), &mut std::io::sink(), &mut see)? {
        true => Ok(programs),
        false => Err("the tests do not compile".to_owned()),
    }
}

/// The program of which cargo says in a message that it was built, with what cargo would give it.
fn program(message: &str, libraries: &Path) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = folder.file_name()?.to_str()?;
    let mut command = Command::new(path);
    command.current_dir(folder).stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", folder).env("LD_LIBRARY_PATH", libraries);
    Some(Program { name: format!("{package} {}", message["target"]["name"].as_str()?), command })
}

/// The folder of the compiler's libraries, which tests of macros load.
fn libraries(root: &Path) -> Result<PathBuf, String> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = rustc.args(["--print", "target-libdir"]).current_dir(root).output();
    let output = output.map_err(|error| format!("rustc cannot run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Runs programs, and returns the names of those that failed.
fn run_all(
    programs: Vec<Program>,
    logs: &Path,
    counts: &mut Counts,
    out: &mut (impl Write + Send),
) -> Vec<String> {
    let queue = Mutex::new(VecDeque::from(programs));
    let done = Mutex::new((counts, out, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // The queue is not locked while a program runs.
                while let Some(mut program) =
                    { queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() }
                {
                    let log = logs.join(format!("{}.log", program.name.replace(' ', "-")));
                    let end = run_one(&mut program, &log);
                    let (counts, out, failed) = &mut *done.lock().unwrap_or_else(PoisonError::into_inner);
                    if !end.show(&program.name, &log, counts, *out) {
                        failed.push(program.name);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).2
}

/// How a program ended.
#[derive(Debug)]
struct End {
    how: Result<(), String>,
    seconds: f64,
}

#[allow(clippy::disallowed_methods, reason = "the time of a test run, which no lease depends on")]
fn run_one(program: &mut Program, log: &Path) -> End {
    println!("--> {} begins", program.name);
    let start = Instant::now();
    let how = File::create(log)
        .and_then(|out| Ok((out.try_clone()?, out)))
        .map_err(|error| error.to_string())
        .and_then(|(out, errors)| run::run(program.command.stdout(out).stderr(errors)));
    End { how, seconds: start.elapsed().as_secs_f64() }
}

impl End {
    /// Counts the tests of the program, shows what it printed if one of them failed, and says whether all passed.
    fn show(&self, name: &str, log: &Path, all: &mut Counts, out: &mut impl Write) -> bool {
        let output = fs::read(log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let mut counts = Counts::default();
        output.lines().for_each(|line| counts.see(line.trim_end()));
        counts.end(self.how.is_ok());
        let passed = self.how.is_ok() && counts.failed == 0;
        let result = match &self.how {
            Ok(()) => counts.to_string(),
            Err(error) => format!("FAILED: {error}: {counts}"),
        };
        if !passed {
            // The reader of our output may be gone; the count still matters for the exit code.
            let _ = out.write_all(output.as_bytes());
            counts.failures = vec![format!("{name}, in full in {}:\n{}", log.display(), failures(&output))];
        }
        let _ = writeln!(out, "--> {name}: {result} in {:.1} s", self.seconds);
        all.add(&counts);
        passed
    }
}

/// What a program says about the tests that failed; its last lines, if it says nothing.
fn failures(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let first = lines.iter().position(|line| *line == "failures:");
    let last = lines.iter().rposition(|line| line.starts_with("test result: "));
    let said = match (first, last) {
        (Some(first), Some(last)) if first < last => &lines[first..last],
        _ => &lines[lines.len().saturating_sub(LAST_LINES)..],
    };
    said.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), command }
    }

    #[test]
    fn every_program_is_run_and_those_that_fail_are_named() {
        let logs = tempfile::tempdir().unwrap();
        let result = |passed, failed| {
            format!(
                "echo 'running 3 tests'; echo 'test result: x. {passed} passed; {failed} failed; 0 ignored; y'"
            )
        };
        let mut programs: Vec<_> = (0..5).map(|n| shell(&format!("good {n}"), &result(3, 0))).collect();
        programs.push(shell("bad", &format!("{}; exit 101", result(2, 1))));
        programs.push(shell("crashed", "echo 'running 3 tests'; exit 134"));
        let (mut counts, mut out) = (Counts::default(), Vec::new());
        let mut failed = run_all(programs, logs.path(), &mut counts, &mut out);
        failed.sort();
        assert_eq!(failed, ["bad", "crashed"]);
        assert_eq!(counts.to_string(), "17 passed, 2 failed");
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(shown.matches("running 3 tests").count(), 2, "only those that failed: {shown}");
        assert_eq!(counts.failures.len(), 2, "{:?}", counts.failures);
    }

    #[test]
    fn what_failed_tests_said_is_told_apart_from_the_rest() {
        let output =
            "test a ... ok\nfailures:\n\n---- b ----\nwhy\n\nfailures:\n    b\n\ntest result: FAILED. 1";
        assert_eq!(failures(output), "failures:\n\n---- b ----\nwhy\n\nfailures:\n    b\n");
        let crashed = "line\n".repeat(100) + "abort";
        assert_eq!(failures(&crashed).lines().count(), LAST_LINES);
        assert!(failures(&crashed).ends_with("abort"));
    }

    #[test]
    fn a_program_is_what_cargo_built_as_a_test() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{{"name":"t"}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let built = |message: &str| program(message, Path::new("/lib")).map(|program| program.name);
        assert_eq!(built(&message(true, r#""/w/target/t-1""#)).as_deref(), Some("a t"));
        assert_eq!(built(&message(false, r#""/w/target/a""#)), None, "an example is not run");
        assert_eq!(built(&message(true, "null")), None);
        assert_eq!(built("Compiling a"), None);
    }
}

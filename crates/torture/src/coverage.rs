//! Which lines of the library the torture reached: a command line that counts them, and what it counted.
//!
//! The compiler counts in the crates of the workspace only, so that dependencies need not be built again. The tools that
//! read its counts come with `rustup component add llvm-tools`.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// What of the library is looked at.
const PARTS: [&str; 2] = ["crates/tidelock/src/engine/", "crates/tidelock/src/backends/"];

/// Counts survive a process that is killed: they are kept in a file that is mapped.
const COUNTS: [&str; 2] = ["-Cinstrument-coverage", "-Cllvm-args=-runtime-counter-relocation"];

/// Is the compiler if cargo called this program as its wrapper.
pub(crate) fn run_if_wrapper(words: &[String]) -> Option<ExitCode> {
    let [_, compiler, rest @ ..] = words else { return None };
    if Path::new(compiler).file_stem() != Some(OsStr::new("rustc")) {
        return None;
    }
    let error = Command::new(compiler).args(rest).args(COUNTS).exec();
    eprintln!("{compiler}: {error}");
    Some(ExitCode::FAILURE)
}

/// Builds a command line that counts.
pub(crate) fn build() -> Result<PathBuf, String> {
    let target = std::path::absolute("target/coverage").map_err(|error| error.to_string())?;
    let wrapper = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new("cargo")
        // With the same features as the torture itself.
        .args(["build", "--quiet", "--package", "tidelock-cli", "--package", "tidelock-torture"])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_WORKSPACE_WRAPPER", wrapper)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the command line does not build with counts".to_owned());
    }
    Ok(target.join("debug/tidelock"))
}

/// The variable that tells a process where its counts go.
pub(crate) fn variable(folder: &Path) -> (&'static str, PathBuf) {
    ("LLVM_PROFILE_FILE", folder.join("counts/%p-%m%c.profraw"))
}

/// Says which lines nobody reached, and writes all of them to `coverage.txt` in the folder.
pub(crate) fn report(program: &Path, folder: &Path) -> Result<(), String> {
    let merged = folder.join("merged.profdata");
    let counts = fs::read_dir(folder.join("counts")).map_err(|error| format!("no counts: {error}"))?;
    let counts: Vec<_> = counts.flatten().map(|entry| entry.path()).collect();
    // A file whose process was killed before it had written anything is no reason to fail.
    tool("llvm-profdata", |tool| {
        tool.args(["merge", "-sparse", "-failure-mode=all", "-o"]).arg(&merged).args(&counts)
    })?;
    let lines = tool("llvm-cov", |tool| {
        tool.args(["export", "-format=lcov"]).arg(format!("-instr-profile={}", merged.display())).arg(program)
    })?;
    let files = reached(&lines);
    let (mut text, mut all, mut seen) = (String::new(), 0, 0);
    for (file, lines) in &files {
        let missed: Vec<_> = lines.iter().filter(|(_, times)| **times == 0).map(|(line, _)| *line).collect();
        let hit = lines.len() - missed.len();
        (all, seen) = (all + lines.len(), seen + hit);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{file}: {hit} of {} lines; not {}", lines.len(), ranges(&missed));
    }
    let page = folder.join("coverage.txt");
    fs::write(&page, text).map_err(|error| format!("{}: {error}", page.display()))?;
    println!(
        "{seen} of {all} lines of {} were reached; the others are in {}",
        PARTS.join(" and "),
        page.display()
    );
    Ok(())
}

/// A tool of the compiler's.
fn tool(name: &str, with: impl FnOnce(&mut Command) -> &mut Command) -> Result<String, String> {
    let root = Command::new("rustc").args(["--print", "target-libdir"]).output();
    let root = root.map_err(|error| format!("rustc: {error}"))?.stdout;
    let program = Path::new(String::from_utf8_lossy(&root).trim()).with_file_name("bin").join(name);
    let output = with(&mut Command::new(&program)).output();
    let output = output.map_err(|error| {
        format!("{}: {error}; `rustup component add llvm-tools` installs it", program.display())
    })?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Of each file that is looked at, how often each of its lines was reached.
fn reached(lcov: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let mut files: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let at = PARTS.iter().find_map(|part| path.find(part));
            file = at.map(|at| files.entry(path[at..].to_owned()).or_default());
        } else if let Some((number, times)) = line.strip_prefix("DA:").and_then(|line| line.split_once(','))
            && let Some(file) = &mut file
            && let (Ok(number), Ok(times)) = (number.parse::<u32>(), times.parse::<u64>())
        {
            *file.entry(number).or_default() += times;
        }
    }
    files
}

/// Lines as people write them: `3, 7-9`.
fn ranges(lines: &[u32]) -> String {
    let runs = lines.chunk_by(|one, next| one + 1 == *next);
    let told = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_nobody_reached_are_told_in_ranges() {
        let lcov = "SF:/home/crates/tidelock/src/engine/grant.rs\nDA:1,5\nDA:2,0\nDA:3,0\nDA:5,0\nend_of_record\n\
                    SF:/home/crates/tidelock/src/api/mutex.rs\nDA:1,0\nend_of_record\n";
        let files = reached(lcov);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["crates/tidelock/src/engine/grant.rs"]);
        let lines = &files["crates/tidelock/src/engine/grant.rs"];
        let missed: Vec<_> = lines.iter().filter(|(_, times)| **times == 0).map(|(line, _)| *line).collect();
        assert_eq!(ranges(&missed), "2-3, 5");
    }
}

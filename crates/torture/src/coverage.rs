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
const LOOKED_AT: [&str; 2] = ["crates/tidelock/src/engine/", "crates/tidelock/src/backends/"];

/// The parts with a goal, below `crates/tidelock/src/`: what carries every lock. Stock, modes for other programs and what
/// only `tidelock doctor` asks are in other files.
const PARTS: [(&str, &[&str]); 8] = [
    ("engine", &["engine/"]),
    ("file", &["backends/file/store.rs"]),
    ("redis", &["backends/redis/store.rs", "backends/redis/link/"]),
    ("redlock", &["backends/redlock/store.rs", "backends/redlock/link.rs"]),
    ("mysql", &["backends/mysql/store.rs", "backends/mysql/link.rs"]),
    ("etcd", &["backends/etcd/store.rs", "backends/etcd/link/"]),
    ("postgres", &["backends/postgres/store.rs", "backends/postgres/link/"]),
    ("zookeeper", &["backends/zookeeper/store.rs", "backends/zookeeper/link/"]),
];

/// The lines of each file, and how often each was reached.
type Files = BTreeMap<String, BTreeMap<u32, u64>>;

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
    let mut files = reached(&lines);
    for (file, lines) in &mut files {
        let source = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        leave_out(&source, lines);
    }
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
        LOOKED_AT.join(" and "),
        page.display()
    );
    print!("{}", parts(&files));
    Ok(())
}

/// How much of each part was reached, as a table in Markdown. Stores that were not tortured are left out.
fn parts(files: &Files) -> String {
    let mut table = "| part | lines | reached |\n|---|---:|---:|\n".to_owned();
    for (name, paths) in PARTS {
        let is_in = |file: &str| {
            file.strip_prefix("crates/tidelock/src/")
                .is_some_and(|file| paths.iter().any(|path| file.starts_with(path)))
        };
        let lines = files.iter().filter(|(file, _)| is_in(file)).flat_map(|(_, lines)| lines.values());
        let (all, hit) =
            lines.fold((0_u64, 0_u64), |(all, hit), times| (all + 1, hit + u64::from(*times > 0)));
        if hit > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(table, "| `{name}` | {all} | {:.1} % |", 100.0 * hit as f64 / all as f64);
        }
    }
    table
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
fn reached(lcov: &str) -> Files {
    let mut files = Files::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let at = LOOKED_AT.iter().find_map(|part| path.find(part));
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

/// Leaves out what no run can reach: functions that the compiler has run for constants, and lines that say so themselves.
fn leave_out(source: &str, lines: &mut BTreeMap<u32, u64>) {
    let numbered = || (1_u32..).zip(source.lines());
    for (number, line) in numbered() {
        if line.contains("unreachable!(") {
            lines.remove(&number);
        }
        if !line.trim_start().trim_start_matches("pub").contains("const fn ") {
            continue;
        }
        // Its end is a brace as far to the right as its begin.
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |(_, line): &(u32, &str)| line.strip_prefix(indent).is_some_and(|line| line == "}");
        let end = numbered().skip(number as usize - 1).find(ends).map_or(number, |(end, _)| end);
        if lines.range(number..=end).all(|(_, times)| *times == 0) {
            lines.retain(|line, _| !(number..=end).contains(line));
        }
    }
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

    #[test]
    fn what_only_the_compiler_runs_and_what_cannot_be_is_left_out() {
        let source = "const ONE: u32 = one();\npub(super) const fn one() -> u32 {\n    1\n}\n\
                      impl A {\n    const fn two() -> u32 {\n        2\n    }\n    fn three() {\n        \
                      unreachable!(\"\")\n    }\n}\n";
        let mut lines = BTreeMap::from([(2, 0), (3, 0), (4, 0), (6, 5), (7, 0), (9, 0), (10, 0), (11, 0)]);
        leave_out(source, &mut lines);
        assert_eq!(lines.into_keys().collect::<Vec<_>>(), [6, 7, 9, 11]);
    }

    #[test]
    fn each_part_has_the_lines_of_its_files_only() {
        let lcov = "SF:/home/crates/tidelock/src/engine/grant.rs\nDA:1,5\nDA:2,0\nend_of_record\n\
                    SF:/home/crates/tidelock/src/backends/redis/link/mod.rs\nDA:1,1\nDA:2,1\nDA:3,0\nend_of_record\n\
                    SF:/home/crates/tidelock/src/backends/redis/stock.rs\nDA:1,0\nend_of_record\n\
                    SF:/home/crates/tidelock/src/backends/redlock/link.rs\nDA:1,0\nend_of_record\n";
        let table = parts(&reached(lcov));
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows, ["| `engine` | 2 | 50.0 % |", "| `redis` | 3 | 66.7 % |"]);
    }
}

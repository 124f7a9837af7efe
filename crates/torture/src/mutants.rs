//! The proof that the torture can fail: tidelock with one mistake at a time, until the checker finds it.
//!
//! The mistakes are in [`LIST`]. They are made in a copy of the source, never in the source itself: the copy gets all of
//! them at once, each behind a question for an environment variable, so that one build has every mutant.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::{
    Args,
    list::{Change, LIST, Mutant, SEAMS},
    packets::Network,
    stand::STANDS,
    table,
};

/// What became of a mutant.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) mutant: &'static Mutant,
    /// The rules that it broke, the fault before the first time, and after how many seconds; nothing if it was not found.
    pub(crate) found: Option<(String, String, u64)>,
}

/// Runs mutants, each until it is found or its rounds have ended. Says whether all were found.
pub(crate) fn run(args: &Args, network: Network, wanted: &[String], folder: &Path) -> Result<bool, String> {
    let program = args.built.clone().map_or_else(|| build(Path::new(".")), Ok)?;
    let wanted: Vec<_> =
        LIST.iter().filter(|mutant| wanted.iter().any(|name| name == "all" || name == mutant.name)).collect();
    let mut outcomes = Vec::new();
    for mutant in wanted {
        let outcome = hunt(args, network, mutant, &program, folder)?;
        match &outcome.found {
            Some((rule, fault, seconds)) => {
                println!("{}: found after {seconds} s: {rule} ({fault})", mutant.name);
            }
            None => println!("{}: NOT FOUND", mutant.name),
        }
        outcomes.push(outcome);
        if let Some(file) = &args.table {
            let before = fs::read_to_string(file).unwrap_or_default();
            table::put(file, "mutants", &table(&outcomes, &before))?;
        }
    }
    let found = outcomes.iter().filter(|outcome| outcome.found.is_some()).count();
    println!("{found} of {} mutants found", outcomes.len());
    Ok(found == outcomes.len())
}

/// Tortures a mutant with one seed after the other.
#[allow(clippy::disallowed_methods, reason = "the time of a hunt, which no lease depends on")]
fn hunt(
    args: &Args,
    network: Network,
    mutant: &'static Mutant,
    program: &Path,
    folder: &Path,
) -> Result<Outcome, String> {
    let began = Instant::now();
    for round in 0..args.rounds {
        let (_, open) = STANDS.iter().find(|(name, _)| *name == mutant.on).ok_or("no such deployment")?;
        let stand = network.around(open(args.ttl_ms).map_err(|error| format!("{}: {error}", mutant.name))?);
        let report = folder.join(format!("{}-{round}", mutant.name));
        let mut command = crate::command(args, &*stand, &report, folder, program)?;
        command.env("TIDELOCK_MUTANT", mutant.name).stdout(Stdio::null());
        if let Change::Text { find, with, .. } = mutant.change {
            command.env("TIDELOCK_MUTANT_FIND", find).env("TIDELOCK_MUTANT_WITH", with);
        }
        command.args(["--seed", &(args.seed.unwrap_or(1) + u64::from(round)).to_string()]);
        let code = crate::torture(&mut command, &*stand, folder)?;
        if code == Some(1) {
            let text = fs::read_to_string(report.join("report.json")).map_err(|error| error.to_string())?;
            let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let story = &value["stories"][0];
            let words = |value: &Value| value.as_str().unwrap_or("none").to_owned();
            let rules: Vec<_> =
                value["violations"].as_array().into_iter().flatten().map(|it| words(&it["rule"])).collect();
            let found = (rules.join(", "), words(&story["fault"]), began.elapsed().as_secs());
            return Ok(Outcome { mutant, found: Some(found) });
        }
        if code != Some(0) {
            println!("{}: run {round} could not be made (exit code {code:?})", mutant.name);
        }
    }
    Ok(Outcome { mutant, found: None })
}

/// Copies the source, changes the copy, and builds it.
pub(crate) fn build(root: &Path) -> Result<PathBuf, String> {
    let home = root.join("target/mutants");
    let tree = home.join("tree");
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?.stdout;
    for file in String::from_utf8_lossy(&listed).split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root.join(file), tree.join(file));
        let text = match fs::read_link(&from) {
            Ok(link) => {
                let parent = to.parent().ok_or("a file has a folder")?;
                // There already, if it is not the first time.
                let _ = fs::create_dir_all(parent).and_then(|()| symlink(link, &to));
                continue;
            }
            Err(_) => changed(file, fs::read(&from).map_err(|error| format!("{file}: {error}"))?)?,
        };
        // What has not changed keeps its date, and is not built again.
        if fs::read(&to).is_ok_and(|before| before == text) {
            continue;
        }
        let parent = to.parent().ok_or("a file has a folder")?;
        fs::create_dir_all(parent).and_then(|()| fs::write(&to, text)).map_err(|error| error.to_string())?;
    }
    let target = std::path::absolute(home.join("target")).map_err(|error| error.to_string())?;
    let status = Command::new("cargo")
        // As `cargo xtask torture` builds, so that dependencies which are there need not be built differently.
        .args(["build", "--quiet", "--workspace", "--all-features"])
        .args(["--bin", "tidelock", "--bin", "tidelock-torture"])
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the mutants do not build".to_owned());
    }
    Ok(target.join("debug/tidelock"))
}

/// A file with all seams and all mistakes in code.
fn changed(file: &str, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let code = LIST.iter().filter_map(|mutant| match mutant.change {
        Change::Code { file, find, with } => Some((file, find, with)),
        _ => None,
    });
    for mutant in LIST {
        // Made when the program runs, by a seam: here it is only made sure that there is something to change.
        if let Change::Text { file: of, find, .. } = mutant.change
            && of == file
            && !String::from_utf8_lossy(&bytes).contains(find)
        {
            return Err(format!("{file} lacks {find:?}: correct the list of mutants"));
        }
    }
    let mut text = None;
    for (_, find, with) in SEAMS.iter().copied().chain(code).filter(|(of, ..)| *of == file) {
        let before = match text.take() {
            Some(text) => text,
            None => String::from_utf8(bytes.clone()).map_err(|_| format!("{file} is no text"))?,
        };
        if before.matches(find).count() != 1 {
            return Err(format!("{file} has {find:?} not exactly once: correct the list of mutants"));
        }
        text = Some(before.replace(find, with));
    }
    Ok(text.map_or(bytes, String::into_bytes))
}

/// The table, with the rows of a page for those that did not run now.
fn table(outcomes: &[Outcome], page: &str) -> String {
    let mut text =
        "| mutant | mistake | on | found by | last fault before | after |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for Mutant { name, mistake, on, .. } in LIST {
        let row = match outcomes.iter().find(|outcome| outcome.mutant.name == *name) {
            Some(Outcome { found: Some((rule, fault, seconds)), .. }) => {
                format!("| {rule} | {fault} | {seconds} s |")
            }
            Some(Outcome { found: None, .. }) => "| **not found** | | |".to_owned(),
            None => {
                let start = format!("| `{name}` |");
                let row = page.lines().find(|line| line.starts_with(&start));
                let told = row.and_then(|row| row.splitn(5, '|').nth(4));
                format!("|{}", told.unwrap_or(" not run yet | | |"))
            }
        };
        text.push_str(&format!("| `{name}` | {mistake} | {on} {row}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of the workspace.
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_mistake_has_its_place_in_the_source() {
        for mutant in LIST {
            let (file, find) = match mutant.change {
                Change::Hook => continue,
                Change::Code { file, find, .. } | Change::Text { file, find, .. } => (file, find),
            };
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert_eq!(text.matches(find).count(), 1, "{}: {file} has {find:?} not once", mutant.name);
        }
        for (file, find, _) in SEAMS {
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert_eq!(text.matches(find).count(), 1, "{file} has {find:?} not once");
        }
    }

    #[test]
    fn a_table_keeps_what_is_known_of_mutants_that_did_not_run() {
        let [first, second, ..] = LIST else { panic!("there are mutants") };
        let page = format!("| `{}` | old words | redis | overlap | kill | 7 s |\n", second.name);
        let found = Some(("order".to_owned(), "none".to_owned(), 5));
        let text = table(&[Outcome { mutant: first, found }], &page);
        let row = |mutant: &Mutant, end: &str| {
            format!("| `{}` | {} | {} | {end} |\n", mutant.name, mutant.mistake, mutant.on)
        };
        assert!(text.contains(&row(first, "order | none | 5 s")), "{text}");
        assert!(text.contains(&row(second, "overlap | kill | 7 s")), "{text}");
    }

    #[test]
    fn every_mistake_of_the_engine_and_of_a_line_has_a_hook() {
        let hooks = ["engine/flaws.rs", "model/line/flaws.rs"]
            .map(|file| fs::read_to_string(root().join("crates/tidelock/src").join(file)).unwrap())
            .concat();
        for mutant in LIST.iter().filter(|mutant| matches!(mutant.change, Change::Hook)) {
            assert!(hooks.contains(&format!("=> {},", mutant.name)), "{}", mutant.name);
        }
    }

    #[test]
    fn names_and_deployments_of_mutants_are_right() {
        for (index, mutant) in LIST.iter().enumerate() {
            assert!(LIST[..index].iter().all(|other| other.name != mutant.name), "{}", mutant.name);
            assert!(STANDS.iter().any(|(name, _)| *name == mutant.on), "{}", mutant.name);
        }
    }
}

//! `cargo xtask api`: the public API of the library, its listing in the repository, and its examples.
//!
//! The listing makes a change of the public API visible in the diff of the change that causes it. It is made
//! from rustdoc's JSON, because macros are expanded there and paths resolved. Stable toolchains write that JSON
//! only with `RUSTC_BOOTSTRAP=1`. Set for all of cargo, it would build many dependencies again; so this program
//! stands in for rustdoc and sets it there alone.
//!
//! Another toolchain may write another version of the JSON. The comparison is then skipped, and says so.

mod examples;
mod items;
mod text;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::SystemTime,
};

use serde_json::Value;

use self::items::{Api, FORMATS};
use crate::{check::Finding, run};

/// Compare the public API with its listing, crates/tidelock/public-api.txt, and look for missing examples
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the listing, after a change that is intended
    #[arg(long)]
    update: bool,
}

/// The listing, a line for each item.
const LISTING: &str = "crates/tidelock/public-api.txt";

/// The sources that the listing is made from.
const SOURCES: [&str; 2] = ["crates/tidelock/src", "crates/tidelock/Cargo.toml"];

/// What rustdoc writes. Hidden items are listed as such: users can call them, too.
const FLAGS: &str = "--deny warnings -Z unstable-options --output-format json --document-hidden-items";

/// The variable that makes this program stand in for the rustdoc that it names.
const RUSTDOC: &str = "TIDELOCK_XTASK_RUSTDOC";

/// Documents the workspace and compares. Says whether nothing was found.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    document(root)?;
    let json = read(&Output::of(root)?.json)?;
    if args.update {
        let api = Api::read(&json).ok_or_else(|| unknown(&json))?;
        let text = api.lines().join("\n") + "\n";
        fs::write(root.join(LISTING), text)
            .map_err(|error| format!("{LISTING} cannot be written: {error}"))?;
    }
    let findings = inspect(root, &json);
    for finding in &findings {
        println!("{finding}");
    }
    println!("findings: {}", findings.len());
    Ok(findings.is_empty())
}

/// Documents the workspace as JSON. Rustdoc finds the same mistakes as when it writes pages.
pub(crate) fn document(root: &Path) -> Result<(), String> {
    let this = env::current_exe().map_err(|error| format!("the path of xtask cannot be read: {error}"))?;
    let real = env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    // The whole workspace, as the lints and tests build it: for one package alone, cargo would choose other
    // features of the dependencies and build them again.
    let mut doc = run::cargo(root, &["doc", "--workspace", "--no-deps", "--all-features"]);
    run::run(doc.env("RUSTDOCFLAGS", FLAGS).env("RUSTDOC", this).env(RUSTDOC, real))?;
    let stamp = Output::of(root)?.stamp;
    fs::write(&stamp, "").map_err(|error| format!("{} cannot be written: {error}", stamp.display()))
}

/// Stands in for rustdoc, if cargo called this program as such.
pub(crate) fn rustdoc() -> Option<ExitCode> {
    let mut rustdoc = unstable(env::var_os(RUSTDOC)?);
    let done = rustdoc.args(env::args_os().skip(1)).status();
    Some(if done.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A rustdoc that accepts unstable options.
fn unstable(rustdoc: OsString) -> Command {
    let mut command = Command::new(rustdoc);
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

/// What is wrong with the public API, where the documentation is as new as the sources.
pub(crate) fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let output = Output::of(root)?;
    let documented = changed(&output.stamp);
    let newest = SOURCES.iter().filter_map(|source| changed(&root.join(source))).max();
    if documented.is_none() || documented < newest || !output.json.is_file() {
        println!(
            "skipped: the public API, which was not documented since the sources changed; to compare it: cargo xtask api"
        );
        return Ok(Vec::new());
    }
    Ok(inspect(root, &read(&output.json)?))
}

/// What is wrong with the public API: its listing differs, an item has no example, or an item is hidden.
fn inspect(root: &Path, json: &Value) -> Vec<Finding> {
    let Some(api) = Api::read(json) else {
        println!("skipped: the public API: {}", unknown(json));
        return Vec::new();
    };
    let differs = compare(root, &api);
    differs.into_iter().chain(examples::unshown(&api)).chain(examples::hidden(&api)).collect()
}

/// Prints how the listing differs.
fn compare(root: &Path, api: &Api<'_>) -> Option<Finding> {
    let listing = fs::read_to_string(root.join(LISTING)).unwrap_or_default();
    let (lines, listed) = (api.lines(), listing.lines().collect::<Vec<_>>());
    let changes = difference(&listed, &lines);
    for change in &changes {
        println!("{change}");
    }
    let what = format!("is not the public API, as the {} lines above show", changes.len());
    let differs = || Finding::new(LISTING, what, "if the change is intended, run cargo xtask api --update");
    (!changes.is_empty()).then(differs)
}

/// The lines that are only in one of two listings: `-` for the old one and `+` for the new one.
fn difference(old: &[&str], new: &[String]) -> Vec<String> {
    let removed = old.iter().filter(|line| !new.iter().any(|other| other == *line));
    let added = new.iter().filter(|line| !old.contains(&line.as_str()));
    removed.map(|line| format!("- {line}")).chain(added.map(|line| format!("+ {line}"))).collect()
}

/// What documenting leaves behind.
#[derive(Debug)]
struct Output {
    json: PathBuf,
    /// Written when documenting has ended. Cargo may leave the JSON alone, if nothing that it is made from has
    /// changed.
    stamp: PathBuf,
}

impl Output {
    fn of(root: &Path) -> Result<Self, String> {
        let folder = run::target(&run::metadata(root)?)?.join("doc");
        Ok(Self { json: folder.join("tidelock.json"), stamp: folder.join("tidelock.stamp") })
    }
}

fn read(json: &Path) -> Result<Value, String> {
    let bytes = fs::read(json).map_err(|error| format!("{} cannot be read: {error}", json.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{} cannot be read: {error}", json.display()))
}

fn unknown(json: &Value) -> String {
    let (first, last) = (FORMATS.start(), FORMATS.end());
    format!("this rustdoc writes version {} of its JSON; known are {first} to {last}", json["format_version"])
}

/// When a file, or the newest file below a folder, was changed.
fn changed(path: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_dir() {
        return metadata.modified().ok();
    }
    fs::read_dir(path).ok()?.flatten().filter_map(|entry| changed(&entry.path())).max()
}

#[cfg(test)]
mod tests;

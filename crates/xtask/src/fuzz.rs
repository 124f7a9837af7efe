//! `cargo xtask fuzz`: searches for bytes that a reader of `testing/hostile.rs` cannot cope with.
//!
//! The test `hostile_input` reads what the search has kept, without any of the tools that this needs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::run;

/// Search for bytes from outside that make a reader panic, hang or use too much memory
#[derive(Debug, clap::Args)]
#[command(after_help = "Needs a nightly compiler and cargo-fuzz: cargo install cargo-fuzz\n\n\
    Examples:\n  cargo xtask fuzz --minutes 30          30 minutes for each reader\n  \
    cargo xtask fuzz url --keep            one minute, then keep what takes new ways")]
pub(crate) struct Args {
    /// The readers to feed; all if none is named
    #[arg(value_name = "READER")]
    readers: Vec<String>,
    /// How long each reader is fed
    #[arg(long, value_name = "N", default_value_t = 1)]
    minutes: u32,
    /// Replace the kept inputs by the fewest that take all ways found
    #[arg(long)]
    keep: bool,
}

/// Feeds the readers one after another. Returns whether all of them coped.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    if !run::is_installed("cargo-fuzz") {
        return Err("cargo-fuzz is missing: cargo install cargo-fuzz".to_owned());
    }
    let kept = root.join("crates/tidelock/tests/hostile_input/kept");
    let known = folders(&kept)?;
    if let Some(other) = args.readers.iter().find(|name| !known.contains(name)) {
        return Err(format!("there is no reader {other:?}; known are: {}", known.join(", ")));
    }
    let mut failed = Vec::new();
    for reader in known.iter().filter(|name| args.readers.is_empty() || args.readers.contains(name)) {
        println!("==> {reader}: {} min", args.minutes);
        let (kept, found) = (kept.join(reader), root.join("fuzz/corpus").join(reader));
        fs::create_dir_all(&found).map_err(|error| format!("{found:?} cannot be made: {error}"))?;
        let seconds = format!("-max_total_time={}", u64::from(args.minutes) * 60);
        if run::run(fuzz(root, reader).arg(&found).arg(&kept).args(["--", &seconds]).args(LIMITS)).is_err() {
            failed.push(reader.as_str());
        } else if args.keep {
            keep(root, reader, &kept, &found)?;
        }
    }
    if !failed.is_empty() {
        println!("cannot cope: {}; the bytes are in fuzz/artifacts/", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// No input is longer, takes longer or needs more memory.
const LIMITS: [&str; 5] =
    ["-max_len=4096", "-timeout=5", "-malloc_limit_mb=128", "-rss_limit_mb=1024", "-print_final_stats=1"];

fn fuzz(root: &Path, reader: &str) -> Command {
    // rustup's cargo chooses the compiler; the one that runs us is fixed to its own.
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "fuzz", "run", "reader"]).current_dir(root.join("fuzz"));
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env("TIDELOCK_READER", reader);
    cargo
}

/// Replaces the kept inputs.
fn keep(root: &Path, reader: &str, kept: &Path, found: &Path) -> Result<(), String> {
    let fewest = root.join("fuzz/corpus").join(format!("{reader}.fewest"));
    let trouble = |error: std::io::Error| format!("the inputs of {reader} cannot be replaced: {error}");
    fs::create_dir_all(&fewest).map_err(trouble)?;
    run::run(fuzz(root, reader).args([&fewest, found, kept]).args(["--", "-merge=1"]).args(LIMITS))?;
    fs::remove_dir_all(kept).map_err(trouble)?;
    fs::rename(&fewest, kept).map_err(trouble)
}

/// The names of the folders in a folder, in order.
fn folders(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{folder:?} cannot be read: {error}"))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let named = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let mut names: Vec<_> = paths.filter(|path| path.is_dir()).filter_map(named).collect();
    names.sort();
    Ok(names)
}

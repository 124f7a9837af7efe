//! `cargo xtask test`: everything that must hold before a change lands, and how it went in one line.

mod clients;
mod counts;
mod packages;
mod programs;

use std::{io::stdout, path::Path, time::Instant};

use self::counts::Counts;
use crate::{
    api,
    check::{self, Tree},
    run, torture,
};

/// Run every test and check; the last line says how many passed and failed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the conformance cases of one store
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Do not install the servers that tests need
    #[arg(long)]
    no_install: bool,
}

/// Runs the steps. A step that fails does not stop those that do not need it.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    let mut tally = Tally::default();
    match &args.backend {
        Some(store) => {
            let known = Tree::new(root).stores();
            if !known.contains(store) {
                return Err(format!("there is no store {store:?}; known are: {}", known.join(", ")));
            }
            tally.conformance(root, store);
        }
        None => tally.everything(root, args),
    }
    if !tally.failures.is_empty() {
        println!("\nfailed: {}", tally.failures.join(", "));
        tally.counts.failures.iter().for_each(|failure| println!("\n{failure}"));
    }
    println!("{}", tally.counts);
    Ok(tally.counts.failed == 0)
}

/// How it went so far.
#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    /// The steps that failed.
    failures: Vec<String>,
}

impl Tally {
    fn everything(&mut self, root: &Path, args: &Args) {
        if !args.no_install {
            self.step("install", install);
        }
        self.cargo(root, "format", &["fmt", "--all", "--check"]);
        let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"];
        self.cargo(root, "lints", &clippy);
        // Before the tree, which compares the public API with what this writes.
        self.step("documentation", || api::document(root));
        self.step("tree", || match check::run(root)? {
            true => Ok(()),
            false => Err("see the findings above".to_owned()),
        });
        self.counted("tests", |counts| programs::verify(root, counts));
        self.step("programs", || programs::binaries(root));
        // The tests of the clients in other languages.
        self.counted("clients", |counts| clients::verify(root, counts));
        self.step("torture", || match torture::short(root)? {
            true => Ok(()),
            false => Err("a promise was broken: see above".to_owned()),
        });
        self.step("features", || features(root));
        self.step("packages", || packages::verify(root, &run::metadata(root)?));
    }

    fn conformance(&mut self, root: &Path, store: &str) {
        let args = ["test", "--package", "tidelock", "--all-features", "--test", "conformance"];
        self.counted(&format!("conformance of {store}"), |counts| {
            let mut cargo = run::cargo(root, &args);
            cargo.env("TIDELOCK_TEST_BACKEND", store);
            let success = run::stream(&mut cargo, &mut stdout(), |line| counts.see(line))?;
            counts.end(success);
            match (counts.passed, counts.failed) {
                // A filter that fits nothing must not look like success.
                (0, 0) => Err("no test ran".to_owned()),
                (_, 0) => Ok(()),
                _ => Err(counts.to_string()),
            }
        });
    }

    /// A step that is one cargo command.
    fn cargo(&mut self, root: &Path, name: &str, args: &[&str]) {
        self.step(name, || run::run(&mut run::cargo(root, args)));
    }

    /// A step that counts as one test.
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) {
        let done = timed(name, work);
        self.counts.add_step(done.is_ok());
        if done.is_err() {
            self.failures.push(name.to_owned());
        }
    }

    /// A step that counts as many tests as it runs. One that could not even begin is one failure.
    fn counted(&mut self, name: &str, work: impl FnOnce(&mut Counts) -> Result<(), String>) {
        let mut counts = Counts::default();
        let done = timed(name, || work(&mut counts));
        counts.end(done.is_ok());
        if done.is_err() {
            self.failures.push(name.to_owned());
        }
        self.counts.add(&counts);
    }
}

/// Runs a step under a headline and says how long it took.
#[allow(clippy::disallowed_methods, reason = "the time of a build, which no lease depends on")]
fn timed(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("\n==> {name}");
    let start = Instant::now();
    let done = work();
    let seconds = start.elapsed().as_secs_f64();
    match &done {
        Ok(()) => println!("==> {name}: passed in {seconds:.1} s"),
        Err(error) => println!("==> {name}: FAILED in {seconds:.1} s: {error}"),
    }
    done
}

/// Installs the servers that are missing, so that no test has to be skipped.
fn install() -> Result<(), String> {
    let mut missing = test_servers::packages::missing();
    missing.extend(clients::missing());
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    test_servers::packages::install(&missing)
}

/// Builds the library without features and with each feature alone: with all of them on, a
/// missing `cfg` does not show.
fn features(root: &Path) -> Result<(), String> {
    let mut broken = Vec::new();
    for feature in [vec![String::new()], names_of_features(root)?].concat() {
        println!("tidelock with {}", if feature.is_empty() { "no feature" } else { &feature });
        // Clippy checks as `cargo check` does, and can refuse warnings without building the
        // dependencies again.
        let mut args = vec!["clippy", "--quiet", "--package", "tidelock", "--no-default-features"];
        args.extend(["--features", &feature, "--", "--deny", "warnings"]);
        if run::run(&mut run::cargo(root, &args)).is_err() {
            broken.push(if feature.is_empty() { "none".to_owned() } else { feature });
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("does not build alone: {}", broken.join(", "))) }
}

/// The features of the library, as cargo knows them.
fn names_of_features(root: &Path) -> Result<Vec<String>, String> {
    let metadata = run::metadata(root)?;
    let package = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == "tidelock"))
        .ok_or("cargo metadata knows no package tidelock")?;
    let features = package["features"].as_object().ok_or("cargo metadata lists no features")?;
    Ok(features.keys().filter(|feature| *feature != "default").cloned().collect())
}

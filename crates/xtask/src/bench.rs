//! `cargo xtask bench`: builds the benchmarks and runs them.

use std::path::Path;

use crate::run;

/// Measure locks against bare commands and against other libraries: see --help
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// What the benchmarks are told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Says whether every bar was met.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    let said = |error| format!("cargo cannot run: {error}");
    // A crate of its own, so that nobody builds drivers and databases' clients to run the tests. That takes minutes
    // the first time: cargo says how far it is, on standard error.
    // The command line is the server of the clients in other languages.
    let packages = ["--package", "tidelock-bench", "--package", "tidelock-cli"];
    let mut build = run::cargo(root, &["build", "--release"]);
    build.args(packages);
    if !build.status().map_err(said)?.success() {
        return Ok(false);
    }
    let mut cargo = run::cargo(root, &["run", "--quiet", "--release", "--package", "tidelock-bench", "--"]);
    cargo.args(&args.rest).status().map(|status| status.success()).map_err(said)
}

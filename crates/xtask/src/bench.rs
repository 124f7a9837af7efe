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
    // A crate of its own, so that nobody builds drivers and databases' clients to run the tests.
    let mut cargo = run::cargo(root, &["run", "--quiet", "--release", "--package", "tidelock-bench", "--"]);
    let status = cargo.args(&args.rest).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo cannot run: {error}"))
}

//! `cargo xtask model`: the searches through the model of Redlock, in a program of their own, so that tests
//! and benchmarks do not build the checker.

use std::{ffi::OsString, path::Path};

use crate::run;

/// Search the model of Redlock: ours must keep its promises, each naive variant must break one
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the search: see --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs the searches. Says whether all went as they should.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    let mut cargo = run::cargo(root, &["run", "--quiet", "--release", "--package", "tidelock-model", "--"]);
    let status = cargo.args(&args.options).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo cannot run: {error}"))
}

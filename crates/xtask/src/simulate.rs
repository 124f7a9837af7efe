//! `cargo xtask simulate`: the simulation, optimised and in a program of its own, so that every other command starts
//! without building the library.

use std::{ffi::OsString, path::Path};

use crate::run;

/// Run the engine on a faulty store in simulated time; every run is replayable by its seed
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the simulation: see --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs the simulation. Returns whether it went as it should.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    let mut cargo =
        run::cargo(root, &["run", "--quiet", "--release", "--package", "tidelock-simulate", "--"]);
    let status = cargo.args(&args.options).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo cannot run: {error}"))
}

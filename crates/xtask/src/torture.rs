//! `cargo xtask torture`: stores and servers that fail, in a program of its own, so that every other command starts
//! without building the library.

use std::{ffi::OsString, path::Path};

use crate::run;

/// Torture the stores with servers that fail, and check the histories of all clients
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the torture: see --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Builds the command line and the torture, and runs it. Returns whether every promise was kept.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    run::run(&mut run::cargo(
        root,
        &["build", "--quiet", "--package", "tidelock-cli", "--package", "tidelock-torture"],
    ))?;
    let programs = run::target(&run::metadata(root)?)?.join("debug");
    let mut torture = std::process::Command::new(programs.join("tidelock-torture"));
    torture.arg("--tidelock").arg(programs.join("tidelock")).args(&args.options).current_dir(root);
    let status = torture.status();
    status.map(|status| status.success()).map_err(|error| format!("the torture cannot run: {error}"))
}

//! `cargo xtask torture`: stores and servers that fail, in a program of its own, so that every other command starts
//! without building the library.

use std::{ffi::OsString, path::Path, process::Command};

use crate::run;

/// Torture the stores with servers that fail, and check the histories of all clients
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Use optimised builds, which make several times as many requests; name it before all other options
    #[arg(long)]
    release: bool,
    /// Options of the torture: see --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs the torture. Returns whether every promise was kept.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool, String> {
    let mut build = run::cargo(root, &["build", "--quiet", "--workspace", "--all-features"]);
    build.args(args.release.then_some("--release"));
    run::run(build.args(["--bin", "tidelock", "--bin", "tidelock-torture"]))?;
    torture(root, if args.release { "release" } else { "debug" }, &args.options)
}

/// The part of `cargo xtask test`, with programs that are built: a minute for each of the riskiest stores.
pub(crate) fn short(root: &Path) -> Result<bool, String> {
    let options = ["--backend", "redis,etcd,postgres,file", "--for", "1m", "--every", "3s"];
    // A disk that is full or broken keeps a server busy for longer than this takes. Packets are lost only where root and
    // some more packages are.
    let without = "full-disk,failing-disk,slow-disk,lost-packets,silence";
    let options = options.into_iter().chain(["--without", without]);
    let options: Vec<_> = options.map(OsString::from).collect();
    torture(root, "debug", &options)
}

/// Runs the program that fails its servers, with the command line beside it.
fn torture(root: &Path, profile: &str, options: &[OsString]) -> Result<bool, String> {
    let programs = run::target(&run::metadata(root)?)?.join(profile);
    let mut torture = Command::new(programs.join("tidelock-torture"));
    torture.arg("--tidelock").arg(programs.join("tidelock")).args(options).current_dir(root);
    let status = torture.status();
    status.map(|status| status.success()).map_err(|error| format!("the torture cannot run: {error}"))
}

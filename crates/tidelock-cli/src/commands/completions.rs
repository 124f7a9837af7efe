//! `tidelock completions`: what a shell needs to complete this command line.

use clap::CommandFactory;

use crate::{
    args::{Args, Completions},
    exit::Exit,
    output::{self, Trouble},
};

/// Prints the script.
pub(crate) fn run(args: &Completions) -> Result<Exit, Trouble> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tidelock", &mut script);
    output::bytes(&script)?;
    Ok(Exit::Done)
}

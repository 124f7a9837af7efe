//! What can be typed.

use clap::{Parser, Subcommand};

use crate::exit::{self, Exit};

/// Distributed locks: hold one while something runs, see who holds what.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 100, after_help = exit::help())]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Stores(Stores),
}

/// List the stores of this build and what each can do
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tidelock stores --json")]
pub(crate) struct Stores {
    /// Print a JSON array with one object per store
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads the command line. What cannot be run has been explained when this returns an exit.
pub(crate) fn parse() -> Result<Args, Exit> {
    Args::try_parse().map_err(|message| {
        // If the explanation cannot be printed there is nobody left to tell.
        let _ = message.print();
        // Scripts tell "the command said no" from "tidelock was called wrongly" by the code, and
        // clap's own 2 is a code that many commands use.
        if message.use_stderr() { Exit::Failed } else { Exit::Done }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_contradicts_itself_nowhere() {
        Args::command().debug_assert();
    }
}

//! `tidelock completions` and `tidelock man`.

use std::path::PathBuf;

use clap::Args as Group;
use clap_complete::Shell;

/// Print a script that completes this command line in a shell
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock completions bash > /etc/bash_completion.d/tidelock
  tidelock completions zsh > ~/.zfunc/_tidelock
  tidelock completions fish > ~/.config/fish/completions/tidelock.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write one per verb into a directory
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock man | man -l -
  tidelock man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write tidelock.1, tidelock-run.1 and so on into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

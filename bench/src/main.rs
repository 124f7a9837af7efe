//! `cargo xtask bench`: what a lock costs, against the fewest commands that could do it and against
//! other libraries, on the same servers in the same minutes.
//!
//! All contestants are programs that are asked the same and answer alike (`peers/README.md`). They take
//! turns in rounds, and what counts is the median of the rounds' ratios: a machine that is slow today is
//! slow for all of them.

mod contest;
mod drive;
mod growth;
mod protocol;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  cargo xtask bench --quick                              every store, in two minutes
  cargo xtask bench --peers --backend redis --scenario processes
  cargo xtask bench --peers --write bench                all of bench/RESULTS.md, in an hour
  cargo xtask bench --json --backend file --scenario pair
  cargo xtask bench growth listing                       `ls` with a million remembered names
  cargo xtask bench growth fleet                         mode=redisson beside Redisson itself
  cargo xtask bench growth rest --held 0 --waiting 1000 --lines 100
                                                         claims that wait, and what that costs";

/// Measure locks against bare commands and against other libraries
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLES)]
struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    contest: contest::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One contestant, in a process of its own
    #[command(hide = true)]
    Drive(drive::Args),
    /// How cost grows with what is remembered or repeated, against limits
    Growth(growth::Args),
    /// Write RESULTS.md and its charts again, from the numbers that are there
    Report {
        #[arg(default_value = "bench")]
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let args = Bench::parse();
    let done = match args.command {
        Some(Command::Drive(args)) => return drive::run(&args),
        Some(Command::Growth(args)) => return growth::run(&args),
        Some(Command::Report { folder }) => contest::write_again(&folder),
        None => contest::run(&args.contest),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // The table says which bar was missed.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        Bench::command().debug_assert();
    }
}

//! The project's own commands: `cargo xtask test`, `check`, `simulate`, `model` and `bench`.

mod bench;
mod check;
mod model;
mod progress;
mod run;
mod simulate;
mod table;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Test, check, simulate and measure tidelock
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Test(test::Args),
    /// Verify what the compiler cannot see: that every store has all its parts, and that the tree keeps its rules
    Check,
    Simulate(simulate::Args),
    Model(model::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = run::root().and_then(|root| match Args::parse().command {
        Command::Test(args) => test::run(&root, &args),
        Command::Check => check::run(&root),
        Command::Simulate(args) => simulate::run(&args),
        Command::Model(args) => model::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // Whoever said no has said why.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

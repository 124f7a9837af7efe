//! The project's own commands: `cargo xtask --help` lists them.

mod api;
mod bench;
mod check;
mod fuzz;
mod model;
mod run;
mod screenshots;
mod simulate;
mod test;
mod torture;

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
    Api(api::Args),
    Simulate(simulate::Args),
    Model(model::Args),
    Torture(torture::Args),
    Fuzz(fuzz::Args),
    Bench(bench::Args),
    /// Write the pictures of the page into docs/images, with a real browser
    Screenshots,
}

fn main() -> ExitCode {
    if let Some(rustdoc) = api::rustdoc() {
        return rustdoc;
    }
    let done = run::root().and_then(|root| match Args::parse().command {
        Command::Test(args) => test::run(&root, &args),
        Command::Check => check::run(&root),
        Command::Api(args) => api::run(&root, &args),
        Command::Simulate(args) => simulate::run(&root, &args),
        Command::Model(args) => model::run(&root, &args),
        Command::Torture(args) => torture::run(&root, &args),
        Command::Fuzz(args) => fuzz::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
        Command::Screenshots => screenshots::run(&root),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // The command has said why.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `tidelock`: distributed locks on the command line.
//!
//! What was typed is in [`args`], what it does in [`commands`], what it prints in [`output`], and
//! what it answers to the shell in [`exit`].

mod args;
mod commands;
mod exit;
mod output;

use std::process::ExitCode;

use crate::{
    args::{Args, Verb},
    exit::Exit,
    output::Trouble,
};

fn main() -> ExitCode {
    let args = match args::parse() {
        Ok(args) => args,
        Err(exit) => return exit.into(),
    };
    match run(&args) {
        Ok(exit) => exit.into(),
        Err(trouble) => output::report(&trouble).into(),
    }
}

fn run(args: &Args) -> Result<Exit, Trouble> {
    // One thread is enough: a command waits for one store and one child at a time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.verb {
            Verb::Stores(stores) => commands::stores::run(stores).await,
        }
    })
}

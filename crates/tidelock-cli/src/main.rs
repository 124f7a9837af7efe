//! `tidelock`: distributed locks on the command line.
//!
//! What was typed is in [`args`], what it means in [`plan`] and [`store`], what it does in [`commands`], what it
//! prints in [`output`], and what it answers to the shell in [`exit`]. A command under a lock is in
//! the care of [`child`].

mod args;
mod child;
mod clock;
mod commands;
mod exit;
mod hold;
#[allow(dead_code, unused_imports, reason = "the page and the other viewers follow")]
mod observe;
mod once;
mod output;
mod plan;
mod program;
mod serve;
mod shim;
mod signals;
mod store;
mod terminal;
mod ticket;
mod torture;
mod usage;
mod values;
mod view;
mod waiting;
mod watcher;
mod who;

use std::process::ExitCode;

use crate::{args::Verb, exit::Exit, output::Trouble};

fn main() -> ExitCode {
    // First, and without the rest: it is on the way of every command that is run.
    if let Some(exit) = shim::run_if_asked() {
        return exit.into();
    }
    if let Some(exit) = torture::run_if_asked() {
        return exit.into();
    }
    let args = match usage::parse() {
        Ok(args) => args,
        Err(exit) => return exit.into(),
    };
    match args.verb().and_then(run) {
        Ok(exit) => exit.into(),
        Err(trouble) => output::report(&trouble).into(),
    }
}

fn run(verb: Verb) -> Result<Exit, Trouble> {
    // One thread is enough: a command waits for one store and one child at a time. And the child
    // must be started by the main thread: the kernel kills it when its parent's thread ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match verb {
            Verb::Run(args) => commands::run::run(args).await,
            Verb::Acquire(args) => commands::acquire::run(args).await,
            Verb::Renew(args) => commands::renew::run(&args.ticket).await,
            Verb::Release(args) => commands::release::run(&args.ticket).await,
            Verb::Elect(args) => commands::elect::run(args).await,
            Verb::Leader(args) => commands::leader::run(&args).await,
            Verb::Serve(args) => serve::run(args).await,
            Verb::Ui(args) => serve::ui(args).await,
            Verb::Top(args) => commands::top::run(&args).await,
            Verb::Events(args) => commands::events::run(&args).await,
            Verb::Ls(args) => commands::ls::run(&args).await,
            Verb::Show(args) => commands::show::run(&args).await,
            Verb::Break(args) => commands::r#break::run(&args).await,
            Verb::Doctor(args) => commands::doctor::run(&args).await,
            Verb::Stores(args) => commands::stores::run(&args).await,
            Verb::Schema(args) => commands::schema::run(&args),
            Verb::Demo(args) => commands::demo::run(args.demo).await,
            Verb::Torture(args) => torture::run(args).await,
            Verb::Completions(args) => commands::completions::run(&args),
            Verb::Man(args) => commands::man::run(&args),
        }
    });
    // Without waiting for a thread that prints what nobody reads.
    runtime.shutdown_background();
    done
}

//! `tidelock demo`.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};

use super::Store;

/// Show what locks are for
#[derive(Debug, Group)]
#[command(after_help = "Example:\n  tidelock demo flash-sale")]
pub(crate) struct Demo {
    /// Which.
    #[command(subcommand)]
    pub(crate) demo: Demos,
}

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub(crate) enum Demos {
    FlashSale(FlashSale),
    #[command(hide = true)]
    Buyers(Buyers),
}

/// Sell limited stock to many buyers in four ways, and compare them
///
/// Buyers come from several processes, all at once. Without a lock they oversell. One lock is
/// correct and slow, because every buyer waits for every other. One atomic counter is correct and
/// fast. A counter split into segments stays fast on several servers.
///
/// Prints a table, and draws a chart into a file. Exits with 1 if a way that promises not to
/// oversell did.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock demo flash-sale
  tidelock demo flash-sale --buyers 1000000 --stock 100000 --out sale.svg
  tidelock demo flash-sale --url redis://127.0.0.1
  tidelock demo flash-sale --url redis://one --url redis://two --json")]
pub(crate) struct FlashSale {
    /// How many buyers want one item
    #[arg(long, value_name = "N", default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) buyers: u32,
    /// How many items there are
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stock: u32,
    /// How many processes the buyers come from
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: u32,
    /// How many segments the stock is split into
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) segments: u32,
    /// Where to draw the chart
    #[arg(long, value_name = "FILE", default_value = "flash-sale.svg")]
    pub(crate) out: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The store, as a URL; several for segments on several servers
    ///
    /// Default: the store of the environment, else files in a temporary directory.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Vec<String>,
    /// Read the URL of the store from a file
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
    /// What was said before the verb.
    #[arg(skip)]
    pub(crate) store: Store,
}

/// One process of buyers.
#[derive(Debug, Group)]
pub(crate) struct Buyers {
    /// What to do, as JSON; the URLs come from the environment, because they may hold a password.
    pub(crate) work: String,
}

//! `tidelock stores`: what this build can talk to.

use std::{fmt::Write, time::Duration};

use serde::Serialize;
use tidelock::{
    Locks,
    backend::{Abilities, TokenGrade},
};

use crate::{
    args::Stores,
    exit::Exit,
    output::{self, Trouble},
    values::Span,
};

/// A URL for each store that can tell what it can do without a server.
const URLS: &[&str] = &["file:", "memory:"];

/// The headlines of a store's abilities.
const HEAD: [&str; 8] = ["STORE", "URL", "TOKEN", "WAKES", "ORDER", "RE-ENTRY", "PERMITS", "MIN TTL"];

/// One store, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    store: &'static str,
    url: String,
    token: &'static str,
    push: bool,
    fair: bool,
    reentry: bool,
    permits: bool,
    min_ttl_ms: u64,
    renew_batch: usize,
}

/// Prints a row per store.
pub(crate) async fn run(args: &Stores) -> Result<Exit, Trouble> {
    let mut rows = Vec::new();
    for url in URLS {
        match Locks::connect(url).await {
            Ok(locks) => rows.push(Row::new(url, locks.abilities())),
            // One that does not work here is no reason to be silent about the others.
            Err(error) => output::complain(&error),
        }
    }
    if args.json {
        output::json(&rows)?;
    } else {
        output::text(&output::table(HEAD, &rows.iter().map(Row::cells).collect::<Vec<_>>()))?;
    }
    Ok(Exit::Done)
}

impl Row {
    /// What a store can do, and the URL to show for it.
    pub(crate) fn new(url: &str, abilities: &Abilities) -> Self {
        Self {
            store: abilities.store,
            url: url.to_owned(),
            token: match abilities.token {
                TokenGrade::Process => "process",
                TokenGrade::TimeAssisted => "time-assisted",
                TokenGrade::SingleNode => "single-node",
                TokenGrade::Consensus => "consensus",
            },
            push: abilities.push,
            fair: abilities.fair,
            reentry: abilities.reentry,
            permits: abilities.permits,
            min_ttl_ms: u64::try_from(abilities.min_ttl.as_millis()).unwrap_or(u64::MAX),
            renew_batch: abilities.renew_batch,
        }
    }

    /// The row as people read it.
    fn cells(&self) -> [String; 8] {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        [
            self.store.to_owned(),
            self.url.clone(),
            self.token.to_owned(),
            if self.push { "push" } else { "poll" }.to_owned(),
            if self.fair { "first come" } else { "any" }.to_owned(),
            yes(self.reentry),
            yes(self.permits),
            Span(Duration::from_millis(self.min_ttl_ms)).to_string(),
        ]
    }

    /// The row as a list, a line for each ability.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for (head, cell) in HEAD.iter().zip(self.cells()).filter(|(head, _)| **head != "URL") {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:10}  {cell}", head.to_lowercase());
        }
        text
    }
}

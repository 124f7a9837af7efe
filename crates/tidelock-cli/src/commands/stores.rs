//! `tidelock stores`: what this build can talk to.

use std::time::Duration;

use serde::Serialize;
use tidelock::{
    Locks,
    backend::{Abilities, TokenGrade},
};

use crate::{
    args::Stores,
    exit::Exit,
    output::{self, Trouble},
};

/// A URL for each store that can tell what it can do without a server.
const URLS: &[&str] = &["memory:"];

/// One store, as programs read it.
#[derive(Debug, Serialize)]
struct Row {
    store: &'static str,
    url: &'static str,
    token: &'static str,
    push: bool,
    fair: bool,
    reentry: bool,
    permits: bool,
    min_ttl_ms: u128,
    renew_batch: usize,
}

/// Prints a row per store.
pub(crate) async fn run(args: &Stores) -> Result<Exit, Trouble> {
    let mut rows = Vec::new();
    for url in URLS {
        rows.push(Row::new(url, Locks::connect(url).await?.abilities()));
    }
    if args.json {
        output::json(&rows)?;
    } else {
        let head = ["STORE", "URL", "TOKEN", "WAKES", "ORDER", "RE-ENTRY", "PERMITS", "MIN TTL"];
        output::text(&output::table(head, &rows.iter().map(Row::cells).collect::<Vec<_>>()))?;
    }
    Ok(Exit::Done)
}

impl Row {
    fn new(url: &'static str, abilities: &Abilities) -> Self {
        Self {
            store: abilities.store,
            url,
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
            min_ttl_ms: abilities.min_ttl.as_millis(),
            renew_batch: abilities.renew_batch,
        }
    }

    /// The row as people read it.
    fn cells(&self) -> [String; 8] {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        [
            self.store.to_owned(),
            self.url.to_owned(),
            self.token.to_owned(),
            if self.push { "push" } else { "poll" }.to_owned(),
            if self.fair { "first come" } else { "any" }.to_owned(),
            yes(self.reentry),
            yes(self.permits),
            format!("{:?}", Duration::from_millis(self.min_ttl_ms as u64)),
        ]
    }
}

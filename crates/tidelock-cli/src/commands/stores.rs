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

/// The schemes whose stores need no server, so that each can be asked what it can do.
const EMBEDDED: &[&str] = &["file", "memory"];

/// The headlines of a store's abilities.
const HEAD: [&str; 8] = ["STORE", "URL", "TOKEN", "WAKES", "ORDER", "RE-ENTRY", "PERMITS", "MIN TTL"];

/// One store, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    store: String,
    url: String,
    /// How URLs of this store may begin; left out where the URL is a given one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schemes: Vec<&'static str>,
    /// Left out where only the server knows.
    #[serde(flatten)]
    can: Option<Can>,
}

/// What a store can do, as programs read it.
#[derive(Debug, Serialize)]
struct Can {
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
    for schemes in Locks::schemes().chunk_by(|one, next| store_of(one) == store_of(next)) {
        let store = store_of(schemes[0]);
        let schemes = schemes.to_vec();
        if !EMBEDDED.contains(&store) {
            rows.push(Row::of_server(store, schemes));
            continue;
        }
        let url = format!("{store}:");
        match Locks::connect(&url).await {
            Ok(locks) => rows.push(Row { schemes, ..Row::new(&url, locks.abilities()) }),
            // One that does not work here is no reason to be silent about the others.
            Err(error) => output::complain(&error),
        }
    }
    if args.json {
        output::json(&rows)?;
    } else {
        output::text(&text(&rows))?;
    }
    Ok(Exit::Done)
}

/// The store that a scheme leads to: `rediss+cluster` is another way to redis.
pub(crate) fn store_of(scheme: &str) -> &str {
    match scheme.split('+').next() {
        Some("rediss") => "redis",
        Some("redlocks") => "redlock",
        Some("etcds") => "etcd",
        Some("mariadb") => "mysql",
        Some("postgresql") => "postgres",
        Some("zk" | "zks" | "zookeepers") => "zookeeper",
        Some(store) => store,
        None => scheme,
    }
}

fn text(rows: &[Row]) -> String {
    let mut text = output::table(HEAD, &rows.iter().map(Row::cells).collect::<Vec<_>>());
    if rows.iter().any(|row| row.can.is_none()) {
        text.push_str("-: ask the server, with tidelock doctor --url URL\n");
    }
    for row in rows {
        if let [_, others @ ..] = &*row.schemes
            && !others.is_empty()
        {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} is also reached by {}", row.store, others.join(", "));
        }
    }
    text
}

impl Row {
    /// What a store can do, and the URL to show for it.
    pub(crate) fn new(url: &str, abilities: &Abilities) -> Self {
        let can = Can {
            token: match abilities.token {
                TokenGrade::Process => "process",
                TokenGrade::TimeAssisted => "time-assisted",
                TokenGrade::SingleNode => "single-node",
                TokenGrade::Consensus => "consensus",
            },
            push: abilities.push,
            fair: abilities.fair,
            reentry: abilities.reentry,
            permits: abilities.permits.is_ok(),
            min_ttl_ms: u64::try_from(abilities.min_ttl.as_millis()).unwrap_or(u64::MAX),
            renew_batch: abilities.renew_batch,
        };
        Self { store: abilities.store.to_owned(), url: url.to_owned(), schemes: Vec::new(), can: Some(can) }
    }

    /// A store of which only the URL is known before its server is asked.
    fn of_server(store: &str, schemes: Vec<&'static str>) -> Self {
        Self { store: store.to_owned(), url: format!("{store}://HOST"), schemes, can: None }
    }

    /// The row as people read it.
    fn cells(&self) -> [String; 8] {
        let [token, wakes, order, reentry, permits, min_ttl] =
            self.can.as_ref().map_or_else(|| [(); 6].map(|()| "-".to_owned()), Can::cells);
        [self.store.clone(), self.url.clone(), token, wakes, order, reentry, permits, min_ttl]
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

impl Can {
    fn cells(&self) -> [String; 6] {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        [
            self.token.to_owned(),
            if self.push { "push" } else { "poll" }.to_owned(),
            if self.fair { "first come" } else { "any" }.to_owned(),
            yes(self.reentry),
            yes(self.permits),
            Span(Duration::from_millis(self.min_ttl_ms)).to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_with_a_server_is_listed_without_asking_it() {
        let rows = [Row::of_server("redis", vec!["redis", "rediss", "redis+unix"])];
        let text = text(&rows);
        let lines: Vec<_> = text.lines().collect();
        let words: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["redis", "redis://HOST", "-", "-", "-", "-", "-", "-"], "{text}");
        assert!(lines[2].contains("tidelock doctor"), "{text}");
        assert_eq!(lines[3], "redis is also reached by rediss, redis+unix");
        let json = serde_json::to_value(&rows).unwrap();
        let schemes = ["redis", "rediss", "redis+unix"];
        assert_eq!(
            json,
            serde_json::json!([{ "store": "redis", "url": "redis://HOST", "schemes": schemes }])
        );
    }

    #[test]
    fn schemes_of_one_store_are_one_row() {
        let stores: Vec<_> = Locks::schemes()
            .chunk_by(|one, next| store_of(one) == store_of(next))
            .map(|schemes| store_of(schemes[0]))
            .collect();
        assert_eq!(stores, ["file", "memory", "redis", "redlock", "etcd", "zookeeper", "postgres", "mysql"]);
    }
}

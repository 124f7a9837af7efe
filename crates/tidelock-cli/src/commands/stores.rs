//! `tidelock stores`: what this build can talk to.

use std::{fmt::Write, time::Duration};

use serde::Serialize;
use tidelock::{
    Locks,
    backend::Abilities,
    backends::{OptionDefault, Store, StoreOption},
};

use crate::{
    args::Stores,
    exit::Exit,
    output::{self, Trouble},
    values::Span,
};

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
    /// The options of its URLs; left out unless they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<UrlOption>>,
}

/// An option of a URL, as programs read it.
#[derive(Debug, Serialize)]
struct UrlOption {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<&'static str>,
    /// The value that an option has if it is left out; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'static str>,
    /// What happens without the option, where no value says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    otherwise: Option<String>,
    meaning: String,
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

/// Prints a row per store, or the options of each.
pub(crate) async fn run(args: &Stores) -> Result<Exit, Trouble> {
    if args.options && !args.json {
        output::text(&Locks::stores().iter().map(|store| options(store)).collect::<String>())?;
        return Ok(Exit::Done);
    }
    let mut rows = Vec::new();
    for store in Locks::stores() {
        let mut row = match row(store).await {
            Ok(row) => row,
            // One that does not work here is no reason to be silent about the others.
            Err(error) => {
                output::complain(&error);
                continue;
            }
        };
        row.options = args.options.then(|| store.options.iter().map(UrlOption::new).collect());
        rows.push(row);
    }
    if args.json {
        output::json(&rows)?;
    } else {
        output::text(&text(&rows))?;
    }
    Ok(Exit::Done)
}

/// What is known of a store. Those without a server can be asked what they can do.
async fn row(store: &Store) -> tidelock::Result<Row> {
    let schemes = store.schemes.to_vec();
    if store.needs_server {
        return Ok(Row::of_server(store.name, schemes));
    }
    let url = format!("{}:", store.name);
    let locks = Locks::connect(&url).await?;
    Ok(Row { schemes, ..Row::new(&url, locks.abilities()) })
}

/// The store with this name or scheme, or of this URL.
pub(crate) fn find(text: &str) -> Option<&'static Store> {
    let scheme = text.split(':').next().unwrap_or_default();
    Locks::stores().iter().copied().find(|store| store.schemes.contains(&scheme))
}

/// The options of a store, for people.
fn options(store: &Store) -> String {
    let mut text = format!("{}\n", store.name);
    let width = store.options.iter().map(|option| option.name.len()).max();
    let Some(width) = width else { return text + "  no options\n" };
    for option in store.options {
        let default = match option.default {
            OptionDefault::Value("") => "empty".to_owned(),
            OptionDefault::Value(value) => value.to_owned(),
            OptionDefault::Words(words) => plain(words),
            _ => continue,
        };
        let alias = option.alias.map(|alias| format!("; also {alias}")).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:width$}  {}{alias}", option.name, plain(option.meaning));
        let _ = writeln!(text, "  {:width$}  default: {default}", "");
    }
    text
}

/// The text without marks for a page.
fn plain(text: &str) -> String {
    text.replace('`', "")
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
            token: abilities.token.as_str(),
            push: abilities.push,
            fair: abilities.fair,
            reentry: abilities.reentry,
            permits: abilities.permits.is_ok(),
            min_ttl_ms: u64::try_from(abilities.min_ttl.as_millis()).unwrap_or(u64::MAX),
            renew_batch: abilities.renew_batch,
        };
        Self {
            store: abilities.store.to_owned(),
            url: url.to_owned(),
            schemes: Vec::new(),
            can: Some(can),
            options: None,
        }
    }

    /// A store of which only the URL is known before its server is asked.
    fn of_server(store: &str, schemes: Vec<&'static str>) -> Self {
        Self { store: store.to_owned(), url: format!("{store}://HOST"), schemes, can: None, options: None }
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

impl UrlOption {
    fn new(option: &StoreOption) -> Self {
        let (default, otherwise) = match option.default {
            OptionDefault::Value(value) => (Some(value), None),
            OptionDefault::Words(words) => (None, Some(plain(words))),
            _ => (None, None),
        };
        Self { name: option.name, alias: option.alias, default, otherwise, meaning: plain(option.meaning) }
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
    fn a_store_is_found_by_its_name_its_schemes_and_its_urls() {
        for (text, name) in [
            ("redis", "redis"),
            ("rediss+cluster", "redis"),
            ("zk://me:secret@host", "zookeeper"),
            ("mariadb:", "mysql"),
            ("memory:tests", "memory"),
        ] {
            assert_eq!(find(text).map(|store| store.name), Some(name), "{text}");
        }
        assert!(find("oracle").is_none() && find("").is_none());
    }

    #[test]
    fn options_are_listed_with_their_defaults_and_without_marks() {
        let listed = options(find("redis").unwrap());
        assert!(listed.starts_with("redis\n  prefix "), "{listed}");
        assert!(listed.contains(" default: tidelock:\n") && !listed.contains('`'), "{listed}");
        assert_eq!(options(find("memory").unwrap()), "memory\n  no options\n");
        let json = serde_json::to_value(UrlOption::new(&find("postgres").unwrap().options[2])).unwrap();
        assert_eq!((&json["name"], &json["alias"]), (&"ca".into(), &"sslrootcert".into()));
        assert_eq!((&json["otherwise"], json.get("default")), (&"the system's authorities".into(), None));
    }
}

//! Rules for pages: their examples are compiled, and what they say of URLs is what the code takes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    stores::{Entry, OPTIONS},
    tree::{Finding, Tree, cells, ticked},
};

/// Pages outside of `docs` whose examples are compiled as well.
const READMES: [&str; 2] = ["README.md", "README.zh-CN.md"];

/// Pages that are not compiled, each with the reason.
const NOT_COMPILED: &[(&str, &str)] = &[
    ("docs/json.md", "it shows JSON, which the tests of the command line compare with what is printed"),
    ("docs/serve.md", "it is about a protocol and shows no Rust; tests of the command line speak it"),
    ("docs/model.md", "it is about the model and shows no Rust"),
    ("docs/torture.md", "it is about a command and shows no Rust"),
];

/// Schemes that are not ours.
const FOREIGN: [&str; 5] = ["http", "https", "jdbc", "tcp", "unix"];

/// The examples of a page are doctests of the library: the library includes it as documentation.
pub(super) fn every_page_is_compiled(tree: &Tree) -> Vec<Finding> {
    let mut included = BTreeSet::new();
    for (_, text) in tree.rust("crates/tidelock/src") {
        for (at, _) in text.match_indices("doc = include_str!(\"") {
            let path = text[at..].split('"').nth(1).unwrap_or_default();
            included.insert(path.trim_start_matches("../").to_owned());
        }
    }
    let pages = tree.markdown("docs").into_iter();
    let pages = pages.chain(READMES.into_iter().map(|page| (page.to_owned(), tree.read(page))));
    pages
        .filter_map(|(page, text)| {
            let reason = NOT_COMPILED.iter().find(|(excused, _)| *excused == page);
            match (reason, included.contains(&page)) {
                (None, false) => Some(Finding::new(
                    page.as_str(),
                    "its examples are not compiled",
                    format!("add #[doc = include_str!(\"…/{page}\")] beside the others, or a reason to NOT_COMPILED"),
                )),
                (Some((_, reason)), _) if text.contains("```rust") => Some(Finding::new(
                    page.as_str(),
                    format!("has an example in Rust, and is listed as not compiled ({reason})"),
                    "include it as documentation and remove it from NOT_COMPILED",
                )),
                _ => None,
            }
        })
        .collect()
}

/// Where the documentation of the library lists URLs, in tables.
const API: &str = "crates/tidelock/src/api";

/// The page of a store and the documentation of the library name every scheme of it, and no page names a scheme that no
/// store has.
pub(super) fn pages_have_the_schemes(tree: &Tree) -> Vec<Finding> {
    let mut schemes: BTreeSet<String> = FOREIGN.iter().map(|scheme| (*scheme).to_owned()).collect();
    let mut findings = Vec::new();
    let api: String = tree.rust(API).into_iter().map(|(_, text)| text).collect();
    let tables: Vec<_> = api.lines().filter(|line| line.trim_start().starts_with("/// |")).collect();
    for store in tree.stores() {
        let Some(entry) = Entry::of(tree, &store) else { continue };
        let page = format!("docs/backends/{store}.md");
        let text = tree.read(&page);
        let lost = |scheme: &String| !tables.iter().any(|row| row.contains(&format!("`{scheme}:")));
        findings.extend(entry.schemes.iter().filter(|scheme| lost(scheme)).map(|scheme| {
            let what = format!("no table of URLs names the scheme {scheme}:");
            Finding::new(API, what, "add it to the table of Locks::connect")
        }));
        let missing = entry.schemes.iter().filter(|scheme| !text.contains(&format!("`{scheme}:")));
        findings.extend(missing.map(|scheme| {
            Finding::new(
                page.as_str(),
                format!("does not name the scheme {scheme}:"),
                "add it to the table of URLs",
            )
        }));
        schemes.extend(entry.schemes);
    }
    for (page, text) in tree.markdown(".") {
        for (number, line) in (1..).zip(text.lines()) {
            let unknown = line.match_indices("://").map(|(at, _)| scheme_before(line, at));
            findings.extend(unknown.filter(|scheme| !scheme.is_empty() && !schemes.contains(*scheme)).map(
                |scheme| {
                    Finding::new(
                        format!("{page}:{number}"),
                        format!("names the scheme {scheme}:, which no store has"),
                        "correct the URL, or add the scheme to FOREIGN",
                    )
                },
            ));
        }
    }
    findings
}

/// An option that a page names is one of its store's; on other pages, of any store. The table in the page of a store
/// is what the registry has: a test of the library compares them.
pub(super) fn pages_have_the_options(tree: &Tree) -> Vec<Finding> {
    let by_page: BTreeMap<_, _> = tree
        .stores()
        .iter()
        .map(|store| format!("docs/backends/{store}.md"))
        .map(|page| (page.clone(), options(&tree.read(&page))))
        .collect();
    let all: BTreeSet<_> = by_page.values().flatten().cloned().collect();
    let mut findings = Vec::new();
    for (page, text) in tree.markdown(".") {
        let known = by_page.get(&page).unwrap_or(&all);
        for (number, line) in (1..).zip(text.lines()) {
            let unknown = line.match_indices('?').filter_map(|(at, _)| named_after(line, at));
            findings.extend(unknown.filter(|name| !known.contains(*name)).map(|name| {
                Finding::new(
                    format!("{page}:{number}"),
                    format!("names the option ?{name}=, which is in no table of options for it"),
                    "correct it as the table in the page of its store has it",
                )
            }));
        }
    }
    findings
}

/// The scheme that ends here.
fn scheme_before(line: &str, end: usize) -> &str {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '+';
    let start = line[..end].char_indices().rev().take_while(|(_, c)| part(*c)).last();
    start.map_or("", |(start, _)| &line[start..end])
}

/// The option of a URL that this question mark begins; none if it is no option of ours.
fn named_after(line: &str, at: usize) -> Option<&str> {
    let word = line[..at].rsplit([' ', '`', '(', '"', '<']).next().unwrap_or_default();
    let (name, _) = line[at + 1..].split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_name && !word.starts_with("http")).then_some(name)
}

/// The options in the table of a page.
fn options(page: &str) -> BTreeSet<String> {
    let table = page.split_once(OPTIONS[0]).and_then(|(_, rest)| rest.split_once(OPTIONS[1]));
    let rows = table.map_or("", |(table, _)| table).lines().filter_map(cells);
    let names = rows.flat_map(|row| ticked(row[0]).map(ToOwned::to_owned).collect::<Vec<_>>());
    names.map(|name| name.trim_matches(['?', '=']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::Files, *};

    const ENTRY: &str = "const STORE: Store = Store {\n    name: \"etcd\",\n    schemes: &[\"etcd\", \"etcds\"],\n    feature: Some(\"etcd\"),\n};\n";
    const PAGE: &str = "# `etcd:`\n`etcd://HOST`, `etcds://`\n\n<!-- options: from the registry -->\n\n| option | default |\n|---|---|\n| `?prefix=`, `?pre=` | none |\n\n<!-- end of options -->\n";

    fn store() -> Files {
        Files::new()
            .with("crates/tidelock/src/backends/etcd/mod.rs", ENTRY)
            .with("docs/backends/etcd.md", PAGE)
            .with("crates/tidelock/src/api/client.rs", "    /// | `etcd://HOST`, `etcds://` | etcd |\n")
    }

    fn said(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn a_page_whose_examples_are_not_compiled_is_found() {
        let include = |pages: &[&str]| -> String {
            pages
                .iter()
                .map(|page| format!("#[doc = include_str!(\"../../../{page}\")]\nstruct A;\n"))
                .collect()
        };
        let all = ["README.md", "README.zh-CN.md", "docs/guide/a.md"];
        let files = |pages: &[&str]| {
            Files::new().with("docs/guide/a.md", "# A").with("crates/tidelock/src/docs.rs", &include(pages))
        };
        assert_eq!(every_page_is_compiled(&files(&all).tree()), []);
        for left_out in 0..all.len() {
            let pages: Vec<_> = all.into_iter().filter(|page| *page != all[left_out]).collect();
            let found = said(&every_page_is_compiled(&files(&pages).tree()));
            assert!(
                found.starts_with(&format!("{}: its examples are not compiled", all[left_out])),
                "{found}"
            );
        }
        let plain =
            files(&all).with("crates/tidelock/src/docs.rs", "const A: &str = include_str!(\"../a.md\");");
        assert_eq!(every_page_is_compiled(&plain.tree()).len(), 3);
    }

    #[test]
    fn a_page_that_is_excused_and_has_an_example_is_found() {
        let include =
            "#[doc = include_str!(\"../README.md\")]\n#[doc = include_str!(\"../README.zh-CN.md\")]\n";
        let files = Files::new().with("crates/tidelock/src/docs.rs", include);
        assert_eq!(every_page_is_compiled(&files.with("docs/model.md", "# Model").tree()), []);
        let files = Files::new().with("crates/tidelock/src/docs.rs", include);
        let found = said(&every_page_is_compiled(&files.with("docs/model.md", "```rust\n```").tree()));
        assert!(found.starts_with("docs/model.md: has an example in Rust"), "{found}");
    }

    #[test]
    fn a_scheme_that_a_page_lacks_is_found() {
        assert_eq!(pages_have_the_schemes(&store().tree()), []);
        let files = store().with("docs/backends/etcd.md", "`etcd://`");
        let found = said(&pages_have_the_schemes(&files.tree()));
        assert_eq!(
            found,
            "docs/backends/etcd.md: does not name the scheme etcds:: add it to the table of URLs\n"
        );
        let files = store().with("crates/tidelock/src/api/client.rs", "    /// | `etcd://HOST` | etcd |\n");
        let found = said(&pages_have_the_schemes(&files.tree()));
        assert!(
            found.starts_with("crates/tidelock/src/api: no table of URLs names the scheme etcds:"),
            "{found}"
        );
    }

    #[test]
    fn a_scheme_that_no_store_has_is_found() {
        let files =
            store().with("docs/guide/a.md", "\n`--url etcd+tls://one,etcd://two`, https://example.com\n");
        let found = said(&pages_have_the_schemes(&files.tree()));
        assert!(
            found.starts_with("docs/guide/a.md:2: names the scheme etcd+tls:, which no store has"),
            "{found}"
        );
        assert_eq!(found.lines().count(), 1, "{found}");
    }

    #[test]
    fn an_option_that_the_store_does_not_have_is_found() {
        let fine = "`etcd://h?prefix=a`, `?pre=`, [x](https://example.com/?q=1), is it so? a = b\n";
        assert_eq!(pages_have_the_options(&store().with("README.md", fine).tree()), []);
        let files = store().with("README.md", "`etcd://h?prefx=a`\n");
        let found = said(&pages_have_the_options(&files.tree()));
        assert!(found.starts_with("README.md:1: names the option ?prefx=, which is in no table"), "{found}");
        let files = store().with("docs/backends/etcd.md", &format!("{PAGE}\n`?db=`"));
        let found = said(&pages_have_the_options(&files.tree()));
        assert!(found.contains("etcd.md:12: names the option ?db="), "{found}");
    }
}

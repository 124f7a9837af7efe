//! Rules for each store: what the checklist "Add a backend" in CONTRIBUTING.md asks for.

use std::collections::BTreeSet;

use super::tree::{Finding, Tree, has_word, quoted};

/// What a store lacks.
type Rule = fn(&Tree, &str) -> Option<Finding>;

/// The parts of a store. Each is a box of the checklist that ends with `(checked)`.
pub(super) const RULES: [(&str, Rule); 11] = [
    ("files", has_its_files),
    ("entry", has_an_entry),
    ("list", is_in_the_list),
    ("feature", has_its_feature),
    ("page", has_a_page),
    ("options", shows_its_options),
    ("guarantees", has_a_row_of_guarantees),
    ("conformance", runs_the_conformance_cases),
    ("example", has_an_example),
    ("bench", is_measured),
    ("readme", is_in_the_readme),
];

const BACKENDS: &str = "crates/tidelock/src/backends";

/// Where the stores are listed.
const LIST: &str = "crates/tidelock/src/backends/mod.rs";

/// What is around the table of options in a page.
pub(super) const OPTIONS: [&str; 2] = ["<!-- options: from the registry -->", "<!-- end of options -->"];

/// Every line of the list has a folder; that every folder has a line is one of the rules above.
pub(super) fn every_line_has_a_folder(tree: &Tree) -> Vec<Finding> {
    let stores = tree.stores();
    let lost = listed(tree).into_iter().filter(|listed| !stores.contains(listed));
    lost.map(|store| Finding::new(LIST, format!("lists {store}, which has no folder"), "remove the line"))
        .collect()
}

/// A new store is its folder and its line: nothing else in the library or the command line knows a store by name.
pub(super) fn stores_are_named_in_their_folders(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = [tree.rust("crates/tidelock/src"), tree.rust("crates/tidelock-cli/src")].concat();
    for store in tree.stores() {
        let folder = format!("{BACKENDS}/{store}/");
        let mut words = Entry::of(tree, &store).map(|entry| entry.schemes).unwrap_or_default();
        words.push(store);
        let words: BTreeSet<_> = words.iter().map(|word| format!("{word:?}")).collect();
        for (file, text) in &files {
            if file.starts_with(&folder) || file == LIST {
                continue;
            }
            for (number, line) in code(text) {
                let line = without_features(line);
                let named = words.iter().filter(|word| line.contains(&**word));
                findings.extend(named.map(|word| {
                    Finding::new(
                        format!("{file}:{number}"),
                        format!("names the store {word}"),
                        "put it into the folder of that store, or read it from the registry",
                    )
                }));
            }
        }
    }
    findings
}

/// What the entry of a store in its folder says.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) schemes: Vec<String>,
    feature: Option<String>,
}

impl Entry {
    pub(super) fn of(tree: &Tree, store: &str) -> Option<Self> {
        let text = tree.read(&format!("{BACKENDS}/{store}/mod.rs"));
        let (_, entry) = text.split_once("const STORE: Store = Store {")?;
        let entry = entry.split_once("\n};").map_or(entry, |(entry, _)| entry);
        let field = |name: &str| Some(entry.split_once(&format!(" {name}: "))?.1);
        let schemes = field("schemes")?.split_once(']')?.0;
        let schemes: Vec<_> = quoted(schemes).map(ToOwned::to_owned).collect();
        let feature = field("feature")?.lines().next().and_then(|line| quoted(line).next());
        let is_it = field("name")?.lines().next().and_then(|line| quoted(line).next()) == Some(store);
        (is_it && !schemes.is_empty()).then(|| Self { schemes, feature: feature.map(ToOwned::to_owned) })
    }
}

/// The stores of the list, by the names of their folders.
fn listed(tree: &Tree) -> Vec<String> {
    let text = tree.read(LIST);
    let lines = text.lines().skip_while(|line| !line.starts_with("stores! {")).skip(1);
    let names = lines.take_while(|line| !line.starts_with('}')).filter_map(|line| {
        let line = line.trim();
        line.split_once([' ', ';']).filter(|_| !line.starts_with("//")).map(|(name, _)| name.to_owned())
    });
    names.collect()
}

/// The lines of a Rust text that are neither comments nor tests, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(index, line)| (index + 1, line))
}

/// A line without the names of features, which are those of stores.
fn without_features(line: &str) -> String {
    let line = line.replace("feature: Some(\"", "feature = \"");
    let mut parts = line.split("feature = \"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + part.split_once('"').map_or(part, |(_, rest)| rest))
}

/// Every store has every part.
pub(super) fn every_store_is_complete(tree: &Tree) -> Vec<Finding> {
    let stores = tree.stores();
    stores.iter().flat_map(|store| RULES.iter().filter_map(|(_, rule)| rule(tree, store))).collect()
}

/// Knowing one store is knowing all: the same file names in each.
fn has_its_files(tree: &Tree, store: &str) -> Option<Finding> {
    let folder = format!("{BACKENDS}/{store}");
    let missing: Vec<_> = ["mod.rs", "config.rs", "backend.rs", "store.rs"]
        .into_iter()
        .filter(|file| !tree.has(&format!("{folder}/{file}")))
        .collect();
    let missing = (!missing.is_empty()).then(|| missing.join(", "))?;
    Some(Finding::new(
        folder,
        format!("lacks {missing}"),
        "every store has mod.rs, config.rs, backend.rs and store.rs",
    ))
}

/// What the registry knows of a store is declared in its folder.
fn has_an_entry(tree: &Tree, store: &str) -> Option<Finding> {
    let entry = Entry::of(tree, store);
    entry.is_none().then(|| {
        Finding::new(
            format!("{BACKENDS}/{store}/mod.rs"),
            format!("has no STORE with the name {store:?} and its schemes"),
            "declare it as the other stores do",
        )
    })
}

fn is_in_the_list(tree: &Tree, store: &str) -> Option<Finding> {
    (!listed(tree).iter().any(|listed| listed == store)).then(|| {
        Finding::new(LIST, format!("{store} is not in the list of stores"), "add its line to `stores!`")
    })
}

/// A store is compiled if its feature is on, and the command line has every store.
fn has_its_feature(tree: &Tree, store: &str) -> Option<Finding> {
    let feature = Entry::of(tree, store)?.feature?;
    let library = "crates/tidelock/Cargo.toml";
    let manifest = tree.read(library);
    if !manifest.lines().any(|line| line.starts_with(&format!("{feature} = ["))) {
        let what = format!("has no feature {feature:?}, which {store} names");
        return Some(Finding::new(library, what, "add it, off by default, with the store's driver"));
    }
    let quoted = format!("{feature:?}");
    let by_default = manifest.lines().any(|line| line.starts_with("default = ") && line.contains(&quoted));
    let program = "crates/tidelock-cli/Cargo.toml";
    (!by_default && !tree.read(program).contains(&quoted)).then(|| {
        Finding::new(program, format!("does not enable {feature:?}"), "add it to the features of tidelock")
    })
}

/// The table of options is compared with the registry by a test of the library, which knows the registry.
fn shows_its_options(tree: &Tree, store: &str) -> Option<Finding> {
    let page = format!("docs/backends/{store}.md");
    let text = tree.read(&page);
    let is_marked = text.is_empty() || OPTIONS.iter().all(|mark| text.contains(mark));
    (!is_marked).then(|| {
        Finding::new(
            page,
            "has no place for the table of options",
            format!(
                "write {} and run TIDELOCK_UPDATE_DOCS=1 cargo test -p tidelock --all-features --lib registry",
                OPTIONS.join(" and ")
            ),
        )
    })
}

fn has_a_page(tree: &Tree, store: &str) -> Option<Finding> {
    let page = format!("docs/backends/{store}.md");
    (!tree.has(&page)).then(|| Finding::new(page, "does not exist", format!("write the page of {store}")))
}

fn has_a_row_of_guarantees(tree: &Tree, store: &str) -> Option<Finding> {
    let file = "GUARANTEES.md";
    (!has_row(&tree.read(file), store)).then(|| {
        Finding::new(
            file,
            format!("no row for {store}"),
            "add a table row with what it promises under faults",
        )
    })
}

fn runs_the_conformance_cases(tree: &Tree, store: &str) -> Option<Finding> {
    let file = "crates/tidelock/tests/conformance/main.rs";
    (!has_word(&tree.read(file), store))
        .then(|| Finding::new(file, format!("does not run {store}"), "add it to the stores under test"))
}

fn has_an_example(tree: &Tree, store: &str) -> Option<Finding> {
    let (folder, url) = ("crates/tidelock/examples", format!("\"{store}:"));
    let shown = tree.rust(folder).iter().any(|(_, text)| text.contains(&url));
    (!shown).then(|| {
        Finding::new(
            folder,
            format!("no example connects to {url}\""),
            "add one, or the URL to one that takes any",
        )
    })
}

fn is_measured(tree: &Tree, store: &str) -> Option<Finding> {
    let file = "bench/src/contest/stores.rs";
    let listed = tree.read(file).contains(&format!("\"{store}\""));
    (!listed).then(|| Finding::new(file, format!("does not measure {store}"), "add it to STORES"))
}

fn is_in_the_readme(tree: &Tree, store: &str) -> Option<Finding> {
    let file = ["README.md", "README.zh-CN.md"].into_iter().find(|file| !has_row(&tree.read(file), store))?;
    Some(Finding::new(file, format!("no row for {store}"), "add it to the table of stores"))
}

/// Whether a table of a Markdown text has a row with this word.
fn has_row(text: &str, word: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('|') && has_word(&line.to_lowercase(), word))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::Files, *};

    const ENTRY: &str = "pub(super) const STORE: Store = Store {\n    name: \"etcd\",\n    schemes: &[\"etcd\", \"etcds\"],\n    feature: Some(\"etcd\"),\n};\n";

    /// A tree in which the store has every part but one.
    fn all_but(left_out: &str) -> Files {
        [
            ("files", "crates/tidelock/src/backends/etcd/store.rs", "// keys"),
            ("", "crates/tidelock/src/backends/etcd/mod.rs", "mod store;"),
            ("entry", "crates/tidelock/src/backends/etcd/mod.rs", ENTRY),
            ("list", "crates/tidelock/src/backends/mod.rs", "stores! {\n    etcd if \"etcd\";\n}\n"),
            ("", "crates/tidelock/src/backends/etcd/config.rs", "// URLs"),
            ("", "crates/tidelock/src/backends/etcd/backend.rs", "// verbs"),
            ("feature", "crates/tidelock/Cargo.toml", "[features]\ndefault = [\"file\"]\netcd = []\n"),
            ("", "crates/tidelock-cli/Cargo.toml", "tidelock = { features = [\"etcd\"] }\n"),
            ("", "docs/backends/etcd.md", "# etcd"),
            ("options", "docs/backends/etcd.md", &OPTIONS.join("\n")),
            ("guarantees", "GUARANTEES.md", "| store | token |\n|---|---|\n| Etcd | consensus |"),
            ("conformance", "crates/tidelock/tests/conformance/main.rs", "suite(etcd());"),
            ("example", "crates/tidelock/examples/first.rs", "connect(\"etcd://localhost\")"),
            ("bench", "bench/src/contest/stores.rs", "const STORES: &[&str] = &[\"etcd\"];"),
            ("", "README.md", "| `etcd:` | revision |"),
            ("readme", "README.zh-CN.md", "| `etcd:` | 版本 |"),
        ]
        .iter()
        .filter(|(part, file, _)| *part != left_out && !(left_out == "page" && file.starts_with("docs/")))
        .fold(Files::new(), |files, (_, file, text)| files.with(file, text))
    }

    #[test]
    fn a_store_with_every_part_is_complete() {
        assert_eq!(every_store_is_complete(&all_but("nothing").tree()), []);
    }

    #[test]
    fn each_part_that_is_missing_is_one_finding_by_its_rule() {
        for (part, rule) in RULES {
            let files = all_but(part);
            let found = every_store_is_complete(&files.tree());
            assert_eq!(found.len(), 1, "{part}");
            assert_eq!(rule(&files.tree(), "etcd").as_ref(), found.first(), "{part}");
        }
    }

    #[test]
    fn a_sentence_about_a_store_is_no_row() {
        let files = Files::new().with("GUARANTEES.md", "etcd promises much.\n| etcdctl | no |");
        assert!(has_a_row_of_guarantees(&files.tree(), "etcd").is_some());
    }

    #[test]
    fn the_missing_files_are_named() {
        let files = Files::new().with("crates/tidelock/src/backends/etcd/mod.rs", "");
        let text = has_its_files(&files.tree(), "etcd").unwrap().to_string();
        assert!(text.contains("lacks config.rs, backend.rs, store.rs"), "{text}");
    }

    #[test]
    fn a_line_without_a_folder_is_found() {
        let files = all_but("nothing")
            .with(LIST, "stores! {\n    // All.\n    etcd;\n    consul if \"consul\";\n}\n");
        let found = every_line_has_a_folder(&files.tree());
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("lists consul"), "{}", found[0]);
        assert_eq!(every_line_has_a_folder(&all_but("nothing").tree()), []);
    }

    #[test]
    fn a_store_that_the_command_line_lacks_is_found() {
        let files = all_but("nothing").with("crates/tidelock-cli/Cargo.toml", "tidelock = {}");
        let found = has_its_feature(&files.tree(), "etcd").unwrap().to_string();
        assert!(found.contains("tidelock-cli/Cargo.toml: does not enable \"etcd\""), "{found}");
        let files = files.with("crates/tidelock/Cargo.toml", "default = [\"etcd\"]\netcd = []");
        assert_eq!(has_its_feature(&files.tree(), "etcd"), None);
    }

    #[test]
    fn a_store_that_is_named_outside_of_its_folder_is_found() {
        let library = "crates/tidelock/src/api/client.rs";
        let program = "crates/tidelock-cli/src/commands/stores.rs";
        for (file, line) in [
            (library, "if scheme == \"etcds\" {"),
            (program, "    \"etcd\" => 1,"),
            ("crates/tidelock/src/backends/redlock/config.rs", "let of = [\"etcd\"];"),
        ] {
            let files = all_but("nothing").with(file, &format!("\n{line}\n"));
            let found = stores_are_named_in_their_folders(&files.tree());
            assert_eq!(found.len(), 1, "{file}");
            assert!(found[0].to_string().starts_with(&format!("{file}:2: names the store")), "{}", found[0]);
        }
        for (file, line) in [
            (library, "#[cfg(any(feature = \"etcd\", feature = \"redis\"))]"),
            (library, "/// assert_eq!(store.name, \"etcd\");"),
            (library, "#[cfg(test)]\nmod tests {\n    const A: &str = \"etcd\";\n}"),
            (program, "let url = \"etcd://host\";"),
            ("crates/tidelock/src/backends/redlock/mod.rs", "    feature: Some(\"etcd\"),"),
            ("crates/tidelock/src/backends/etcd/backend.rs", "store: \"etcd\","),
        ] {
            let files = all_but("nothing").with(file, line);
            assert_eq!(stores_are_named_in_their_folders(&files.tree()), [], "{file}: {line}");
        }
    }
}

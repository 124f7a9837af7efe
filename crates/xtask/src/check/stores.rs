//! Rules for each store: what the checklist "Add a backend" in CONTRIBUTING.md asks for.

use super::tree::{Finding, Tree, has_word};

/// What a store lacks.
type Rule = fn(&Tree, &str) -> Option<Finding>;

/// The parts of a store. Each is a box of the checklist that ends with `(checked)`.
pub(super) const RULES: [(&str, Rule); 7] = [
    ("files", has_its_files),
    ("page", has_a_page),
    ("guarantees", has_a_row_of_guarantees),
    ("conformance", runs_the_conformance_cases),
    ("example", has_an_example),
    ("bench", is_measured),
    ("readme", is_in_the_readme),
];

/// Every store has every part.
pub(super) fn every_store_is_complete(tree: &Tree) -> Vec<Finding> {
    let stores = tree.stores();
    stores.iter().flat_map(|store| RULES.iter().filter_map(|(_, rule)| rule(tree, store))).collect()
}

/// Knowing one store is knowing all: the same file names in each.
fn has_its_files(tree: &Tree, store: &str) -> Option<Finding> {
    let folder = format!("crates/tidelock/src/backends/{store}");
    let missing: Vec<_> = ["mod.rs", "backend.rs", "store.rs"]
        .into_iter()
        .filter(|file| !tree.has(&format!("{folder}/{file}")))
        .collect();
    let missing = (!missing.is_empty()).then(|| missing.join(", "))?;
    Some(Finding::new(folder, format!("lacks {missing}"), "every store has mod.rs, backend.rs and store.rs"))
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
    let file = "crates/tidelock/tests/conformance.rs";
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

    /// A tree in which the store has every part but one.
    fn all_but(left_out: &str) -> Files {
        [
            ("files", "crates/tidelock/src/backends/etcd/store.rs", "// keys"),
            ("", "crates/tidelock/src/backends/etcd/mod.rs", "mod store;"),
            ("", "crates/tidelock/src/backends/etcd/backend.rs", "// verbs"),
            ("page", "docs/backends/etcd.md", "# etcd"),
            ("guarantees", "GUARANTEES.md", "| store | token |\n|---|---|\n| Etcd | consensus |"),
            ("conformance", "crates/tidelock/tests/conformance.rs", "suite(etcd());"),
            ("example", "crates/tidelock/examples/first.rs", "connect(\"etcd://localhost\")"),
            ("bench", "bench/src/contest/stores.rs", "const STORES: &[&str] = &[\"etcd\"];"),
            ("", "README.md", "| `etcd:` | revision |"),
            ("readme", "README.zh-CN.md", "| `etcd:` | 版本 |"),
        ]
        .iter()
        .filter(|(part, ..)| *part != left_out)
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
        assert!(text.contains("lacks backend.rs, store.rs"), "{text}");
    }
}

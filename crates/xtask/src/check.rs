//! `cargo xtask check`: what the compiler cannot see.
//!
//! A rule is a pure function over a tree of files, so that its tests can give it small trees.

mod guarantees;
mod metrics;
mod pages;
mod prose;
mod source;
mod stores;
mod tree;

use std::path::Path;

use self::tree::fenced_out;
pub(crate) use self::tree::{Finding, Tree};
use crate::{api, run};

/// What is wrong in a tree.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    stores::every_store_is_complete,
    stores::every_line_has_a_folder,
    stores::stores_are_named_in_their_folders,
    checklist_says_what_is_checked,
    translations_have_the_same_headings,
    guarantees::faults_have_a_column_for_each_store,
    guarantees::faults_are_numbered,
    guarantees::faults_are_proven,
    pages::every_page_is_compiled,
    pages::pages_have_the_schemes,
    pages::pages_have_the_options,
    metrics::the_table_has_the_metrics,
    metrics::pages_have_the_metrics,
    metrics::dashboards_and_rules_use_metrics_that_exist,
    prose::prose_wraps,
    prose::pages_use_plain_words,
    prose::code_uses_plain_words,
    source::files_are_short,
    source::silenced_lints_have_reasons,
    source::nothing_is_unfinished,
    source::engine_knows_no_store,
    source::stores_know_no_engine,
];

/// Prints each finding with its fix. Says whether there was none.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    let tree = Tree::new(root);
    let mut findings: Vec<_> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.extend(dependencies(root));
    findings.extend(api::findings(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    println!("findings: {}; stores: {}", findings.len(), tree.stores().join(", "));
    Ok(findings.is_empty())
}

/// Licences, banned crates and sources, where the program for it is installed.
fn dependencies(root: &Path) -> Option<Finding> {
    if !run::is_installed("cargo-deny") {
        println!("skipped: licences and sources of dependencies; to check them: cargo install cargo-deny");
        return None;
    }
    let mut deny = run::cargo(root, &["deny", "check", "licenses", "bans", "sources"]);
    let refused = run::run(&mut deny).err()?;
    Some(Finding::new("Cargo.lock", format!("cargo deny refuses a dependency ({refused})"), "see above"))
}

/// The checklist for authors of stores names as many verified boxes as there are rules for stores.
fn checklist_says_what_is_checked(tree: &Tree) -> Vec<Finding> {
    let file = "CONTRIBUTING.md";
    let text = tree.read(file);
    let section: Vec<_> = fenced_out(&text)
        .map(|(_, line)| line)
        .skip_while(|line| !(line.starts_with('#') && line.contains("Add a backend")))
        .collect();
    let end =
        section.iter().skip(1).position(|line| line.starts_with('#')).map_or(section.len(), |at| at + 1);
    let boxes = section[..end].iter().filter(|line| line.starts_with("- [ ] ")).count();
    let checked =
        section[..end].iter().filter(|line| line.starts_with("- [ ] ") && line.ends_with("(checked)"));
    let (checked, rules) = (checked.count(), stores::RULES.len());
    let finding = if boxes == 0 {
        Finding::new(file, "has no checklist \"Add a backend\"", "write that section, lines start \"- [ ] \"")
    } else if checked != rules {
        let names = stores::RULES.map(|(name, _)| name).join(", ");
        Finding::new(
            file,
            format!("{checked} boxes of \"Add a backend\" end with (checked), but {rules} rules exist"),
            format!("mark those for: {names}"),
        )
    } else {
        return Vec::new();
    };
    vec![finding]
}

/// Readers of the other language find the same chapters.
fn translations_have_the_same_headings(tree: &Tree) -> Vec<Finding> {
    let count = |file| fenced_out(&tree.read(file)).filter(|(_, line)| line.starts_with('#')).count();
    let (english, chinese) = (count("README.md"), count("README.zh-CN.md"));
    if english == chinese && english > 0 {
        return Vec::new();
    }
    vec![Finding::new(
        "README.zh-CN.md",
        format!("has {chinese} headings, and README.md has {english}"),
        "bring both to the same chapters",
    )]
}

#[cfg(test)]
mod tests {
    use super::{tree::tests::Files, *};

    fn checklist(checked: usize) -> String {
        let boxes = "- [ ] A thing (checked)\n".repeat(checked);
        format!("# Contributing\n## Add a backend\n{boxes}- [ ] Another\n## Later\n- [ ] Not it (checked)\n")
    }

    #[test]
    fn a_checklist_with_as_many_checked_boxes_as_rules_is_fine() {
        let files = Files::new().with("CONTRIBUTING.md", &checklist(stores::RULES.len()));
        assert_eq!(checklist_says_what_is_checked(&files.tree()), []);
    }

    #[test]
    fn a_checklist_with_another_number_of_checked_boxes_is_found() {
        let files = Files::new().with("CONTRIBUTING.md", &checklist(2));
        let found = checklist_says_what_is_checked(&files.tree());
        assert!(found[0].to_string().contains("2 boxes"), "{}", found[0]);
        assert!(found[0].to_string().contains("guarantees"), "{}", found[0]);
    }

    #[test]
    fn a_missing_checklist_is_found() {
        let files = Files::new().with("CONTRIBUTING.md", "# Contributing\n- [ ] Elsewhere (checked)\n");
        assert_eq!(checklist_says_what_is_checked(&files.tree()).len(), 1);
        assert_eq!(checklist_says_what_is_checked(&Files::new().tree()).len(), 1);
    }

    #[test]
    fn headings_are_counted_outside_of_code() {
        let english = "# A\n```sh\n# a comment\n```\n## B\n";
        let same = Files::new().with("README.md", english).with("README.zh-CN.md", "# 甲\n## 乙\n");
        assert_eq!(translations_have_the_same_headings(&same.tree()), []);
        let fewer = Files::new().with("README.md", english).with("README.zh-CN.md", "# 甲\n");
        let found = translations_have_the_same_headings(&fewer.tree());
        assert!(found[0].to_string().contains("has 1 headings, and README.md has 2"), "{}", found[0]);
        assert_eq!(translations_have_the_same_headings(&Files::new().tree()).len(), 1);
    }
}

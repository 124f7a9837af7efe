//! Rules for Rust files. The words that they look for are put together here, so that this file
//! does not break its own rules.

use super::tree::{Finding, Tree, has_word};

/// A file past this is two files.
const MAX_LINES: usize = 450;

pub(super) fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust(".");
    let long = files.iter().map(|(file, text)| (file, text.lines().count())).filter(|(_, n)| *n > MAX_LINES);
    long.map(|(file, n)| {
        Finding::new(file, format!("has {n} lines of at most {MAX_LINES}"), "make it two files")
    })
    .collect()
}

/// A lint is silenced with a reason or not at all.
pub(super) fn silenced_lints_have_reasons(tree: &Tree) -> Vec<Finding> {
    let starts = [["#[", "allow("], ["#![", "allow("], ["#[", "expect("], ["#![", "expect("]];
    let starts = starts.map(|parts| parts.concat());
    let mut findings = Vec::new();
    for (file, text) in tree.rust(".") {
        for start in &starts {
            for (at, _) in text.match_indices(start) {
                let attribute = &text[at..];
                let attribute = &attribute[..attribute.find(")]").unwrap_or(attribute.len())];
                let line = text[..at].matches('\n').count() + 1;
                if !attribute.contains("reason") && !is_comment(text.lines().nth(line - 1).unwrap_or("")) {
                    findings.push(Finding::new(
                        format!("{file}:{line}"),
                        "a lint is silenced without a reason",
                        "add reason = \"…\" or correct the code",
                    ));
                }
            }
        }
    }
    findings
}

/// Unfinished work and debugging do not land.
pub(super) fn nothing_is_unfinished(tree: &Tree) -> Vec<Finding> {
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let mark = ["FIX", "ME"].concat();
    find(tree, ".", |line| {
        let left = macros.iter().find(|name| !is_comment(line) && begins(line, name));
        let left = left.or(line.contains(&mark).then_some(&mark))?;
        Some((
            format!("{left} was left behind"),
            "finish it, or say in GUARANTEES.md what is missing".to_owned(),
        ))
    })
}

/// The engine is the same for every store, also for those that others write.
pub(super) fn engine_knows_no_store(tree: &Tree) -> Vec<Finding> {
    find(tree, "crates/tidelock/src/engine", |line| {
        (!is_comment(line) && uses(line, "backends")).then(|| {
            ("the engine imports a store".to_owned(), "go through the trait in backend.rs".to_owned())
        })
    })
}

/// A store knows the waist, names, owners and errors; leases and guards are not its business.
pub(super) fn stores_know_no_engine(tree: &Tree) -> Vec<Finding> {
    find(tree, "crates/tidelock/src/backends", |line| {
        let module =
            ["engine", "guard"].into_iter().find(|module| !is_comment(line) && uses(line, module))?;
        Some((format!("a store imports {module}"), "import the waist in backend.rs only".to_owned()))
    })
}

/// The lines below a folder about which a rule has something to say.
fn find(tree: &Tree, folder: &str, rule: impl Fn(&str) -> Option<(String, String)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.rust(folder) {
        for (index, line) in text.lines().enumerate() {
            if let Some((what, fix)) = rule(line) {
                findings.push(Finding::new(format!("{file}:{}", index + 1), what, fix));
            }
        }
    }
    findings
}

/// Whether a line of code names something in a module, alone or in a group of imports.
fn uses(line: &str, module: &str) -> bool {
    has_word(line, &format!("crate::{module}")) || begins(line, &format!("{module}::"))
}

/// Whether a text is in a line, not as the end of a longer word.
fn begins(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::one, *};

    #[test]
    fn a_file_past_the_limit_is_found() {
        assert_eq!(one("src/a.rs", &"//\n".repeat(450), files_are_short), "");
        let found = one("src/a.rs", &"//\n".repeat(451), files_are_short);
        assert!(found.starts_with("src/a.rs: has 451 lines"), "{found}");
    }

    #[test]
    fn a_lint_that_is_silenced_without_a_reason_is_found() {
        let attribute = |rest: &str| format!("//! x\n\n{}{rest}\nfn a() {{}}\n", ["#[", "allow("].concat());
        let found = one("a.rs", &attribute("dead_code)]"), silenced_lints_have_reasons);
        assert!(found.starts_with("a.rs:3: "), "{found}");
        let reason = attribute("\n    dead_code,\n    reason = \"the verbs come later\"\n)]");
        assert_eq!(one("a.rs", &reason, silenced_lints_have_reasons), "");
    }

    #[test]
    fn what_is_unfinished_is_found() {
        for word in [["to", "do!()"], ["unimpl", "emented!(\"x\")"], ["db", "g!(x)"], ["// FIX", "ME: later"]]
        {
            let found = one("a.rs", &format!("fn a() {{\n    {}\n}}", word.concat()), nothing_is_unfinished);
            assert!(found.starts_with("a.rs:2: "), "{found}");
        }
        for fine in ["let todo = 1;", "undbg!(1);", "// a macro such as that"] {
            assert_eq!(one("a.rs", fine, nothing_is_unfinished), "", "{fine}");
        }
    }

    #[test]
    fn an_engine_that_imports_a_store_is_found() {
        let file = "crates/tidelock/src/engine/acquire.rs";
        for line in
            ["use crate::backends::memory::MemoryStore;", "    backends::memory,", "use crate::backends;"]
        {
            assert!(!one(file, line, engine_knows_no_store).is_empty(), "{line}");
        }
        for line in ["// As backends::memory does.", "use crate::backend::Backend;", "let my_backends::x;"] {
            assert_eq!(one(file, line, engine_knows_no_store), "", "{line}");
        }
        assert_eq!(
            one("crates/tidelock/src/backends/registry.rs", "use crate::backends::x;", engine_knows_no_store),
            ""
        );
    }

    #[test]
    fn a_store_that_imports_the_engine_or_guards_is_found() {
        let file = "crates/tidelock/src/backends/redis/store.rs";
        for line in ["use crate::engine::Engine;", "use crate::{guard::Guard, name::Name};"] {
            assert!(one(file, line, stores_know_no_engine).starts_with(&format!("{file}:1: ")), "{line}");
        }
        assert_eq!(one(file, "use std::sync::MutexGuard; // engine", stores_know_no_engine), "");
    }
}

//! The table of faults in GUARANTEES.md: every store is a column, and what is said to be tested names its tests.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Finding, Tree, cells, quoted, ticked};

const FILE: &str = "GUARANTEES.md";

/// Where the table ends, and where the list of tests begins.
const PARTS: [&str; 2] = ["## Faults", "## Proofs"];

/// What a cell may say that a test shows, unless it has the mark for "by construction".
const SHOWN: [char; 3] = ['X', 'E', 'R'];
const BY_CONSTRUCTION: char = '†';
/// Marks that need no test: F follows from what a server promises.
const OTHERS: [char; 6] = ['F', '–', '·', '/', ' ', BY_CONSTRUCTION];

/// A row of the table.
#[derive(Debug)]
struct Row {
    line: usize,
    number: String,
    /// What it says, by store.
    marks: Vec<(String, String)>,
}

/// A test that the list names, below the number of a row.
#[derive(Debug)]
struct Proof {
    line: usize,
    row: String,
    /// The tests of one program or folder.
    suite: String,
    name: String,
}

/// The table has a column for each store, and marks that are explained.
pub(super) fn faults_have_a_column_for_each_store(tree: &Tree) -> Vec<Finding> {
    let rows = rows(&tree.read(FILE));
    let Some(first) = rows.first() else {
        return vec![Finding::new(FILE, "has no table of faults", format!("write it below {:?}", PARTS[0]))];
    };
    let columns: Vec<_> = first.marks.iter().map(|(store, _)| store.clone()).collect();
    let lost = tree.stores().into_iter().filter(|store| !columns.contains(store));
    let mut findings: Vec<_> = lost
        .map(|store| Finding::new(FILE, format!("the table of faults has no column for {store}"), "add it"))
        .collect();
    for row in &rows {
        let unknown = row.marks.iter().filter(|(_, marks)| {
            marks.is_empty() || marks.chars().any(|mark| !SHOWN.contains(&mark) && !OTHERS.contains(&mark))
        });
        findings.extend(unknown.map(|(store, marks)| {
            Finding::new(
                format!("{FILE}:{}", row.line),
                format!("{store} has the mark {marks:?}"),
                "use the marks above the table; words go into the notes",
            )
        }));
    }
    findings
}

/// Rows are numbered from 1 on, and a note has the number of one of them.
pub(super) fn faults_are_numbered(tree: &Tree) -> Vec<Finding> {
    let text = tree.read(FILE);
    let rows = rows(&text);
    let wrong = (1..).zip(&rows).find(|(number, row)| row.number != number.to_string());
    let mut findings: Vec<_> = wrong
        .map(|(number, row)| {
            let what = format!("row {} of the table of faults should be {number}", row.number);
            Finding::new(
                format!("{FILE}:{}", row.line),
                what,
                "number the rows, the notes and the proofs again",
            )
        })
        .into_iter()
        .collect();
    let notes = part(&text, PARTS[0]).into_iter().filter_map(|(line, text)| Some((line, number_of(text)?)));
    findings.extend(notes.filter(|(_, number)| !rows.iter().any(|row| row.number == *number)).map(
        |(line, number)| {
            let what = format!("is a note for row {number}, which the table of faults does not have");
            Finding::new(format!("{FILE}:{line}"), what, "use the number of its row")
        },
    ));
    findings
}

/// The row that an item of a list is about.
fn number_of(line: &str) -> Option<&str> {
    line.strip_prefix("- **")?.split_once("**").map(|(number, _)| number)
}

/// Every test that the list names exists, and every cell that is said to be tested has one that runs on its store.
pub(super) fn faults_are_proven(tree: &Tree) -> Vec<Finding> {
    let text = tree.read(FILE);
    let (rows, proofs) = (rows(&text), proofs(&text));
    let mut suites = BTreeMap::new();
    let mut findings = Vec::new();
    for proof in &proofs {
        let tests = suites.entry(proof.suite.clone()).or_insert_with(|| tests_of(tree, &proof.suite));
        if !tests.contains_key(&proof.name) {
            findings.push(Finding::new(
                format!("{FILE}:{}", proof.line),
                format!("no test {}::{}", proof.suite, proof.name),
                "name the test that shows it now",
            ));
        }
        if !rows.iter().any(|row| row.number == proof.row) {
            findings.push(Finding::new(
                format!("{FILE}:{}", proof.line),
                format!("the table of faults has no row {}", proof.row),
                "use the number of the row that the test shows",
            ));
        }
    }
    for row in &rows {
        let stores =
            row.marks.iter().filter(|(_, marks)| marks.contains(SHOWN) && !marks.contains(BY_CONSTRUCTION));
        for (store, marks) in stores {
            let shown = proofs.iter().filter(|proof| proof.row == row.number).any(|proof| {
                let test = suites.get(&proof.suite).and_then(|tests| tests.get(&proof.name));
                test.is_some_and(|needs| runs_on(tree, &proof.suite, needs.as_deref(), store))
            });
            if !shown {
                findings.push(Finding::new(
                    format!("{FILE}:{}", row.line),
                    format!(
                        "row {} says {marks} for {store}, and no test of the list runs on it",
                        row.number
                    ),
                    format!("name one below {:?}, or mark it {BY_CONSTRUCTION}", PARTS[1]),
                ));
            }
        }
    }
    findings
}

/// The lines between the heading of a part and the next heading of its level, with their numbers.
fn part<'a>(text: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let lines = (1..).zip(text.lines()).skip_while(|(_, line)| line.trim_end() != heading).skip(1);
    lines.take_while(|(_, line)| !line.starts_with("## ")).collect()
}

/// The rows of the table that have a number; others are headlines of groups.
fn rows(text: &str) -> Vec<Row> {
    let lines = part(text, PARTS[0]);
    let mut stores = Vec::new();
    let mut rows = Vec::new();
    for (line, cells) in lines.iter().filter_map(|(number, line)| Some((*number, cells(line)?))) {
        if cells.first() == Some(&"#") {
            stores = cells.iter().skip(2).map(|cell| cell.trim_matches('`').to_owned()).collect();
        } else if !stores.is_empty() && cells[0].parse::<usize>().is_ok() {
            let marks = cells.iter().skip(2).map(|cell| (*cell).to_owned());
            rows.push(Row {
                line,
                number: cells[0].to_owned(),
                marks: stores.iter().cloned().zip(marks).collect(),
            });
        }
    }
    rows
}

/// The tests in the list: items below the number of their row.
fn proofs(text: &str) -> Vec<Proof> {
    let mut row = String::new();
    let mut proofs = Vec::new();
    for (line, text) in part(text, PARTS[1]) {
        if let Some(number) = number_of(text) {
            number.clone_into(&mut row);
        } else if text.trim_start().starts_with("- ") {
            let named = ticked(text).filter_map(|name| name.split_once("::"));
            proofs.extend(named.map(|(suite, name)| Proof {
                line,
                row: row.clone(),
                suite: suite.to_owned(),
                name: name.to_owned(),
            }));
        }
    }
    proofs
}

/// The tests of a suite, each with what it needs of a store.
fn tests_of(tree: &Tree, suite: &str) -> BTreeMap<String, Option<String>> {
    let library = "crates/tidelock";
    let (mut files, file) = match suite {
        "conformance" => (tree.rust(&format!("{library}/src/testing/cases")), String::new()),
        "trials" => (tree.rust(&format!("{library}/tests/common/store")), String::new()),
        "model" => {
            let runs = tree.read("crates/model/src/runs.rs");
            return quoted(&runs).map(|name| (name.to_owned(), None)).collect();
        }
        // A store's own tests are in its folder.
        store if tree.stores().iter().any(|known| known == store) => {
            (tree.rust(&format!("{library}/src/backends/{store}")), String::new())
        }
        other => (tree.rust(&format!("{library}/tests/{other}")), format!("{library}/tests/{other}.rs")),
    };
    if tree.has(&file) {
        files.push((file.clone(), tree.read(&file)));
    }
    files.iter().flat_map(|(_, text)| tests_in(text)).collect()
}

/// The tests of a Rust text: functions marked as tests, and those in lists of trials and cases.
fn tests_in(text: &str) -> Vec<(String, Option<String>)> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut tests = Vec::new();
    let (mut is_test, mut is_list) = (false, false);
    for line in text.lines() {
        if is_list {
            is_list = !line.starts_with('}');
            let needs = line.split_once(" where ").map(|(_, needs)| word(needs));
            tests.push((word(line), needs));
        } else if line.starts_with("trials! {") || line.starts_with("super::cases! {") {
            is_list = true;
        } else if line.trim_start().starts_with("#[test]") || line.trim_start().starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
            tests.push((word(rest), None));
            is_test = false;
        }
    }
    tests
}

/// Whether a suite's test is run on a store.
fn runs_on(tree: &Tree, suite: &str, needs: Option<&str>, store: &str) -> bool {
    match suite {
        "conformance" => true,
        "trials" => {
            let own = tree.read(&format!("crates/tidelock/tests/{store}_store/main.rs"));
            own.contains("common_trials()")
                && needs.is_none_or(|needs| own.contains(&format!("{needs}: true")))
        }
        "model" => store == "redlock",
        other => {
            let stores: BTreeSet<_> = tree.stores().into_iter().collect();
            let own = other.split('_').next().unwrap_or_default();
            // The engine's own tests run on the store in memory.
            if stores.contains(own) { own == store } else { store == "memory" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::Files, *};

    const PAGE: &str = "# Guarantees

## Faults

| mark | meaning |
|---|---|
| X | holds |

| # | fault | `etcd` | `memory` |
|---|---|---|---|
| | **Processes** | | |
| 1 | holder killed | X | – |
| 2 | wall clock steps | X † | F |

- **2** A note.

## Proofs

- **1** Holder killed
  - `trials::a_holder_is_killed`
  - `etcd_store::a_leader_is_killed`

## Stock
";

    fn files(page: &str) -> Files {
        Files::new()
            .with(FILE, page)
            .with(
                "crates/tidelock/src/backends/etcd/mod.rs",
                "    #[test]\n    fn old_servers_are_refused() {}\n",
            )
            .with("crates/tidelock/src/backends/memory/mod.rs", "")
            .with("crates/tidelock/tests/etcd_store/main.rs", "renews: true, common_trials()")
            .with(
                "crates/tidelock/tests/etcd_store/a.rs",
                "trials! {\n    a_leader_is_killed,\n}\nfn helper() {}\n",
            )
            .with(
                "crates/tidelock/tests/common/store/a.rs",
                "trials! {\n    a_holder_is_killed where renews,\n    a_waiter_is_killed where pushes,\n}\n",
            )
            .with(
                "crates/tidelock/tests/engine.rs",
                "#[tokio::test(start_paused = true)]\nasync fn it_waits() {}\n",
            )
            .with("crates/model/src/runs.rs", "ours(\"holders\")")
    }

    fn columns(page: &str) -> String {
        said(&faults_have_a_column_for_each_store(&files(page).tree()))
    }

    fn proven(page: &str) -> String {
        said(&faults_are_proven(&files(page).tree()))
    }

    fn said(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn a_table_with_tests_for_what_is_tested_is_fine() {
        assert_eq!((columns(PAGE), proven(PAGE)), (String::new(), String::new()));
    }

    #[test]
    fn a_store_without_a_column_is_found() {
        let found = columns(&PAGE.replace("`memory`", "`mysql`"));
        assert!(found.contains("GUARANTEES.md: the table of faults has no column for memory"), "{found}");
        assert!(columns("# Guarantees").contains("has no table of faults"));
    }

    #[test]
    fn a_mark_that_is_not_explained_is_found() {
        let found = columns(&PAGE.replace("| X | – |", "| X, mostly | – |"));
        assert!(found.starts_with("GUARANTEES.md:12: etcd has the mark \"X, mostly\""), "{found}");
    }

    #[test]
    fn rows_and_notes_with_wrong_numbers_are_found() {
        let numbered = |page: &str| said(&faults_are_numbered(&files(page).tree()));
        assert_eq!(numbered(PAGE), "");
        let found = numbered(&PAGE.replace("| 2 |", "| 3 |"));
        assert!(found.starts_with("GUARANTEES.md:13: row 3 of the table of faults should be 2"), "{found}");
        assert!(found.contains("GUARANTEES.md:15: is a note for row 2, which"), "{found}");
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        for name in [
            "etcd_store::a_leader_is_gone",
            "etcd_store::helper",
            "trials::a_leader_is_killed",
            "model::line",
        ] {
            let found = proven(&PAGE.replace("etcd_store::a_leader_is_killed", name));
            assert!(
                found.starts_with(&format!("GUARANTEES.md:21: no test {name}: name the test")),
                "{found}"
            );
        }
        for name in ["model::holders", "engine::it_waits", "etcd::old_servers_are_refused"] {
            assert_eq!(proven(&PAGE.replace("etcd_store::a_leader_is_killed", name)), "", "{name}");
        }
    }

    #[test]
    fn a_cell_that_no_test_shows_is_found() {
        let found = proven(&PAGE.replace("X †", "X"));
        assert!(found.starts_with("GUARANTEES.md:13: row 2 says X for etcd, and no test"), "{found}");
        let found = proven(&PAGE.replace("| X | – |", "| X | X |"));
        assert!(found.contains("row 1 says X for memory"), "{found}");
        let none = PAGE.replace("  - `etcd_store::a_leader_is_killed`\n", "");
        let needs = none.replace("a_holder_is_killed", "a_waiter_is_killed");
        assert!(proven(&needs).contains("row 1 says X for etcd"), "{}", proven(&needs));
    }

    #[test]
    fn a_proof_of_a_row_that_is_not_there_is_found() {
        let found = proven(&PAGE.replace("- **1**", "- **3**"));
        assert!(found.contains("GUARANTEES.md:20: the table of faults has no row 3"), "{found}");
    }
}

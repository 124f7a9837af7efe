//! Rules for what people read: how wide it is, and which words it does not use.

use super::tree::{Finding, Tree, fenced_out, has_word};

/// Prose wraps here, counted in characters.
const WIDTH: usize = 100;

/// Pages whose lines may be longer, each with the reason.
const UNWRAPPED: &[(&str, &str)] = &[
    ("README.zh-CN.md", "a line break would be a space between two Chinese characters"),
    ("bench/RESULTS.md", "the benchmark writes it"),
];

/// The folders whose Rust files use none of the words.
const CLEAN: &[&str] = &["bench/src", "crates"];

/// Words that English-speaking engineers do not use here, and what they say instead. The words are put together so
/// that this file does not break its own rule.
fn words() -> Vec<(String, &'static str)> {
    let forms = |parts: [&str; 2], endings: &[&str]| -> Vec<String> {
        endings.iter().map(|ending| format!("{}{ending}", parts.concat())).collect()
    };
    let groups = [
        (forms(["me", "nd"], &["", "s", "ed", "ing"]), "fix or correct"),
        (forms(["who", "ever"], &[""]), "name who it is: the client that, any process that"),
        (forms(["to be", " had"], &[""]), "available"),
    ];
    groups
        .into_iter()
        .flat_map(|(words, instead)| words.into_iter().map(move |word| (word, instead)))
        .collect()
}

/// A lease expires; in the code the older word is still a name of fields and columns.
fn words_of_pages() -> Vec<(String, &'static str)> {
    let older = ["lap", "se"].concat();
    let older = ["", "s", "d"].map(|ending| (format!("{older}{ending}"), "expires, ends"));
    words().into_iter().chain(older).collect()
}

/// Prose is read in editors and in diffs, too.
pub(super) fn prose_wraps(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in tree.markdown(".") {
        if UNWRAPPED.iter().any(|(unwrapped, _)| *unwrapped == page) {
            continue;
        }
        for (number, line) in fenced_out(&text) {
            let width = line.chars().count();
            if width > WIDTH && !line.trim_start().starts_with(['|', '<']) && can_wrap(line) {
                findings.push(Finding::new(
                    format!("{page}:{number}"),
                    format!("has {width} columns of at most {WIDTH}"),
                    "wrap the line",
                ));
            }
        }
    }
    findings
}

/// Whether a line has a place to wrap it: a blank behind its first word, outside of code and links.
fn can_wrap(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['-', '*', '>', '#']).trim_start();
    let (mut code, mut link) = (false, 0_usize);
    text.chars().any(|c| {
        match c {
            '`' => code = !code,
            '[' | '(' if !code => link += 1,
            ']' | ')' if !code => link = link.saturating_sub(1),
            _ => {}
        }
        c == ' ' && !code && link == 0
    })
}

/// Pages have none of the words, outside of code.
pub(super) fn pages_use_plain_words(tree: &Tree) -> Vec<Finding> {
    let words = words_of_pages();
    let mut findings = Vec::new();
    for (page, text) in tree.markdown(".") {
        for (number, line) in fenced_out(&text) {
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            findings.extend(found(&words, &format!("{page}:{number}"), &prose));
        }
    }
    findings
}

/// Neither have comments and texts of clean folders. A name of several words is not looked at.
pub(super) fn code_uses_plain_words(tree: &Tree) -> Vec<Finding> {
    let words = words();
    let mut findings = Vec::new();
    for place in CLEAN {
        for (file, text) in tree.rust(place) {
            for (index, line) in text.lines().enumerate() {
                findings.extend(found(&words, &format!("{file}:{}", index + 1), line));
            }
        }
    }
    findings
}

fn found(words: &[(String, &str)], place: &str, line: &str) -> Vec<Finding> {
    let line = line.to_lowercase();
    let used = words.iter().filter(|(word, _)| has_word(&line, word));
    used.map(|(word, instead)| {
        Finding::new(place, format!("uses {word:?}"), format!("write it in plain words ({instead})"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::one, *};

    #[test]
    fn a_long_line_of_prose_is_found() {
        let long = "word ".repeat(21);
        let found = one("docs/a.md", &format!("# A\n\n{long}\n"), prose_wraps);
        assert_eq!(found, "docs/a.md:3: has 105 columns of at most 100: wrap the line\n");
        for fine in [
            &long[..100],
            &format!("| {long} |"),
            &format!("```text\n{long}\n```"),
            &format!("- `{long}`"),
            &format!("  [{long}](https://example.com/)"),
            &format!("- {}", "x".repeat(120)),
            &"宽".repeat(100),
        ] {
            assert_eq!(one("docs/a.md", fine, prose_wraps), "", "{fine}");
        }
        assert_eq!(one("README.zh-CN.md", &long, prose_wraps), "");
    }

    #[test]
    fn a_word_that_is_not_used_is_found_in_a_page() {
        let word = ["Who", "ever"].concat();
        let found = one("docs/guide/a.md", &format!("\n{word} holds it.\n"), pages_use_plain_words);
        assert!(found.starts_with("docs/guide/a.md:2: uses \"who"), "{found}");
        assert!(found.contains("the client that"), "{found}");
        for (word, instead) in words_of_pages() {
            assert!(one("a.md", &format!("is {word}."), pages_use_plain_words).contains(instead), "{word}");
        }
        for fine in [format!("the column `{word}`"), format!("```sql\n{word}\n```"), format!("{word}_else")] {
            assert_eq!(one("docs/a.md", &fine, pages_use_plain_words), "", "{fine}");
        }
    }

    #[test]
    fn a_word_that_is_not_used_is_found_in_the_code_of_clean_folders() {
        let word = ["me", "nd"].concat();
        let found = one("crates/xtask/src/a.rs", &format!("//! A.\n// {word} it\n"), code_uses_plain_words);
        assert!(found.starts_with("crates/xtask/src/a.rs:2: uses "), "{found}");
        let text = format!("let text = \"{word} the URL\";");
        assert!(!one("crates/tidelock/src/error.rs", &text, code_uses_plain_words).is_empty());
        assert_eq!(one("crates/xtask/src/a.rs", "// commend, amend", code_uses_plain_words), "");
        assert_eq!(one("crates/xtask/src/a.rs", &format!("fn {word}_it() {{}}"), code_uses_plain_words), "");
    }
}

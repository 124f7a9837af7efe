//! The files of the project, and what can be wrong with them.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// Something that breaks a rule, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    place: String,
    what: String,
    fix: String,
}

impl Finding {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.what, self.fix)
    }
}

/// The files below a folder.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The files below this folder.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The stores of the library: each has a folder, beside what they share.
    pub(crate) fn stores(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("crates/tidelock/src/backends"));
        let folders = entries.into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
        let mut stores: Vec<_> =
            folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        stores.retain(|store| store != "shared");
        stores.sort();
        stores
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.root.join(file).is_file()
    }

    /// The text of a file; a file that is missing lacks whatever a rule looks for.
    pub(super) fn read(&self, file: &str) -> String {
        fs::read(self.root.join(file))
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All Rust files below a folder, with their texts, by name.
    pub(super) fn rust(&self, folder: &str) -> Vec<(String, String)> {
        self.files(folder, "rs")
    }

    /// All Markdown files below a folder, with their texts, by name.
    pub(super) fn markdown(&self, folder: &str) -> Vec<(String, String)> {
        self.files(folder, "md")
    }

    /// All files below a folder whose names end so, with their texts, by name.
    pub(super) fn files(&self, folder: &str, extension: &str) -> Vec<(String, String)> {
        let mut paths = Vec::new();
        collect(&self.root.join(folder), extension, &mut paths);
        paths.sort();
        let named = paths.iter().filter_map(|path| path.strip_prefix(&self.root).ok());
        named
            .map(|path| path.to_string_lossy().into_owned())
            .map(|file| (file.clone(), self.read(&file)))
            .collect()
    }
}

fn collect(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_symlink() {
            // The crates link to pages, which are seen in their own place.
            continue;
        }
        if path.is_dir() {
            // What cargo and npm build and what git keeps is not ours to judge.
            if name != "target" && name != "node_modules" && !name.to_string_lossy().starts_with('.') {
                collect(&path, extension, paths);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
}

/// The lines of a Markdown text that are not code, with their numbers.
pub(super) fn fenced_out(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((index + 1, line))
    })
}

/// What is between backticks in a text.
pub(super) fn ticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What is between quotes in a text.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The cells of a row of a Markdown table; none if the line is no row.
pub(super) fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(str::trim).collect())
}

/// Whether a text has this word, not as a part of a longer one.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A small tree in a temporary folder.
    pub(crate) struct Files(tempfile::TempDir);

    impl Files {
        pub(crate) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(crate) fn with(self, file: &str, text: &str) -> Self {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        pub(crate) fn tree(&self) -> Tree {
            Tree::new(self.0.path())
        }
    }

    /// What a rule says about a tree with one file.
    pub(crate) fn one(file: &str, text: &str, rule: fn(&Tree) -> Vec<Finding>) -> String {
        let files = Files::new().with(file, text);
        rule(&files.tree()).iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn a_store_is_a_folder_of_the_library() {
        let files = Files::new()
            .with("crates/tidelock/src/backends/mod.rs", "")
            .with("crates/tidelock/src/backends/redis/mod.rs", "")
            .with("crates/tidelock/src/backends/shared/mod.rs", "")
            .with("crates/tidelock/src/backends/etcd/mod.rs", "");
        assert_eq!(files.tree().stores(), ["etcd", "redis"]);
        assert!(Files::new().tree().stores().is_empty());
    }

    #[test]
    fn only_our_files_are_read() {
        let files = Files::new()
            .with("crates/a/src/lib.rs", "fn a() {}")
            .with("crates/a/README.md", "# A")
            .with("target/debug/build.rs", "")
            .with("peers/a/node_modules/b/README.md", "")
            .with(".git/x.rs", "");
        assert_eq!(files.tree().rust("."), [("crates/a/src/lib.rs".to_owned(), "fn a() {}".to_owned())]);
        assert_eq!(files.tree().markdown("."), [("crates/a/README.md".to_owned(), "# A".to_owned())]);
    }

    #[test]
    fn a_row_of_a_table_has_cells() {
        assert_eq!(cells("| a | `b` |"), Some(vec!["a", "`b`"]));
        assert_eq!(cells("a | b"), None);
    }

    #[test]
    fn a_word_is_not_a_part_of_another() {
        assert!(has_word("| `redis` | yes |", "redis"));
        assert!(!has_word("| rediss |", "redis") && !has_word("my_redis", "redis"));
    }
}

//! The figures of runs, as a table for people.

use std::{fmt::Write, fs, path::Path};

use crate::runs::{Record, SLOW};

/// The figures of a record: one row per deployment, and one with its faults.
pub(crate) fn markdown(record: &Record) -> String {
    let Record { deployments, days } = record;
    let mut text = String::new();
    if let (Some(first), Some(last)) = (days.first(), days.last()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "Runs from {first} to {last}, tidelock {}.\n", env!("CARGO_PKG_VERSION"));
    }
    text.push_str(
        "| deployment | version | runs | minutes | requests | grants | faults | kinds | violations | overlaps allowed | \
         stale writes refused |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, sums) in deployments {
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | {} |",
            sums.servers.iter().cloned().collect::<Vec<_>>().join(", "),
            sums.runs,
            sums.seconds as f64 / 60.0,
            sums.requests,
            sums.grants,
            sums.faults,
            sums.kinds.keys().filter(|kind| *kind != SLOW).count(),
            sums.violations,
            sums.overlaps_allowed,
            sums.stale_writes_refused
        );
    }
    text.push_str(
        "\n| deployment | fault: times, longest time from its end to the next grant |\n|---|---|\n",
    );
    for (name, sums) in deployments {
        let told = sums.kinds.iter().map(|(kind, (times, longest))| format!("{kind}: {times}, {longest} ms"));
        let _ = writeln!(text, "| `{name}` | {} |", told.collect::<Vec<_>>().join("; "));
    }
    text
}

/// Puts a text between two marks of a page, or makes a page of it.
pub(crate) fn put(file: &Path, mark: &str, text: &str) -> Result<(), String> {
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->"));
    let page = fs::read_to_string(file).unwrap_or_default();
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let page = match parts {
        Some((before, after)) => format!("{before}{begin}\n{text}\n{end}{after}"),
        None => text.to_owned(),
    };
    fs::write(file, page).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_go_between_their_marks_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::write(&page, "before\n\n<!-- figures -->\nold\n<!-- end of figures -->\n\nafter\n").unwrap();
        put(&page, "figures", "| new |\n").unwrap();
        put(&page, "figures", "| newer |\n").unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert_eq!(text, "before\n\n<!-- figures -->\n\n| newer |\n\n<!-- end of figures -->\n\nafter\n");
    }
}

//! The figures of runs, as a table for people.

use std::{fmt::Write, fs, path::Path, process::Command};

use serde_json::Value;

use crate::Args;

/// The page with the figures: one row per deployment, and one per kind of fault.
pub(crate) fn markdown(reports: &[(String, Value)], args: &Args) -> String {
    let mut text = format!(
        "Made on {} with `cargo xtask torture --backend {} --for {}`:\ntidelock {}, {} clients, a ttl of {} ms.\n\n",
        date(),
        args.backend.join(","),
        args.time,
        env!("CARGO_PKG_VERSION"),
        args.clients,
        args.ttl_ms
    );
    text.push_str(
        "| deployment | seed | requests | grants | faults | violations | overlaps allowed | stale writes refused |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (name, report) in reports {
        let counts = &report["counts"];
        let (violations, faults) = (times(&report["violations"]), times(&counts["faults"]));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} | {faults} | {violations} | {} | {} |",
            report["seed"],
            counts["operations"],
            counts["grants"],
            report["overlaps_allowed"],
            counts["writes_refused"]
        );
    }
    text.push_str(
        "\n| deployment | fault: times, longest time from its end to the next grant |\n|---|---|\n",
    );
    for (name, report) in reports {
        let faults = report["counts"]["faults"].as_array().into_iter().flatten();
        let told = faults.map(|fault| {
            let kind = fault["kind"].as_str().unwrap_or_default();
            format!("{kind}: {}, {} ms", fault["times"], fault["longest_until_grant_ms"])
        });
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

fn times(of: &Value) -> u64 {
    of.as_array().into_iter().flatten().filter_map(|value| value["times"].as_u64()).sum()
}

fn date() -> String {
    let output = Command::new("date").args(["+%Y-%m-%d"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
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

//! The figures of runs, as a table for people.

use std::{fmt::Write, process::Command};

use serde_json::Value;

use crate::Args;

/// The page with the figures: one row per deployment, and one per kind of fault.
pub(crate) fn markdown(reports: &[(String, Value)], args: &Args) -> String {
    let mut text = format!(
        "Made on {} with `cargo xtask torture --backend {} --for {}`, tidelock {}, {} clients, a ttl of\n{} ms.\n\n",
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
        let violations: u64 = sum(&report["violations"], |value| value.as_u64());
        let faults = sum(&counts["faults"], |value| value["times"].as_u64());
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
    text.push_str("\n| deployment | fault | times | longest until the next grant |\n|---|---|---|---|\n");
    for (name, report) in reports {
        for (fault, count) in report["counts"]["faults"].as_object().into_iter().flatten() {
            let _ = writeln!(
                text,
                "| `{name}` | {fault} | {} | {} ms |",
                count["times"], count["longest_until_grant_ms"]
            );
        }
    }
    text
}

fn sum(of: &Value, number: impl Fn(&Value) -> Option<u64>) -> u64 {
    of.as_object().into_iter().flatten().filter_map(|(_, value)| number(value)).sum()
}

fn date() -> String {
    let output = Command::new("date").args(["+%Y-%m-%d"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

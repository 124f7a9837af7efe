//! The tables of metrics agree with the code that counts.

use std::collections::BTreeSet;

use super::tree::{Finding, Tree, cells, fenced_out, quoted, ticked};

/// Where every metric is counted, in the library and in the server; the first comment of each has the table.
const SOURCES: [&str; 2] = [EVENTS, "crates/tidelock-cli/src/serve/figures.rs"];
const EVENTS: &str = "crates/tidelock/src/events.rs";

/// Where metrics are used: dashboards and rules.
const USERS: &str = "contrib/metrics";

/// How a metric is counted, and what that makes it.
const CALLS: [(&str, &str); 3] = [("count!(", "counter"), ("level!(", "gauge"), ("measure!(", "histogram")];

/// What the code does with a metric.
#[derive(Debug)]
struct Metric {
    name: String,
    kind: &'static str,
    labels: BTreeSet<String>,
    /// The values of those labels that have a fixed list.
    values: BTreeSet<String>,
}

/// The metrics of a Rust text.
fn counted(text: &str) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (call, kind) in CALLS {
        for (at, _) in text.match_indices(call) {
            let arguments = arguments(&text[at + call.len()..]);
            let Some((name, labels)) =
                arguments.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'))
            else {
                continue;
            };
            // Between two arrows there is the value of one label and the name of the next.
            let values = labels.split("=>").skip(1).flat_map(|part| {
                let variable = part.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next();
                values(&text[..at], variable.unwrap_or_default())
            });
            metrics.push(Metric {
                name: name.to_owned(),
                kind,
                labels: quoted(labels).map(ToOwned::to_owned).collect(),
                values: values.collect(),
            });
        }
    }
    metrics
}

/// What stands before the parenthesis that ends a call.
fn arguments(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|c| {
        open += i32::from(c == '(') - i32::from(c == ')');
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// The texts that a variable may have, if a match before gives them to it.
fn values(before: &str, variable: &str) -> Vec<String> {
    let Some((_, arms)) = before.rsplit_once(&format!("let {variable} = match ")) else { return Vec::new() };
    quoted(arms.split("};").next().unwrap_or_default()).map(ToOwned::to_owned).collect()
}

/// The table in the code says name, kind, labels and values.
pub(super) fn the_table_has_the_metrics(tree: &Tree) -> Vec<Finding> {
    SOURCES.iter().flat_map(|source| table_of(source, &tree.read(source))).collect()
}

fn table_of(source: &str, text: &str) -> Vec<Finding> {
    let metrics = counted(text);
    let mut findings = Vec::new();
    let lines =
        text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, line.strip_prefix("//! ")?)));
    let rows: Vec<_> =
        lines.filter_map(|(number, line)| Some((number, name_of_row(line)?, cells(line)?))).collect();
    for metric in &metrics {
        let Some((number, _, row)) = rows.iter().find(|(_, name, _)| *name == metric.name) else {
            findings.push(Finding::new(
                source,
                format!("the table of metrics lacks {}", metric.name),
                "add its row to the first comment",
            ));
            continue;
        };
        let said: BTreeSet<_> = ticked(row.get(2).unwrap_or(&"")).map(ToOwned::to_owned).collect();
        let meant: BTreeSet<_> = metric.labels.union(&metric.values).cloned().collect();
        if row.get(1) != Some(&metric.kind) || said != meant {
            let meant: Vec<_> = meant.iter().map(String::as_str).collect();
            findings.push(Finding::new(
                format!("{source}:{number}"),
                format!("the row of {} does not say what is counted", metric.name),
                format!("write {} with {}", metric.kind, meant.join(", ")),
            ));
        }
    }
    findings.extend(
        rows.iter().filter(|(_, name, _)| !metrics.iter().any(|metric| metric.name == *name)).map(
            |(number, name, _)| {
                Finding::new(
                    format!("{source}:{number}"),
                    format!("{name} is not counted anywhere"),
                    "remove the row, or count it",
                )
            },
        ),
    );
    findings
}

/// A page names only metrics that exist; a page with a table of them has all, and all values of a label.
pub(super) fn pages_have_the_metrics(tree: &Tree) -> Vec<Finding> {
    let metrics = all(tree);
    let mut findings = Vec::new();
    for (page, text) in tree.markdown(".") {
        let mut rows = BTreeSet::new();
        for (number, line) in fenced_out(&text) {
            let unknown =
                ticked(line).filter(|name| is_metric(name) && !metrics.iter().any(|m| m.name == *name));
            findings.extend(unknown.map(|name| {
                Finding::new(
                    format!("{page}:{number}"),
                    format!("names the metric {name}, which is not counted"),
                    format!("use a name from {EVENTS}"),
                )
            }));
            let metric = name_of_row(line).and_then(|name| metrics.iter().find(|metric| metric.name == name));
            let Some(metric) = metric else { continue };
            rows.insert(&metric.name);
            let said: BTreeSet<_> = ticked(line).collect();
            let (named, missing): (Vec<_>, Vec<_>) =
                metric.values.iter().map(String::as_str).partition(|value| said.contains(value));
            if !named.is_empty() && !missing.is_empty() {
                findings.push(Finding::new(
                    format!("{page}:{number}"),
                    format!("the row of {} names some values and not {}", metric.name, missing.join(", ")),
                    "name all of them",
                ));
            }
        }
        let missing = metrics.iter().filter(|metric| !rows.is_empty() && !rows.contains(&metric.name));
        findings.extend(missing.map(|metric| {
            Finding::new(&*page, format!("the table of metrics lacks {}", metric.name), "add its row")
        }));
    }
    findings
}

/// Dashboards and rules use only metrics that exist; a histogram also by the names of its series.
pub(super) fn dashboards_and_rules_use_metrics_that_exist(tree: &Tree) -> Vec<Finding> {
    let metrics = all(tree);
    let exists = |name: &str| {
        metrics.iter().any(|metric| {
            let series = name.strip_prefix(metric.name.as_str());
            series == Some("")
                || metric.kind == "histogram"
                    && series.is_some_and(|s| ["_bucket", "_sum", "_count"].contains(&s))
        })
    };
    let mut findings = Vec::new();
    for (file, text) in ["json", "yml"].into_iter().flat_map(|kind| tree.files(USERS, kind)) {
        for (number, line) in (1..).zip(text.lines()) {
            let names = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let unknown = names.filter(|name| name.starts_with("tidelock_") && !exists(name));
            findings.extend(unknown.map(|name| {
                Finding::new(
                    format!("{file}:{number}"),
                    format!("uses the metric {name}, which is not counted"),
                    format!("use a name from {}", SOURCES.join(" or ")),
                )
            }));
        }
    }
    findings
}

/// The metrics of all sources.
fn all(tree: &Tree) -> Vec<Metric> {
    SOURCES.iter().flat_map(|source| counted(&tree.read(source))).collect()
}

/// The metric that a row of a table begins with.
fn name_of_row(line: &str) -> Option<&str> {
    ticked(cells(line)?.first()?).next().filter(|name| is_metric(name))
}

/// Tables and files of stores begin with the same word, and have no unit.
fn is_metric(name: &str) -> bool {
    let units = ["_total", "_seconds", "_bytes", "_held", "_waiting", "_length", "_open"];
    name.starts_with("tidelock_")
        && units.iter().any(|unit| name.ends_with(unit))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::Files, *};

    const CODE: &str = r#"
fn lost(store: &'static str, reason: Reason) {
    let reason = match reason {
        Reason::Gone => "gone",
        Reason::Evicted => "evicted",
    };
    count!(
        "tidelock_lost_total", 1, "store" => store,
        "reason" => reason
    );
    measure!("tidelock_wait_seconds", waited(), "store" => self.store());
}
"#;
    const TABLE: &str = "//! Events.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `tidelock_lost_total` | counter | `store`, `reason` = `gone`, `evicted` |
//! | `tidelock_wait_seconds` | histogram | `store` |
";

    fn code(table: &str) -> String {
        let files = Files::new().with(EVENTS, &format!("{table}{CODE}"));
        the_table_has_the_metrics(&files.tree()).iter().map(|finding| format!("{finding}\n")).collect()
    }

    fn page(text: &str) -> String {
        let files = Files::new().with(EVENTS, CODE).with("docs/guide/watch.md", text);
        pages_have_the_metrics(&files.tree()).iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn a_table_that_says_what_is_counted_is_fine() {
        assert_eq!(code(TABLE), "");
    }

    #[test]
    fn a_value_that_the_table_lacks_is_found() {
        let found = code(&TABLE.replace(", `evicted`", ""));
        assert!(
            found.starts_with(&format!("{EVENTS}:5: the row of tidelock_lost_total does not")),
            "{found}"
        );
        assert!(found.contains("write counter with evicted, gone, reason, store"), "{found}");
        assert!(code(&TABLE.replace("histogram", "counter")).contains("write histogram with store"));
    }

    #[test]
    fn a_metric_that_only_one_side_has_is_found() {
        let found = code(&TABLE.replace("wait_seconds", "work_seconds"));
        assert!(found.contains("the table of metrics lacks tidelock_wait_seconds"), "{found}");
        assert!(found.contains(":6: tidelock_work_seconds is not counted anywhere"), "{found}");
    }

    #[test]
    fn a_page_that_names_another_metric_is_found() {
        let found = page("\nAlert on `tidelock_gone_total`; the table is `tidelock_lines`.\n");
        assert!(found.starts_with("docs/guide/watch.md:2: names the metric tidelock_gone_total"), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
        assert_eq!(page("Alert on `tidelock_lost_total`."), "");
    }

    #[test]
    fn a_dashboard_or_a_rule_with_a_metric_that_is_not_counted_is_found() {
        let files = Files::new()
            .with(EVENTS, CODE)
            .with("contrib/metrics/alerts.yml", "a: tidelock_lost_total > 0\nb: tidelock_lost_count\n")
            .with(
                "contrib/metrics/board.json",
                "rate(tidelock_wait_seconds_bucket[5m]) tidelock_wait_seconds_rate",
            );
        let found = dashboards_and_rules_use_metrics_that_exist(&files.tree());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("contrib/metrics/board.json:1: uses the metric tidelock_wait_seconds_rate")
        );
        assert!(found[1].starts_with("contrib/metrics/alerts.yml:2: uses the metric tidelock_lost_count"));
    }

    #[test]
    fn a_page_whose_table_is_not_complete_is_found() {
        let found = page("| `tidelock_lost_total` | by `reason`: `gone` |\n");
        assert!(
            found.contains("watch.md:1: the row of tidelock_lost_total names some values and not evicted"),
            "{found}"
        );
        assert!(found.contains("watch.md: the table of metrics lacks tidelock_wait_seconds"), "{found}");
        assert_eq!(page("| `tidelock_lost_total` | losses |\n| `tidelock_wait_seconds` | waits |\n"), "");
    }
}

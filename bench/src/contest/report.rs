//! Tables for people, and the page that is kept.

use std::{fmt::Write, fs, path::Path};

use super::{
    chart,
    results::{Kind, Outcome, Row, Unit},
    scenario::title,
    spread::Spread,
    stores::STORES,
};

impl Unit {
    /// A number as people say it.
    pub(super) fn show(self, number: f64) -> String {
        match self {
            Self::PerSecond if number >= 1e6 => format!("{:.2} M/s", number / 1e6),
            Self::PerSecond if number >= 1e4 => format!("{:.1} k/s", number / 1e3),
            Self::PerSecond if number >= 1e3 => format!("{:.2} k/s", number / 1e3),
            Self::PerSecond => format!("{number:.0}/s"),
            Self::Seconds if number < 1.0 => format!("{:.1} ms", number * 1e3),
            Self::Seconds => format!("{number:.2} s"),
            Self::Core => format!("{:.2} % of a core", number * 100.0),
            Self::Bytes => format!("{number:.0} B"),
        }
    }
}

/// Microseconds as people say them.
fn micros(number: f64) -> String {
    match number {
        number if number < 1.0 => format!("{:.0} ns", number * 1e3),
        number if number < 1e3 => format!("{number:.0} µs"),
        number if number < 1e6 => format!("{:.1} ms", number / 1e3),
        number => format!("{:.1} s", number / 1e6),
    }
}

const HEAD: [&str; 7] =
    ["contestant", "value", "tidelock ÷ it (quartiles)", "wait p50 / p99 / max", "fair", "bar", ""];

fn cells(row: &Row) -> [String; 7] {
    let none = || "–".to_owned();
    let ratio = |Spread { median, low, high }| {
        let digits = if median < 10.0 { 2 } else { 0 };
        if low == high {
            format!("{median:.digits$}")
        } else {
            format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
        }
    };
    [
        row.contestant.clone(),
        row.value.map_or_else(none, |value| row.unit.show(value.median)),
        row.ahead.map_or_else(none, ratio),
        row.waits_us.map_or_else(none, |waits| {
            format!("{} / {} / {}", micros(waits.p50), micros(waits.p99), micros(waits.max))
        }),
        row.fairness.map_or_else(none, |fairness| format!("{fairness:.2}")),
        row.bar.as_ref().map_or_else(none, |bar| format!("{} {}", bar.text, if bar.met { "✓" } else { "✗" })),
        row.note.clone(),
    ]
}

/// The scenarios of an outcome, each with its rows, in their order.
pub(super) fn by_scenario(outcome: &Outcome) -> Vec<(&str, Vec<&Row>)> {
    let mut all: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &outcome.rows {
        match all.iter_mut().find(|(scenario, _)| *scenario == row.scenario) {
            Some((_, rows)) => rows.push(row),
            None => all.push((&row.scenario, vec![row])),
        }
    }
    let place = |name: &str| {
        let first = name.split(' ').next().unwrap_or_default();
        super::SCENARIOS.iter().position(|scenario| scenario.name == first)
    };
    all.sort_by_key(|(scenario, _)| place(scenario));
    all
}

/// For people at a terminal.
pub(super) fn tables(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for (scenario, rows) in by_scenario(outcome) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n{}: {}", outcome.store, title(scenario));
            let rows: Vec<_> = rows.into_iter().map(cells).collect();
            text += &aligned(&rows);
        }
    }
    text
}

/// Rows under a headline, each column as wide as it must be.
fn aligned(rows: &[[String; 7]]) -> String {
    let mut all = vec![HEAD.map(str::to_owned)];
    all.extend_from_slice(rows);
    let widths: [usize; 7] = std::array::from_fn(|column| {
        all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let lines = all.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    });
    lines.collect()
}

/// Writes the page and its charts.
pub(super) fn write(folder: &Path, outcomes: &[Outcome]) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder.join("results")).map_err(said)?;
    for outcome in outcomes {
        let file = folder.join("results").join(format!("{}.svg", outcome.store));
        fs::write(file, chart::draw(outcome)).map_err(said)?;
    }
    fs::write(folder.join("RESULTS.md"), page(outcomes)).map_err(said)
}

const ABOUT: &str = "\
Written by `cargo xtask bench --peers --write bench`. All contestants of a scenario are programs
that get the same requests (`peers/README.md`). They take turns in rounds on the same server in the
same minutes. A number is the median of the rounds. The ratio is the median of the rounds' ratios
with its quartiles, and says how many times as good tidelock was: above 1 it is ahead. \"Bare
commands\" are the fewest that could do the job, with the same driver: they keep no queue, give no
token, and trust everybody. Bars are those that the project set itself; against a peer, the bar is
to be ahead. [NOTES.md](NOTES.md) explains the numbers that look odd.

In `pair` and `try`, the server has one core and the clients another, as on two machines. In `work`,
both share one core, so that everything they do counts, and nothing that they wait for. Left alone,
the kernel switches between the two. In `processes`, only locks that came from another process
count: a client that polls acquires a lock again and again while others sleep.
";

fn page(outcomes: &[Outcome]) -> String {
    let mut text = format!("# Results\n\n{ABOUT}\n");
    let _ = writeln!(text, "{}", summary(outcomes));
    for outcome in outcomes {
        let bare = STORES.iter().find(|store| store.name == outcome.store).map_or("", |store| store.bare);
        let _ = write!(
            text,
            "\n## {}\n\nOn {}; {}. Bare commands: {bare}.\n\n![What each contestant reached on {}](results/{}.svg)\n",
            outcome.store, outcome.about.server, outcome.about.machine, outcome.store, outcome.store
        );
        for (scenario, rows) in by_scenario(outcome) {
            let _ = writeln!(text, "\n### {}: {}\n", scenario, title(scenario));
            let _ = writeln!(text, "| {} |\n|{}", HEAD.join(" | "), "---|".repeat(HEAD.len()));
            for row in rows {
                let mut cells = cells(row);
                if row.kind == Kind::Ours {
                    cells[0] = format!("**{}**", cells[0]);
                }
                let _ = writeln!(text, "| {} |", cells.join(" | "));
            }
        }
    }
    text
}

/// What was met and missed, and how far two runs were apart.
fn summary(outcomes: &[Outcome]) -> String {
    let rows: Vec<(&str, &Row)> = outcomes
        .iter()
        .flat_map(|outcome| outcome.rows.iter().map(|row| (outcome.store.as_str(), row)))
        .collect();
    let with_bar = rows.iter().filter(|(_, row)| row.bar.is_some()).count();
    let missed: Vec<_> = rows.iter().filter(|(_, row)| !row.is_met()).collect();
    let mut text = format!("{} of {with_bar} bars are met.", with_bar - missed.len());
    if !missed.is_empty() {
        text += " Missed:\n\n";
        for (store, row) in &missed {
            let against = if row.kind == Kind::Ours { "itself" } else { &row.contestant };
            let is = row.ahead.map_or_else(String::new, |ahead| format!(" is {:.2},", ahead.median));
            let bar = row.bar.as_ref().map(|bar| bar.text.as_str()).unwrap_or_default();
            let _ = writeln!(text, "- {store}, {} against {against}:{is} bar {bar}", row.scenario);
        }
    }
    let mut changes: Vec<f64> = rows.iter().filter_map(|(_, row)| row.change()).collect();
    changes.sort_by(f64::total_cmp);
    if let (Some(most), Some(middle)) = (changes.last(), changes.get(changes.len() / 2)) {
        let within = changes.iter().filter(|change| **change < 0.15).count();
        let _ = write!(
            text,
            "\nAgainst the run before: {within} of {} ratios changed by less than 15 %; the median change was {:.0} %, the largest {:.0} %.\n",
            changes.len(),
            middle * 100.0,
            most * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_speech() {
        assert_eq!(Unit::PerSecond.show(1_234_567.0), "1.23 M/s");
        assert_eq!(Unit::PerSecond.show(12_345.0), "12.3 k/s");
        assert_eq!(Unit::Seconds.show(0.0123), "12.3 ms");
        assert_eq!(Unit::Core.show(0.0123), "1.23 % of a core");
        assert_eq!((micros(0.25), micros(1_500.0)), ("250 ns".to_owned(), "1.5 ms".to_owned()));
    }
}

//! Tables for people at a terminal, and how numbers are shown.

use std::fmt::Write;

use super::{
    results::{Outcome, Row, Unit},
    scenario::title,
    spread::Spread,
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

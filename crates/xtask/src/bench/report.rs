//! The table of results.

use serde::Serialize;

use super::duel::{Duel, Spread};
use crate::table;

/// One scenario, and whether it is as good as it must be.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) unit: Unit,
    pub(super) ours: Spread,
    /// What it is compared with, where there is something.
    pub(super) reference: Option<Spread>,
    pub(super) ratio: Option<Spread>,
    pub(super) bar: String,
    pub(super) met: bool,
}

/// What the numbers of a row are.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Seconds for each lock, pair or waiter.
    Seconds,
    /// Bytes for each lock.
    Bytes,
    /// A share of one core.
    Core,
    /// Just a number.
    Plain,
}

impl Unit {
    fn show(self, number: f64) -> String {
        match self {
            Self::Seconds if number < 1e-6 => format!("{:.0} ns", number * 1e9),
            Self::Seconds if number < 1e-3 => format!("{:.2} µs", number * 1e6),
            Self::Seconds => format!("{:.2} ms", number * 1e3),
            Self::Bytes => format!("{number:.0} B"),
            Self::Plain => format!("{number:.2}"),
            Self::Core => format!("{:.2} %", number * 100.0),
        }
    }
}

impl Row {
    /// Both contestants of a duel; the bar is for the median of `ratio`.
    pub(super) fn duel(
        scenario: String,
        duel: &Duel,
        ratio: Spread,
        bar: &str,
        enough: fn(f64) -> bool,
    ) -> Self {
        Self {
            scenario,
            unit: Unit::Seconds,
            ours: duel.first(),
            reference: Some(duel.second()),
            ratio: Some(ratio),
            bar: bar.to_owned(),
            met: enough(ratio.median),
        }
    }

    /// A number that has a bar of its own.
    pub(super) fn alone(
        scenario: String,
        unit: Unit,
        ours: Spread,
        bar: &str,
        enough: fn(f64) -> bool,
    ) -> Self {
        let (bar, met) = (bar.to_owned(), enough(ours.median));
        Self { scenario, unit, ours, reference: None, ratio: None, bar, met }
    }

    /// A comparison that could not be made, and why.
    pub(super) fn missing(scenario: String, why: &str) -> Self {
        let (unit, ours) = (Unit::Plain, Spread::of(Vec::new()));
        Self {
            scenario,
            unit,
            ours,
            reference: None,
            ratio: None,
            bar: format!("missing: {why}"),
            met: false,
        }
    }

    fn cells(&self) -> [String; 6] {
        let none = || "–".to_owned();
        [
            self.scenario.clone(),
            if self.ours.median.is_nan() { none() } else { self.unit.show(self.ours.median) },
            self.reference.map_or_else(none, |spread| self.unit.show(spread.median)),
            self.ratio
                .map_or_else(none, |Spread { median, min, max }| format!("{median:.2} ({min:.2}–{max:.2})")),
            self.bar.clone(),
            if self.met { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

/// For people.
pub(super) fn table(rows: &[Row]) -> String {
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let head = ["scenario", "ours", "reference", "ratio (median, min–max)", "bar", "met?"];
    table::render(head, &cells)
}

/// For programs.
pub(super) fn json(rows: &[Row]) -> Result<String, String> {
    serde_json::to_string_pretty(rows).map_err(|error| format!("the rows are no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_speech() {
        assert_eq!(Unit::Seconds.show(450e-9), "450 ns");
        assert_eq!(Unit::Seconds.show(1.234e-6), "1.23 µs");
        assert_eq!(Unit::Bytes.show(811.6), "812 B");
        assert_eq!(Unit::Core.show(0.0123), "1.23 %");
    }

    #[test]
    fn a_bar_that_is_not_met_stands_out() {
        let row =
            Row::alone("x".to_owned(), Unit::Bytes, Spread::of(vec![2_000.0]), "< 1 KiB", |n| n < 1_024.0);
        assert!(!row.met && table(std::slice::from_ref(&row)).ends_with("NO\n"));
        assert!(json(&[row]).unwrap().contains("\"unit\": \"bytes\""));
    }
}

//! What came out, kept for the next run.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{bars, machine::About, spread::Spread};
use crate::protocol::Waits;

/// All rows of a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) store: String,
    pub(super) about: About,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Ours,
    Bare,
    Peer,
}

/// What the number of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Locks, tries or takes in a second: more is better.
    PerSecond,
    /// Less is better.
    Seconds,
    /// A share of one core: less is better.
    Core,
    /// Less is better.
    Bytes,
}

/// One contestant in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) contestant: String,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    /// None if it took no part.
    pub(super) value: Option<Spread>,
    /// How many times as good ours was, round by round.
    pub(super) ahead: Option<Spread>,
    /// The same in the run before.
    #[serde(default)]
    pub(super) before: Option<f64>,
    #[serde(default)]
    pub(super) waits_us: Option<Waits>,
    /// Jain's index of the processes.
    #[serde(default)]
    pub(super) fairness: Option<f64>,
    /// What else is to be known.
    #[serde(default)]
    pub(super) note: String,
    #[serde(default)]
    pub(super) bar: Option<Bar>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bar {
    pub(super) text: String,
    pub(super) met: bool,
}

impl Row {
    pub(super) fn is_met(&self) -> bool {
        self.bar.as_ref().is_none_or(|bar| bar.met)
    }

    /// By how much the ratio changed since the run before.
    pub(super) fn change(&self) -> Option<f64> {
        let (now, before) = (self.ahead?.median, self.before?);
        Some((now / before).max(before / now) - 1.0)
    }

    fn key(&self) -> (String, String) {
        (self.scenario.clone(), self.contestant.clone())
    }
}

/// Puts what was measured now beside what was measured before, a file for each store, and gives all.
pub(super) fn keep(folder: &Path, mut outcome: Outcome) -> Result<Vec<Outcome>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(said)?;
    let path = folder.join(format!("{}.json", outcome.store));
    let old: Option<Outcome> = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).ok(),
        Err(_) => None,
    };
    let old = old.map(|old| old.rows).unwrap_or_default();
    let before: BTreeMap<_, _> = old.iter().map(|row| (row.key(), row.ahead)).collect();
    for row in &mut outcome.rows {
        row.before = before.get(&row.key()).copied().flatten().map(|ahead| ahead.median);
    }
    let measured: Vec<_> = outcome.rows.iter().map(|row| row.scenario.clone()).collect();
    outcome.rows.extend(old.into_iter().filter(|row| !measured.contains(&row.scenario)));
    // Some bars are against another scenario, which may have been measured before.
    bars::judge(&outcome.store, &mut outcome.rows);
    let json = serde_json::to_string_pretty(&outcome).map_err(|error| error.to_string())?;
    fs::write(path, json + "\n").map_err(said)?;
    all(folder)
}

/// All that was ever measured, in the order of the stores.
pub(super) fn all(folder: &Path) -> Result<Vec<Outcome>, String> {
    let mut all = Vec::new();
    for store in super::STORES {
        if let Ok(text) = fs::read_to_string(folder.join(format!("{}.json", store.name))) {
            all.push(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", store.name))?);
        }
    }
    Ok(all)
}

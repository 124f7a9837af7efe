//! Locks as programs and people read them.

use serde::Serialize;
use tidelock::backend::{ClaimView, LockView, Share};

use crate::values::Span;

/// A lock, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) capacity: Option<String>,
    /// The store's part of the latest token.
    pub(crate) epoch: u64,
    pub(crate) holders: Vec<Claim>,
    pub(crate) waiters: Vec<Claim>,
}

/// A claim, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    pub(crate) label: String,
    pub(crate) owner: Option<String>,
    pub(crate) share: &'static str,
    pub(crate) permits: Option<u32>,
    pub(crate) epoch: Option<u64>,
    /// For how long it has held, or has waited.
    pub(crate) age_ms: u64,
    /// When it lapses unless it is renewed.
    pub(crate) lapse_in_ms: u64,
}

impl Lock {
    /// A lock that nobody holds or waits for.
    pub(crate) fn idle(name: &str) -> Self {
        Self { name: name.to_owned(), capacity: None, epoch: 0, holders: Vec::new(), waiters: Vec::new() }
    }
}

impl From<&LockView> for Lock {
    fn from(view: &LockView) -> Self {
        Self {
            name: view.name.to_string(),
            capacity: view.capacity.map(|capacity| capacity.to_string()),
            epoch: view.epoch,
            holders: view.holders.iter().map(Claim::from).collect(),
            waiters: view.waiters.iter().map(Claim::from).collect(),
        }
    }
}

impl From<&ClaimView> for Claim {
    fn from(view: &ClaimView) -> Self {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            claim: view.id.to_string(),
            label: view.label.to_string(),
            owner: view.owner.as_ref().map(ToString::to_string),
            share: match view.share {
                Share::Exclusive => "exclusive",
                Share::Shared => "shared",
                Share::Permits { .. } => "permits",
            },
            permits: match view.share {
                Share::Permits { n, .. } => Some(n),
                _ => None,
            },
            epoch: view.epoch,
            age_ms: millis(view.age),
            lapse_in_ms: millis(view.lapse_in),
        }
    }
}

/// Who holds a lock, in a few words: the label of one, and how many more.
pub(crate) fn holders(view: &LockView) -> String {
    match view.holders.as_slice() {
        [] => "nobody".to_owned(),
        [one] => one.label.to_string(),
        [first, more @ ..] => format!("{} and {} more", first.label, more.len()),
    }
}

/// For how long a lock has been held by whoever has held it longest.
pub(crate) fn held_for(view: &LockView) -> String {
    view.holders.iter().map(|holder| holder.age).max().map_or_else(String::new, |age| Span(age).to_string())
}

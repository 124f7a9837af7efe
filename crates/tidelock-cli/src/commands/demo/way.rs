//! The ways to sell.

use serde::{Deserialize, Serialize};

/// How buyers are kept from buying what is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// Not at all: read the number, take one off, write it back.
    NoLock,
    /// The same while holding a lock.
    OneLock,
    /// Stock in one segment.
    Counter,
    /// Stock in several.
    Segments,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::NoLock, Self::OneLock, Self::Counter, Self::Segments];

    /// For programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoLock => "no_lock",
            Self::OneLock => "one_lock",
            Self::Counter => "counter",
            Self::Segments => "segments",
        }
    }

    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::NoLock => "no lock",
            Self::OneLock => "one lock",
            Self::Counter => "one counter",
            Self::Segments => "segments",
        }
    }

    /// Whether it promises not to oversell.
    pub(super) fn is_safe(self) -> bool {
        self != Self::NoLock
    }
}

//! What a client process is told to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The environment variable that makes this program a client, with [`Work`] as JSON.
pub(super) const WORK: &str = "TIDELOCK_TORTURE_CLIENT";
/// The environment variable with the URL: it may hold a password, which `ps` would show.
pub(super) const URL: &str = "TIDELOCK_TORTURE_URL";

/// What a client hears when storms of faults begin and end.
pub(super) const STORM: &str = "storm";
pub(super) const CALM: &str = "calm";
/// What a client hears a moment before a server fails.
pub(super) const BRINK: &str = "brink";
/// The same, and that nothing else is asked until then: what is granted now is the last that the server did.
pub(super) const HUSH: &str = "hush";
/// What a client hears a moment before a light fault.
pub(super) const GUST: &str = "gust";

/// Why holders are taken out.
pub(super) const BREAKS: &str = "torture";

/// What a lock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Use {
    Mutex,
    ReadWrite,
    /// Of so many permits.
    Permits(u16),
    Election,
}

impl Use {
    /// The word in the name of such a lock.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "rw",
            Self::Permits(_) => "permits",
            Self::Election => "election",
        }
    }
}

/// How a lock is used. Most requests are quick, so that there are many; what blocks a lock for long stays with a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Pace {
    /// Held for moments, by everybody.
    Quick,
    /// Held for long, also past the end of its lease.
    Slow,
    /// With a long ttl: a claim that was forgotten blocks it for longer than any recovery takes.
    Long,
    /// With a long ttl, and used by one task of each client only, which knows what its process wants of it.
    Rare,
    /// With a long ttl, and taken just before a server fails.
    Brink,
}

/// A lock that is tortured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) usage: Use,
    pub(super) pace: Pace,
    pub(super) ttl_ms: u64,
}

/// The life of one client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) client: u32,
    pub(super) generation: u32,
    pub(super) seed: u64,
    pub(super) ttl_ms: u64,
    /// How many tasks of the process are at it at once.
    pub(super) tasks: u32,
    pub(super) locks: Vec<Lock>,
    /// How the locks begin that clients feel the pulse of the store with.
    pub(super) pulse: String,
    /// Where its history goes.
    pub(super) folder: PathBuf,
    /// Whether it takes holders out.
    pub(super) breaks: bool,
    /// Whether the store refuses logins that nobody has.
    pub(super) checks_logins: bool,
}

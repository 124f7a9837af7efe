//! What a client process is told to do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The environment variable that makes this program a client, with [`Work`] as JSON.
pub(super) const WORK: &str = "TIDELOCK_TORTURE_CLIENT";
/// The environment variable with the URL: it may hold a password, which `ps` would show.
pub(super) const URL: &str = "TIDELOCK_TORTURE_URL";

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

/// The life of one client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) client: u32,
    pub(super) generation: u32,
    pub(super) seed: u64,
    pub(super) ttl_ms: u64,
    /// How many tasks of the process are at it at once.
    pub(super) tasks: u32,
    pub(super) names: Vec<(String, Use)>,
    /// Where its history goes.
    pub(super) folder: PathBuf,
    /// How often it takes holders out, per mille of its requests.
    pub(super) breaks: u64,
}

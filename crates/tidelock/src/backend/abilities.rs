//! What a store can do.

use std::time::Duration;

use crate::model::name::MAX_NAME_BYTES;

/// What a store can do, as data.
///
/// ```
/// use std::time::Duration;
/// use tidelock::backend::{Abilities, TokenGrade};
///
/// let abilities = Abilities::new("etcd").token(TokenGrade::Consensus).min_ttl(Duration::from_secs(1));
/// assert!(abilities.fair && abilities.permits.is_ok());
/// assert!(abilities.follow.is_err() && abilities.follow(Ok(())).follow.is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// The store's name in messages.
    pub store: &'static str,
    /// What its tokens rely on to grow.
    pub token: TokenGrade,
    /// Whether it pushes grants to waiters, or the engine has to ask.
    pub push: bool,
    /// Whether claims are granted in the order of arrival.
    pub fair: bool,
    /// Whether a claim of the same owner re-enters from another process.
    pub reentry: bool,
    /// Whether it counts permits, or why not.
    pub permits: Result<(), &'static str>,
    /// Whether it tells followers that the holders of a name changed, or why not. Without it, observers ask.
    pub follow: Result<(), &'static str>,
    /// The shortest lease that it supports.
    pub min_ttl: Duration,
    /// The longest name that it supports, in bytes.
    pub max_name: usize,
    /// The largest number of claims in one renewal.
    pub renew_batch: usize,
    /// Whether it frees a lock at once when the process that holds it dies, unless the lock is `detached`.
    pub ends_with_process: bool,
}

impl Abilities {
    /// Creates the abilities of a store that can do everything but follow names, and whose tokens grow only within
    /// one process.
    ///
    /// `store` is its name in messages. Each method changes one ability.
    pub fn new(store: &'static str) -> Self {
        Self {
            store,
            token: TokenGrade::Process,
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            follow: Err("it does not tell of changes"),
            min_ttl: Duration::from_millis(50),
            max_name: MAX_NAME_BYTES,
            renew_batch: 128,
            ends_with_process: false,
        }
    }

    /// Sets what its tokens rely on to grow. Default: the memory of one process.
    #[must_use]
    pub fn token(mut self, token: TokenGrade) -> Self {
        self.token = token;
        self
    }

    /// Sets whether it frees a lock at once when the process that holds it dies. Default: no, after the ttl.
    #[must_use]
    pub fn ends_with_process(mut self, ends: bool) -> Self {
        self.ends_with_process = ends;
        self
    }

    /// Sets whether it pushes grants to waiters. Default: yes.
    #[must_use]
    pub fn push(mut self, push: bool) -> Self {
        self.push = push;
        self
    }

    /// Sets whether claims are granted in the order of arrival. Default: yes.
    #[must_use]
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Sets whether a claim of the same owner re-enters from another process. Default: yes.
    #[must_use]
    pub fn reentry(mut self, reentry: bool) -> Self {
        self.reentry = reentry;
        self
    }

    /// Sets whether it counts permits, or why not. Default: it does.
    #[must_use]
    pub fn permits(mut self, permits: Result<(), &'static str>) -> Self {
        self.permits = permits;
        self
    }

    /// Sets whether it tells followers that the holders of a name changed, or why not. Default: it does not.
    #[must_use]
    pub fn follow(mut self, follow: Result<(), &'static str>) -> Self {
        self.follow = follow;
        self
    }

    /// Sets the shortest lease that it supports. Default: 50 milliseconds.
    #[must_use]
    pub fn min_ttl(mut self, least: Duration) -> Self {
        self.min_ttl = least;
        self
    }

    /// Sets the longest name that it supports, in bytes. Default: [`MAX_NAME_BYTES`].
    #[must_use]
    pub fn max_name(mut self, bytes: usize) -> Self {
        self.max_name = bytes;
        self
    }

    /// Sets the largest number of claims in one renewal. Default: 128.
    #[must_use]
    pub fn renew_batch(mut self, claims: usize) -> Self {
        self.renew_batch = claims;
        self
    }
}

/// What the growth of tokens relies on, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TokenGrade {
    /// The memory of one process.
    Process,
    /// The store's data or, if that is lost, its clock: tokens grow unless both go back.
    TimeAssisted,
    /// The data of one server that keeps what it has confirmed.
    SingleNode,
    /// Agreement of a majority.
    Consensus,
}

impl TokenGrade {
    /// Returns its name, in words that do not change.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::TimeAssisted => "time-assisted",
            Self::SingleNode => "single-node",
            Self::Consensus => "consensus",
        }
    }
}

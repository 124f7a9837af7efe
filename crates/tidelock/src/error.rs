//! The one error type, and every sentence it says.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    backend::{Capacity, Failure, FailureKind, LockView, Share},
    name::Name,
};

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one sentence: which lock, where, why, and what to do.
///
/// A lock that is taken is not an error: `try_lock` answers `Ok(None)`.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    text: String,
    lock: Option<Name>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock was not acquired within the time that was set.
    TimedOut,
    /// The lock was held and is not any more.
    Lost,
    /// The store does not answer. Asking again later may help.
    Unavailable,
    /// The store refuses: credentials, rights, or its set-up.
    Denied,
    /// Others use the same name with another capacity.
    CapacityMismatch,
    /// The owner holds less than it asks for and would wait for itself.
    Upgrade,
    /// The text cannot be the name of a lock.
    InvalidName,
    /// A ttl, a number of permits or another option makes no sense.
    InvalidOption,
    /// The URL names no store that this build knows.
    InvalidUrl,
    /// The client was shut down, or the sale of a stock is over.
    Closed,
    /// The blocking interface was called from an async task.
    WouldBlock,
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed before the lease ended.
    Expired,
    /// The store does not know the claim any more: it lapsed, was evicted, or the store forgot.
    Gone,
    /// Somebody put it out by force, and the store said so.
    Evicted,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// The client was shut down while it was held.
    Closed,
}

impl Error {
    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock it is about, if it is about one.
    pub fn lock(&self) -> Option<&Name> {
        self.0.lock.as_ref()
    }

    /// Whether the same call may succeed later without anything being mended.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable | ErrorKind::Lost)
    }

    /// [`ErrorKind::TimedOut`].
    pub fn is_timed_out(&self) -> bool {
        self.kind() == ErrorKind::TimedOut
    }

    /// [`ErrorKind::Lost`].
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// [`ErrorKind::Unavailable`].
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// [`ErrorKind::Denied`].
    pub fn is_denied(&self) -> bool {
        self.kind() == ErrorKind::Denied
    }

    /// [`ErrorKind::CapacityMismatch`].
    pub fn is_capacity_mismatch(&self) -> bool {
        self.kind() == ErrorKind::CapacityMismatch
    }

    /// [`ErrorKind::Upgrade`].
    pub fn is_upgrade(&self) -> bool {
        self.kind() == ErrorKind::Upgrade
    }

    /// [`ErrorKind::InvalidName`].
    pub fn is_invalid_name(&self) -> bool {
        self.kind() == ErrorKind::InvalidName
    }

    /// [`ErrorKind::InvalidOption`].
    pub fn is_invalid_option(&self) -> bool {
        self.kind() == ErrorKind::InvalidOption
    }

    /// [`ErrorKind::InvalidUrl`].
    pub fn is_invalid_url(&self) -> bool {
        self.kind() == ErrorKind::InvalidUrl
    }

    /// [`ErrorKind::Closed`].
    pub fn is_closed(&self) -> bool {
        self.kind() == ErrorKind::Closed
    }

    fn new(kind: ErrorKind, lock: Option<&Name>, text: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, text: text.into(), lock: lock.cloned() }))
    }

    pub(crate) fn invalid_name(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidName, None, text)
    }

    pub(crate) fn invalid_option(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidOption, None, text)
    }

    pub(crate) fn invalid_url(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidUrl, None, text)
    }

    pub(crate) fn closed(name: &Name) -> Self {
        Self::new(
            ErrorKind::Closed,
            Some(name),
            format!("cannot acquire lock {name:?}: this client was shut down; connect a new one"),
        )
    }

    pub(crate) fn not_detached(name: &Name) -> Self {
        Self::new(
            ErrorKind::InvalidOption,
            Some(name),
            format!(
                "lock {name:?} ends with its process and cannot be left behind: ask for it with detached(true)"
            ),
        )
    }

    pub(crate) fn would_block() -> Self {
        Self::new(
            ErrorKind::WouldBlock,
            None,
            "tidelock::blocking was called from an async task and would stop its thread: use tidelock::Locks there",
        )
    }

    pub(crate) fn failure(store: &str, name: Option<&Name>, failure: &Failure) -> Self {
        let (kind, what) = match failure.kind {
            FailureKind::Unreachable => (ErrorKind::Unavailable, "is not reachable"),
            FailureKind::Unknown => (ErrorKind::Unavailable, "did not answer"),
            FailureKind::Denied => (ErrorKind::Denied, "refused"),
        };
        let wanted = name.map(|name| format!(" for lock {name:?}")).unwrap_or_default();
        let now = match failure.kind {
            FailureKind::Unknown if name.is_some() => "; whatever it granted is given back or lapses",
            _ => "",
        };
        Self::new(kind, name, format!("{store} {what}{wanted}: {}{now}", failure.reason))
    }

    /// A store of stock failed.
    pub(crate) fn stock(store: &str, item: &Name, failure: &Failure) -> Self {
        let (kind, what, now) = match failure.kind {
            FailureKind::Unreachable => (ErrorKind::Unavailable, "is not reachable", ""),
            FailureKind::Unknown => (
                ErrorKind::Unavailable,
                "did not answer",
                "; ask again with the same order: it is taken once",
            ),
            FailureKind::Denied => (ErrorKind::Denied, "refused", ""),
        };
        Self::new(kind, None, format!("{store} {what} for stock {item:?}: {}{now}", failure.reason))
    }

    pub(crate) fn stock_closed(item: &Name) -> Self {
        Self::new(
            ErrorKind::Closed,
            None,
            format!("the sale of stock {item:?} is over: nothing can be added or changed any more"),
        )
    }

    pub(crate) fn capacity(store: &str, name: &Name, asked: Share, agreed: Capacity) -> Self {
        Self::new(
            ErrorKind::CapacityMismatch,
            Some(name),
            format!(
                "lock {name:?} on {store} is in use with {agreed}, and this claim asks for {asked}: agree on one capacity or use another name"
            ),
        )
    }

    pub(crate) fn upgrade(store: &str, name: &Name, asked: Share, held: Share) -> Self {
        Self::new(
            ErrorKind::Upgrade,
            Some(name),
            format!(
                "the owner holds lock {name:?} on {store} as {held} and asks for {asked}, so it would wait for itself: release the first or ask for the larger share to begin with"
            ),
        )
    }

    pub(crate) fn timed_out(store: &str, name: &Name, waited: Duration, seen: Option<&LockView>) -> Self {
        let held_by = match seen.and_then(|view| view.holders.first()) {
            Some(holder) => format!("; held by {} for {}", holder.label, Span(holder.age)),
            None => String::new(),
        };
        Self::new(
            ErrorKind::TimedOut,
            Some(name),
            format!("timed out after {} waiting for lock {name:?} on {store}{held_by}", Span(waited)),
        )
    }

    pub(crate) fn lost(
        store: &str,
        name: &Name,
        reason: LossReason,
        ttl: Duration,
        silent: Duration,
    ) -> Self {
        let why = match reason {
            LossReason::Expired => {
                format!("no renewal confirmed for {} of a {} lease", Span(silent), Span(ttl))
            }
            LossReason::Gone => "the store does not know the claim any more".to_owned(),
            LossReason::Evicted => "it was taken away by force".to_owned(),
            LossReason::MaxHold => "it was held for as long as max_hold allows".to_owned(),
            LossReason::Closed => "its client was shut down".to_owned(),
        };
        Self::lost_because(store, name, &why)
    }

    /// Lost by force, with what whoever did it said.
    pub(crate) fn evicted(store: &str, name: &Name, reason: &str) -> Self {
        let said = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        Self::lost_because(store, name, &format!("it was taken away by force{said}"))
    }

    fn lost_because(store: &str, name: &Name, why: &str) -> Self {
        Self::new(
            ErrorKind::Lost,
            Some(name),
            format!("lost lock {name:?} on {store}: {why}; stop work that needs it"),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.text)
    }
}

impl std::error::Error for Error {}

/// A duration as people say it: `250ms`, `8.0s`, `12m`, `3h`.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            s if s < 1.0 => write!(f, "{}ms", self.0.as_millis()),
            s if s < 60.0 && self.0.subsec_millis() == 0 => write!(f, "{}s", self.0.as_secs()),
            s if s < 60.0 => write!(f, "{s:.1}s"),
            s if s < 3_600.0 => {
                write!(f, "{}m{:02}s", self.0.as_secs() / 60, self.0.as_secs() % 60)
            }
            _ => write!(f, "{}h{:02}m", self.0.as_secs() / 3_600, self.0.as_secs() / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_which_lock_where_why_and_what_now() {
        let name = Name::new("orders/42").unwrap();
        let lost = Error::lost(
            "redis",
            &name,
            LossReason::Expired,
            Duration::from_secs(10),
            Duration::from_millis(8_000),
        );
        assert_eq!(
            lost.to_string(),
            r#"lost lock "orders/42" on redis: no renewal confirmed for 8s of a 10s lease; stop work that needs it"#
        );
        assert!(lost.is_lost() && lost.is_retryable() && lost.lock() == Some(&name));
        let late = Error::timed_out("etcd", &name, Duration::from_secs(5), None);
        assert_eq!(late.to_string(), r#"timed out after 5s waiting for lock "orders/42" on etcd"#);
        let denied = Error::failure("redis", None, &Failure::denied("wrong password"));
        assert_eq!(denied.to_string(), "redis refused: wrong password");
    }

    #[test]
    fn spans_read_like_speech() {
        let text = |ms| Span(Duration::from_millis(ms)).to_string();
        assert_eq!(
            [text(250), text(8_000), text(8_049), text(61_000), text(3_660_000)],
            ["250ms", "8s", "8.0s", "1m01s", "1h01m"]
        );
    }
}

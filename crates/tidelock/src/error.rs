//! The error type of the crate, and all of its messages.

use std::{fmt, sync::Arc, time::Duration};

use self::span::Span;
use crate::{
    backend::{Capacity, Cause, Failure, FailureKind, LockView, Share},
    model::name::Name,
};

mod one_of_many;
mod span;
#[cfg(feature = "stock")]
mod stock;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, described in one sentence: which lock, on which store, why, and what to do.
///
/// A lock that is held by someone else is not an error: `try_lock` returns `Ok(None)`.
///
/// The text says everything that people need, including what the store's driver said. Programs that look for
/// the driver's own error find it through [`source`](std::error::Error::source).
///
/// ```
/// use std::time::Duration;
/// use tidelock::LossReason;
///
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let guard = locks.mutex("report").lock().await?;
/// locks.shutdown(Duration::ZERO).await;
/// let error = guard.release().await.unwrap_err();
/// assert_eq!(error.loss_reason(), Some(LossReason::Closed));
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    text: String,
    lock: Option<Name>,
    loss: Option<LossReason>,
    cause: Option<Cause>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock was not acquired within the time that was set.
    TimedOut,
    /// The lock was held and no longer is.
    Lost,
    /// The store does not answer. A retry may succeed later.
    Unavailable,
    /// The store refuses: credentials, permissions, or its configuration.
    Denied,
    /// Other clients use the same name with another capacity.
    CapacityMismatch,
    /// The owner asks for more than it holds and would wait for itself.
    Upgrade,
    /// The text is not a valid name for a lock.
    InvalidName,
    /// A ttl, a number of permits or another option is invalid.
    InvalidOption,
    /// The URL does not name a store that this build knows.
    InvalidUrl,
    /// The client was shut down, its runtime has ended, or the sale of a stock has ended.
    Closed,
    /// The stock was opened for a sale that has been closed, and the item is in a new sale. Open it again.
    OtherSale,
    /// An earlier order with this id asked for another amount.
    OrderMismatch,
    /// No stock of this item was opened, or its sale was closed and forgotten. Open it with a number first.
    NoSuchStock,
    /// The blocking interface was called from an async task.
    WouldBlock,
    /// A client was connected outside of a tokio runtime, or on one without timers or I/O. In the blocking interface:
    /// the system gives no background thread.
    NoRuntime,
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed before the lease ended.
    Expired,
    /// The store no longer knows the claim: it expired, was evicted, or the store lost its data.
    Gone,
    /// The claim was evicted by force, and the store reported it.
    Evicted,
    /// The lock was held for as long as `max_hold` allows.
    MaxHold,
    /// The client was shut down while the lock was held.
    Closed,
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the lock that the error is about, if any.
    pub fn lock(&self) -> Option<&Name> {
        self.0.lock.as_ref()
    }

    /// Returns why the lock was lost, if the kind is [`ErrorKind::Lost`].
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.0.loss
    }

    /// Returns whether the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable | ErrorKind::Lost)
    }

    /// Returns whether the kind is [`ErrorKind::TimedOut`].
    pub fn is_timed_out(&self) -> bool {
        self.kind() == ErrorKind::TimedOut
    }

    /// Returns whether the kind is [`ErrorKind::Lost`].
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Returns whether the kind is [`ErrorKind::Unavailable`].
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Returns whether the kind is [`ErrorKind::Denied`].
    pub fn is_denied(&self) -> bool {
        self.kind() == ErrorKind::Denied
    }

    /// Returns whether the kind is [`ErrorKind::CapacityMismatch`].
    pub fn is_capacity_mismatch(&self) -> bool {
        self.kind() == ErrorKind::CapacityMismatch
    }

    /// Returns whether the kind is [`ErrorKind::Upgrade`].
    pub fn is_upgrade(&self) -> bool {
        self.kind() == ErrorKind::Upgrade
    }

    /// Returns whether the kind is [`ErrorKind::InvalidName`].
    pub fn is_invalid_name(&self) -> bool {
        self.kind() == ErrorKind::InvalidName
    }

    /// Returns whether the kind is [`ErrorKind::InvalidOption`].
    pub fn is_invalid_option(&self) -> bool {
        self.kind() == ErrorKind::InvalidOption
    }

    /// Returns whether the kind is [`ErrorKind::InvalidUrl`].
    pub fn is_invalid_url(&self) -> bool {
        self.kind() == ErrorKind::InvalidUrl
    }

    /// Returns whether the kind is [`ErrorKind::Closed`].
    pub fn is_closed(&self) -> bool {
        self.kind() == ErrorKind::Closed
    }

    /// Returns whether the kind is [`ErrorKind::OtherSale`].
    pub fn is_other_sale(&self) -> bool {
        self.kind() == ErrorKind::OtherSale
    }

    /// Returns whether the kind is [`ErrorKind::OrderMismatch`].
    pub fn is_order_mismatch(&self) -> bool {
        self.kind() == ErrorKind::OrderMismatch
    }

    /// Returns whether the kind is [`ErrorKind::NoSuchStock`].
    pub fn is_no_such_stock(&self) -> bool {
        self.kind() == ErrorKind::NoSuchStock
    }

    /// Returns whether the kind is [`ErrorKind::WouldBlock`].
    pub fn is_would_block(&self) -> bool {
        self.kind() == ErrorKind::WouldBlock
    }

    /// Returns whether the kind is [`ErrorKind::NoRuntime`].
    pub fn is_no_runtime(&self) -> bool {
        self.kind() == ErrorKind::NoRuntime
    }

    fn new(kind: ErrorKind, lock: Option<&Name>, text: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, text: text.into(), lock: lock.cloned(), loss: None, cause: None }))
    }

    fn caused_by(mut self, failure: &Failure) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.cause.clone_from(&failure.cause);
        }
        self
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

    /// Creates the error for a client that outlived its runtime.
    pub(crate) fn runtime_ended(name: Option<&Name>) -> Self {
        let wanted = name.map(|name| format!(" for lock {name:?}")).unwrap_or_default();
        Self::new(
            ErrorKind::Closed,
            name,
            format!(
                "nothing can be done{wanted}: the runtime this client was connected on has ended; connect a new one"
            ),
        )
    }

    /// Creates the error for a runtime that is missing or unfit.
    pub(crate) fn no_runtime(why: &str) -> Self {
        Self::new(ErrorKind::NoRuntime, None, format!("cannot connect: {why}"))
    }

    pub(crate) fn no_background(why: &std::io::Error) -> Self {
        let text = "the system gives no background thread for tidelock::blocking";
        Self::no_runtime(&format!("{text}: {why}; raise the limits of this process"))
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
        Self::new(kind, name, format!("{store} {what}{wanted}: {}{now}", failure.reason)).caused_by(failure)
    }

    /// Returns the same error, with the time after which the caller gave up.
    pub(crate) fn after(&self, tried: Duration) -> Self {
        let text = format!("{}; gave up after {}", self.0.text, Span(tried));
        Self(Arc::new(Inner { text, ..Inner::clone(&self.0) }))
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
        Self::lost_because(store, name, reason, &why)
    }

    /// Creates the error for a lock that was evicted, with the reason that was given.
    pub(crate) fn evicted(store: &str, name: &Name, reason: &str) -> Self {
        let said = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        Self::lost_because(store, name, LossReason::Evicted, &format!("it was taken away by force{said}"))
    }

    /// Creates the error for a release that found no claim: the lock did not protect what was done under it.
    pub(crate) fn lost_before_release(store: &str, name: &Name, evicted_for: Option<&str>) -> Self {
        let (reason, why) = match evicted_for {
            Some("") => (LossReason::Evicted, "it was taken away by force".to_owned()),
            Some(reason) => (LossReason::Evicted, format!("it was taken away by force ({reason})")),
            None => (LossReason::Gone, "the store did not know the claim any more".to_owned()),
        };
        let text = format!(
            "lost lock {name:?} on {store} before its release: {why}; others may have held it meanwhile, so check what was done under it"
        );
        Self::loss(name, reason, text)
    }

    fn lost_because(store: &str, name: &Name, reason: LossReason, why: &str) -> Self {
        Self::loss(name, reason, format!("lost lock {name:?} on {store}: {why}; stop work that needs it"))
    }

    fn loss(name: &Name, reason: LossReason, text: String) -> Self {
        let (kind, lock) = (ErrorKind::Lost, Some(name.clone()));
        Self(Arc::new(Inner { kind, text, lock, loss: Some(reason), cause: None }))
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

impl std::error::Error for Error {
    /// Returns the error of the store's driver, if there was one.
    ///
    /// Its text is already part of this error's text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as _)
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
        assert_eq!(lost.loss_reason(), Some(LossReason::Expired));
        let late = Error::timed_out("etcd", &name, Duration::from_secs(5), None);
        assert_eq!(late.to_string(), r#"timed out after 5s waiting for lock "orders/42" on etcd"#);
        let denied = Error::failure("redis", None, &Failure::denied("wrong password"));
        assert_eq!(denied.to_string(), "redis refused: wrong password");
    }

    #[test]
    fn an_error_has_the_error_that_caused_it_and_is_one_pointer() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let failure = Failure::unreachable("nobody is there").caused_by(refused);
        let error = Error::failure("redis", None, &failure).after(Duration::from_secs(1));
        let cause =
            std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
        assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(error.loss_reason(), None);
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn every_loss_says_its_reason_to_programs() {
        let name = Name::new("a").unwrap();
        let (ttl, silent) = (Duration::from_secs(10), Duration::from_secs(8));
        for reason in [
            LossReason::Expired,
            LossReason::Gone,
            LossReason::Evicted,
            LossReason::MaxHold,
            LossReason::Closed,
        ] {
            assert_eq!(Error::lost("redis", &name, reason, ttl, silent).loss_reason(), Some(reason));
        }
        let early =
            [Error::evicted("redis", &name, ""), Error::lost_before_release("redis", &name, Some(""))];
        assert!(early.iter().all(|error| error.loss_reason() == Some(LossReason::Evicted)), "{early:?}");
        let gone = Error::lost_before_release("redis", &name, None);
        assert_eq!(gone.loss_reason(), Some(LossReason::Gone));
        assert!(Error::would_block().is_would_block() && Error::would_block().loss_reason().is_none());
    }
}

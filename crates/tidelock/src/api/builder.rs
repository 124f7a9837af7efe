//! The builder of a client: what its locks have in common, checked when it connects.

use std::{sync::Arc, time::Duration};

use crate::{
    api::client::Locks,
    api::facade::both,
    api::options::Options,
    backend::{Backend, ClientId, Failure, Namespaced, check_namespace},
    backends::Target,
    clock::Clock,
    engine::{Engine, Flaws, backoff, runtime},
    error::{Error, Result},
    events::{self, Groups},
    model::{name::MAX_NAME_BYTES, owner},
};

/// The methods of a builder that sets what all locks of its client have in common.
macro_rules! builder_methods {
    ($($reach:ident).+) => {
        /// Sets how long locks live after this process dies. Default: 30 seconds.
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.$($reach).+.options.ttl = ttl;
            self
        }

        /// Sets the longest time to wait in calls without their own limit. Default: no limit.
        ///
        /// For a single lock without a limit, set [`Duration::MAX`](std::time::Duration::MAX) there.
        pub fn wait(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.wait = Some(limit);
            self
        }

        /// Sets the longest time to hold a lock. Default: no limit.
        ///
        /// For a single lock without a limit, set [`Duration::MAX`](std::time::Duration::MAX) there.
        pub fn max_hold(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.max_hold = Some(limit);
            self
        }

        /// Sets whether locks are renewed automatically. Default: yes.
        pub fn auto_renew(mut self, auto_renew: bool) -> Self {
            self.$($reach).+.options.auto_renew = auto_renew;
            self
        }

        /// Sets whether an unavailable store is an error after three tries. Default: no.
        pub fn fail_fast(mut self, fail_fast: bool) -> Self {
            self.$($reach).+.options.fail_fast = fail_fast;
            self
        }

        /// Sets the label that others see for locks of this client. Default: program and process id.
        ///
        /// It has up to 128 bytes without control characters.
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.$($reach).+.options.set_label(label.as_ref());
            self
        }

        /// Sets what the names of all locks begin with on the store, such as `shop/`. Default: nothing.
        ///
        /// This client uses and sees names without it. Clients with different namespaces on one store have
        /// different locks. A client without a namespace sees the full names: there, `a` of the namespace
        /// `shop/` is `shop/a`. Namespace and name together have up to
        /// [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES). A [`Ticket`](crate::Ticket) is for clients with the
        /// same namespace.
        pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
            self.$($reach).+.namespace = Some(namespace.into());
            self
        }

        /// Sets the groups of locks that metrics tell apart, by patterns of their names. Default: none.
        ///
        /// A pattern such as `orders/*` matches every name that begins with `orders/`; without a star at its end, it
        /// matches one name. A lock is reported with the label `group` = the first pattern that it matches, or
        /// `other`. Without groups, no name of a lock is in a label. There are at most 64, because each group
        /// is a time series of every metric.
        ///
        /// ```
        /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        /// # rt.block_on(async {
        /// let builder = tidelock::Locks::builder("memory:").metrics_groups(["orders/*", "nightly-report"]);
        /// let locks = builder.connect().await?;
        /// # drop(locks);
        /// # Ok::<(), tidelock::Error>(()) }).unwrap();
        /// ```
        #[cfg(feature = "metrics")]
        pub fn metrics_groups(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
            self.$($reach).+.groups = patterns.into_iter().map(Into::into).collect();
            self
        }
    };
}

pub(crate) use builder_methods;

/// Connects a client whose locks have settings in common.
///
/// Every lock of the client starts with these settings and can override them. Mistakes are reported by
/// [`connect`](Self::connect).
///
/// ```
/// # use std::time::Duration;
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::builder("memory:")
///     .namespace("shop/")
///     .label("worker-7")
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(5))
///     .connect()
///     .await?;
/// let guard = locks.mutex("orders/42").lock().await?; // the store's name for it is shop/orders/42
/// assert_eq!(guard.name().as_str(), "orders/42");
/// # drop(guard);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it connects"]
pub struct Builder {
    pub(crate) settings: Settings,
}

/// What a builder was told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    target: Target,
    pub(crate) options: Options,
    pub(crate) namespace: Option<String>,
    pub(crate) groups: Vec<String>,
    clock: Clock,
}

impl Builder {
    builder_methods!(settings);

    pub(crate) fn new(target: Target) -> Self {
        let options = Options::new(owner::default_label());
        Self {
            settings: Settings {
                target,
                options,
                namespace: None,
                groups: Vec::new(),
                clock: Clock::machine(),
            },
        }
    }

    /// Sets the clock that leases run on, in the client and in a store in memory. For tests.
    ///
    /// Clients of the same store `memory:NAME` need the same clock. [`connect`](Self::connect) refuses a
    /// clock on a store that is not in memory. See [`docs::testing_your_code`](crate::docs::testing_your_code).
    #[cfg(feature = "testing")]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.settings.clock = clock.clone();
        self
    }
}

both! { impl Builder {
    /// Connects to the store. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// As [`Locks::connect`], and [`InvalidOption`](crate::ErrorKind::InvalidOption) when a setting is
    /// invalid, or when the store does not support it: a ttl can be too short for a store.
    ///
    /// # Cancel safety
    /// Dropping the future drops an unfinished connection.
    pub async fn connect(self) -> Result<Locks> {
        self.settings.connect().await
    }

    /// Connects as [`connect`](Self::connect) does, retrying for up to `limit`.
    ///
    /// While the store is not reachable or does not answer, it retries with growing pauses.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). An error that a retry cannot fix, such as a wrong password, is returned
    /// at once. If the store was not reached in time, the error is
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let builder = tidelock::Locks::builder("memory:").label("worker-7");
    /// let locks = builder.connect_within(Duration::from_secs(60)).await?;
    /// # drop(locks);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_within(self, limit: Duration) -> Result<Locks> {
        self.connect_reporting(limit, |_| ()).await
    }

    /// Connects as [`connect_within`](Self::connect_within) does, and reports each failure before it retries.
    ///
    /// For programs that show what they wait for. Each failure is also a `tracing` event.
    ///
    /// # Errors
    /// As [`connect_within`](Self::connect_within). The error that is returned is not reported.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let locks = tidelock::Locks::builder("memory:")
    ///     .connect_reporting(Duration::from_secs(60), |error| eprintln!("still trying: {error}"))
    ///     .await?;
    /// # drop(locks);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_reporting(self, limit: Duration, report: impl FnMut(&Error)) -> Result<Locks> {
        let mut report = report;
        runtime::check()?;
        let (clock, seed) = (Clock::machine(), ClientId::random().get());
        let until = clock.now() + limit;
        let mut last: Option<Error> = None;
        for nth in 1.. {
            let attempt = tokio::time::timeout(until.since(clock.now()), self.settings.connect()).await;
            let error = match attempt {
                Ok(Err(error)) if error.is_unavailable() => error,
                Ok(done) => return done,
                Err(_) => {
                    let silent = || Error::failure("the store", None, &Failure::unknown("it is too slow"));
                    return Err(last.unwrap_or_else(silent).after(limit));
                }
            };
            // The last attempt is made when the time has run out, not before.
            let left = until.since(clock.now());
            if left.is_zero() {
                return Err(error.after(limit));
            }
            let pause = backoff::pause(nth, seed).min(left);
            report(&error);
            events::not_connected(&error);
            last = Some(error);
            tokio::time::sleep(pause).await;
        }
        unreachable!("it is tried until patience ends")
    }
} }

impl Settings {
    async fn connect(&self) -> Result<Locks> {
        self.options.check()?;
        // Before there is a store, which may allow less.
        self.namespace.as_deref().map_or(Ok(()), |namespace| check_namespace(namespace, MAX_NAME_BYTES))?;
        runtime::connecting(self.connect_here()).await
    }

    async fn connect_here(&self) -> Result<Locks> {
        let groups = Groups::new(&self.groups)?;
        let mut backend = self.target.connect(ClientId::random(), &self.clock).await?;
        if let Some(namespace) = &self.namespace {
            backend = Arc::new(Namespaced::new(backend, namespace)?) as Arc<dyn Backend>;
        }
        self.options.check_for(backend.abilities())?;
        let engine = Engine::start(backend, self.clock.clone(), Flaws::default(), groups);
        Ok(Locks::of(engine, self.options.clone()))
    }
}

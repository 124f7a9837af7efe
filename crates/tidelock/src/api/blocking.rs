//! The same locks for code without async.
//!
//! One background thread per process runs the engine, so that leases are renewed while the caller computes.
//! Calls block the thread on which they are made: use your own thread or `tokio::task::spawn_blocking`.
//! Within an async task, calls return an error; they do not panic and do not block the runtime. (In a task that
//! [`unconstrained`](tokio::task::unconstrained) exempts from yielding, tokio prints a panic's message before the
//! error is returned.)
//!
//! The types have the methods of their async twins, except for what waits for a loss: that is
//! [`Guard::on_lost`] here, and `run` reports a loss when the work has ended.
//!
//! ```
//! use tidelock::blocking::Locks;
//!
//! let locks = Locks::connect("memory:")?;
//! let guard = locks.mutex("orders/42").lock()?;
//! println!("token {}", guard.token());
//! guard.release()?;
//! # Ok::<(), tidelock::Error>(())
//! ```

use std::{fmt, sync::Arc, time::Duration};

pub use crate::api::{
    election::blocking::{Election, Watch},
    once::blocking::Once,
};
use crate::{
    api::builder::builder_methods,
    api::guard::outcome,
    api::options::option_methods,
    api::ticket::Ticket,
    backend::{Abilities, Backend, LockView},
    backends::Store,
    engine::{
        Holding, LockState,
        runtime::{background, may_block_on},
    },
    error::{Error, Result},
    model::name::Name,
    model::token::Token,
};

pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if !may_block_on() {
        return Err(Error::would_block());
    }
    background().map_err(|why| Error::no_background(&why))?.block_on(future)
}

/// Sets the client for functions with [`locked`](macro@crate::locked) that have no client of their own.
///
/// See [`crate::set_default`].
///
/// ```
/// use tidelock::{blocking::Locks, locked};
///
/// #[locked("prices")]
/// fn update() -> tidelock::Result<u32> {
///     Ok(17)
/// }
///
/// tidelock::blocking::set_default(&Locks::connect("memory:")?);
/// assert_eq!(update()?, 17);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[cfg(feature = "macros")]
pub fn set_default(locks: &Locks) {
    crate::set_default(&locks.inner);
}

/// Returns the client that was given to [`set_default`].
///
/// # Errors
/// [`InvalidOption`](crate::ErrorKind::InvalidOption) if there is none.
///
/// ```
/// assert!(tidelock::blocking::default_locks().unwrap_err().to_string().contains("set_default"));
/// ```
#[cfg(feature = "macros")]
pub fn default_locks() -> Result<Locks> {
    crate::default_locks().map(Twin::twin)
}

/// What the blocking method returns where the async one returns something.
pub(crate) trait Twin<T> {
    fn twin(self) -> T;
}

/// Types that are twins of async ones, and print like them.
macro_rules! twin_types {
    ($($(#[$meta:meta])* $Name:ident),+ $(,)?) => {$(
        $(#[$meta])*
        pub struct $Name {
            pub(crate) inner: crate::$Name,
        }

        impl Twin<$Name> for crate::$Name {
            fn twin(self) -> $Name {
                $Name { inner: self }
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        }
    )+};
}

twin_types! {
    /// [`Builder`](crate::Builder) without async.
    ///
    /// ```
    /// use tidelock::blocking::Locks;
    ///
    /// let locks = Locks::builder("memory:").namespace("shop/").label("worker-7").connect()?;
    /// locks.mutex("orders/42").lock()?.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[derive(Clone)]
    #[must_use = "a builder does nothing before it connects"]
    Builder,
    /// [`Locks`](crate::Locks) without async.
    #[derive(Clone)]
    Locks,
    /// [`Mutex`](crate::Mutex) without async.
    #[derive(Clone)]
    Mutex,
    /// [`RwLock`](crate::RwLock) without async.
    ///
    /// ```
    /// let prices = tidelock::blocking::Locks::connect("memory:")?.rw_lock("prices");
    /// let old = prices.run_read(|_held| 17)?;
    /// prices.run_write(|held| println!("{} with token {}", old + 1, held.token()))?;
    ///
    /// type Failed = Box<dyn std::error::Error>;
    /// let old = prices.try_run_read(|_held| Ok::<u32, Failed>("18".parse()?))?;
    /// prices.try_run_write(|_held| Ok::<_, Failed>(println!("{}", old + 1)))?;
    /// # Ok::<(), Failed>(())
    /// ```
    #[derive(Clone)]
    RwLock,
    /// [`Semaphore`](crate::Semaphore) without async.
    #[derive(Clone)]
    Semaphore,
    /// [`Multi`](crate::Multi) without async.
    ///
    /// ```
    /// let locks = tidelock::blocking::Locks::connect("memory:")?;
    /// let both = locks.multi(["accounts/2", "accounts/1"]).lock()?;
    /// assert_eq!(both.len(), 2);
    /// both.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[derive(Clone)]
    Multi,
    /// [`Guard`](crate::Guard) without async. Dropping it releases the lock, and waits up to 2 s for the store.
    ///
    /// Within an async task, dropping it does not wait. A guard cannot be cloned:
    ///
    /// ```compile_fail,E0599
    /// let locks = tidelock::blocking::Locks::connect("memory:")?;
    /// let guard = locks.mutex("orders/42").lock()?;
    /// let second = guard.clone(); // does not compile
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[must_use = "a guard that is dropped at once protects nothing"]
    Guard,
    /// [`Guards`](crate::Guards) without async. Dropping it releases all locks, and waits up to 2 s for each.
    #[must_use = "guards that are dropped at once protect nothing"]
    Guards,
}

impl Twin<Election> for crate::Election {
    fn twin(self) -> Election {
        Election { inner: self }
    }
}

impl Twin<Once> for crate::Once {
    fn twin(self) -> Once {
        Once { inner: self }
    }
}

impl Twin<Option<Guard>> for Option<crate::Guard> {
    fn twin(self) -> Option<Guard> {
        self.map(Twin::twin)
    }
}

impl Twin<Option<Guards>> for Option<crate::Guards> {
    fn twin(self) -> Option<Guards> {
        self.map(Twin::twin)
    }
}

/// What is the same in both facades.
macro_rules! same {
    ($($Type:ty),+ $(,)?) => {$(
        impl<'a> Twin<Self> for $Type {
            fn twin(self) -> Self {
                self
            }
        }
    )+};
}

same!(
    (),
    bool,
    usize,
    Duration,
    Token,
    Option<u64>,
    LockState,
    Holding,
    &'a Name,
    &'a Abilities,
    &'a [&'a str],
    &'a [&'a Store],
    Vec<String>,
    Vec<LockView>,
    Vec<(&'a Name, Token)>,
    Result<Ticket>,
    Ticket,
);

impl Builder {
    builder_methods!(inner.settings);
}

impl Locks {
    /// Creates a client for a backend of your own; see [`Locks::with_backend`](crate::Locks::with_backend).
    ///
    /// Its calls run on the background thread.
    ///
    /// # Panics
    /// If the system gives no background thread, for example because the process may open no more files.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Self {
        let _there = background().expect("the system gives a background thread").enter();
        crate::Locks::with_backend(backend).twin()
    }

    /// Shuts down the client and returns how many locks were still held after `grace`.
    ///
    /// See [`Locks::shutdown`](crate::Locks::shutdown).
    ///
    /// # Errors
    /// [`WouldBlock`](crate::ErrorKind::WouldBlock) within an async task.
    pub fn shutdown(&self, grace: Duration) -> Result<usize> {
        block_on(async { Ok(self.inner.shutdown(grace).await) })
    }
}

/// Runs work under a lock that the named method acquires.
macro_rules! run_methods {
    ($run:ident, $try_run:ident, $acquire:ident($($arg:ident: $of:ty)?), $held:ty) => {
        /// Acquires, runs the work, and releases. See [`Guard::run`] about losses.
        ///
        /// # Errors
        /// Those of acquiring, and [`Lost`](crate::ErrorKind::Lost) when the lock was lost before the work ended.
        pub fn $run<T>(&self, $($arg: $of,)? work: impl FnOnce($held) -> T) -> Result<T> {
            self.$acquire($($arg)?)?.run(work)
        }

        /// Acquires, runs work that can fail, and releases. See [`Guard::try_run`].
        ///
        /// # Errors
        /// Those of acquiring and a loss, converted to `E`; the work's own error.
        pub fn $try_run<T, E: From<Error>>(
            &self,
            $($arg: $of,)?
            work: impl FnOnce($held) -> Result<T, E>,
        ) -> Result<T, E> {
            self.$acquire($($arg)?)?.try_run(work)
        }
    };
}

impl Mutex {
    option_methods!(inner.handle);
    run_methods!(run, try_run, lock(), Holding);
}

impl RwLock {
    option_methods!(inner.handle);
    run_methods!(run_read, try_run_read, read(), Holding);
    run_methods!(run_write, try_run_write, write(), Holding);
}

impl Semaphore {
    option_methods!(inner.handle);
    run_methods!(run, try_run, acquire(n: u32), Holding);
}

impl Multi {
    option_methods!(inner.common);
    run_methods!(run, try_run, lock(), Vec<Holding>);
}

impl Guard {
    /// Calls `tell` when the lock is lost; never if it is released before.
    ///
    /// It runs on a thread of its own, so it may block without delaying renewals.
    #[allow(clippy::disallowed_methods, reason = "it ends with the guard, in a runtime that is ours")]
    pub fn on_lost(&self, tell: impl FnOnce(Error) + Send + 'static) {
        let over = self.inner.holding().over();
        let told = async move {
            if let Some(why) = over.await {
                // Not here: this thread renews all locks.
                drop(tokio::task::spawn_blocking(move || tell(why)));
            }
        };
        // The client of the guard runs there.
        drop(background().map(|ours| ours.spawn(told)));
    }

    /// Runs work under the lock and releases it.
    ///
    /// Nothing can stop code without async, so a loss is reported when the work has ended. Work that takes long
    /// asks [`Holding::is_held`] before each step that matters.
    ///
    /// ```
    /// let locks = tidelock::blocking::Locks::connect("memory:")?;
    /// let token = locks.mutex("report").lock()?.run(|held| held.token())?;
    /// assert!(token.get() > 0);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost before the work ended.
    pub fn run<T>(self, work: impl FnOnce(Holding) -> T) -> Result<T> {
        self.try_run(|held| Ok(work(held)))
    }

    /// Runs work that can fail under the lock and releases it.
    ///
    /// # Errors
    /// As [`Guard::try_run`](crate::Guard::try_run): a loss is converted to `E`, and the work's own error takes
    /// precedence over a loss.
    pub fn try_run<T, E: From<Error>>(self, work: impl FnOnce(Holding) -> Result<T, E>) -> Result<T, E> {
        let done = work(self.holding());
        outcome(done, self.release())
    }
}

impl Guards {
    /// Runs work under the locks and releases all. See [`Guard::run`] about losses.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when one of them was lost before the work ended.
    pub fn run<T>(self, work: impl FnOnce(Vec<Holding>) -> T) -> Result<T> {
        self.try_run(|held| Ok(work(held)))
    }

    /// Runs work that can fail under the locks and releases all.
    ///
    /// # Errors
    /// As [`Guard::try_run`].
    pub fn try_run<T, E: From<Error>>(self, work: impl FnOnce(Vec<Holding>) -> Result<T, E>) -> Result<T, E> {
        let done = work(self.inner.iter().map(crate::Guard::holding).collect());
        outcome(done, self.release())
    }
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::iter::Map<std::vec::IntoIter<crate::Guard>, fn(crate::Guard) -> Guard>;

    /// Returns the guards, in the order of their names. Each one releases its lock when it is dropped.
    fn into_iter(self) -> Self::IntoIter {
        self.inner.into_iter().map(Twin::twin)
    }
}

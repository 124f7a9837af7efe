//! Several locks at once, without deadlock.

use std::{fmt, future::poll_fn, task::Poll, time::Duration};

use tracing::Instrument;

use crate::{
    api::facade::both,
    api::guard::{Guard, outcome},
    api::handle::Handle,
    api::options::{Options, checked_name, option_methods},
    backend::Share,
    engine::{Client, Holding},
    error::{Error, Result},
    events,
    model::name::Name,
    model::token::Token,
};

/// Several mutexes that are held together.
///
/// They are acquired one after the other in the byte order of their names, in whichever order you named them.
/// All clients that do so use the same order, so they cannot deadlock.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let accounts = locks.multi(["accounts/2", "accounts/1"]);
/// let moved = accounts.run(|held| async move { held.len() }).await?;
/// assert_eq!(moved, 2);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Multi {
    pub(crate) common: Common,
}

#[derive(Clone)]
pub(crate) struct Common {
    engine: Client,
    names: Result<Vec<Name>, Error>,
    pub(crate) options: Options,
}

impl Multi {
    option_methods!(common);

    pub(crate) fn new(engine: &Client, names: Vec<String>, options: Options) -> Self {
        let abilities = engine.backend().abilities();
        let mut names = names.iter().map(|name| checked_name(name, abilities)).collect::<Result<Vec<_>, _>>();
        if let Ok(names) = &mut names {
            names.sort();
            names.dedup();
        }
        if names.as_ref().is_ok_and(Vec::is_empty) {
            names = Err(Error::invalid_name("several locks at once need at least one name"));
        }
        Self { common: Common { engine: engine.clone(), names, options } }
    }
}

both! { impl Multi {
    /// Acquires all of them, waiting in the queues until all are held.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock). Locks that were acquired before the error are released.
    ///
    /// # Cancel safety
    /// If the future is dropped at any await, it releases the locks it acquired and leaves the queue.
    pub async fn lock(&self) -> Result<Guards> {
        let handles = self.handles()?;
        let clock = self.common.engine.clock();
        let until = self.common.options.wait.map(|limit| clock.now() + limit);
        let mut guards = Vec::with_capacity(handles.len());
        for mut handle in handles {
            handle.options.wait = until.map(|until| until.since(clock.now()));
            guards.push(handle.lock(Share::Exclusive).await?.kept_for(None));
        }
        Ok(self.complete(guards))
    }

    /// Acquires all of them if all are free; otherwise returns `None` and holds none.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let accounts = locks.multi(["accounts/2", "accounts/1"]);
    /// let both = accounts.try_lock().await?.expect("both are free");
    /// assert!(accounts.try_lock_for(Duration::from_millis(20)).await?.is_none());
    /// both.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn try_lock(&self) -> Result<Option<Guards>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Waits up to `limit` for all of them together; returns `None`, holding none, if that was not enough.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guards>> {
        let clock = self.common.engine.clock();
        let until = clock.now() + limit;
        let mut guards = Vec::new();
        for handle in self.handles()? {
            match handle.try_lock_for(Share::Exclusive, until.since(clock.now())).await? {
                Some(guard) => guards.push(guard.kept_for(None)),
                None => return Ok(None),
            }
        }
        Ok(Some(self.complete(guards)))
    }
} }

impl Multi {
    /// Acquires all of them, runs the work, stops it when one is lost, and releases all.
    ///
    /// The work gets a [`Holding`] for each lock, in the order of their names.
    ///
    /// # Errors
    /// As [`lock`](Self::lock) and [`Guards::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks.
    pub async fn run<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Vec<Holding>) -> W,
        W: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    /// Acquires all of them, runs work that can fail, stops it when one is lost, and releases all.
    ///
    /// `try` refers to the work: the lock is waited for as in [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock) and [`Guards::try_run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks.
    pub async fn try_run<T, E, F, W>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Vec<Holding>) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.lock().await?.try_run(work).await
    }

    /// All are held. Before that, an end of the call frees those that are, as if they had never been held.
    fn complete(&self, guards: Vec<Guard>) -> Guards {
        Guards(guards.into_iter().map(|guard| guard.kept_for(self.common.options.at_least)).collect())
    }

    fn handles(&self) -> Result<Vec<Handle>> {
        let Common { engine, names, options } = &self.common;
        let names = names.as_ref().map_err(Clone::clone)?;
        let handle =
            |name: &Name| Handle { engine: engine.clone(), name: Ok(name.clone()), options: options.clone() };
        Ok(names.iter().map(handle).collect())
    }
}

impl fmt::Debug for Multi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Common { engine, names, .. } = &self.common;
        let names: &dyn fmt::Debug = match names {
            Ok(names) => names,
            Err(error) => error,
        };
        f.debug_struct("Multi").field("names", names).field("store", &engine.store()).finish()
    }
}

/// Several locks that are held together. Dropping this value releases all of them.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let both = locks.lock_all(["b", "a"]).await?;
/// assert_eq!(both.len(), 2);
/// for (name, token) in both.tokens() {
///     println!("{name}: token {token}");
/// }
/// for guard in both {
///     guard.release().await?;
/// }
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[must_use = "guards that are dropped at once protect nothing"]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Returns an iterator over the guards, in the order of their names.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.0.iter()
    }
}

both! { impl Guards {
    /// Returns the number of locks. A name that was given twice counts once.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no lock, which is never the case: [`Multi`] needs at least one name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names and fencing tokens, in the order of the names.
    pub fn tokens(&self) -> Vec<(&Name, Token)> {
        self.0.iter().map(|guard| (guard.name(), guard.token())).collect()
    }

    /// Returns whether all of them are held now.
    pub fn is_held(&self) -> bool {
        self.0.iter().all(Guard::is_held)
    }

    /// Releases all of them, in the reverse order of acquisition.
    ///
    /// # Errors
    /// The first error of any of them; the others are released anyway.
    ///
    /// # Cancel safety
    /// All of them are released even if the future is dropped.
    pub async fn release(self) -> Result<()> {
        let (mut guards, mut outcome) = (self.0, Ok(()));
        while let Some(guard) = guards.pop() {
            let released = guard.release().await;
            outcome = outcome.and(released);
        }
        outcome
    }
} }

impl Guards {
    /// Resolves with the reason when the first of them is lost.
    ///
    /// # Cancel safety
    /// Safe to cancel: you can call it again.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # async fn transfer() {}
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let both = locks.lock_all(["accounts/1", "accounts/2"]).await?;
    /// tokio::select! {
    ///     why = both.lost() => println!("stopped: {why}"),
    ///     () = transfer() => both.release().await?,
    /// }
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn lost(&self) -> Error {
        let mut losses: Vec<_> = self.0.iter().map(|guard| Box::pin(guard.lost())).collect();
        poll_fn(|context| {
            for loss in &mut losses {
                if let Poll::Ready(why) = loss.as_mut().poll(context) {
                    return Poll::Ready(why);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs work under the locks, stops it when one of them is lost, and releases all.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when one was lost: the work was dropped at its next await, or
    /// finished too late.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let both = locks.lock_all(["a", "b"]).await?;
    /// let tokens = both.run(|held| async move { held.iter().map(|lock| lock.token()).collect::<Vec<_>>() }).await?;
    /// assert_eq!(tokens.len(), 2);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn run<T, F, W>(self, work: F) -> Result<T>
    where
        F: FnOnce(Vec<Holding>) -> W,
        W: Future<Output = T>,
    {
        self.try_run(async |held| Ok(work(held).await)).await
    }

    /// Runs work that can fail under the locks, stops it when one of them is lost, and releases all.
    ///
    /// # Errors
    /// As [`Guard::try_run`]: a loss is converted to `E`, and the work's own error takes precedence over a
    /// loss that only the release finds.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the locks.
    pub async fn try_run<T, E, F, W>(self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Vec<Holding>) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let held = self.0.iter().map(Guard::holding).collect();
        let done = tokio::select! {
            biased;
            why = self.lost() => return Err(why.into()),
            done = work(held).instrument(events::running_under(self.len())) => done,
        };
        outcome(done, self.release().await)
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guards ")?;
        f.debug_list().entries(&self.0).finish()
    }
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    /// Returns the guards, in the order of their names. Each one releases its lock when it is dropped.
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Guards {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

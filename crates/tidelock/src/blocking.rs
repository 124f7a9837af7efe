//! The same locks for code without async.
//!
//! One background thread per process runs the engine, so that leases are renewed while the caller
//! computes. Calls block the thread they are made on: a thread of your own, or one of
//! `tokio::task::spawn_blocking`. Within an async task they are an error, not a panic and not a
//! stopped runtime.
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

use std::{
    ops::Deref,
    pin::pin,
    sync::OnceLock,
    task::{Context, Waker},
    time::Duration,
};

use tokio::runtime::{Builder, Handle};

use crate::{
    backend::{ClaimId, LockView},
    engine::Holding,
    error::{Error, Result},
    multi, mutex,
    name::Name,
    options::option_methods,
    rw_lock, semaphore,
    ticket::Ticket,
    token::Token,
};

/// The runtime of the background thread.
fn background() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("tidelock".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .expect("the system gives a thread");
        handle
    })
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if Handle::try_current().is_ok() && is_async_task() {
        return Err(Error::would_block());
    }
    background().block_on(future)
}

/// Whether this is an async task, as opposed to one of `spawn_blocking` or a thread of its own: tokio
/// gives async tasks a budget of work before they must yield, and the others none.
fn is_async_task() -> bool {
    let more_than_any_budget = 512;
    (0..more_than_any_budget).any(|_| {
        let unit = pin!(tokio::task::coop::consume_budget());
        unit.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    })
}

/// [`Locks`](crate::Locks) without async.
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks);

impl Locks {
    /// [`Locks::connect`](crate::Locks::connect).
    ///
    /// # Errors
    /// As there, and [`WouldBlock`](crate::ErrorKind::WouldBlock) within an async task.
    pub fn connect(url: &str) -> Result<Self> {
        block_on(crate::Locks::connect(url)).map(Self)
    }

    /// [`Locks::label`](crate::Locks::label).
    ///
    /// # Errors
    /// As there.
    pub fn label(self, label: &str) -> Result<Self> {
        self.0.label(label).map(Self)
    }

    /// A lock with one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex { inner: self.0.mutex(name) }
    }

    /// A lock with many readers or one writer.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { inner: self.0.rw_lock(name) }
    }

    /// A lock with a number of permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore { inner: self.0.semaphore(name, permits) }
    }

    /// Waits until several mutexes are held together.
    ///
    /// # Errors
    /// As [`Locks::lock_all`](crate::Locks::lock_all).
    pub fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Guards> {
        block_on(self.0.lock_all(names)).map(Guards)
    }

    /// Who holds and who waits.
    ///
    /// # Errors
    /// As [`Locks::look`](crate::Locks::look).
    pub fn look(&self, names: &[&str]) -> Result<Vec<LockView>> {
        block_on(self.0.look(names))
    }

    /// Puts a claim out of line.
    ///
    /// # Errors
    /// As [`Locks::evict`](crate::Locks::evict).
    pub fn evict(&self, name: &str, claim: ClaimId, reason: &str) -> Result<()> {
        block_on(self.0.evict(name, claim, reason))
    }

    /// Renews a lock that was left behind.
    ///
    /// # Errors
    /// As [`Locks::renew`](crate::Locks::renew).
    pub fn renew(&self, ticket: &Ticket) -> Result<()> {
        block_on(self.0.renew(ticket))
    }

    /// Gives back a lock that was left behind.
    ///
    /// # Errors
    /// As [`Locks::release`](crate::Locks::release).
    pub fn release(&self, ticket: &Ticket) -> Result<()> {
        block_on(self.0.release(ticket))
    }

    /// Ends the client; says how many locks were cut off.
    ///
    /// # Errors
    /// [`WouldBlock`](crate::ErrorKind::WouldBlock) within an async task.
    pub fn shutdown(&self, grace: Duration) -> Result<usize> {
        block_on(async { Ok(self.0.shutdown(grace).await) })
    }
}

/// [`Mutex`](crate::Mutex) without async.
#[derive(Clone, Debug)]
pub struct Mutex {
    inner: mutex::Mutex,
}

impl Mutex {
    option_methods!(inner.handle);

    /// Waits in line until it is held.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn lock(&self) -> Result<Guard> {
        block_on(self.inner.lock()).map(Guard)
    }

    /// Takes it if it is free.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.try_lock())?.map(Guard))
    }

    /// Waits at most so long.
    ///
    /// # Errors
    /// As [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.try_lock_for(limit))?.map(Guard))
    }
}

/// [`RwLock`](crate::RwLock) without async.
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: rw_lock::RwLock,
}

impl RwLock {
    option_methods!(inner.handle);

    /// Waits until it may read.
    ///
    /// # Errors
    /// As [`RwLock::read`](crate::RwLock::read).
    pub fn read(&self) -> Result<Guard> {
        block_on(self.inner.read()).map(Guard)
    }

    /// Reads if it may at once.
    ///
    /// # Errors
    /// As [`RwLock::try_read`](crate::RwLock::try_read).
    pub fn try_read(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.try_read())?.map(Guard))
    }

    /// Waits until it may write.
    ///
    /// # Errors
    /// As [`RwLock::write`](crate::RwLock::write).
    pub fn write(&self) -> Result<Guard> {
        block_on(self.inner.write()).map(Guard)
    }

    /// Writes if it may at once.
    ///
    /// # Errors
    /// As [`RwLock::try_write`](crate::RwLock::try_write).
    pub fn try_write(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.try_write())?.map(Guard))
    }
}

/// [`Semaphore`](crate::Semaphore) without async.
#[derive(Clone, Debug)]
pub struct Semaphore {
    inner: semaphore::Semaphore,
}

impl Semaphore {
    option_methods!(inner.handle);

    /// Waits for `n` permits.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self, n: u32) -> Result<Guard> {
        block_on(self.inner.acquire(n)).map(Guard)
    }

    /// Takes `n` permits if they are free.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.try_acquire(n))?.map(Guard))
    }
}

/// [`Guard`](crate::Guard) without async. Dropping it gives the lock back.
#[must_use = "a guard that is dropped at once protects nothing"]
#[derive(Debug)]
pub struct Guard(crate::Guard);

impl Deref for Guard {
    type Target = Holding;

    fn deref(&self) -> &Holding {
        &self.0
    }
}

impl Guard {
    /// Calls back, on the background thread, when the lock is lost; never if it is released before.
    #[allow(clippy::disallowed_methods, reason = "it ends with the guard, in a runtime that is ours")]
    pub fn on_lost(&self, tell: impl FnOnce(Error) + Send + 'static) {
        let over = self.0.over();
        drop(background().spawn(async move {
            if let Some(why) = over.await {
                tell(why);
            }
        }));
    }

    /// Gives the lock back and waits until it is.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }

    /// Leaves the lock to whoever has the ticket.
    ///
    /// # Errors
    /// As [`Guard::leave_behind`](crate::Guard::leave_behind).
    pub fn leave_behind(self) -> Result<Ticket> {
        self.0.leave_behind()
    }
}

/// [`Guards`](crate::Guards) without async. Dropping it gives all locks back.
#[must_use = "guards that are dropped at once protect nothing"]
#[derive(Debug)]
pub struct Guards(multi::Guards);

impl Guards {
    /// Whether all are held now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// The tokens, in the order of the names.
    pub fn tokens(&self) -> Vec<(&Name, Token)> {
        self.0.iter().map(|guard| (guard.name(), guard.token())).collect()
    }

    /// Gives all of them back.
    ///
    /// # Errors
    /// As [`Guards::release`](crate::Guards::release).
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

//! Guards: what a holder has in its hands.

use std::time::Duration;

use tracing::Instrument;

use crate::{
    engine::{Held, HeldView, State},
    error::{Error, Result},
    events,
    name::Name,
    token::Token,
};

/// How sure a holder may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// The store confirmed it, and the lease runs.
    Held,
    /// The last renewal was not answered. The lease still runs; it is tried again until its end.
    Uncertain,
    /// It is over: stop work that needs it.
    Lost,
    /// It was given back.
    Released,
}

/// A lock that is held. Dropping it gives it back.
///
/// It is owned, `Send` and `'static`: move it into a task, keep it in a struct. Dropping never
/// blocks and needs no runtime; [`release`](Self::release) waits and says how it went.
#[must_use = "a guard that is dropped at once protects nothing"]
#[derive(Debug)]
pub struct Guard(Held);

impl Guard {
    pub(crate) fn new(held: Held) -> Self {
        Self(held)
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// The fencing token: larger than that of every earlier holder.
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// Whether it is held now. Reads the clock each time.
    pub fn is_held(&self) -> bool {
        matches!(self.state(), LockState::Held | LockState::Uncertain)
    }

    /// How sure that is.
    pub fn state(&self) -> LockState {
        public(self.0.state())
    }

    /// For how long it may be relied on if no renewal comes; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Resolves with the reason when the lock is lost; never while it is held, nor after it was given back.
    ///
    /// ```
    /// # async fn work() {}
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("report").lock().await?;
    /// tokio::select! {
    ///     () = work() => guard.release().await?,
    ///     why = guard.lost() => eprintln!("stopped: {why}"),
    /// }
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future; it may be made again.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        lost(self.0.view())
    }

    /// Resolves with the reason when the lock is lost, or with nothing when it was given back.
    pub(crate) fn over(&self) -> impl Future<Output = Option<Error>> + Send + 'static + use<> {
        self.0.view().lost()
    }

    /// What the work may know about its lock, without being able to give it back.
    pub fn holding(&self) -> Holding {
        Holding(self.0.view())
    }

    /// Gives the lock back and waits until it is.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when it was lost before: others may have held it while the
    /// work went on. [`Unavailable`](crate::ErrorKind::Unavailable) when the store does not
    /// answer: it is tried further, and the lease runs out at the latest after the ttl.
    ///
    /// # Cancel safety
    /// The lock is given back even if the future is dropped.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    /// Runs work under the lock, stops it when the lock is lost, and gives the lock back.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost: the work was dropped at its next await, or had finished too late.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lock back.
    pub async fn run<T, F, W>(self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        let done = tokio::select! {
            biased;
            why = self.lost() => return Err(why),
            done = work(self.holding()).instrument(events::running(self.name(), self.token())) => done,
        };
        match self.release().await {
            Err(error) if error.is_lost() => Err(error),
            // The work was done under the lock; a store that does not answer frees it by its lease.
            _ => Ok(done),
        }
    }
}

/// What the work under a lock may know about it.
#[derive(Clone, Debug)]
pub struct Holding(HeldView);

impl Holding {
    /// The lock's name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// Whether it is held now. Reads the clock each time.
    pub fn is_held(&self) -> bool {
        matches!(self.state(), LockState::Held | LockState::Uncertain)
    }

    /// How sure that is.
    pub fn state(&self) -> LockState {
        public(self.0.state())
    }

    /// For how long it may be relied on if no renewal comes.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Resolves with the reason when the lock is lost.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        lost(self.0.clone())
    }
}

async fn lost(view: HeldView) -> Error {
    match view.lost().await {
        Some(why) => why,
        // Given back: there is nothing left to lose.
        None => std::future::pending().await,
    }
}

fn public(state: State) -> LockState {
    match state {
        State::Held => LockState::Held,
        State::Uncertain => LockState::Uncertain,
        State::Lost(_) => LockState::Lost,
        State::Ended => LockState::Released,
    }
}

//! A term: what the work of a leader can ask, and how a term runs and ends.

use std::{
    fmt,
    pin::{Pin, pin},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    api::guard::Guard, engine::Holding, error::Error, events, model::name::Name, model::token::Token,
};

/// The time for which a candidate leads.
///
/// The work of a leader gets it. Clones are the same term. A term does not keep the lead: it ends when the work ends.
#[derive(Clone)]
pub struct Term {
    holding: Holding,
    ending: CancellationToken,
}

impl Term {
    pub(super) fn new(holding: Holding) -> Self {
        Self { holding, ending: CancellationToken::new() }
    }

    /// Returns the name of the election.
    pub fn name(&self) -> &Name {
        self.holding.name()
    }

    /// Returns the number of the term, a fencing token: larger than that of every earlier leader.
    pub fn token(&self) -> Token {
        self.holding.token()
    }

    /// Returns whether this process leads now. Reads the clock on each call.
    pub fn is_leading(&self) -> bool {
        self.holding.is_held()
    }

    /// Returns the state of the lock underneath, for work that needs more than [`is_leading`](Self::is_leading).
    pub fn holding(&self) -> &Holding {
        &self.holding
    }

    /// Resolves with the reason when the lead is lost; never after it was given back.
    ///
    /// The work of the term is dropped at that moment. Tasks that it has spawned are not, and stop themselves with
    /// this:
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let election = locks.election("scheduler");
    /// election.once(|term| async move { tokio::spawn(term.lost()) }).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Safe to cancel: you can call it again.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        self.holding.lost()
    }

    /// Asks for the end of the term: the lead goes to the next candidate when the work has ended.
    ///
    /// The work may go on for up to [`max_stop`](crate::Election::max_stop).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let election = locks.election("scheduler");
    /// election.once(|term| async move { term.resign() }).await?;
    /// assert_eq!(election.leader().await?, None);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn resign(&self) {
        self.ending.cancel();
    }

    /// Returns whether the work was told to end, by [`resign`](Self::resign) or by a shutdown.
    pub fn is_ending(&self) -> bool {
        self.ending.is_cancelled()
    }

    /// Resolves when the work is told to end, by [`resign`](Self::resign) or by the shutdown of
    /// [`lead_until`](crate::Election::lead_until).
    ///
    /// ```
    /// # async fn one_step() {}
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let work = async |term: tidelock::Term| {
    ///     while !term.is_ending() {
    ///         tokio::select! {
    ///             () = one_step() => {}
    ///             () = term.ending() => {}
    ///         }
    /// #       term.resign();
    ///     }
    /// };
    /// locks.election("scheduler").once(work).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Safe to cancel: you can call it again.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.ending.clone().cancelled_owned()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holding.show("Term", f)
    }
}

/// How a term ended.
pub(super) enum Ended<T> {
    /// The work ended.
    Done(T),
    /// It was resigned; the work ended in time, or was dropped.
    Stopped(Option<T>),
    /// A shutdown came; the work ended in time, or was dropped.
    ShutDown(Option<T>),
    /// The lead was lost: the work was dropped, or ended too late.
    Lost(Error),
}

/// Runs the work of a term, and gives the lead back after the work has ended or was dropped.
///
/// The order is the promise: a next leader never meets work of this one that was not told that it had lost. It also
/// applies if this future is dropped, because what is declared later is dropped first.
pub(super) async fn run_term<T, F, W>(
    guard: Guard,
    work: F,
    shutdown: Pin<&mut impl Future<Output = ()>>,
    max_stop: Duration,
) -> Ended<T>
where
    F: FnOnce(Term) -> W,
    W: Future<Output = T>,
{
    let term = Term::new(guard.holding());
    let ended = {
        let mut lost = pin!(guard.lost());
        let mut work = pin!(work(term.clone()).instrument(events::running(guard.name(), guard.token())));
        let is_shutdown = tokio::select! {
            biased;
            why = &mut lost => return Ended::Lost(why),
            done = &mut work => Err(done),
            () = shutdown => Ok(true),
            () = term.ending() => Ok(false),
        };
        match is_shutdown {
            Err(done) => Ended::Done(done),
            Ok(is_shutdown) => {
                term.resign();
                let done = tokio::select! {
                    biased;
                    why = &mut lost => return Ended::Lost(why),
                    done = &mut work => Some(done),
                    () = tokio::time::sleep(max_stop) => None,
                };
                if is_shutdown { Ended::ShutDown(done) } else { Ended::Stopped(done) }
            }
        }
    };
    match guard.release().await {
        // It ended too late. A shutdown is one all the same.
        Err(error) if error.is_lost() && !matches!(ended, Ended::ShutDown(_)) => Ended::Lost(error),
        // A store that does not answer ends the lease.
        _ => ended,
    }
}

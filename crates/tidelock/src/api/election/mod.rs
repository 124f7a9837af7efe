//! Election: of all candidates of a name, one leads at a time.
//!
//! An election is the queue of a mutex. Its head leads, and the term is the fencing token. What is added here is the
//! order of events: the work of a term has ended before the lead is given back, and a candidate that is done stands at
//! the end of the queue again. The store and the engine know of none of this.
//!
//! | file | what is in it |
//! |---|---|
//! | [`term`] | what the work of a leader can ask, and how a term runs and ends |
//! | [`observe`] | who leads, for everyone else |
//! | [`blocking`] | the same without async |

pub(crate) mod blocking;
pub(crate) mod observe;
pub(crate) mod term;

use std::{convert::Infallible, fmt, pin::pin, sync::Arc, time::Duration};

use self::{
    observe::{Leader, Sights, Watch},
    term::{Ended, Term, run_term},
};
use crate::{
    api::guard::Guard,
    api::handle::Handle,
    backend::Share,
    engine::backoff,
    error::{Error, Result},
    model::owner,
};

/// How long the work of a term may take to end when it is told to.
const MAX_STOP: Duration = Duration::from_secs(10);

/// After a term that was shorter, a candidate pauses for a moment: work that ends at once must not become a loop of
/// elections.
const SHORT: Duration = Duration::from_secs(1);

/// A pause doubles up to this many times, from a tenth of a second.
const LONGEST_PAUSE: u32 = 3;

/// An election: of all candidates, one leads at a time.
///
/// Every process that calls [`lead`](Self::lead), [`lead_until`](Self::lead_until) or [`once`](Self::once) is a
/// candidate. Candidates lead in the order in which they came. A leader that dies is replaced when its ttl ends, or
/// earlier if the store notices its death.
///
/// An election is a [`Mutex`](crate::Mutex) of the same name underneath: the term of a leader is a fencing token, and
/// the promises about holders hold for leaders. To be safe against a leader that was paused, pass
/// [`Term::token`] to the resource that it changes.
///
/// ```
/// # async fn run_scheduler(term: u64) {}
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let election = locks.election("scheduler").advertise("http://10.0.0.7:8080");
/// election.once(|term| async move { run_scheduler(term.token().get()).await }).await?;
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Election {
    handle: Handle,
    advertised: Option<Result<Arc<str>>>,
    max_stop: Duration,
    sights: Arc<Sights>,
}

impl Election {
    pub(crate) fn new(mut handle: Handle, sights: &Arc<Sights>) -> Self {
        let options = &mut handle.options;
        // A candidate waits until it leads, and leads until it is told to stop, whatever other locks do.
        (options.owner, options.wait, options.max_hold) = (None, None, None);
        (options.auto_renew, options.fail_fast) = (true, false);
        options.alone = true;
        Self { handle, advertised: None, max_stop: MAX_STOP, sights: Arc::clone(sights) }
    }

    /// Sets the text that observers see while this candidate leads, such as its address. Default: none.
    ///
    /// It has up to [`MAX_ADVERTISED_BYTES`](crate::MAX_ADVERTISED_BYTES) bytes, without control characters. Everyone
    /// who may look at locks can read it, and it is public from the moment at which the candidate waits.
    #[must_use]
    pub fn advertise(mut self, text: impl AsRef<str>) -> Self {
        self.advertised = Some(owner::advertised(text.as_ref()));
        self
    }

    /// Sets how long a leader that dies is not replaced. Default: as the client, or 30 seconds.
    ///
    /// The lead is renewed automatically every `ttl / 3`.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.handle.options.ttl = ttl;
        self
    }

    /// Sets the label that others see for this candidate. Default: as the client.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.handle.options.set_label(label.as_ref());
        self
    }

    /// Sets how long the work of a term may take to end when it is told to. Default: 10 seconds.
    ///
    /// Work is told by [`Term::ending`] when [`Term::resign`] was called or when the shutdown of
    /// [`lead_until`](Self::lead_until) has come. After this time it is dropped. Until it has ended, the lead is kept
    /// and renewed.
    #[must_use]
    pub fn max_stop(mut self, limit: Duration) -> Self {
        self.max_stop = limit;
        self
    }

    /// Leads again and again: waits until this process leads, runs the work, gives the lead back, and is a candidate
    /// again.
    ///
    /// The work is dropped when the lead is lost. The lead is given back only after the work has ended, and goes to
    /// the candidate that waits longest. After a term of less than a second, the candidate pauses for up to 0.4 s.
    ///
    /// A store that is not reachable is waited for. To stop, use [`lead_until`](Self::lead_until) or drop the future.
    ///
    /// # Errors
    /// Returns only with an error that waiting cannot fix: [`Denied`](crate::ErrorKind::Denied) from the store,
    /// [`Closed`](crate::ErrorKind::Closed) after [`Locks::shutdown`](crate::Locks::shutdown), or an invalid name or
    /// option.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work first, and then gives the lead back or leaves the queue.
    ///
    /// ```no_run
    /// # async fn serve(term: tidelock::Token) {}
    /// # async fn example() -> tidelock::Result<()> {
    /// let locks = tidelock::Locks::connect("redis://127.0.0.1").await?;
    /// let election = locks.election("scheduler").advertise("http://10.0.0.7:8080");
    /// election.lead(async |term| serve(term.token()).await).await?;
    /// # Ok(()) }
    /// ```
    pub async fn lead<F, W>(&self, work: F) -> Result<Infallible>
    where
        F: FnMut(Term) -> W,
        W: Future<Output = ()>,
    {
        match self.lead_until(std::future::pending::<Infallible>(), work).await {
            Ok(()) => unreachable!("what never comes does not end it"),
            Err(error) => Err(error),
        }
    }

    /// Leads as [`lead`](Self::lead) does, until `shutdown` resolves.
    ///
    /// A candidate that waits then leaves the queue. A leader tells its work ([`Term::ending`]), waits for its end for
    /// up to [`max_stop`](Self::max_stop), and gives the lead back, so that the next candidate leads at once.
    ///
    /// # Errors
    /// As [`lead`](Self::lead).
    ///
    /// # Cancel safety
    /// As [`lead`](Self::lead).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let shutdown = tokio::time::sleep(Duration::from_millis(20)); // for example tokio::signal::ctrl_c()
    /// locks
    ///     .election("scheduler")
    ///     .lead_until(shutdown, |term| async move {
    ///         // The work of the leader, until it is told to end.
    ///         term.ending().await;
    ///     })
    ///     .await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn lead_until<S, F, W>(&self, shutdown: S, mut work: F) -> Result<()>
    where
        S: Future,
        F: FnMut(Term) -> W,
        W: Future<Output = ()>,
    {
        let candidate = self.candidate()?;
        let engine = &candidate.engine;
        let mut shutdown = pin!(async { drop(shutdown.await) });
        let mut short_terms = 0;
        loop {
            let guard = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                guard = candidate.lock(Share::Exclusive) => guard?,
            };
            let began = engine.clock().now();
            match run_term(guard, &mut work, shutdown.as_mut(), self.max_stop).await {
                Ended::ShutDown(_) => return Ok(()),
                Ended::Done(()) | Ended::Stopped(_) | Ended::Lost(_) => {}
            }
            if engine.clock().now().since(began) >= SHORT {
                short_terms = 0;
                continue;
            }
            short_terms = LONGEST_PAUSE.min(short_terms + 1);
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                () = tokio::time::sleep(backoff::pause(short_terms, engine.client().get())) => {}
            }
        }
    }

    /// Leads for one term: waits until this process leads, runs the work, and gives the lead back.
    ///
    /// # Errors
    /// As [`lead`](Self::lead), and [`Lost`](crate::ErrorKind::Lost) when the lead was lost: the work was dropped, or
    /// ended too late. If work that was told to end by [`Term::resign`] did not do so within
    /// [`max_stop`](Self::max_stop), the error is [`TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// # Cancel safety
    /// As [`lead`](Self::lead).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let term = locks.election("scheduler").once(|term| async move { term.token() }).await?;
    /// assert!(term.get() > 0);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn once<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Term) -> W,
        W: Future<Output = T>,
    {
        let guard = self.campaign().await?;
        let name = guard.name().clone();
        match run_term(guard, work, pin!(std::future::pending()), self.max_stop).await {
            Ended::Done(done) | Ended::Stopped(Some(done)) | Ended::ShutDown(Some(done)) => Ok(done),
            Ended::Lost(why) => Err(why),
            Ended::Stopped(None) | Ended::ShutDown(None) => Err(Error::not_stopped(&name, self.max_stop)),
        }
    }

    /// Waits until this process leads, and returns the lead as a guard: releasing it gives the lead back.
    ///
    /// For programs that run terms in their own way. They stop the work of the leader when the guard is
    /// [lost](Guard::lost), and before they release it.
    ///
    /// # Errors
    /// As [`lead`](Self::lead).
    ///
    /// # Cancel safety
    /// If the future is dropped at any await, the candidate leaves the queue, and a grant on its way is released.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let lead = locks.election("scheduler").campaign().await?;
    /// println!("term {}", lead.token());
    /// lead.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn campaign(&self) -> Result<Guard> {
        self.candidate()?.lock(Share::Exclusive).await
    }

    /// Returns who leads now, or `None` if nobody does.
    ///
    /// The answer is as old as the call. To follow changes, use [`watch`](Self::watch).
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store;
    /// [`InvalidName`](crate::ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// Safe to cancel: nothing is changed.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let election = locks.election("scheduler").advertise("http://10.0.0.7:8080");
    /// assert_eq!(election.leader().await?, None);
    ///
    /// let seen = election.once(|_term| async { election.leader().await }).await??;
    /// assert_eq!(seen.unwrap().advertised.as_deref(), Some("http://10.0.0.7:8080"));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn leader(&self) -> Result<Option<Leader>> {
        observe::look(&self.handle.engine, self.handle.name()?).await.map(|seen| seen.map(|seen| seen.leader))
    }

    /// Returns a stream of who leads: first the leader of now, then each change, also to nobody.
    ///
    /// A store that can follow names ([`Abilities::follow`](crate::backend::Abilities::follow)) tells of a change at once;
    /// others are asked about twice a second. All watches of one election on a client ask together. A leader is not shown
    /// for longer than its lease, even if the store does not answer, and an earlier term is never shown after a later one.
    /// A leader of less than a second may not be shown.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let mut watch = locks.election("scheduler").watch();
    /// assert_eq!(watch.next().await.unwrap()?, None);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn watch(&self) -> Watch {
        let sight = self.handle.name.as_ref().map(|name| self.sights.of(name)).map_err(Clone::clone);
        Watch::new(&self.handle.engine, sight)
    }

    /// Returns the handle with which a candidate stands in the queue.
    fn candidate(&self) -> Result<Handle> {
        let mut candidate = self.handle.clone();
        if let Some(advertised) = &self.advertised {
            let label = &mut candidate.options.label;
            *label = owner::join_label(label, advertised.as_ref().map_err(Clone::clone)?);
        }
        Ok(candidate)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.show("Election", f).finish()
    }
}

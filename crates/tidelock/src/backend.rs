//! The backend interface: what a store must do so that the engine can build locks on it.
//!
//! Read this to write a backend. To use locks, see [`Locks`](crate::Locks).
//!
//! # Five verbs
//!
//! | verb | round trips | waits? |
//! |---|---|---|
//! | [`enter`](Backend::enter) | one | no |
//! | [`wait`](Backend::wait) | none | yes |
//! | [`renew`](Backend::renew) | one for the whole batch | no |
//! | [`leave`](Backend::leave) | one | no |
//! | [`look`](Backend::look) | one or a few | no |
//!
//! A store that can also tells observers when the holders of a name change: see [`follow`](Backend::follow).
//!
//! After an error:
//!
//! - `enter`: with `Unreachable`, the claim is not in line. With `Unknown`, it may be: the engine asks again
//!   with the same id, or leaves.
//! - `wait`: pushes may have been missed. The engine renews all waiting claims at once, then calls `wait`
//!   again.
//! - `renew`: nothing is known. The engine retries until its own deadline.
//! - `leave`: the claim may still be in line. The engine repeats the call until it is answered or the ttl has
//!   passed.
//! - `look`: nothing changed.
//!
//! # Promises you make
//!
//! 1. You follow the rules of [`line`](crate::model::line): at every instant of *your* clock, the holders of
//!    a name fit its capacity, no claim overtakes another, an expired claim is gone, and epochs only grow.
//! 2. A verb may arrive twice, late, or after its caller gave up. Repeated with the same id, it takes effect
//!    once. `enter` of a claim that is in line renews it and returns its standing.
//! 3. The lease of a claim starts when `enter` reaches you, and starts again at each `renew` or repeated
//!    `enter`. Becoming a holder does not change it.
//! 4. When you cannot know whether a change happened, you return [`FailureKind::Unknown`]. Never guess.
//! 5. When you make a claim a holder, you tell its client ([`ClaimId::client`]) through
//!    [`wait`](Backend::wait). The push is an optimization: if it is lost, `renew` returns the same.
//! 6. You never renew on your own, never decide that a lock is lost, never read a clock to judge a lease on
//!    the client's side, and never spawn a task per claim.
//!
//! # Promises the engine makes
//!
//! 1. Names, ttl and permits are checked, also against your [`Abilities`], before you see them.
//! 2. An id is never used for a second claim. A claim that was left is never entered again, except by a
//!    network that delivers late: the engine leaves such a claim again when its grant is pushed; otherwise it
//!    expires.
//! 3. Calls run to completion in a task of the engine, even if the user's future was dropped. They are
//!    dropped only when their time limit has passed (a quarter of the ttl, five seconds at most) and when the
//!    runtime ends. The first poll may happen in another place than the later ones, but always within the
//!    runtime of the client.
//! 4. Exactly one task calls `wait`, repeatedly.
//! 5. Leases are measured from before the request was sent: a slow answer costs the user time, never safety.
//!
//! # Example
//!
//! A backend of your own can wrap another one. This one counts the claims that enter:
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
//! use tidelock::{
//!     Locks, Name,
//!     backend::{
//!         Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Follow, Leave, Left, LockView,
//!         Namespaced, News, Scope, Standing,
//!     },
//!     backends::memory::{MemoryBackend, MemoryStore},
//! };
//!
//! #[derive(Debug)]
//! struct Counted<B> {
//!     inner: B,
//!     entered: AtomicUsize,
//! }
//!
//! impl<B: Backend> Backend for Counted<B> {
//!     fn abilities(&self) -> &Abilities {
//!         self.inner.abilities()
//!     }
//!
//!     fn client_id(&self) -> ClientId {
//!         self.inner.client_id()
//!     }
//!
//!     fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
//!         self.entered.fetch_add(1, Ordering::Relaxed);
//!         self.inner.enter(claim, ask)
//!     }
//!
//!     fn wait(&self) -> Call<News> {
//!         self.inner.wait()
//!     }
//!
//!     fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
//!         self.inner.renew(claims)
//!     }
//!
//!     fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
//!         self.inner.leave(name, id, why)
//!     }
//!
//!     fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
//!         self.inner.look(scope)
//!     }
//!
//!     fn follow(&self, name: &Name) -> Option<Follow> {
//!         self.inner.follow(name)
//!     }
//! }
//!
//! let store = MemoryStore::new();
//! let inner = MemoryBackend::connect(store, ClientId::random());
//! let counted = Arc::new(Counted { inner, entered: AtomicUsize::new(0) });
//! let locks = Locks::with_backend(Arc::new(Namespaced::new(counted.clone(), "shop/")?));
//! locks.mutex("orders/42").lock().await?.release().await?;
//! assert_eq!(counted.entered.load(Ordering::Relaxed), 1);
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```
//!
//! Answers have constructors. This is what a store with one row for each claim makes of a row:
//!
//! ```
//! use std::time::Duration;
//! use tidelock::backend::{Claim, ClaimView, Grant, LockView, Place, Standing};
//!
//! struct Row {
//!     claim: Claim,
//!     epoch: Option<u64>,
//!     ahead: u32,
//!     age: Duration,
//!     lapse_in: Duration,
//! }
//!
//! fn standing(row: &Row) -> Standing {
//!     match row.epoch {
//!         Some(epoch) => Standing::Held(Grant::new(epoch, row.claim.ttl, 0)),
//!         None => Standing::Waiting(Place::new(row.ahead, None)),
//!     }
//! }
//!
//! fn show(row: &Row, view: &mut LockView) {
//!     let claims = if row.epoch.is_some() { &mut view.holders } else { &mut view.waiters };
//!     claims.push(ClaimView::new(&row.claim, row.epoch, row.age, row.lapse_in));
//! }
//! ```
//!
//! # Check yourself
//!
//! The feature `testing` has the conformance cases and the comparison with [`line`](crate::model::line): see
//! `CONTRIBUTING.md`, "Add a backend".

mod abilities;
mod failure;
mod follow;
mod follow_all;
mod namespaced;
mod views;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub(crate) use self::namespaced::check as check_namespace;
pub use self::{
    abilities::{Abilities, TokenGrade},
    failure::{Cause, Failure, FailureKind},
    follow::{Follow, Follows},
    follow_all::{FollowAll, TellAll, ToldAll},
    namespaced::Namespaced,
    views::{ClaimView, Foreign, LockView},
};
pub use crate::model::claim::{Capacity, Claim, ClaimId, ClientId, Grant, Share};
use crate::model::name::Name;

/// A call in progress. It owns all its data, because it may outlive its caller.
#[must_use = "a call does nothing before it is awaited"]
pub struct Call<T>(Answer<T>);

enum Answer<T> {
    Now(Option<Result<T, Failure>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>),
}

impl<T> Call<T> {
    /// Creates a call that is already answered, as by a store in this process. Does not allocate.
    pub fn now(answer: Result<T, Failure>) -> Self {
        Self(Answer::Now(Some(answer)))
    }

    /// Creates a call that is answered later.
    pub fn later(answer: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self {
        Self(Answer::Later(Box::pin(answer)))
    }

    /// Returns whether the answer is there already.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.0, Answer::Now(_))
    }

    /// Polls once without a waker: returns the answer if it is ready, or else the call, to be awaited
    /// elsewhere. A call that is not ready is polled within the context that `enter` enters.
    pub(crate) fn poll_once<G>(mut self, enter: impl FnOnce() -> G) -> Result<Result<T, Failure>, Self>
    where
        T: Unpin,
    {
        let _here = matches!(self.0, Answer::Later(_)).then(enter);
        match Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Ok(answer),
            Poll::Pending => Err(self),
        }
    }
}

impl<T: Unpin> Future for Call<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Answer::Now(answer) => Poll::Ready(answer.take().expect("a call is not polled after its answer")),
            Answer::Later(answer) => answer.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// A store, connected on behalf of one client.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Returns what this store can do. Constant for the life of the connection.
    fn abilities(&self) -> &Abilities;

    /// Returns the client on whose behalf it is connected. Constant, and never used by another connection.
    ///
    /// The engine makes the ids of claims from it, and [`wait`](Self::wait) resolves with events of claims
    /// with this [`ClaimId::client`].
    fn client_id(&self) -> ClientId;

    /// Returns the problems found in the store, one sentence each, for people.
    fn concerns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns useful facts about the store, one sentence each, for people. They need no correction.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Puts the claim in the line of its name; for [`Ask::Try`], only if it would hold at once.
    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered>;

    /// Resolves with the next event that the store pushes for a claim of this client.
    ///
    /// If a store cannot push, this never resolves, and [`Abilities::push`] is `false`.
    fn wait(&self) -> Call<News>;

    /// Renews a batch of claims, holders and waiters alike, and returns their standings in the same order.
    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>>;

    /// Removes a claim, whether it holds or waits, and returns whether it was in line.
    ///
    /// A claim that is not in line is [`Left::Absent`], not an error: this leave may be a repetition.
    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left>;

    /// Returns who holds and who waits, for people.
    fn look(&self, scope: &Scope) -> Call<Vec<LockView>>;

    /// Tells from now on when the holders of a name may have changed, by any client; `None` if the store
    /// cannot, which [`Abilities::follow`] says, or if it does so for too many names already.
    ///
    /// Each change of holders is told, and more may be: a follower looks then. What happens to names that nobody
    /// follows costs nothing for it. A backend keeps what it follows in [`Follows`], and may rely on
    /// [`wait`](Self::wait) being called.
    fn follow(&self, name: &Name) -> Option<Follow> {
        let _ = name;
        None
    }

    /// Tells from now on which lines may have changed, of all names and by any client; `None` if the store cannot.
    ///
    /// For those who show all locks. If it can, the store also tells of evictions with their reasons. It may cost a
    /// server some work for each change while somebody follows, and nothing otherwise.
    fn follow_all(&self) -> Option<FollowAll> {
        None
    }
}

/// Whether a claim stays in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// Stay in line until the claim holds.
    Queue,
    /// Acquire the lock if it is free; otherwise leave nothing in line.
    Try,
}

/// The outcome of an [`enter`](Backend::enter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entered {
    /// The claim holds.
    Held(Grant),
    /// The claim is in line.
    Waiting(Place),
    /// A try found the lock held; the claim is not in line.
    Busy,
    /// The claim can never hold as it is, and is not in line.
    Refused(Refusal),
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// How many claims are ahead, holders included.
    pub ahead: u32,
    /// For the first waiter: when the first lease ahead of it expires unless it is renewed. Asking again at
    /// that time moves the line on if the holder died.
    pub lapse_in: Option<Duration>,
}

impl Place {
    /// Creates a place behind this many claims.
    pub fn new(ahead: u32, lapse_in: Option<Duration>) -> Self {
        Self { ahead, lapse_in }
    }
}

/// Why a claim can never hold as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The sharing claims in line use another capacity.
    Capacity(Capacity),
    /// The owner asks for more than it holds, and would wait for itself.
    Upgrade(Share),
}

/// The standing of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds.
    Held(Grant),
    /// It waits.
    Waiting(Place),
    /// It is not in line: it expired, left, was evicted, or the store lost it.
    Gone,
    /// Unknown, although others of the same batch are known: too few of the servers that vote answered.
    Unknown,
}

/// An event of a claim, pushed by the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct News {
    /// The name of the lock.
    pub name: Name,
    /// The claim.
    pub id: ClaimId,
    /// What happened.
    pub what: What,
}

impl News {
    /// Creates an event.
    pub fn new(name: Name, id: ClaimId, what: What) -> Self {
        Self { name, id, what }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It became a holder.
    Granted(Grant),
    /// It was evicted, for this reason.
    Evicted(Arc<str>),
    /// Something changed: asking for the claim's standing is worth a round trip.
    Ask,
}

/// Why a claim leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leave {
    /// Its client no longer needs it.
    Done,
    /// Another client evicts it, for a reason that its client is told.
    Evicted(Arc<str>),
}

impl Leave {
    /// Creates the leave of a claim that another client evicts, for this reason.
    pub fn evicted(reason: &str) -> Self {
        Self::Evicted(reason.into())
    }
}

/// The outcome of a [`leave`](Backend::leave).
///
/// The engine treats [`Left::Absent`] from a first leave as a loss: the holder relied on a lock that the
/// store no longer knew. A backend that repeats a leave on its own must not return `Absent` after the
/// repetition, because the first delivery may have removed the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// The claim was in line and is removed, or an earlier delivery of this leave may have removed it.
    Removed,
    /// The claim was not in line: it expired, was evicted, had left before, or the store lost it.
    Absent,
}

impl Left {
    /// Creates the outcome from whether the claim was in line.
    pub fn from_was_there(was_there: bool) -> Self {
        if was_there { Self::Removed } else { Self::Absent }
    }
}

/// Which locks to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// These names; unused ones are left out of the answer.
    Names(Vec<Name>),
    /// Every name in use.
    All,
}

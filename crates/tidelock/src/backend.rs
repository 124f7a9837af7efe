//! The waist: what a store must do so that the engine can build locks on it.
//!
//! Read this if you write a backend. Users want [`Locks`](crate::Locks).
//!
//! # Five verbs
//!
//! | verb | round trips | waits? | after an error |
//! |---|---|---|---|
//! | [`enter`](Backend::enter) | one | no | `Unreachable`: not in line. `Unknown`: maybe; the engine asks again with the same id, or leaves |
//! | [`wait`](Backend::wait) | none | yes | pushes may have been missed: the engine renews all waiting claims at once, then calls again |
//! | [`renew`](Backend::renew) | one for the whole batch | no | nothing is known; the engine tries again until its own deadline |
//! | [`leave`](Backend::leave) | one | no | maybe still in line; the engine repeats it until it is answered or the ttl has passed |
//! | [`look`](Backend::look) | one or a few | no | nothing changed |
//!
//! # Promises you make
//!
//! 1. You follow the rules of [`line`](crate::line): at every instant of *your* clock the holders of
//!    a name fit its capacity, nobody overtakes, a lapsed claim is gone, epochs only grow.
//! 2. A verb may arrive twice, late, or after its caller gave up. With the same id it means the
//!    same once. `enter` of a claim that is in line renews it and answers how it stands.
//! 3. The lease of a claim starts when `enter` reaches you, and starts again at each `renew` or
//!    repeated `enter`. Becoming a holder does not change it.
//! 4. When you cannot know whether a change happened you say [`FailureKind::Unknown`]. Never guess.
//! 5. A claim that you make a holder is told through [`wait`](Backend::wait) of its client
//!    ([`ClaimId::client`]). The push is a kindness: if it is lost, `renew` says the same.
//! 6. You never renew by yourself, never decide that a lock is lost, never read a clock to judge a
//!    lease on the client's side, never spawn a task per claim.
//!
//! # Promises the engine makes
//!
//! 1. Names, ttl and permits are checked, against your [`Abilities`] too, before you see them.
//! 2. An id is never used for a second claim. A claim that was left is never entered again, except
//!    by a network that delivers late: such a ghost is left again when its grant is pushed, and lapses otherwise.
//! 3. Calls run to their end, in a task of the engine, even if the user went away. They are dropped
//!    only when their time is over (a quarter of the ttl, five seconds at most) and when the runtime ends.
//!    The first poll may happen elsewhere than the later ones, always within the runtime of the client.
//! 4. One task calls `wait`, again and again; nobody else does.
//! 5. Your answers are measured from before the question: slow answers cost the user time, never safety.
//!
//! # Check yourself
//!
//! Feature `testing` has the conformance cases and the comparison with [`line`](crate::line):
//! see `CONTRIBUTING.md`, "Add a backend".

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use crate::claim::{Capacity, Claim, ClaimId, ClientId, Grant, Share};
use crate::{name::Name, owner::Owner};

/// A call under way. It owns all it needs, because it may outlive whoever asked.
#[must_use = "a call does nothing before it is awaited"]
pub struct Call<T>(Answer<T>);

enum Answer<T> {
    Now(Option<Result<T, Failure>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>),
}

impl<T> Call<T> {
    /// A call that is answered already, as by a store in this process: costs no allocation.
    pub fn now(answer: Result<T, Failure>) -> Self {
        Self(Answer::Now(Some(answer)))
    }

    /// A call that will be answered.
    pub fn later(answer: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self {
        Self(Answer::Later(Box::pin(answer)))
    }

    /// Polls once without a waker: the answer if it is there, else the call, to be awaited elsewhere.
    /// What is not there yet is polled within what `enter` enters.
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
    /// What this store can do. The same for the life of the connection.
    fn abilities(&self) -> &Abilities;

    /// What should be mended about the store, one sentence each, for people.
    fn concerns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes a place in the line of the claim's name, or, for [`Ask::Try`], only if it would hold at once.
    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered>;

    /// Resolves with the next thing that happened to a claim of this client, unasked.
    ///
    /// Where a store cannot push, this never resolves and [`Abilities::push`] is `false`.
    fn wait(&self) -> Call<News>;

    /// Renews a batch of claims, holders and waiters alike, and says how each stands, in order.
    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>>;

    /// Gives back a hold or a place. A claim that is not there is a success.
    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<()>;

    /// What is in line, for people.
    fn look(&self, scope: &Scope) -> Call<Vec<LockView>>;
}

/// Whether to stay in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Stay in line until the claim holds.
    Queue,
    /// Take it if it is free, leave nothing behind if not.
    Try,
}

/// What became of an [`enter`](Backend::enter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The claim holds.
    Held(Grant),
    /// The claim is in line.
    Waiting(Place),
    /// A try found the lock taken; nothing is in line.
    Busy,
    /// The claim can never hold as it is; nothing is in line.
    Refused(Refusal),
}

/// A place in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many claims are ahead, holders included.
    pub ahead: u32,
    /// For the first one that waits: when the first lease ahead of it lapses unless it is renewed.
    /// Asking again then moves the line on if its holder died.
    pub lapse_in: Option<Duration>,
}

/// Why a claim can never hold as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Sharing claims in line assume another capacity.
    Capacity(Capacity),
    /// The owner holds less than it asks for now, and would wait for itself.
    Upgrade(Share),
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds.
    Held(Grant),
    /// It waits.
    Waiting(Place),
    /// It is not in line: lapsed, left, evicted, or forgotten by the store.
    Gone,
    /// Nobody knows, though others of the same batch are known: too few of the servers that vote answered.
    Unknown,
}

/// Something that happened to a claim, unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The line.
    pub name: Name,
    /// The claim.
    pub id: ClaimId,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It became a holder.
    Granted(Grant),
    /// Somebody put it out of line, for this reason.
    Evicted(Arc<str>),
    /// Something moved: asking how it stands is worth a round trip.
    Ask,
}

/// Why a claim leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Its client is done with it.
    Done,
    /// Somebody else puts it out, for a reason that its client is told.
    Evicted(Arc<str>),
}

impl Leave {
    /// Somebody else puts it out, for this reason.
    pub fn evicted(reason: &str) -> Self {
        Self::Evicted(reason.into())
    }
}

/// Which locks to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These names; idle ones are left out of the answer.
    Names(Vec<Name>),
    /// Every name in use.
    All,
}

/// A lock as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockView {
    /// Its name.
    pub name: Name,
    /// What sharing claims agreed on, if any is in line.
    pub capacity: Option<Capacity>,
    /// The epoch of the latest grant.
    pub epoch: u64,
    /// Who holds it.
    pub holders: Vec<ClaimView>,
    /// Who waits, in order.
    pub waiters: Vec<ClaimView>,
}

impl LockView {
    /// A view, for backends.
    pub fn new(name: Name, capacity: Option<Capacity>, epoch: u64) -> Self {
        Self { name, capacity, epoch, holders: Vec::new(), waiters: Vec::new() }
    }
}

/// A claim as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimView {
    /// Its identity.
    pub id: ClaimId,
    /// How much it asks for.
    pub share: Share,
    /// Its explicit owner, if any.
    pub owner: Option<Owner>,
    /// Who says it is.
    pub label: Arc<str>,
    /// The epoch it holds with, if it holds.
    pub epoch: Option<u64>,
    /// For how long it has held, or has waited.
    pub age: Duration,
    /// When it lapses unless it is renewed.
    pub lapse_in: Duration,
}

impl ClaimView {
    /// A view, for backends.
    pub fn new(claim: &Claim, epoch: Option<u64>, age: Duration, lapse_in: Duration) -> Self {
        Self {
            id: claim.id,
            share: claim.share,
            owner: claim.owner.clone(),
            label: Arc::clone(&claim.label),
            epoch,
            age,
            lapse_in,
        }
    }
}

/// What a store can do: data, not code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The store's name in messages.
    pub store: &'static str,
    /// What its tokens survive.
    pub token: TokenGrade,
    /// Whether it tells a waiter at once, or the engine has to ask.
    pub push: bool,
    /// Whether claims are granted in the order in which they came.
    pub fair: bool,
    /// Whether a claim of the same owner re-enters from another process.
    pub reentry: bool,
    /// Whether it counts permits, or why not.
    pub permits: Result<(), &'static str>,
    /// The shortest lease it can keep.
    pub min_ttl: Duration,
    /// How many claims one renewal may carry.
    pub renew_batch: usize,
}

/// What the growth of tokens rests on, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenGrade {
    /// The memory of one process.
    Process,
    /// The store's data or, where that is lost, its clock: grows unless both go back.
    TimeAssisted,
    /// The data of one server that keeps what it confirmed.
    SingleNode,
    /// Agreement of a majority.
    Consensus,
}

/// Why a call failed, as far as a backend can know.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What may be concluded.
    pub kind: FailureKind,
    /// One line without the store's or the lock's name: the engine adds them.
    pub reason: Arc<str>,
}

/// What may be concluded from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The store was not reached: nothing changed.
    Unreachable,
    /// The question was sent and no answer came: it may have changed.
    Unknown,
    /// The store said no for good: wrong password, no rights, broken set-up. Nothing changed.
    Denied,
}

impl Failure {
    /// The store was not reached: nothing changed.
    pub fn unreachable(reason: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Unreachable, reason: reason.into() }
    }

    /// The question was sent and no answer came.
    pub fn unknown(reason: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Unknown, reason: reason.into() }
    }

    /// The store said no for good.
    pub fn denied(reason: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Denied, reason: reason.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

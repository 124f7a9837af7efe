//! Who leads, for everyone else: one look, or a stream of changes.
//!
//! All watches of one name on a client share a [`Sight`]: the first that finds it old asks the store, and the others
//! wait for its answer. A watch that is dropped while it asks leaves the question to the next.
//!
//! A sight is old when its time has come, or when the store says that the holders may have changed. What the store says
//! has no content: who leads is known from looking alone.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use futures_core::Stream;

use crate::{
    backend::{ClaimId, Follow, Scope},
    clock::{Moment, wall_micros},
    engine::{Client, Engine},
    error::Result,
    model::claim::random_u64,
    model::name::Name,
    model::token::Token,
};

/// The time between two questions of one client about an election, if the store does not tell of changes; up to half of
/// it is added at random.
const BETWEEN: Duration = Duration::from_millis(400);

/// The same if the store tells of changes, in case one of them gets lost: a change that lasts for a second is seen.
const BETWEEN_LIVE: Duration = Duration::from_millis(660);

/// The time between two questions in the long run, however many changes the store tells of; and how much of it may be
/// saved up, so that a few changes in a row are each seen at once.
const PACE: Duration = Duration::from_millis(50);
const SAVED: Duration = Duration::from_millis(200);

/// How long a question of a watch may take.
const LOOK: Duration = Duration::from_secs(2);

/// The leader of an [`Election`](crate::Election), as observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The text that it advertises, if any.
    pub advertised: Option<Arc<str>>,
    /// Its label.
    pub label: Arc<str>,
    /// The number of its term, a fencing token.
    pub token: Token,
    /// Since when it leads, on this machine's clock. For people: it is not exact on every store.
    pub since: SystemTime,
}

/// A leader that was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) leader: Leader,
    id: ClaimId,
    /// Until when its lease lasts unless it is renewed.
    until: Moment,
}

impl Seen {
    /// What tells it from another leader.
    fn key(&self) -> (Token, ClaimId) {
        (self.leader.token, self.id)
    }
}

/// Asks the store who leads.
pub(super) async fn look(engine: &Engine, name: &Name) -> Result<Option<Seen>> {
    let asked = engine.clock().now();
    let views = engine.look(&Scope::Names(vec![name.clone()])).await?;
    let holders = views.into_iter().flat_map(|view| view.holders);
    let holder = holders.filter_map(|holder| Some((holder.token()?, holder))).max_by_key(|(token, _)| *token);
    Ok(holder.map(|(token, holder)| {
        let since = Duration::from_micros(wall_micros()).saturating_sub(holder.age);
        let leader = Leader {
            advertised: holder.advertised,
            label: holder.label,
            token,
            since: SystemTime::UNIX_EPOCH + since,
        };
        Seen { leader, id: holder.id, until: asked + holder.lapse_in }
    }))
}

/// The elections that are watched on a client.
#[derive(Debug, Default)]
pub(crate) struct Sights(Mutex<HashMap<Name, Weak<Sight>>>);

impl Sights {
    pub(super) fn of(&self, name: &Name) -> Arc<Sight> {
        let mut sights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sight) = sights.get(name).and_then(Weak::upgrade) {
            return sight;
        }
        sights.retain(|_, sight| sight.strong_count() > 0);
        let sight = Arc::new(Sight { name: name.clone(), state: tokio::sync::Mutex::default() });
        sights.insert(name.clone(), Arc::downgrade(&sight));
        sight
    }
}

/// One election, as all watches of a client see it.
#[derive(Debug)]
pub(super) struct Sight {
    name: Name,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the store has answered yet.
    known: bool,
    seen: Option<Seen>,
    /// The largest term that was ever shown.
    highest: Option<Token>,
    /// When the store is asked again, and when at the earliest.
    next: Moment,
    soonest: Moment,
    /// Until when the pace is used up.
    paced: Moment,
    /// What tells of changes, and how many it had told of before the store was last asked.
    follow: Option<Follow>,
    heard: u64,
}

impl State {
    /// Takes in what the store said. An earlier term is old news, of a replica that lags behind.
    fn learn(&mut self, seen: Option<Seen>) {
        self.known = true;
        if let Some(seen) = &seen {
            if Some(seen.leader.token) < self.highest {
                return;
            }
            self.highest = Some(seen.leader.token);
        }
        self.seen = seen;
    }

    /// The leader, if its lease lasts as far as anybody knows.
    fn current(&self, now: Moment) -> Option<&Seen> {
        self.seen.as_ref().filter(|seen| now < seen.until)
    }

    /// Whether the store told of a change since it was last asked.
    fn is_told(&self) -> bool {
        self.follow.as_ref().is_some_and(|follow| follow.changes() != self.heard)
    }

    /// When to see to it again, if the store does not tell of a change before.
    fn wake(&self, now: Moment) -> Moment {
        let due = if self.is_told() { self.next.min(self.soonest) } else { self.next };
        self.current(now).map_or(due, |seen| seen.until.min(due))
    }

    /// Asks the store if that is due.
    async fn refresh(&mut self, engine: &Engine, name: &Name) -> Result<()> {
        let now = engine.clock().now();
        if now < self.next && (now < self.soonest || !self.is_told()) {
            return Ok(());
        }
        if self.follow.is_none() {
            self.follow = engine.follow(name);
        }
        // Before the question: what changes after it is told once more.
        let heard = self.follow.as_ref().map_or(0, Follow::changes);
        // Not beyond the lease of who is shown: a store that hangs must not keep a leader in sight.
        let lapse = self.current(now).map(|seen| seen.until.since(now).max(Duration::from_millis(10)));
        let limit = lapse.map_or(LOOK, |lapse| lapse.min(LOOK));
        let looked = tokio::time::timeout(limit, look(engine, name)).await;
        let now = engine.clock().now();
        match looked {
            Ok(Ok(seen)) => {
                self.heard = heard;
                self.learn(seen);
                self.next = now + jittered(self.pause(now));
                self.paced = self.paced.max(now) + PACE;
                self.soonest = self.paced - SAVED;
            }
            Ok(Err(error)) if !error.is_unavailable() => return Err(error),
            // The store is asked again; meanwhile the lease of the leader decides.
            Ok(Err(_)) | Err(_) => {
                self.next = now + jittered(BETWEEN);
                self.soonest = self.next;
            }
        }
        Ok(())
    }

    /// How long the store is not asked unless it tells of a change.
    fn pause(&self, now: Moment) -> Duration {
        if !self.follow.as_ref().is_some_and(Follow::is_live) {
            return BETWEEN;
        }
        // A lease is looked at while it lasts, so that a leader that is renewed stays in sight.
        let lease = self.current(now).map(|seen| seen.until.since(now) / 2);
        lease.map_or(BETWEEN_LIVE, |lease| lease.clamp(BETWEEN, BETWEEN_LIVE))
    }
}

/// Up to half as much again, so that observers do not ask in step.
fn jittered(pause: Duration) -> Duration {
    pause + pause / 2 * (random_u64() >> 48) as u32 / (1 << 16)
}

type Item = Result<Option<Leader>>;

/// A wait for the next change.
type Changing = dyn Future<Output = Result<Option<Seen>>> + Send;

/// A stream of who leads, from [`Election::watch`](crate::Election::watch).
///
/// `Ok(None)` says that nobody leads. An error says why nothing more can be said, for example because the store
/// refuses or the client was shut down, and ends the stream. A store that is not reachable is waited for.
///
/// It is a `Stream` of the crate `futures-core`; [`next`](Self::next) needs no other crate.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Leader, Locks, Watch};
///
/// async fn first_leader(mut watch: Watch) -> tidelock::Result<Option<Leader>> {
///     while let Some(leader) = watch.next().await {
///         if let Some(leader) = leader? {
///             return Ok(Some(leader));
///         }
///     }
///     Ok(None)
/// }
///
/// let election = tidelock::Locks::connect("memory:").await?.election("scheduler");
/// let seen = election.once(|_term| first_leader(election.watch())).await??;
/// assert!(seen.is_some());
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub struct Watch {
    engine: Client,
    sight: Result<Arc<Sight>>,
    /// What was shown last.
    shown: Option<Option<(Token, ClaimId)>>,
    under_way: Option<Pin<Box<Changing>>>,
    ended: bool,
}

impl Watch {
    pub(super) fn new(engine: &Client, sight: Result<Arc<Sight>>) -> Self {
        Self { engine: engine.clone(), sight, shown: None, under_way: None, ended: false }
    }

    /// Waits for the next change, and returns who leads; `None` after an error.
    ///
    /// # Cancel safety
    /// Safe to cancel: no change is missed.
    pub async fn next(&mut self) -> Option<Result<Option<Leader>>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Watch {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        let under_way = this
            .under_way
            .get_or_insert_with(|| Box::pin(changed(this.engine.clone(), this.sight.clone(), this.shown)));
        let changed = ready!(under_way.as_mut().poll(context));
        this.under_way = None;
        Poll::Ready(Some(match changed {
            Ok(seen) => {
                this.shown = Some(seen.as_ref().map(Seen::key));
                Ok(seen.map(|seen| seen.leader))
            }
            Err(error) => {
                this.ended = true;
                Err(error)
            }
        }))
    }
}

/// Waits until another leader is in sight than the one that was shown. Other watches wait while one of them asks the
/// store, so that goes on even if nobody polls this one.
async fn changed(
    engine: Client,
    sight: Result<Arc<Sight>>,
    shown: Option<Option<(Token, ClaimId)>>,
) -> Result<Option<Seen>> {
    // Not the client, whose last value may wait for releases where the program ends.
    engine.attend_to(change(Arc::clone(&engine), sight?, shown)).await
}

async fn change(
    engine: Arc<Engine>,
    sight: Arc<Sight>,
    shown: Option<Option<(Token, ClaimId)>>,
) -> Result<Option<Seen>> {
    loop {
        let (wake, follow, heard) = {
            let mut state = sight.state.lock().await;
            state.refresh(&engine, &sight.name).await?;
            let now = engine.clock().now();
            let current = state.current(now);
            if state.known && shown != Some(current.map(Seen::key)) {
                return Ok(current.cloned());
            }
            // One that was told of already has its time.
            let follow = state.follow.clone().filter(|_| !state.is_told());
            (state.wake(now), follow, state.heard)
        };
        let pause = wake.since(engine.clock().now()).max(Duration::from_millis(1));
        match follow {
            Some(follow) => drop(tokio::time::timeout(pause, follow.changed_since(heard)).await),
            None => tokio::time::sleep(pause).await,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.sight.as_ref().map(|sight| &sight.name);
        f.debug_struct("Watch").field("name", &name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ClientId;

    fn seen(epoch: u64, until: u64) -> Seen {
        let leader = Leader {
            advertised: None,
            label: "x".into(),
            token: Token::new(epoch, 0),
            since: SystemTime::UNIX_EPOCH,
        };
        Seen { leader, id: ClaimId::new(ClientId::from_u64(epoch), 1), until: Moment::from_nanos(until) }
    }

    #[test]
    fn an_earlier_term_is_never_shown_after_a_later_one() {
        let at = Moment::from_nanos(5);
        let epoch = |state: &State| state.current(at).map(|seen| seen.leader.token.epoch());
        let mut state = State::default();
        for (said, shown) in [(Some(2), Some(2)), (Some(1), Some(2)), (None, None), (Some(1), None)] {
            state.learn(said.map(|epoch| seen(epoch, 9)));
            assert_eq!(epoch(&state), shown, "{said:?}");
        }
        state.learn(Some(seen(3, 9)));
        assert_eq!(epoch(&state), Some(3));
    }

    #[test]
    fn a_leader_is_not_shown_beyond_its_lease() {
        let mut state = State::default();
        state.learn(Some(seen(1, 100)));
        assert!(state.current(Moment::from_nanos(99)).is_some());
        assert!(state.current(Moment::from_nanos(100)).is_none());
    }
}

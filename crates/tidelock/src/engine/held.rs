//! The value that a task holds with a lock: dropping it releases the lock.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use super::{
    Engine,
    lease::State,
    leased::LeasedClaim,
    release::{Gives, LetGo},
    runtime,
};
use crate::{
    api::ticket::Ticket,
    clock::Moment,
    error::{Error, LossReason, Result},
    model::name::Name,
    model::token::Token,
};

/// A hold, or one hand of it if several hold together. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Held {
    holding: Holding,
    /// Until when others do not get the lock, even if it is released earlier.
    kept: Option<Moment>,
}

/// One pair of hands on a claim.
struct Hand {
    engine: Arc<Engine>,
    leased: Arc<LeasedClaim>,
    token: Token,
    grip: AtomicU8,
}

/// The hand holds the claim, as far as it depends on the hand.
const HOLDING: u8 = 0;
/// The hand let go: the claim may be in other hands now, and its state is no longer ours.
const RELEASED: u8 = 1;
/// The claim was lost before the hand let go.
const LOST: u8 = 2;

impl Held {
    pub(super) fn new(engine: &Arc<Engine>, leased: Arc<LeasedClaim>, epoch: u64, hand_off: u32) -> Self {
        let token = engine.flaws.token(Token::new(epoch, hand_off), || engine.next_serial());
        let engine = Arc::clone(engine);
        let hand = Hand { engine, leased, token, grip: AtomicU8::new(HOLDING) };
        Self { holding: Holding(Arc::new(hand)), kept: None }
    }

    /// Keeps others out for at least this long from the grant on, or from when it became known here.
    pub(crate) fn kept_for(mut self, time: Option<Duration>) -> Self {
        self.kept = time.and_then(|time| {
            let (_, known) = self.hand().leased.grant()?;
            Some(known + time)
        });
        self
    }

    fn hand(&self) -> &Hand {
        &self.holding.0
    }

    /// Whether its lease ended, or a shutdown took it back, before anybody could use it.
    pub(super) fn came_too_late(&self) -> bool {
        matches!(self.hand().state(), State::Lost(LossReason::Expired | LossReason::Closed) | State::Ended)
    }

    /// Until when others have to be kept out, if that is not yet the past.
    fn kept(&self) -> Option<Moment> {
        self.kept.filter(|until| self.hand().engine.clock.now() < *until)
    }

    /// Forgets the hold without releasing it: another task has it.
    pub(super) fn defuse(self) {
        self.hand().grip.store(RELEASED, Ordering::Release);
    }

    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// Leaves the lock to the holder of its ticket.
    pub(crate) fn leave_behind(self) -> Result<Ticket> {
        let Hand { leased, token, .. } = self.hand();
        if !leased.claim.detached {
            return Err(Error::not_detached(&leased.claim.name));
        }
        self.hand().leave_behind().map(|()| Ticket::new(&leased.claim, *token))
    }

    /// Releases it and waits until the store or the next task of this process has it.
    pub(crate) async fn release(self) -> Result<()> {
        let hand = self.hand();
        let Hand { engine, leased, .. } = hand;
        if let Some(until) = self.kept() {
            hand.leave_behind()?;
            let kept = engine.keep_until(leased, until);
            return kept.await.unwrap_or_else(|_| Err(Error::runtime_ended(Some(&leased.claim.name))));
        }
        match hand.let_go() {
            LetGo::Kept => Ok(()),
            LetGo::Lost(reason) => Err(engine.loss_of(leased, reason)),
            LetGo::Leave => engine.give_back(leased).await,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let hand = self.hand();
        if hand.grip.load(Ordering::Acquire) != HOLDING {
            return;
        }
        let leaving = if let Some(until) = self.kept() {
            hand.leave_behind().ok().map(|()| hand.engine.keep_until(&hand.leased, until))
        } else if matches!(hand.let_go(), LetGo::Leave) {
            hand.engine.give_back_later(Arc::clone(&hand.leased), Gives::Hold)
        } else {
            None
        };
        if let Some(leaving) = leaving {
            hand.engine.wait_for_release(leaving);
        }
    }
}

impl Hand {
    fn let_go(&self) -> LetGo {
        let after = self.engine.let_go(&self.leased);
        let grip = if matches!(after, LetGo::Lost(_)) { LOST } else { RELEASED };
        // Before looking whether anybody listens, as a listener says so before it looks.
        self.grip.store(grip, Ordering::SeqCst);
        self.leased.tell();
        after
    }

    /// Lets go of a claim that stays in the store.
    fn leave_behind(&self) -> Result<()> {
        let left = self.engine.leave_behind(&self.leased);
        self.grip.store(if left.is_ok() { RELEASED } else { LOST }, Ordering::SeqCst);
        self.leased.tell();
        left
    }

    fn is_released(&self) -> bool {
        self.grip.load(Ordering::SeqCst) == RELEASED
    }

    fn state(&self) -> State {
        if self.is_released() {
            return State::Ended;
        }
        self.engine.flaws.seen_state(self.leased.state(self.engine.clock.now()))
    }

    /// Resolves when the lease has expired by the clock alone, in case no task of the engine runs to say so.
    async fn expired(&self) -> LossReason {
        loop {
            if let State::Lost(reason) = self.state() {
                return reason;
            }
            // Shortly, as timers stop while the machine is suspended.
            let left = self.valid_for().min(Duration::from_secs(1));
            runtime::background_sleep(left.max(Duration::from_millis(1))).await;
        }
    }

    fn valid_for(&self) -> Duration {
        match self.state() {
            State::Held | State::Uncertain => self.leased.deadline().since(self.engine.clock.now()),
            State::Lost(_) | State::Ended => Duration::ZERO,
        }
    }
}

/// The state of a held lock, for its holder and for the work under it.
///
/// It cannot release the lock and does not keep it held; clones show the same lock.
#[derive(Clone)]
pub struct Holding(Arc<Hand>);

impl Holding {
    /// Returns the name of the lock.
    pub fn name(&self) -> &Name {
        &self.0.leased.claim.name
    }

    /// Returns the fencing token, which is larger than that of every earlier holder.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Returns the number that other programs compare as their fencing token, if the store grows one for them:
    /// on Redis with `mode=redisson&fenced=1`, the token of Redisson's `RFencedLock`.
    ///
    /// It is comparable with the tokens of those programs, and not with [`token`](Self::token). An owner that
    /// re-enters a lock keeps its number.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// assert_eq!(guard.holding().foreign_token(), None); // no other programs here
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn foreign_token(&self) -> Option<u64> {
        self.0.leased.grant().and_then(|(grant, _)| grant.foreign)
    }

    /// Returns whether the lock is held now. Reads the clock on each call.
    pub fn is_held(&self) -> bool {
        matches!(self.state(), LockState::Held | LockState::Uncertain)
    }

    /// Returns the state of the lock, including how certain it is.
    pub fn state(&self) -> LockState {
        match self.0.state() {
            State::Held => LockState::Held,
            State::Uncertain => LockState::Uncertain,
            State::Lost(_) => LockState::Lost,
            State::Ended => LockState::Released,
        }
    }

    /// Returns how long the lock stays valid if no renewal succeeds; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Resolves with the reason when the lock is lost; never while it is held or after it was released.
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
    /// Safe to cancel: you can call it again.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        let over = self.over();
        async move {
            match over.await {
                Some(why) => why,
                // Given back: there is nothing left to lose.
                None => std::future::pending().await,
            }
        }
    }

    /// Resolves with the reason when the lock is lost, or with `None` when it was released.
    pub(crate) fn over(&self) -> impl Future<Output = Option<Error>> + Send + 'static + use<> {
        let hand = Arc::clone(&self.0);
        async move {
            let Hand { engine, leased, .. } = &*hand;
            let told = leased.lost(|| hand.is_released(), || engine.clock.now());
            let reason = if engine.tasks.may_stand_still() {
                tokio::select! {
                    reason = told => reason?,
                    reason = hand.expired() => reason,
                }
            } else {
                told.await?
            };
            Some(engine.loss_of(leased, reason))
        }
    }
}

impl Holding {
    /// Prints what identifies the lock in one line, under the name of the type that the caller sees.
    pub(crate) fn show(&self, kind: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(kind)
            .field("name", self.name())
            .field("token", &format_args!("{}", self.token()))
            .field("state", &self.state())
            .finish()
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show("Holding", f)
    }
}

/// How certain a holder can be that it holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// The store confirmed it, and the lease has not expired.
    Held,
    /// The last renewal was not answered. The lease has not expired; renewal is retried until it does.
    Uncertain,
    /// The lock is no longer held: stop work that needs it.
    Lost,
    /// The lock was released.
    Released,
}

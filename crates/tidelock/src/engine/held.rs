//! What a task that holds has in its hands: dropping it gives the lock back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use super::{Engine, lease::State, leased::LeasedClaim, release::LetGo};
use crate::{
    defect::Defect,
    error::{Error, LossReason, Result},
    name::Name,
    ticket::Ticket,
    token::Token,
};

/// A hold, or one hand of it where several hold together. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Held(Holding);

/// One pair of hands on a claim.
#[derive(Debug)]
struct Hand {
    engine: Arc<Engine>,
    leased: Arc<LeasedClaim>,
    token: Token,
    grip: AtomicU8,
}

/// The hand holds the claim, as far as it depends on the hand.
const HOLDING: u8 = 0;
/// The hand let go: the claim may be in other hands now, and its state is not ours any more.
const RELEASED: u8 = 1;
/// The claim was lost before the hand let go.
const LOST: u8 = 2;

impl Held {
    pub(super) fn new(engine: &Arc<Engine>, leased: Arc<LeasedClaim>, epoch: u64, hand_off: u32) -> Self {
        let token = if engine.defects.has(Defect::TokenFromCounter) {
            Token::new(engine.next_serial(), 0)
        } else {
            Token::new(epoch, hand_off)
        };
        let engine = Arc::clone(engine);
        Self(Holding(Arc::new(Hand { engine, leased, token, grip: AtomicU8::new(HOLDING) })))
    }

    /// Forgets about the hold without giving it back: somebody else has it.
    pub(super) fn defuse(self) {
        self.0.0.grip.store(RELEASED, Ordering::Release);
    }

    pub(crate) fn holding(&self) -> &Holding {
        &self.0
    }

    /// Leaves it to whoever has its ticket.
    pub(crate) fn leave_behind(self) -> Result<Ticket> {
        let hand = &self.0.0;
        let Hand { engine, leased, token, .. } = &**hand;
        if !leased.claim.detached {
            return Err(Error::not_detached(&leased.claim.name));
        }
        let left = engine.leave_behind(leased);
        hand.grip.store(if left.is_ok() { RELEASED } else { LOST }, Ordering::SeqCst);
        leased.tell();
        left.map(|()| Ticket::new(&leased.claim, *token))
    }

    /// Gives it back and waits until the store or the next task of this process has it.
    pub(crate) async fn release(self) -> Result<()> {
        let hand = &self.0.0;
        let Hand { engine, leased, .. } = &**hand;
        match hand.let_go() {
            LetGo::Kept => Ok(()),
            LetGo::Lost(reason) => Err(engine.loss_of(leased, reason)),
            LetGo::Leave => engine.give_back(leased).await,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let hand = &*self.0.0;
        if hand.grip.load(Ordering::Acquire) == HOLDING && matches!(hand.let_go(), LetGo::Leave) {
            hand.engine.give_back_later(Arc::clone(&hand.leased));
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

    fn is_released(&self) -> bool {
        self.grip.load(Ordering::SeqCst) == RELEASED
    }

    fn state(&self) -> State {
        if self.is_released() {
            return State::Ended;
        }
        let state = self.leased.state(self.engine.clock.now());
        if self.engine.defects.has(Defect::DeadlineIgnored) && state == State::Lost(LossReason::Expired) {
            return State::Held;
        }
        state
    }

    fn valid_for(&self) -> Duration {
        match self.state() {
            State::Held | State::Uncertain => self.leased.deadline().since(self.engine.clock.now()),
            State::Lost(_) | State::Ended => Duration::ZERO,
        }
    }
}

/// What can be known about a lock that is held, by whoever holds it and by the work under it.
#[derive(Clone, Debug)]
pub struct Holding(Arc<Hand>);

impl Holding {
    /// The lock's name.
    pub fn name(&self) -> &Name {
        &self.0.leased.claim.name
    }

    /// The fencing token: larger than that of every earlier holder.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Whether it is held now. Reads the clock each time.
    pub fn is_held(&self) -> bool {
        matches!(self.state(), LockState::Held | LockState::Uncertain)
    }

    /// How sure that is.
    pub fn state(&self) -> LockState {
        match self.0.state() {
            State::Held => LockState::Held,
            State::Uncertain => LockState::Uncertain,
            State::Lost(_) => LockState::Lost,
            State::Ended => LockState::Released,
        }
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
        let over = self.over();
        async move {
            match over.await {
                Some(why) => why,
                // Given back: there is nothing left to lose.
                None => std::future::pending().await,
            }
        }
    }

    /// Resolves with the reason when the lock is lost, or with nothing when it was given back.
    pub(crate) fn over(&self) -> impl Future<Output = Option<Error>> + Send + 'static + use<> {
        let hand = Arc::clone(&self.0);
        async move {
            let Hand { engine, leased, .. } = &*hand;
            let reason = leased.lost(|| hand.is_released(), || engine.clock.now()).await?;
            Some(engine.loss_of(leased, reason))
        }
    }
}

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

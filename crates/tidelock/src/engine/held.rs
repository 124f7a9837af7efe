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
    token::Token,
};

/// A hold, or one hand of it where several hold together. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Held(Arc<Hand>);

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
    pub(super) fn new(engine: &Arc<Engine>, leased: &Arc<LeasedClaim>, epoch: u64, hand_off: u32) -> Self {
        let token = if engine.defects.has(Defect::TokenFromCounter) {
            Token::new(engine.next_serial(), 0)
        } else {
            Token::new(epoch, hand_off)
        };
        let (engine, leased) = (Arc::clone(engine), Arc::clone(leased));
        Self(Arc::new(Hand { engine, leased, token, grip: AtomicU8::new(HOLDING) }))
    }

    /// Forgets about the hold without giving it back: somebody else has it.
    pub(super) fn defuse(self) {
        self.0.grip.store(RELEASED, Ordering::Release);
    }

    /// A look at the hold that outlives it.
    pub(crate) fn view(&self) -> HeldView {
        HeldView(Arc::clone(&self.0))
    }

    pub(crate) fn name(&self) -> &Name {
        &self.0.leased.claim.name
    }

    pub(crate) fn token(&self) -> Token {
        self.0.token
    }

    pub(crate) fn state(&self) -> State {
        self.0.state()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Gives it back and waits until the store or the next task of this process has it.
    pub(crate) async fn release(self) -> Result<()> {
        let Hand { engine, leased, .. } = &*self.0;
        match self.0.let_go() {
            LetGo::Kept => Ok(()),
            LetGo::Lost(reason) => Err(engine.loss_of(leased, reason)),
            LetGo::Leave => engine.give_back(leased).await,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let hand = &*self.0;
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

/// What can be known about a hold without holding it.
#[derive(Clone, Debug)]
pub(crate) struct HeldView(Arc<Hand>);

impl HeldView {
    pub(crate) fn name(&self) -> &Name {
        &self.0.leased.claim.name
    }

    pub(crate) fn token(&self) -> Token {
        self.0.token
    }

    pub(crate) fn state(&self) -> State {
        self.0.state()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Resolves when the lock is lost, or with nothing when it was given back.
    pub(crate) async fn lost(self) -> Option<Error> {
        let Hand { engine, leased, .. } = &*self.0;
        let reason = leased.lost(|| self.0.is_released(), || engine.clock.now()).await?;
        Some(engine.loss_of(leased, reason))
    }
}

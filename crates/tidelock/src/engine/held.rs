//! What a task that holds has in its hands: dropping it gives the lock back.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
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

/// A hold, or one hand of it where several hold together.
#[derive(Debug)]
pub(crate) struct Held {
    engine: Arc<Engine>,
    leased: Arc<LeasedClaim>,
    token: Token,
    /// Made when somebody else looks on: whether this hand was released.
    released: OnceLock<Arc<AtomicBool>>,
    armed: bool,
}

impl Held {
    pub(super) fn new(engine: &Arc<Engine>, leased: &Arc<LeasedClaim>, epoch: u64, hand_off: u32) -> Self {
        let token = if engine.defects.has(Defect::TokenFromCounter) {
            Token::new(engine.next_serial(), 0)
        } else {
            Token::new(epoch, hand_off)
        };
        let (engine, leased) = (Arc::clone(engine), Arc::clone(leased));
        Self { engine, leased, token, released: OnceLock::new(), armed: true }
    }

    /// Forgets about the hold without giving it back: somebody else has it.
    pub(super) fn defuse(mut self) {
        self.armed = false;
    }

    pub(crate) fn name(&self) -> &Name {
        &self.leased.claim.name
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn state(&self) -> State {
        self.engine.state_of(&self.leased)
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.engine.valid_for(&self.leased, self.state())
    }

    /// A look at the hold that outlives it.
    pub(crate) fn view(&self) -> HeldView {
        HeldView {
            engine: Arc::clone(&self.engine),
            leased: Arc::clone(&self.leased),
            token: self.token,
            released: Arc::clone(self.released.get_or_init(Arc::default)),
        }
    }

    /// Gives it back and waits until the store or the next task of this process has it.
    pub(crate) async fn release(mut self) -> Result<()> {
        match self.let_go() {
            LetGo::Kept => Ok(()),
            LetGo::Lost(reason) => Err(self.engine.loss_of(&self.leased, reason)),
            LetGo::Leave => self.engine.give_back(&self.leased).await,
        }
    }

    fn let_go(&mut self) -> LetGo {
        self.armed = false;
        let after = self.engine.let_go(&self.leased);
        if let (Some(released), LetGo::Kept | LetGo::Leave) = (self.released.get(), &after) {
            released.store(true, Ordering::Release);
            self.leased.tell();
        }
        after
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.armed && matches!(self.let_go(), LetGo::Leave) {
            self.engine.give_back_later(Arc::clone(&self.leased));
        }
    }
}

/// What can be known about a hold without holding it.
#[derive(Clone, Debug)]
pub(crate) struct HeldView {
    engine: Arc<Engine>,
    leased: Arc<LeasedClaim>,
    token: Token,
    /// The claim may be in other hands then: its state is not ours any more.
    released: Arc<AtomicBool>,
}

impl HeldView {
    pub(crate) fn name(&self) -> &Name {
        &self.leased.claim.name
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> State {
        if self.is_released() { State::Ended } else { self.engine.state_of(&self.leased) }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.engine.valid_for(&self.leased, self.state())
    }

    /// Resolves when the lock is lost, or with nothing when it was given back.
    pub(crate) async fn lost(self) -> Option<Error> {
        let reason = self.leased.lost(|| self.is_released(), || self.engine.clock.now()).await?;
        Some(self.engine.loss_of(&self.leased, reason))
    }
}

impl Engine {
    fn state_of(&self, leased: &LeasedClaim) -> State {
        let state = leased.state(self.clock.now());
        if self.defects.has(Defect::DeadlineIgnored) && state == State::Lost(LossReason::Expired) {
            return State::Held;
        }
        state
    }

    fn valid_for(&self, leased: &LeasedClaim, state: State) -> Duration {
        match state {
            State::Held | State::Uncertain => leased.deadline().since(self.clock.now()),
            State::Lost(_) | State::Ended => Duration::ZERO,
        }
    }
}

//! Takes and ends of orders that come while a call is under way, and go together in the next: one call, one commit.
//!
//! Where each commit waits for a disk, orders one by one are as slow as the disk is, and a call costs more than what it does. Nothing is waited for here: what comes first
//! goes alone and at once, and whatever came until it was answered goes next.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    client::PATIENCE,
    store::{Answer, End, OrderId, SegmentId, Step, TransferId},
};
use crate::{
    backend::{Call, Failure, FailureKind},
    backends,
};

/// How many go together: a segment is locked for as long as all of them take.
const MOST: usize = 128;

/// A take or an end, as a row of a table.
#[derive(Clone, Debug)]
pub(crate) struct OrderStep {
    pub(crate) segment: SegmentId,
    pub(crate) sale: u64,
    pub(crate) fence: u64,
    pub(crate) order: OrderId,
    /// A letter: `t` take, `g` give back, `c` confirm, `v` void.
    pub(crate) how: &'static str,
    /// Of a take; so are the others.
    pub(crate) n: u64,
    pub(crate) hold: Option<Duration>,
    pub(crate) brings: Option<(TransferId, u64)>,
}

impl OrderStep {
    /// Nothing for steps that are not on an order.
    fn new(segment: &SegmentId, sale: u64, step: &Step) -> Option<Self> {
        let (fence, order, how, n, hold, brings) = match step {
            Step::Take { fence, order, n, hold, brings } => (fence, order, "t", *n, *hold, *brings),
            Step::End { fence, order, how: End::GiveBack } => (fence, order, "g", 0, None, None),
            Step::End { fence, order, how: End::Confirm } => (fence, order, "c", 0, None, None),
            Step::End { fence, order, how: End::Void } => (fence, order, "v", 0, None, None),
            _ => return None,
        };
        Some(Self {
            segment: segment.clone(),
            sale,
            fence: *fence,
            order: order.clone(),
            how,
            n,
            hold,
            brings,
        })
    }
}

/// How a store makes some steps in one transaction: an answer for each, in order.
type Ask = dyn Fn(&[OrderStep]) -> Call<Vec<Answer>> + Send + Sync;

/// The steps on orders of one client.
#[derive(Clone, Debug)]
pub(crate) struct Together(Arc<Inner>);

struct Inner {
    ask: Box<Ask>,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Queued>,
    is_served: bool,
}

/// A step, and who waits for its answer.
struct Queued {
    step: OrderStep,
    tell: oneshot::Sender<Result<Answer, Failure>>,
}

impl Together {
    /// Steps come to `ask` in the order of their segments. All clients keep to that one, so that of two transactions
    /// neither waits for a segment that the other has while it has one that the other waits for.
    pub(crate) fn new(ask: impl Fn(&[OrderStep]) -> Call<Vec<Answer>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { ask: Box::new(ask), line: Mutex::default() }))
    }

    /// Whether somebody waits, or may be about to.
    #[cfg(feature = "redis")]
    pub(crate) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Makes a take or an end, with others if there are any.
    pub(crate) fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        let Some(step) = OrderStep::new(segment, sale, step) else {
            return Call::now(Err(Failure::denied(format!("{step:?} is not a step on an order"))));
        };
        let inner = Arc::clone(&self.0);
        Call::later(async move {
            let (tell, told) = oneshot::channel();
            let is_served = {
                let mut line = inner.line();
                line.waiting.push_back(Queued { step, tell });
                mem::replace(&mut line.is_served, true)
            };
            if !is_served {
                // A task of its own: the buyer that came first may give up, and the others must not notice.
                backends::shared::attend(inner.serve());
            }
            told.await.unwrap_or_else(|_| Err(Failure::unknown("the runtime of this client has ended")))
        })
    }
}

impl Inner {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until nobody waits.
    async fn serve(self: Arc<Self>) {
        let mut serving = Serving { inner: &self, is_done: false };
        loop {
            let batch = self.next();
            if batch.is_empty() {
                serving.is_done = true;
                return;
            }
            self.ask(batch).await;
            // A buyer that has just been answered and is ready to ask again comes before the next call.
            tokio::task::yield_now().await;
        }
    }

    /// Those who wait, as many as may go together. If there is nobody, nobody serves any more.
    fn next(&self) -> Vec<Queued> {
        let mut line = self.line();
        let mut some = Vec::new();
        while some.len() < MOST
            && let Some(one) = line.waiting.pop_front()
        {
            // Nobody wants the answers of those who gave up, and nothing of theirs was sent.
            if !one.tell.is_closed() {
                some.push(one);
            }
        }
        line.is_served = !some.is_empty();
        some
    }

    async fn ask(&self, mut batch: Vec<Queued>) {
        batch.sort_by(|one, other| one.step.segment.cmp(&other.step.segment));
        let steps: Vec<_> = batch.iter().map(|one| one.step.clone()).collect();
        match self.answers(&steps).await {
            Ok(answers) => tell(batch, answers.into_iter().map(Ok)),
            // It changed nothing, because of one of them maybe: that one must not take the others along.
            Err(failure) if failure.kind == FailureKind::Denied && batch.len() > 1 => {
                for one in batch {
                    let answer = self.answers(std::slice::from_ref(&one.step)).await;
                    tell(vec![one], [answer.and_then(|mut answers| answers.pop().ok_or_else(too_few))]);
                }
            }
            Err(failure) => tell(batch, std::iter::repeat_with(|| Err(failure.clone()))),
        }
    }

    async fn answers(&self, steps: &[OrderStep]) -> Result<Vec<Answer>, Failure> {
        // Nobody waits for longer.
        let answers = tokio::time::timeout(PATIENCE, (self.ask)(steps)).await;
        let answers =
            answers.unwrap_or_else(|_| Err(Failure::unknown(format!("no answer within {PATIENCE:?}"))))?;
        if answers.len() == steps.len() { Ok(answers) } else { Err(too_few()) }
    }
}

/// A buyer that gave up is not told.
fn tell(batch: Vec<Queued>, answers: impl IntoIterator<Item = Result<Answer, Failure>>) {
    for (one, answer) in batch.into_iter().zip(answers) {
        let _ = one.tell.send(answer);
    }
}

fn too_few() -> Failure {
    Failure::unknown("there are not as many answers as questions: is the schema of another version?")
}

/// The task that serves may end with its runtime: then those who wait ask again, and one of them serves.
struct Serving<'a> {
    inner: &'a Inner,
    is_done: bool,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            *self.inner.line() = Line::default();
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps", self.line().waiting.len())
    }
}

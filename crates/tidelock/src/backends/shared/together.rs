//! Questions that arrive while another one is under way, and go together in the next call.
//!
//! A call costs more than what it does: a round trip, a statement, a commit. Nothing is delayed to save one. A
//! question that finds nothing under way goes alone and at once, in the future of its caller. All that arrive until
//! it is answered go in one call, and so on. `stock/together.rs` does the same for orders, which have no way to go alone.
//!
//! What is here knows nothing of claims. The store says what a question is, how several are asked, and what one that
//! goes alone does. A batch may leave questions open: their callers then ask alone.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{attend::attend_on, mutex::lock};
use crate::backend::{Call, Failure, FailureKind};

/// How many questions go together: the rows of all of them are locked until the last is done.
const MOST: usize = 128;

/// How long a question waits for the call before it. A call that takes longer waits for somebody else, or for a network,
/// and the next one goes out beside it.
const LONGEST: Duration = Duration::from_millis(100);

/// What can be asked: an enter or a leave, as the store has them.
pub(crate) trait Question: Send + 'static {}

impl<Q: Send + 'static> Question for Q {}

/// What a question is answered when it went with others.
pub(crate) trait Answer: Clone + Send + Unpin + 'static {}

impl<A: Clone + Send + Unpin + 'static> Answer for A {}

/// How a store asks several questions in one call: an answer for each, in the same order. Nothing for those that have
/// to be asked alone.
type Ask<Q, A> = dyn Fn(Vec<Q>) -> Call<Vec<Option<A>>> + Send + Sync;

/// The questions of one client.
pub(crate) struct Together<Q: Question, A: Answer>(Arc<Inner<Q, A>>);

struct Inner<Q: Question, A: Answer> {
    ask: Box<Ask<Q, A>>,
    /// A call may end where there is no runtime.
    runtime: Handle,
    line: Mutex<Line<Q, A>>,
}

struct Line<Q: Question, A: Answer> {
    waiting: VecDeque<Queued<Q, A>>,
    /// The number of the last question.
    last: u64,
    /// The number of the call that the others wait for, if one is under way.
    under_way: Option<u64>,
    /// How many calls were made.
    calls: u64,
}

/// A question that waits for the call before it.
struct Queued<Q: Question, A: Answer> {
    number: u64,
    question: Q,
    tell: oneshot::Sender<Told<Q, A>>,
}

/// What a question that waited is told.
enum Told<Q: Question, A: Answer> {
    /// It is the only one: it goes alone.
    Alone(Turn<Q, A>),
    /// It went with others, and this is the answer; nothing if it has to be asked alone.
    Answered(Result<Option<A>, Failure>),
}

/// What becomes of a question.
#[derive(Debug)]
pub(crate) enum Joined<Q: Question, A: Answer> {
    /// It goes alone. Those that arrive while this is kept wait for it.
    Alone(Turn<Q, A>),
    /// It went with others, and was answered.
    Answered(A),
    /// It went with others, and the call did not answer it: it has to be asked alone.
    Open,
}

impl<Q: Question, A: Answer> Together<Q, A> {
    /// Must be called within the runtime of the client.
    pub(crate) fn new(ask: impl Fn(Vec<Q>) -> Call<Vec<Option<A>>> + Send + Sync + 'static) -> Self {
        let line = Line { waiting: VecDeque::new(), last: 0, under_way: None, calls: 0 };
        Self(Arc::new(Inner { ask: Box::new(ask), runtime: Handle::current(), line: Mutex::new(line) }))
    }

    /// Asks together with others, if a call is under way; else it is the caller's turn.
    ///
    /// `may_arrive` is true from when the question is part of a call, also if this is dropped then.
    ///
    /// # Errors
    /// What the call failed with: the same for all that went in it.
    pub(crate) async fn join(
        &self,
        question: impl FnOnce() -> Q,
        may_arrive: &mut bool,
    ) -> Result<Joined<Q, A>, Failure> {
        let (number, mut told) = {
            let mut line = self.0.line();
            if line.under_way.is_none() {
                return Ok(Joined::Alone(self.0.start(&mut line)));
            }
            let (tell, told) = oneshot::channel();
            line.last += 1;
            let number = line.last;
            line.waiting.push_back(Queued { number, question: question(), tell });
            (number, told)
        };
        let mut place = Place { inner: &self.0, number, may_arrive, is_left: false };
        *place.may_arrive = true;
        let told = loop {
            match tokio::time::timeout(LONGEST, &mut told).await {
                Ok(told) => break told,
                Err(_) if self.0.go_on_for(number) => {}
                Err(_) => break told.await,
            }
        };
        place.is_left = true;
        match told {
            Ok(Told::Alone(turn)) => {
                *place.may_arrive = false;
                Ok(Joined::Alone(turn))
            }
            Ok(Told::Answered(Ok(Some(answer)))) => Ok(Joined::Answered(answer)),
            Ok(Told::Answered(Ok(None))) => Ok(Joined::Open),
            Ok(Told::Answered(Err(failure))) => Err(failure),
            Err(_) => Err(Failure::unknown("the runtime of this client has ended")),
        }
    }
}

impl<Q: Question, A: Answer> Inner<Q, A> {
    fn line(&self) -> MutexGuard<'_, Line<Q, A>> {
        lock(&self.line)
    }

    /// A call goes out, and the others wait for it.
    fn start(self: &Arc<Self>, line: &mut Line<Q, A>) -> Turn<Q, A> {
        line.calls += 1;
        line.under_way = Some(line.calls);
        Turn { inner: Arc::clone(self), number: line.calls }
    }

    /// A question has waited for long: the next call goes out beside the one under way. Says whether it still waits.
    fn go_on_for(self: &Arc<Self>, number: u64) -> bool {
        let is_waiting = |line: &Line<Q, A>| line.waiting.front().is_some_and(|first| first.number <= number);
        let under_way = {
            let line = self.line();
            if !is_waiting(&line) {
                return false;
            }
            line.under_way
        };
        if let Some(under_way) = under_way {
            self.after(under_way);
        }
        is_waiting(&self.line())
    }

    /// The call with this number has ended, or is not waited for any more: those that wait go next.
    fn after(self: &Arc<Self>, number: u64) {
        let mut line = self.line();
        if line.under_way != Some(number) {
            return;
        }
        line.under_way = None;
        let mut batch = Vec::new();
        while batch.len() < MOST
            && let Some(one) = line.waiting.pop_front()
        {
            // Nobody wants the answer of a caller that gave up, and nothing of it was sent.
            if !one.tell.is_closed() {
                batch.push(one);
            }
        }
        if batch.is_empty() {
            return;
        }
        let turn = self.start(&mut line);
        drop(line);
        if batch.len() > 1 {
            // A task of its own: the caller that came first may give up, and the others must not notice.
            attend_on(&self.runtime, turn.serve(batch));
        } else if let Some(one) = batch.pop() {
            // If it has just given up, its turn ends here.
            drop(one.tell.send(Told::Alone(turn)));
        }
    }
}

/// A call under way. When it is dropped, the questions that arrived meanwhile go next.
pub(crate) struct Turn<Q: Question, A: Answer> {
    inner: Arc<Inner<Q, A>>,
    number: u64,
}

impl<Q: Question, A: Answer> Turn<Q, A> {
    /// Asks a batch and tells those who wait for it.
    async fn serve(self, batch: Vec<Queued<Q, A>>) {
        let (questions, mut tells): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|one| (one.question, one.tell)).unzip();
        let nobody_waits = async {
            for tell in &mut tells {
                tell.closed().await;
            }
        };
        let count = questions.len();
        let answers = tokio::select! {
            biased;
            answers = (self.inner.ask)(questions) => answers,
            // Each caller has a limit of its own. They have all noted that the call may still arrive.
            () = nobody_waits => return,
        };
        let answers = match answers {
            Ok(answers) if answers.len() == count => answers.into_iter().map(Ok).collect(),
            Ok(_) => vec![Err(Failure::unknown("there are not as many answers as questions")); count],
            // It changed nothing, because of one of them maybe: that one must not take the others along.
            Err(failure) if failure.kind == FailureKind::Denied => vec![Ok(None); count],
            Err(failure) => vec![Err(failure); count],
        };
        for (tell, answer) in tells.into_iter().zip::<Vec<_>>(answers) {
            // A caller that gave up is not told.
            let _ = tell.send(Told::Answered(answer));
        }
        // A caller that has just been answered and is ready to ask again comes before the next call.
        tokio::task::yield_now().await;
    }
}

impl<Q: Question, A: Answer> Drop for Turn<Q, A> {
    fn drop(&mut self) {
        self.inner.after(self.number);
    }
}

/// The place of a question among those that wait. Dropped there, nothing of it was sent.
struct Place<'a, Q: Question, A: Answer> {
    inner: &'a Inner<Q, A>,
    number: u64,
    may_arrive: &'a mut bool,
    is_left: bool,
}

impl<Q: Question, A: Answer> Drop for Place<'_, Q, A> {
    fn drop(&mut self) {
        if !self.is_left {
            let mut line = lock(&self.inner.line);
            let index = line.waiting.iter().position(|one| one.number == self.number);
            // A question that is not there any more is part of a call.
            *self.may_arrive = index.and_then(|index| line.waiting.remove(index)).is_none();
        }
    }
}

impl<Q: Question, A: Answer> fmt::Debug for Together<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} questions wait", lock(&self.0.line).waiting.len())
    }
}

impl<Q: Question, A: Answer> fmt::Debug for Turn<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};

    use super::*;

    /// Calls that are told as they go out, and answered when the test says so.
    struct Calls {
        together: Arc<Together<u32, u32>>,
        sent: mpsc::UnboundedReceiver<Vec<u32>>,
        answers: Arc<Semaphore>,
    }

    type Answers = Result<Vec<Option<u32>>, Failure>;

    fn calls(answer: fn(Vec<u32>) -> Answers) -> Calls {
        let ((send, sent), answers) = (mpsc::unbounded_channel(), Arc::new(Semaphore::new(0)));
        let permits = Arc::clone(&answers);
        let together = Together::new(move |questions: Vec<u32>| {
            let permits = Arc::clone(&permits);
            send.send(questions.clone()).unwrap();
            Call::later(async move {
                permits.acquire().await.unwrap().forget();
                answer(questions)
            })
        });
        Calls { together: Arc::new(together), sent, answers }
    }

    /// Even questions are answered with themselves, odd ones stay open.
    fn halves(questions: Vec<u32>) -> Answers {
        Ok(questions.into_iter().map(|question| (question % 2 == 0).then_some(question)).collect())
    }

    type Asked = tokio::task::JoinHandle<(Result<Joined<u32, u32>, Failure>, bool)>;

    impl Calls {
        #[allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
        fn ask(&self, question: u32) -> Asked {
            let together = Arc::clone(&self.together);
            tokio::spawn(async move {
                let mut may_arrive = false;
                let joined = together.join(|| question, &mut may_arrive).await;
                (joined, may_arrive)
            })
        }

        /// The turn of a call that goes alone, and those that wait for it.
        async fn behind(&self, questions: &[u32]) -> (Turn<u32, u32>, Vec<Asked>) {
            let Ok(Joined::Alone(turn)) = self.together.join(|| 0, &mut false).await else {
                panic!("nothing is under way")
            };
            let asked = questions.iter().map(|question| self.ask(*question)).collect();
            settle().await;
            (turn, asked)
        }
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_goes_alone_at_once_and_those_that_arrive_meanwhile_go_together() {
        let mut calls = calls(halves);
        let (turn, asked) = calls.behind(&[1, 2, 3, 4]).await;
        assert!(calls.sent.try_recv().is_err(), "they wait for the one under way");
        drop(turn);
        assert_eq!(calls.sent.recv().await.unwrap(), [1, 2, 3, 4]);
        // The next one waits for them in turn, and is then the only one.
        let last = calls.ask(5);
        calls.answers.add_permits(1);
        for (question, asked) in (1..).zip(asked) {
            match (question % 2, asked.await.unwrap().0.unwrap()) {
                (0, Joined::Answered(answer)) => assert_eq!(answer, question),
                (1, Joined::Open) => {}
                (_, other) => panic!("{question}: {other:?}"),
            }
        }
        let (joined, may_arrive) = last.await.unwrap();
        assert!(matches!(joined, Ok(Joined::Alone(_))) && !may_arrive, "{joined:?}");
        assert!(calls.sent.try_recv().is_err(), "it was not sent by anybody else");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_unknown_of_a_call_is_unknown_of_each_and_what_was_refused_is_asked_alone() {
        let mut lost = calls(|_| Err(Failure::unknown("lost")));
        let (turn, asked) = lost.behind(&[1, 2]).await;
        drop(turn);
        lost.sent.recv().await.unwrap();
        lost.answers.add_permits(1);
        for asked in asked {
            let (joined, may_arrive) = asked.await.unwrap();
            assert!(joined.is_err_and(|failure| failure.kind == FailureKind::Unknown) && may_arrive);
        }
        let denied = calls(|_| Err(Failure::denied("one of them is too long")));
        let (turn, asked) = denied.behind(&[1, 2]).await;
        denied.answers.add_permits(1);
        drop(turn);
        for asked in asked {
            assert!(matches!(asked.await.unwrap().0, Ok(Joined::Open)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_takes_only_its_own_question_along() {
        let mut calls = calls(halves);
        let (turn, asked) = calls.behind(&[2]).await;
        // Before it is sent: nothing of it arrives.
        let mut may_arrive = false;
        let gave_up = calls.together.join(|| 4, &mut may_arrive);
        assert!(tokio::time::timeout(Duration::from_millis(1), gave_up).await.is_err() && !may_arrive);
        let more = calls.ask(6);
        settle().await;
        drop(turn);
        assert_eq!(calls.sent.recv().await.unwrap(), [2, 6]);
        // And later: the call goes on for the other one.
        for asked in &asked {
            asked.abort();
        }
        calls.answers.add_permits(1);
        assert!(matches!(more.await.unwrap().0, Ok(Joined::Answered(6))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_given_up_after_it_was_sent_may_arrive() {
        let mut calls = calls(halves);
        let (turn, _asked) = calls.behind(&[2]).await;
        let mut may_arrive = false;
        {
            let mut asking = std::pin::pin!(calls.together.join(|| 4, &mut may_arrive));
            tokio::select! {
                biased;
                _ = &mut asking => panic!("nothing was answered"),
                () = settle() => drop(turn),
            }
            assert_eq!(calls.sent.recv().await.unwrap(), [2, 4]);
        }
        assert!(may_arrive);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_does_not_hold_the_others_up() {
        let mut calls = calls(halves);
        let (turn, asked) = calls.behind(&[2, 4]).await;
        assert_eq!(calls.sent.recv().await.unwrap(), [2, 4], "after a while they go beside it");
        // Its end starts nothing: others are under way.
        let more = calls.ask(6);
        settle().await;
        drop(turn);
        settle().await;
        assert!(calls.sent.try_recv().is_err());
        calls.answers.add_permits(1);
        for asked in asked {
            assert!(matches!(asked.await.unwrap().0, Ok(Joined::Answered(_))));
        }
        assert!(matches!(more.await.unwrap().0, Ok(Joined::Alone(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_any_more_is_given_up() {
        let mut calls = calls(halves);
        let (turn, asked) = calls.behind(&[2, 4]).await;
        drop(turn);
        assert_eq!(calls.sent.recv().await.unwrap(), [2, 4]);
        for asked in asked {
            asked.abort();
        }
        settle().await;
        let next = calls.together.join(|| 6, &mut false).await;
        assert!(matches!(next, Ok(Joined::Alone(_))), "{next:?}");
    }
}

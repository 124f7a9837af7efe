//! Enters and leaves that go together in one call to a server.
//!
//! Calls on one connection do not wait for each other, so a few go alone, each at once. When more are under way the server
//! is busy, and then what it does for each call counts. So the claims that the tasks of this process ask for at the same
//! time share one (`batch.rs`). A question never waits for an answer to another one: only for the tasks that are ready to
//! run.
//!
//! **Answers are told one call at a time.** A server answers all calls that it has read at once. If all callers went on at
//! once, they would ask at once as well, and client and server would work in turns. So when a call is answered, what its
//! callers ask next is sent before the next answer is told, and the server works on it meanwhile.
//!
//! The script grants what is free and takes out claims that are alone in line. It leaves everything else open, and the
//! caller asks with the verbs.
//!
//! A leave must not overtake the enter of the same claim, which would then hold without anybody standing for it. So
//! whether a caller still waits is looked at, and its question is handed to the connection, under the lock that
//! every later question needs.

use std::{
    collections::HashMap,
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{MaybeDone, maybe_done},
    stream::FuturesUnordered,
};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    batch::{Batch, MOST, Question, Told},
    settings::{Address, RedisSettings, Scripting},
    store::{Floor, RedisStore},
};
use crate::{
    backend::Failure,
    backends::shared::{attend::attend_on, crowded::Crowded, mutex::lock, steps::Step},
    clock::Clock,
    model::name::Name,
};

/// So many calls under way cost nothing by going alone.
const FEW: usize = 4;

/// If all tasks that are ready take longer than this, the client is busy with other work: nothing is gained by telling
/// answers one after the other, and each would wait for that work.
const BUSY: Duration = Duration::from_millis(1);

/// The enters and leaves of one client.
pub(super) struct Together {
    line: Arc<Line>,
    crowded: Crowded,
}

struct Line {
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Queued>,
    /// How many questions are under way, alone or with others.
    under_way: usize,
    /// Whether somebody attends to the calls: sends those that wait, and tells the answers.
    is_attended: bool,
    /// Wakes it when a question waits.
    wake: Option<Waker>,
}

struct Queued {
    question: Question,
    tell: oneshot::Sender<Told>,
}

/// What becomes of a question.
pub(super) enum Joined {
    /// It has to be asked alone. This is kept meanwhile.
    Alone(Option<UnderWay>),
    /// It went with others: the epoch of an enter; of a leave only that it was there.
    Answered(u64),
}

impl RedisStore {
    /// Takes a step together with others, if many are under way.
    ///
    /// # Errors
    /// As [`Together::join`].
    pub(super) async fn join(
        &self,
        name: &Name,
        step: impl FnOnce() -> Step,
        floor: Floor,
    ) -> Result<Joined, Failure> {
        let Some(together) = &self.together else { return Ok(Joined::Alone(None)) };
        let question = || {
            let server = self.link.at_hand().filter(|server| server.is_at_hand())?;
            Some(Question { server, step: step(), floor })
        };
        together.join(name, question).await
    }
}

impl Together {
    /// The one of a client; nothing where claims never go together. Names of a cluster are in slots of their own, other
    /// programs and replicas have to be asked for each claim, and without scripts there is no such call.
    ///
    /// Must be called within the runtime of the client.
    pub(super) fn new(config: &RedisSettings) -> Option<Self> {
        let never = matches!(config.address, Address::Cluster(_))
            || config.mode.is_some()
            || config.replicas > 0
            || config.scripting == Scripting::Off;
        let line = Line { runtime: Handle::current(), state: Mutex::default() };
        (!never).then(|| Self { line: Arc::new(line), crowded: Crowded::default() })
    }

    /// Asks together with others, if many are under way. `question` says nothing if it cannot be asked at once.
    ///
    /// # Errors
    /// What the call failed with, if it may have been applied, or if asking alone would fail as well.
    async fn join(
        &self,
        name: &Name,
        question: impl FnOnce() -> Option<Question>,
    ) -> Result<Joined, Failure> {
        let told = {
            let mut state = self.line.state();
            if state.under_way < FEW && state.waiting.is_empty() || self.crowded.goes_alone(name) {
                return Ok(Joined::Alone(Some(self.line.begin(&mut state, 1))));
            }
            let Some(question) = question() else {
                return Ok(Joined::Alone(Some(self.line.begin(&mut state, 1))));
            };
            let (tell, told) = oneshot::channel();
            state.waiting.push(Queued { question, tell });
            let (is_attended, wake) = (mem::replace(&mut state.is_attended, true), state.wake.take());
            drop(state);
            if !is_attended {
                // Where the runtime has ended this drops it, and with it what waits.
                attend_on(&self.line.runtime, Attendant(Some(Arc::clone(&self.line))).attend());
            } else if let Some(wake) = wake {
                wake.wake();
            }
            told
        };
        match told.await {
            Ok(Ok(Some(answer))) => Ok(Joined::Answered(answer)),
            Ok(Ok(None)) => {
                self.crowded.note(name);
                Ok(Joined::Alone(Some(self.line.begin(&mut self.line.state(), 1))))
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::unknown("the runtime of this client has ended")),
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn begin(self: &Arc<Self>, state: &mut State, count: usize) -> UnderWay {
        state.under_way += count;
        UnderWay { line: Arc::clone(self), count }
    }

    /// Hands those that wait to their connection. Callers that gave up are left out, and nothing of theirs is sent.
    fn send(self: &Arc<Self>, context: &mut Context<'_>) -> Vec<Call> {
        let mut state = self.state();
        let waiting = mem::take(&mut state.waiting);
        // For each lock the first call that may have its next question.
        let mut next_of: HashMap<Name, usize> = HashMap::with_capacity(waiting.len());
        let mut batches: Vec<Batch<_>> = Vec::new();
        for Queued { question, tell } in waiting {
            if tell.is_closed() {
                continue;
            }
            // What becomes of it depends on the question before it, which must be in an earlier call.
            let next = next_of.entry(question.step.name().clone()).or_default();
            let room = batches[*next..].iter().position(|batch| batch.takes(&question));
            let at = room.map_or(batches.len(), |index| *next + index);
            *next = at + 1;
            match batches.get_mut(at) {
                Some(batch) => batch.add(question, tell),
                None => batches.push(Batch::of(question, tell)),
            }
        }
        let mut calls = Vec::with_capacity(batches.len());
        for batch in batches {
            let under_way = self.begin(&mut state, batch.len());
            let (asked, tells) = batch.call();
            let mut asked: Asked = maybe_done(Box::pin(asked));
            // The first poll hands it to the connection, or puts it in line there.
            let _ = Pin::new(&mut asked).poll(context);
            calls.push(Call { asked, tells, _under_way: under_way });
        }
        calls
    }
}

/// Attends to the calls of a client, until none is under way and no question waits: then it has no line any more.
struct Attendant(Option<Arc<Line>>);

/// What an attendant does next.
enum Next {
    /// A call was answered, or nobody waits for it any more.
    Ended(Option<Ended>),
    /// What waits goes out.
    Send,
    /// Nothing is left to do.
    End,
}

impl Attendant {
    async fn attend(mut self) {
        let clock = Clock::machine();
        let mut calls = FuturesUnordered::new();
        while self.0.is_some() {
            // All tasks that are ready run first: they may have something to ask as well.
            let before = clock.now();
            tokio::task::yield_now().await;
            let at_once = if clock.now().since(before) > BUSY { usize::MAX } else { MOST };
            let sent = std::future::poll_fn(|context| Poll::Ready(self.send(context))).await;
            calls.extend(sent.into_iter().map(Call::end));
            let mut told = 0;
            while told < at_once {
                // Calls that are small are told together: their callers can share the next one.
                match std::future::poll_fn(|context| self.next(&mut calls, told > 0, context)).await {
                    Next::Ended(Some(ended)) => told += ended.tell(),
                    Next::Ended(None) => {}
                    Next::Send => break,
                    Next::End => return,
                }
            }
        }
    }

    fn send(&self, context: &mut Context<'_>) -> Vec<Call> {
        self.0.as_ref().map(|line| line.send(context)).unwrap_or_default()
    }

    /// What to do next. Waits for that, unless `is_hurried`.
    fn next(
        &mut self,
        calls: &mut FuturesUnordered<impl Future<Output = Option<Ended>>>,
        is_hurried: bool,
        context: &mut Context<'_>,
    ) -> Poll<Next> {
        if let Poll::Ready(Some(ended)) = calls.poll_next_unpin(context) {
            return Poll::Ready(Next::Ended(ended));
        }
        let Some(line) = &self.0 else { return Poll::Ready(Next::End) };
        let mut state = line.state();
        state.wake = None;
        if is_hurried || !state.waiting.is_empty() {
            return Poll::Ready(Next::Send);
        }
        if !calls.is_empty() {
            state.wake = Some(context.waker().clone());
            return Poll::Pending;
        }
        // From here on the next question has an attendant of its own.
        state.is_attended = false;
        drop(state);
        self.0 = None;
        Poll::Ready(Next::End)
    }
}

impl Drop for Attendant {
    /// The runtime has ended before the work: nobody else sends what waits.
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            let mut state = line.state();
            (state.is_attended, state.wake) = (false, None);
            state.waiting.clear();
        }
    }
}

/// Questions under way.
pub(super) struct UnderWay {
    line: Arc<Line>,
    count: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.line.state().under_way -= self.count;
    }
}

type Asked = MaybeDone<Pin<Box<dyn Future<Output = Vec<Told>> + Send>>>;

/// A call that was handed to its connection, and those who wait for what it answers.
struct Call {
    asked: Asked,
    tells: Vec<oneshot::Sender<Told>>,
    _under_way: UnderWay,
}

impl Call {
    /// Waits for the answer; nothing if nobody else does any more.
    async fn end(mut self) -> Option<Ended> {
        let tells = &mut self.tells;
        let nobody_waits = async {
            for tell in tells {
                tell.closed().await;
            }
        };
        tokio::select! {
            biased;
            () = &mut self.asked => {}
            // Each caller has a limit of its own. Dropped, the call is one that was given up: the connection may be dead.
            () = nobody_waits => return None,
        }
        let answers = Pin::new(&mut self.asked).take_output().unwrap_or_default();
        Some(Ended { tells: self.tells, answers })
    }
}

/// A call that was answered.
struct Ended {
    tells: Vec<oneshot::Sender<Told>>,
    answers: Vec<Told>,
}

impl Ended {
    /// Tells those who wait for it, and says how many these are.
    fn tell(self) -> usize {
        let count = self.tells.len();
        for (tell, answer) in self.tells.into_iter().zip(self.answers) {
            // A caller that gave up is not told.
            let _ = tell.send(answer);
        }
        count
    }
}

impl fmt::Debug for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.line.state();
        write!(f, "{} questions are under way, {} wait", state.under_way, state.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::redis::RedisConfig;

    #[tokio::test]
    async fn claims_never_go_together_where_each_has_to_be_asked() {
        let goes = |url: &str| {
            let config = RedisConfig::from_url(url).unwrap();
            Together::new(&config.settings().unwrap()).is_some()
        };
        for url in
            ["redis://a", "redis+unix:///a", "redis+sentinel://a,b/master", "redis://a?scripting=functions"]
        {
            assert!(goes(url), "{url}");
        }
        for url in
            ["redis+cluster://a,b", "redis://a?replicas=1", "redis://a?mode=setnx", "redis://a?scripting=off"]
        {
            assert!(!goes(url), "{url}");
        }
    }

    /// An attendant with nothing to do yet, and its line.
    fn attendant() -> (Attendant, Arc<Line>) {
        let line = Arc::new(Line { runtime: Handle::current(), state: Mutex::default() });
        line.state().is_attended = true;
        (Attendant(Some(Arc::clone(&line))), line)
    }

    /// A call for so many claims that is answered when the test says so, and what their callers hear.
    fn call(
        line: &Arc<Line>,
        count: usize,
    ) -> (Call, oneshot::Sender<Vec<Told>>, Vec<oneshot::Receiver<Told>>) {
        let (answer, answered) = oneshot::channel();
        let (tells, heard) = (0..count).map(|_| oneshot::channel()).unzip();
        let asked: Asked = maybe_done(Box::pin(async { answered.await.unwrap_or_default() }));
        let under_way = line.begin(&mut line.state(), count);
        (Call { asked, tells, _under_way: under_way }, answer, heard)
    }

    #[tokio::test]
    async fn a_call_that_hangs_does_not_hold_up_the_answers_of_others() {
        let (mut attendant, line) = attendant();
        let (hangs, _never, _unheard) = call(&line, 2);
        let (other, answer, heard) = call(&line, 3);
        let mut calls: FuturesUnordered<_> = [hangs, other].into_iter().map(Call::end).collect();
        answer.send(vec![Ok(Some(7)), Ok(None), Ok(Some(9))]).unwrap();
        let next = std::future::poll_fn(|context| attendant.next(&mut calls, false, context)).await;
        let Next::Ended(Some(ended)) = next else { panic!("it was answered") };
        assert_eq!((ended.tell(), line.state().under_way), (3, 2));
        for (heard, told) in heard.into_iter().zip([Some(7), None, Some(9)]) {
            assert_eq!(heard.await.unwrap().unwrap(), told);
        }
        // Those who were told ask before more is waited for.
        let next = std::future::poll_fn(|context| attendant.next(&mut calls, true, context)).await;
        assert!(matches!(next, Next::Send) && line.state().is_attended);
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_any_more_ends_and_with_the_last_one_the_attendant_does() {
        let (mut attendant, line) = attendant();
        let (hangs, _never, heard) = call(&line, 2);
        let mut calls: FuturesUnordered<_> = [hangs.end()].into_iter().collect();
        drop(heard);
        let next = std::future::poll_fn(|context| attendant.next(&mut calls, false, context)).await;
        assert!(matches!(next, Next::Ended(None)) && line.state().under_way == 0);
        let next = std::future::poll_fn(|context| attendant.next(&mut calls, false, context)).await;
        assert!(matches!(next, Next::End) && !line.state().is_attended);
        // What the next attendant does is its own: the end of this one takes nothing from it.
        line.state().is_attended = true;
        drop(attendant);
        assert!(line.state().is_attended);
    }
}

//! Enters and leaves that go together in one call to a server.
//!
//! Calls on one connection do not wait for each other, so a few go alone, each at once. When more are under way the server
//! is busy, and then what it does for each call counts. So the claims that the tasks of this process ask for at the same
//! time share one. A question never waits for an answer to another one: only for the tasks that are ready to run.
//!
//! The script grants what is free and takes out claims that are alone in line. It leaves everything else open, and the
//! caller asks with the verbs.
//!
//! A leave must not overtake the enter of the same claim, which would then hold without anybody standing for it. So
//! whether a caller still waits is looked at, and its question is handed to the connection, under the lock that
//! every later question needs.

use std::{
    collections::HashSet,
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use futures_util::future::{MaybeDone, join_all, maybe_done};
use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    codec::{Tail, Text, strange, text},
    commands::{keep_millis, name_of},
    errors::{classify, is_missing},
    layout::CLAIM,
    link::{Form, Live, Server},
    scripts::TOGETHER,
    settings::{Address, RedisSettings, Scripting},
    store::{Floor, RedisStore},
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{attend::attend_on, crowded::Crowded, mutex::lock, steps::Step, units::micros},
    model::name::Name,
};

/// So many calls under way cost nothing by going alone.
const FEW: usize = 4;

/// So many claims share a call: about 50 µs, in which the server does nothing else. With several calls under way, this
/// client reads one answer while the server works on the next call.
const MOST: usize = 16;

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
    /// Whether somebody sends those that wait.
    is_due: bool,
}

/// An enter or a leave, and the connection that it goes out on.
struct Question {
    server: Arc<Server>,
    live: Live,
    step: Step,
    floor: Floor,
}

struct Queued {
    question: Question,
    tell: oneshot::Sender<Told>,
}

/// The epoch of an enter; of a leave only that it was there. Nothing if it has to be asked alone.
type Told = Result<Option<u64>, Failure>;

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
            let (server, live) = self.at_hand()?;
            Some(Question { server, live, step: step(), floor })
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
            let is_due = mem::replace(&mut state.is_due, true);
            drop(state);
            if !is_due {
                // Where the runtime has ended this drops it, and with it what waits.
                attend_on(&self.line.runtime, Due(Some(Arc::clone(&self.line))).go());
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
        state.is_due = false;
        let waiting = mem::take(&mut state.waiting);
        let mut names = HashSet::with_capacity(waiting.len());
        let mut batches: Vec<Batch> = Vec::new();
        for queued in waiting {
            if queued.tell.is_closed() {
                continue;
            }
            if !names.insert(queued.question.step.name().clone()) {
                // What becomes of it depends on the one before it.
                let _ = queued.tell.send(Ok(None));
                continue;
            }
            match batches.last_mut().filter(|batch| batch.takes(&queued.question)) {
                Some(batch) => batch.add(queued),
                None => batches.push(Batch::of(queued)),
            }
        }
        let mut calls = Vec::with_capacity(batches.len());
        for batch in batches {
            let under_way = self.begin(&mut state, batch.len());
            let command = batch.command();
            let Batch { server, live, enters, leaves } = batch;
            let counts = (enters.len(), leaves.len());
            let mut asked: MaybeDone<Pin<Box<dyn Future<Output = _> + Send>>> =
                maybe_done(Box::pin(ask(server, live, command, counts)));
            // The first poll hands it to the connection, or puts it in line there.
            let _ = Pin::new(&mut asked).poll(context);
            let tells = enters.into_iter().chain(leaves).map(|queued| queued.tell).collect();
            calls.push(Call { asked, tells, _under_way: under_way });
        }
        calls
    }
}

/// Those that wait are about to be sent.
struct Due(Option<Arc<Line>>);

impl Due {
    /// Sends them once all tasks that are ready have run, which may have something to ask as well.
    async fn go(mut self) {
        tokio::task::yield_now().await;
        let Some(line) = self.0.take() else { return };
        let calls = std::future::poll_fn(|context| Poll::Ready(line.send(context))).await;
        join_all(calls.into_iter().map(Call::end)).await;
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            let mut state = line.state();
            state.is_due = false;
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

/// Questions that share a call.
struct Batch {
    server: Arc<Server>,
    live: Live,
    enters: Vec<Queued>,
    leaves: Vec<Queued>,
}

impl Batch {
    fn of(first: Queued) -> Self {
        let (server, live) = (Arc::clone(&first.question.server), first.question.live.clone());
        let mut batch = Self { server, live, enters: Vec::new(), leaves: Vec::new() };
        batch.add(first);
        batch
    }

    fn add(&mut self, queued: Queued) {
        let list = match queued.question.step {
            Step::Enter(_) => &mut self.enters,
            Step::Leave(..) => &mut self.leaves,
        };
        list.push(queued);
    }

    fn len(&self) -> usize {
        self.enters.len() + self.leaves.len()
    }

    /// Whether a question goes out on the same connection, and there is room.
    fn takes(&self, question: &Question) -> bool {
        self.len() < MOST && Arc::ptr_eq(&self.server, &question.server) && self.live.1 == question.live.1
    }

    fn command(&self) -> Cmd {
        let space = &self.server.common().space;
        let mut command = name_of(&TOGETHER, Form::plain(&self.server));
        command.arg(self.len());
        for queued in self.enters.iter().chain(&self.leaves) {
            command.arg(space.key(queued.question.step.name()));
        }
        let has_floor = self.enters.iter().any(|queued| queued.question.floor.is_some());
        command.arg(self.enters.len()).arg(if has_floor { 5 } else { 4 });
        for Queued { question, .. } in &self.enters {
            let Some(claim) = question.step.entering() else { continue };
            command.arg(Text(claim.id)).arg(Text(format_args!("{:016}", micros(claim.ttl))));
            command.arg(keep_millis(claim.ttl)).arg(Text(Tail(claim)));
            if has_floor {
                match question.floor {
                    Some(floor) => command.arg(Text(format_args!("{floor:016}"))),
                    None => command.arg(""),
                };
            }
        }
        for queued in &self.leaves {
            command.arg(Text(queued.question.step.id()));
        }
        command
    }
}

/// A call that was handed to its connection, and what it answers to each of its questions.
struct Call {
    asked: MaybeDone<Pin<Box<dyn Future<Output = Vec<Told>> + Send>>>,
    tells: Vec<oneshot::Sender<Told>>,
    _under_way: UnderWay,
}

impl Call {
    /// Waits for the answer, and tells those who wait for it.
    async fn end(mut self) {
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
            () = nobody_waits => return,
        }
        let answers = Pin::new(&mut self.asked).take_output().unwrap_or_default();
        for (tell, answer) in self.tells.into_iter().zip(answers) {
            // A caller that gave up is not told.
            let _ = tell.send(answer);
        }
    }
}

/// Sends a call for so many enters and leaves. An answer for each, in this order.
async fn ask(server: Arc<Server>, live: Live, command: Cmd, (enters, leaves): (usize, usize)) -> Vec<Told> {
    let (asked, connection) = (server.common().clock.now(), live.clone());
    let all = |told: Told| vec![told; enters + leaves];
    let answer = match server.ask_live(live, &command).await {
        Ok(answer) => answer,
        Err(error) if is_missing(&error) => {
            make_known(&server, connection).await;
            return all(Ok(None));
        }
        Err(error) => {
            let failure = classify(&error);
            // It changed nothing, because of one of them maybe: that one must not take the others along.
            return all(if failure.kind == FailureKind::Denied { Ok(None) } else { Err(failure) });
        }
    };
    let Some((time, mut answers)) = read(&answer, enters, leaves) else {
        // Answers that do not belong to their questions: none on this connection can be relied on.
        server.cut(connection.1, "the answer to a call for several claims cannot be read");
        return all(Err(strange("a call for several claims")));
    };
    // A vote is worth as much as the clock behind it.
    if server.common().wary
        && let Err(failure) = server.note_time(time, asked)
    {
        answers[..enters].fill(Err(failure));
    }
    answers
}

/// Restarted, flushed, or never seen: the text makes the script known again. Those who wait ask alone meanwhile.
async fn make_known(server: &Server, live: Live) {
    if server.common().scripting != Scripting::Functions {
        server.lost_functions();
        let mut nothing = redis::cmd("EVAL");
        nothing.arg(TOGETHER.text()).arg(0).arg(0).arg(0);
        // If it cannot be made known now, the next call tries it again.
        let _ = server.ask_live(live, &nothing).await;
    }
}

/// The server's time, and what the call says of each question.
fn read(answer: &Value, enters: usize, leaves: usize) -> Option<(u64, Vec<Told>)> {
    let text = text(answer).filter(|text| text.is_ascii())?;
    let (time, rest) = text.split_at_checked(CLAIM.renewed.width)?;
    let (epochs, removed) = rest.split_at_checked(enters * CLAIM.epoch.width)?;
    if removed.len() != leaves {
        return None;
    }
    let mut answers = Vec::with_capacity(enters + leaves);
    for epoch in epochs.as_bytes().chunks_exact(CLAIM.epoch.width) {
        let epoch = std::str::from_utf8(epoch).ok()?;
        answers.push(Ok(if epoch.starts_with(' ') { None } else { Some(epoch.parse().ok()?) }));
    }
    answers.extend(removed.bytes().map(|removed| Ok((removed == b'1').then_some(0))));
    Some((time.parse().ok()?, answers))
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

    #[test]
    fn an_answer_is_read_only_if_it_has_a_place_for_each_question() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = text("17000000000000071700000000000009                1 ");
        let (time, answers) = read(&answer, 2, 2).unwrap();
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            (time, &*answers),
            (1_700_000_000_000_007, &[Some(1_700_000_000_000_009), None, Some(0), None][..])
        );
        for (enters, leaves) in [(2, 1), (2, 3), (1, 2), (3, 2)] {
            assert!(read(&answer, enters, leaves).is_none());
        }
        for other in [text(""), text("1700000000000007x"), Value::Int(1), Value::Nil] {
            assert!(read(&other, 1, 0).is_none(), "{other:?}");
        }
    }
}

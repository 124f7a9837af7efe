//! The life of a hold: waiting, granted, renewed, ended. Its stream is its life.

use std::{mem::ManuallyDrop, pin::pin, sync::Arc, time::Duration};

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tidelock::{Error, LossReason};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    Server, Stage,
    answer::{self, Answer},
    asked::Asked,
    holds::{Command, Ending, Entry, Id, Outcome, micros},
    limits::Permit,
    lines::{self, Closed, Sender},
    peer::Distant,
    problem::Problem,
    queue::Place,
    said::{Heard, Said},
    wanted::{Terms, Wanted},
};
use crate::{clock::Moment, hold::Hold, values::Span};

/// Lines that may wait for a client that reads slowly.
const LINES: usize = 8;

/// How often it is looked whether a client that has to let go is gone.
const LOOK: Duration = Duration::from_millis(20);

/// The line of a hold that is granted.
#[derive(Serialize)]
struct Granted<'a> {
    event: &'static str,
    hold: String,
    token: &'a str,
    until_us: u64,
    ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<String>,
}

/// The task of one stream. It waits for most of its time, and there are thousands of them, so what is not needed while
/// a lock is held is boxed: how it is acquired, and all ways to end.
struct Life {
    server: Arc<Server>,
    terms: Terms,
    received: Moment,
    peer: Distant,
    lines: Sender,
    /// What the client says meanwhile, if it can.
    said: Option<Said>,
    /// Takes the first outcome, which decides on the status.
    head: Option<oneshot::Sender<Result<(), Problem>>>,
    _permit: Permit,
}

/// What ends a hold.
enum End {
    /// The client closed its stream, or died.
    Gone,
    /// A request ends it, which is answered.
    Told(Command),
    /// The client ends it in the body of its request.
    Said(Ending),
    Lost(Error),
    /// The server gives it up, for this reason.
    Abandoned(&'static str, String),
}

/// Starts a hold and answers with its stream, or with what came of it.
pub(super) async fn open(
    asked: Asked,
    wanted: Wanted,
    terms: Terms,
    server: &Arc<Server>,
) -> Result<Answer, Problem> {
    if asked.peer.is_tcp() && !terms.confirm {
        return Err(Problem::bad_request(
            "over TCP nobody notices a client that hangs: set confirm to true and confirm the hold",
        ));
    }
    let permit = server.limits.stream(asked.peer.client)?;
    let (lines, of_client) = lines::channel(LINES);
    let (head, first) = oneshot::channel();
    let life = Life {
        server: Arc::clone(server),
        terms,
        received: asked.received,
        peer: asked.peer.distant(),
        lines,
        said: asked.said,
        head: Some(head),
        _permit: permit,
    };
    server.running.spawn(life.run(wanted));
    first.await.unwrap_or_else(|_| Err(Problem::internal()))?;
    Ok(answer::lines(of_client))
}

impl Life {
    /// No async function: what such a function is given is in its future twice.
    fn run(mut self, wanted: Wanted) -> impl Future<Output = ()> + Send {
        let wanted = Box::new(wanted);
        async move {
            let place = self.server.queues.enter(&self.terms.names, &self.terms.label);
            match Box::pin(self.wait(wanted, &place)).await {
                Ok(Some(hold)) => {
                    place.holds();
                    self.keep(hold).await;
                }
                Ok(None) => {}
                Err(problem) => Box::pin(self.fail(problem)).await,
            }
        }
    }

    /// Waits for the lock, and says how it goes. Nothing if the client went away, whose place is left then.
    async fn wait(&mut self, wanted: Box<Wanted>, place: &Place) -> Result<Option<Hold>, Problem> {
        let server = Arc::clone(&self.server);
        let mut closing = server.closing.clone();
        let mut acquired = pin!(wanted.acquire(&server));
        loop {
            let seen = tokio::select! {
                biased;
                hold = &mut acquired => return hold.map(Some),
                () = self.lines.closed() => return Ok(None),
                // Its end is noticed, because the body is being read.
                heard = heard(&mut self.said) => return match heard {
                    Heard::Gone => Ok(None),
                    Heard::Nonsense(problem) => Err(problem),
                    Heard::Ending(_) => {
                        Err(Problem::bad_request("nothing is held yet: close the connection to leave the queue"))
                    }
                },
                _ = closing.wait_for(Stage::is_ending) => return Err(Problem::closing()),
                seen = place.moved(), if self.terms.progress => seen,
            };
            let line = json!({"event": "waiting", "ahead": seen.ahead, "behind": seen.behind.as_deref()});
            self.open_stream();
            // One that is not read in time is followed by another.
            let _ = self.lines.offer(answer::line(&line));
        }
    }

    /// The status is known: it is a stream.
    fn open_stream(&mut self) {
        if let Some(head) = self.head.take() {
            let _ = head.send(Ok(()));
        }
    }

    /// Nothing is held, for this reason.
    async fn fail(&mut self, problem: Problem) {
        match self.head.take() {
            Some(head) => drop(head.send(Err(problem))),
            None => self.last(answer::line(&error_line(&problem))).await,
        }
    }

    /// Sends the last line. A client that does not read it is not waited for longer than a ttl.
    async fn last(&self, line: Bytes) {
        if let Ok(Some(line)) = self.lines.offer(line) {
            let _ = timeout(self.terms.ttl, self.lines.send(line)).await;
        }
    }

    /// Serves a hold to its end.
    async fn keep(&mut self, hold: Hold) {
        let Ok(id) = self.server.holds.new_id() else {
            return Box::pin(self.fail(Problem::internal())).await;
        };
        let (command, told) = oneshot::channel();
        let (line, until) = self.grant(id, &hold, command);
        if !self.terms.confirm {
            self.peer.watch_reading();
        }
        self.open_stream();
        let unsent = match self.lines.offer(line) {
            Ok(None) => None,
            // Waiting lines are in the way of a client that does not read.
            Ok(Some(line)) => Box::pin(self.send_late(line)).await,
            Err(Closed) => Some(End::Gone),
        };
        let end = match unsent {
            None => self.watch(id, &hold, told, until).await,
            Some(end) => end,
        };
        Box::pin(self.end(id, hold, end)).await;
    }

    /// From here on, requests know the hold. Returns the line for its client, and until when the client may rely on it.
    fn grant(&self, id: Id, hold: &Hold, command: oneshot::Sender<Command>) -> (Bytes, Moment) {
        let mut entry = Entry::new(hold.holdings(), command, hold.slot().is_some());
        let until = entry.tell();
        let tokens = entry.tokens();
        let line = answer::line(&Granted {
            event: "granted",
            hold: id.to_string(),
            token: &tokens[0],
            until_us: micros(until.since(self.received)),
            ttl_ms: u64::try_from(self.terms.ttl.as_millis()).unwrap_or(u64::MAX),
            tokens: (tokens.len() > 1).then_some(&tokens),
            slot: hold.slot().map(|slot| slot.to_string()),
        });
        self.server.holds.insert(id, entry);
        (line, until)
    }

    /// Sends the line of a hold when there is room for it. Returns what ends the hold if it could not be sent.
    async fn send_late(&self, line: Bytes) -> Option<End> {
        match timeout(self.terms.ttl, self.lines.send(line)).await {
            Ok(Ok(())) => None,
            Ok(Err(Closed)) => Some(End::Gone),
            Err(_) => Some(unread(self.terms.ttl)),
        }
    }

    /// Ends a hold, and says so to those who can hear it.
    async fn end(&mut self, id: Id, hold: Hold, end: End) {
        match end {
            End::Gone => {
                // Nobody is there to hear what comes of it.
                self.server.holds.end(id, Outcome::Released);
                let _ = hold.release().await;
            }
            End::Told((ending, answer)) => self.finish(id, finish(hold, ending).await, Some(answer)).await,
            End::Said(ending) => self.finish(id, finish(hold, ending).await, None).await,
            End::Lost(why) => {
                let problem = Problem::from(why);
                self.server.holds.end(id, Outcome::Lost(problem.clone()));
                self.last(answer::line(&lost_line(&problem))).await;
            }
            End::Abandoned(reason, why) => self.abandon(id, hold, reason, &why).await,
        }
    }

    /// Waits for what ends a hold, and says when it is renewed.
    async fn watch(
        &mut self,
        id: Id,
        hold: &Hold,
        mut told: oneshot::Receiver<Command>,
        mut until: Moment,
    ) -> End {
        let ttl = self.terms.ttl;
        let pause = (ttl / 12).clamp(Duration::from_millis(5), Duration::from_secs(5));
        let mut closing = self.server.closing.clone();
        let mut lost = pin!(hold.lost());
        // Since when the client does not read.
        let mut unread_since: Option<Moment> = None;
        let granted = Moment::now();
        loop {
            tokio::select! {
                biased;
                Ok(command) = &mut told => return End::Told(command),
                why = &mut lost => return End::Lost(why),
                () = self.lines.closed() => return End::Gone,
                heard = heard(&mut self.said) => return self.heard(id, heard),
                _ = closing.wait_for(Stage::is_ending) => {
                    return End::Abandoned("shutdown", "the server is shutting down".to_owned());
                }
                () = sleep(pause) => {}
            }
            let now = Moment::now();
            let seen = self.server.holds.with(id, |entry| (entry.tell(), entry.confirmed));
            let Some((later, confirmed)) = seen else { continue };
            // Reading the clock twice moves it a little, too.
            if later.since(until) > Duration::from_millis(1) {
                until = later;
                let line = json!({"event": "renewed", "until_us": micros(until.since(self.received))});
                let _ = self.lines.offer(answer::line(&line));
            }
            // The library knows the limit of a lock, and ends the lease in time. It knows none for a lead.
            if let Some(limit) = self.terms.max_hold.filter(|limit| now.since(granted) > *limit) {
                return End::Abandoned(
                    "max_hold",
                    format!("it was held for {}, the longest allowed", Span(limit)),
                );
            }
            if self.terms.confirm {
                if now.since(confirmed) > ttl {
                    let text = format!("the client did not confirm for {}", Span(ttl));
                    return End::Abandoned("unconfirmed", text);
                }
            } else if self.peer.is_reading() {
                unread_since = None;
            } else if now.since(*unread_since.get_or_insert(now)) > ttl {
                return unread(ttl);
            }
        }
    }

    /// What the client says in the body of its request ends the hold.
    fn heard(&self, id: Id, heard: Heard) -> End {
        let ending = match heard {
            Heard::Ending(ending) => ending,
            Heard::Nonsense(problem) => return End::Abandoned("bad_request", problem.message),
            Heard::Gone => return End::Gone,
        };
        // From here on, no other request can end it.
        match self.server.holds.with(id, |entry| entry.begin_to_end(ending)).transpose() {
            Ok(_) => End::Said(ending),
            Err(problem) => End::Abandoned("bad_request", problem.message),
        }
    }

    /// Says what came of what the client asked for.
    async fn finish(
        &self,
        id: Id,
        ended: tidelock::Result<()>,
        answer: Option<oneshot::Sender<Result<(), Problem>>>,
    ) {
        let ended = ended.map_err(Problem::from);
        let (outcome, line) = match &ended {
            Ok(()) => (Outcome::Released, Bytes::from_static(b"{\"event\":\"released\"}\n")),
            Err(problem) if problem.kind == "lost" => {
                (Outcome::Lost(problem.clone()), answer::line(&lost_line(problem)))
            }
            Err(problem) => (Outcome::Lost(problem.clone()), answer::line(&error_line(problem))),
        };
        self.server.holds.end(id, outcome);
        if let Some(answer) = answer {
            let _ = answer.send(ended);
        }
        self.last(line).await;
    }

    /// Takes the lock from a client that may not hear of it.
    ///
    /// The client may rely on the lock until the end that it was told. The lock is given back when that has passed, or
    /// when the client has closed its connection. If the server ends before, the lock is left to its lease.
    async fn abandon(&mut self, id: Id, hold: Hold, reason: &'static str, why: &str) {
        let names: Vec<_> = self.terms.names.iter().map(|name| format!("{name:?}")).collect();
        let text = format!("lost lock {}: {why}; stop work that needs it", names.join(", "));
        let problem = Problem::lost(text).with("reason", reason);
        let told = self.server.holds.end(id, Outcome::Lost(problem.clone())).unwrap_or_default();
        let hold = ManuallyDrop::new(hold);
        let left = || told.since(Moment::now());
        // The stream ends behind this line. A client that does not read gets neither.
        let _ = timeout(left(), self.lines.send(answer::line(&lost_line(&problem)))).await;
        // Unless the body stays open: behind a stream that has ended, the server would close the connection, and the
        // client would seem to be gone.
        if self.said.is_none() {
            self.lines.end();
        }
        while !left().is_zero() && self.peer.is_open() {
            tokio::select! {
                biased;
                heard = heard(&mut self.said) => if !matches!(heard, Heard::Nonsense(_)) { break },
                () = sleep(left().min(LOOK)) => {}
            }
        }
        self.lines.end();
        // When the server ends, it is the server that closes connections.
        if !left().is_zero() && *self.server.closing.borrow() == Stage::Closing {
            return;
        }
        let _ = ManuallyDrop::into_inner(hold).release().await;
    }
}

/// What the client says, if it can say anything. Cancel safe.
async fn heard(said: &mut Option<Said>) -> Heard {
    match said {
        Some(said) => said.heard().await,
        None => std::future::pending().await,
    }
}

/// Ends a hold as its client wants.
async fn finish(hold: Hold, ending: Ending) -> tidelock::Result<()> {
    match ending {
        Ending::Release => hold.release().await,
        Ending::Done => hold.done().await,
        Ending::Failed => hold.failed().await,
    }
}

fn unread(ttl: Duration) -> End {
    End::Abandoned("unread", format!("the client did not read for {}", Span(ttl)))
}

/// A line that says that the lock is lost.
fn lost_line(problem: &Problem) -> Value {
    let mut line = json!(problem);
    line["event"] = "lost".into();
    line
}

/// A line that says what went wrong after the stream began.
pub(super) fn error_line(problem: &Problem) -> Value {
    let mut line = json!(problem);
    line["event"] = "error".into();
    line["status"] = problem.status().as_u16().into();
    line
}

/// Why a lock was lost, as a word.
pub(super) fn reason(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::Gone => "gone",
        LossReason::Evicted => "evicted",
        LossReason::MaxHold => "max_hold",
        LossReason::Closed => "shutdown",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl FnOnce(Life, Wanted) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_stream_takes_little_memory() {
        let size = size_of_future(Life::run);
        assert!(size <= 2_048, "a task of {size} bytes, and a server may have thousands");
    }
}

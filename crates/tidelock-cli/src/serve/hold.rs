//! The life of a hold: waiting, granted, renewed, ended. Its stream is its life.

use std::{mem::ManuallyDrop, sync::Arc, time::Duration};

use hyper::body::Bytes;
use serde_json::{Value, json};
use tidelock::{Error, LossReason};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

use super::{
    Server, Stage,
    answer::{self, Answer},
    asked::Asked,
    holds::{Command, Ending, Entry, Id, Outcome, micros},
    limits::Permit,
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

/// The task of one stream.
struct Life {
    server: Arc<Server>,
    terms: Terms,
    received: Moment,
    peer: Distant,
    lines: mpsc::Sender<Bytes>,
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
    let (lines, of_client) = mpsc::channel(LINES);
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
    async fn run(mut self, wanted: Wanted) {
        let place = self.server.queues.enter(&self.terms.names, &self.terms.label);
        match self.wait(&wanted, &place).await {
            Ok(Some(hold)) => {
                place.holds();
                self.keep(hold).await;
            }
            Ok(None) => {}
            Err(problem) => self.fail(problem).await,
        }
    }

    /// Waits for the lock, and says how it goes. Nothing if the client went away, whose place is left then.
    async fn wait(&mut self, wanted: &Wanted, place: &Place) -> Result<Option<Hold>, Problem> {
        let server = Arc::clone(&self.server);
        let mut closing = server.closing.clone();
        // Boxed, so that a stream that holds does not keep the memory of all ways to wait.
        let mut acquired = Box::pin(wanted.acquire(&server));
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
            let _ = self.lines.try_send(answer::line(&line));
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
            None => self.last(&error_line(&problem)).await,
        }
    }

    /// Sends the last line. A client that does not read it is not waited for longer than a ttl.
    async fn last(&self, line: &Value) {
        let _ = tokio::time::timeout(self.terms.ttl, self.lines.send(answer::line(line))).await;
    }

    /// Serves a hold to its end.
    async fn keep(mut self, hold: Hold) {
        let Ok(id) = Id::random() else { return self.fail(Problem::internal()).await };
        let (command, told) = oneshot::channel();
        let mut entry = Entry::new(hold.holdings(), command, hold.slot().is_some());
        let until = entry.tell();
        let tokens = entry.tokens();
        let mut line = json!({
            "event": "granted",
            "hold": id.to_string(),
            "token": tokens[0],
            "until_us": micros(until.since(self.received)),
            "ttl_ms": u64::try_from(self.terms.ttl.as_millis()).unwrap_or(u64::MAX),
        });
        if tokens.len() > 1 {
            line["tokens"] = tokens.into();
        }
        if let Some(slot) = hold.slot() {
            line["slot"] = slot.to_string().into();
        }
        self.server.holds.insert(id, entry);
        if !self.terms.confirm {
            self.peer.watch_reading();
        }
        self.open_stream();
        // Waiting lines may be in the way of a client that does not read.
        let sent = tokio::time::timeout(self.terms.ttl, self.lines.send(answer::line(&line))).await;
        let end = match sent {
            Ok(Ok(())) => self.watch(id, &hold, told, until).await,
            Ok(Err(_)) => End::Gone,
            Err(_) => unread(self.terms.ttl),
        };
        // Boxed, so that a stream that holds does not keep the memory of all ways to end.
        match end {
            End::Gone => {
                // Nobody is there to hear what comes of it.
                self.server.holds.end(id, Outcome::Released);
                let _ = Box::pin(hold.release()).await;
            }
            End::Told((ending, answer)) => {
                self.finish(id, Box::pin(finish(hold, ending)).await, Some(answer)).await;
            }
            End::Said(ending) => self.finish(id, Box::pin(finish(hold, ending)).await, None).await,
            End::Lost(why) => {
                let problem = Problem::from(why);
                self.server.holds.end(id, Outcome::Lost(problem.clone()));
                self.last(&lost_line(&problem)).await;
            }
            End::Abandoned(reason, why) => Box::pin(self.abandon(id, hold, reason, &why)).await,
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
        let mut lost = std::pin::pin!(hold.lost());
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
                let _ = self.lines.try_send(answer::line(&line));
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
            Ok(()) => (Outcome::Released, json!({"event": "released"})),
            Err(problem) if problem.kind == "lost" => (Outcome::Lost(problem.clone()), lost_line(problem)),
            Err(problem) => (Outcome::Lost(problem.clone()), error_line(problem)),
        };
        self.server.holds.end(id, outcome);
        if let Some(answer) = answer {
            let _ = answer.send(ended);
        }
        self.last(&line).await;
    }

    /// Takes the lock from a client that may not hear of it.
    ///
    /// The client may rely on the lock until the end that it was told. The lock is given back when that has passed, or
    /// when the client has closed its connection. If the server ends before, the lock is left to its lease.
    async fn abandon(self, id: Id, hold: Hold, reason: &'static str, why: &str) {
        let names: Vec<_> = self.terms.names.iter().map(|name| format!("{name:?}")).collect();
        let text = format!("lost lock {}: {why}; stop work that needs it", names.join(", "));
        let problem = Problem::lost(text).with("reason", reason);
        let told = self.server.holds.end(id, Outcome::Lost(problem.clone())).unwrap_or_default();
        let Self { server, lines, peer, mut said, .. } = self;
        let hold = ManuallyDrop::new(hold);
        let left = || told.since(Moment::now());
        // The stream ends behind this line. A client that does not read gets neither.
        let _ = tokio::time::timeout(left(), lines.send(answer::line(&lost_line(&problem)))).await;
        // Unless the body stays open: behind a stream that has ended, the server would close the connection, and the
        // client would seem to be gone.
        let lines = said.is_some().then_some(lines);
        while !left().is_zero() && peer.is_open() {
            tokio::select! {
                biased;
                heard = heard(&mut said) => if !matches!(heard, Heard::Nonsense(_)) { break },
                () = sleep(left().min(LOOK)) => {}
            }
        }
        drop(lines);
        // When the server ends, it is the server that closes connections.
        if !left().is_zero() && *server.closing.borrow() == Stage::Closing {
            return;
        }
        let _ = Box::pin(ManuallyDrop::into_inner(hold).release()).await;
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

//! One connection to one member at a time, moved on to the next member when it fails.
//!
//! | file | what |
//! |---|---|
//! | `mod` | asking whichever member answers |
//! | `open` | finding a member that can grant locks, and logging in |
//! | `connection` | requests and answers on one connection |
//! | `single` | a transport that connects once, so that a connection is always the same one |

mod connection;
mod open;
mod single;

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::stream;
use tokio::sync::{mpsc::UnboundedReceiver, watch};
use tonic::{Streaming, metadata::MetadataValue, transport::Endpoint};

use self::connection::{Connection, Greeting};
pub(super) use self::single::Ended;
use super::{
    codec::Space,
    errors::{classify, is_broken, lacks_lease, wants_login, was_not_sent},
    fitness::Fitness,
    proto::{Ask, LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchRequest, WatchResponse},
    settings::{CONNECT, EtcdSettings},
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{
        failures::{self, no_answer_within},
        mutex::lock,
        once::Once,
    },
};

/// After how long without an answer the same question is put to another member.
const MOVE_ON: Duration = Duration::from_millis(1_500);

/// The members of an installation, as one client reaches them.
pub(super) struct Link {
    members: Vec<(String, Endpoint)>,
    login: Option<(String, String)>,
    /// The key that is read with the first question.
    base: Vec<u8>,
    opening: Once,
    state: Mutex<State>,
    /// How many answers came.
    answers: AtomicU64,
    /// The number of the connection in use: a stream of watches on another one moves.
    in_use: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    live: Option<Connection>,
    /// Which member to try first.
    next: usize,
    /// How many connections were made.
    number: u64,
    /// What each member last said about itself.
    fitness: Vec<Option<Fitness>>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Missed {
    /// The base of epochs is another one; nothing changed.
    Base,
    /// The cluster was restored from a snapshot; the claim is in line with an epoch that is too small.
    Restored,
    /// The lease that was to be used is over; nothing changed.
    Lease,
    /// There is another connection by now. The question may have arrived, or arrive later, only if this says so.
    Moved {
        may_repeat: bool,
    },
    Failed(Failure),
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Missed> for Failure {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Base => Self::unreachable("the base of epochs was raised"),
            Missed::Restored => Self::unknown("the cluster was restored from a snapshot"),
            Missed::Lease => Self::unreachable("the lease is over"),
            Missed::Moved { may_repeat } => {
                in_doubt(Self::unreachable("the connection has ended"), may_repeat)
            }
            Missed::Failed(failure) => failure,
        }
    }
}

/// An answer, and whether the same question may arrive once more, later.
#[derive(Debug)]
pub(super) struct Answered<T> {
    pub(super) answer: T,
    pub(super) may_repeat: bool,
}

impl Link {
    pub(super) fn new(config: &EtcdSettings) -> Result<Self, Failure> {
        let members = config.endpoints()?;
        let fitness = vec![None; members.len()];
        Ok(Self {
            members,
            login: config.login.clone(),
            base: Space::new(&config.prefix).epoch(),
            opening: Once::default(),
            state: Mutex::new(State { fitness, ..State::default() }),
            answers: AtomicU64::new(0),
            in_use: watch::Sender::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Problems found in the configuration, said once for all members.
    pub(super) fn concerns(&self) -> Vec<String> {
        self.said_by_all(Fitness::concerns)
    }

    /// What is good to know, said once for all members.
    pub(super) fn notes(&self) -> Vec<String> {
        self.said_by_all(Fitness::notes)
    }

    fn said_by_all(&self, what: fn(&Fitness) -> Vec<String>) -> Vec<String> {
        let mut all: Vec<_> = self.state().fitness.iter().flatten().flat_map(what).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Told the number of each new connection.
    pub(super) fn in_use(&self) -> watch::Receiver<u64> {
        self.in_use.subscribe()
    }

    /// Asks whichever member answers. Questions mean the same when they are put twice.
    pub(super) async fn ask<A: Ask>(&self, ask: A) -> Result<Answered<A::Answer>, Missed> {
        self.put(ask, None, false).await
    }

    /// Asks on the connection with this number, and on no other.
    pub(super) async fn ask_on<A: Ask>(&self, number: u64, ask: A) -> Result<Answered<A::Answer>, Missed> {
        self.put(ask, Some(number), false).await
    }

    /// Renews a lease. Says for how long, if it is there.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, Missed> {
        Ok(self.put(LeaseKeepAliveRequest { id }, None, true).await?.answer)
    }

    async fn put<A: Ask>(
        &self,
        ask: A,
        on: Option<u64>,
        by_stream: bool,
    ) -> Result<Answered<A::Answer>, Missed> {
        let (mut may_repeat, mut logged_in, mut reopened) = (false, false, false);
        let mut left = self.members.len();
        loop {
            let live = self.connection().await.map_err(|failure| in_doubt(failure, may_repeat))?;
            let number = live.number;
            if on.is_some_and(|on| on != number) {
                return Err(Missed::Moved { may_repeat });
            }
            left -= 1;
            let asking = Asking { link: self, number, answers: self.answers.load(Ordering::Relaxed) };
            let answer = if left == 0 {
                live.send(ask.clone(), by_stream).await
            } else {
                match tokio::time::timeout(MOVE_ON, live.send(ask.clone(), by_stream)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        drop(asking);
                        may_repeat = true;
                        continue;
                    }
                }
            };
            asking.answered();
            let status = match answer {
                Ok(answer) => return Ok(Answered { answer, may_repeat }),
                Err(status) => status,
            };
            if lacks_lease(&status) {
                return Err(Missed::Lease);
            }
            if wants_login(&status) && self.login.is_some() && !logged_in {
                logged_in = true;
                left += 1;
                self.cut(number, false);
                continue;
            }
            if was_not_sent(&status) && !reopened {
                reopened = true;
                left += 1;
                self.cut(number, false);
                continue;
            }
            let failure = classify(&status);
            may_repeat |= failure.kind == FailureKind::Unknown;
            if is_broken(&status) {
                self.cut(number, true);
                if left > 0 {
                    continue;
                }
            }
            return Err(in_doubt(failure, may_repeat).into());
        }
    }

    /// Opens a stream of watches on a connection.
    pub(super) async fn watch(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
    ) -> Result<(Streaming<WatchResponse>, u64), Failure> {
        let mut live = self.connection().await?;
        let requests = stream::unfold(requests, async |mut requests| {
            let next: WatchRequest = requests.recv().await?;
            Some((next, requests))
        });
        let mut request = live.request(requests);
        // A member that is cut off ends the stream instead of saying nothing.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let opened = tokio::time::timeout(CONNECT, live.open::<WatchRequest>(request)).await;
        match opened {
            Ok(Ok(stream)) => Ok((stream, live.number)),
            Ok(Err(status)) => {
                self.cut(live.number, is_broken(&status));
                Err(classify(&status))
            }
            Err(_) => {
                self.cut(live.number, true);
                Err(no_answer_within(CONNECT))
            }
        }
    }

    /// The connection, made if there is none.
    pub(super) async fn connection(&self) -> Result<Connection, Failure> {
        self.opening.get(|| self.live(), self.open()).await
    }

    /// The member on the connection with this number, if it tells the progress of a stream behind its events.
    pub(super) fn tells_progress(&self, number: u64) -> Option<u64> {
        let state = self.state();
        state.live.as_ref().filter(|live| live.number == number)?;
        state.fitness[state.next].as_ref()?.tells_progress()
    }

    /// The number of the last connection that was made.
    pub(super) fn number(&self) -> u64 {
        *self.in_use.borrow()
    }

    /// What a member said when the connection with this number was made.
    pub(super) fn greeting(&self, number: u64) -> Option<Greeting> {
        self.state().live.as_ref().filter(|live| live.number == number)?.greeting.clone()
    }

    fn live(&self) -> Option<Connection> {
        self.state().live.clone()
    }

    /// The connection with this number is over; the next one is to another member if there is one.
    pub(super) fn cut(&self, number: u64, move_on: bool) {
        let mut state = self.state();
        if state.live.as_ref().is_some_and(|live| live.number == number) {
            state.live = None;
            if move_on {
                state.next = (state.next + 1) % self.members.len();
            }
        }
    }
}

/// Without password and token.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members.iter().map(|(address, _)| address)).finish()
    }
}

/// A question that waits for its answer. Dropped before it came, it ends the connection if nothing else
/// came on it either.
struct Asking<'a> {
    link: &'a Link,
    number: u64,
    answers: u64,
}

impl Asking<'_> {
    fn answered(self) {
        self.link.answers.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.link.answers.load(Ordering::Relaxed) == self.answers {
            self.link.cut(self.number, true);
        }
    }
}

/// After a question that was sent and not answered, nothing is certain any more.
fn in_doubt(failure: Failure, may_repeat: bool) -> Failure {
    if may_repeat { failures::in_doubt(failure) } else { failure }
}

//! One connection to one member at a time: opened, logged in, and moved on to the next member.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::stream;
use tokio::sync::{mpsc::UnboundedReceiver, watch};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    config::{CONNECT, EtcdConfig},
    errors::{classify, classify_connecting, is_broken, lacks_lease, needs_no_login, wants_login},
    fitness::Fitness,
    proto::{
        Ask, AuthenticateRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, StatusRequest, WatchRequest,
        WatchResponse,
    },
};
use crate::backend::{Failure, FailureKind};

/// After how long without an answer the same question is put to another member.
const MOVE_ON: Duration = Duration::from_millis(1_500);
/// The lines of very long queues are long.
const LARGEST_ANSWER: usize = 256 << 20;

/// The members of an installation, as one client reaches them.
pub(super) struct Servers {
    members: Vec<(String, Endpoint)>,
    login: Option<(String, String)>,
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// How many answers came.
    answers: AtomicU64,
    /// The number of the connection in use: whoever listens on another one moves.
    in_use: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// Which member to try first.
    next: usize,
    /// How many connections were made.
    number: u64,
    /// What each member last said about itself.
    fitness: Vec<Option<Fitness>>,
}

/// A connection to a member.
#[derive(Clone)]
pub(super) struct Live {
    grpc: Grpc<Channel>,
    token: Option<MetadataValue<Ascii>>,
    pub(super) number: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Missed {
    /// The lease that was to be used is over; nothing changed.
    Lease,
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
            Missed::Lease => Self::unreachable("the lease is over"),
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

impl Servers {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, Failure> {
        let members = config.endpoints()?;
        let fitness = vec![None; members.len()];
        Ok(Self {
            members,
            login: config.login.clone(),
            opening: tokio::sync::Mutex::default(),
            state: Mutex::new(State { fitness, ..State::default() }),
            answers: AtomicU64::new(0),
            in_use: watch::Sender::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What should be mended, said once for all members.
    pub(super) fn concerns(&self) -> Vec<String> {
        let mut concerns: Vec<_> =
            self.state().fitness.iter().flatten().flat_map(Fitness::concerns).collect();
        concerns.sort();
        concerns.dedup();
        concerns
    }

    /// Told the number of each new connection.
    pub(super) fn in_use(&self) -> watch::Receiver<u64> {
        self.in_use.subscribe()
    }

    /// Asks whichever member answers. Questions mean the same when they are put twice.
    pub(super) async fn ask<A: Ask>(&self, ask: A) -> Result<Answered<A::Answer>, Missed> {
        self.put(ask, false).await
    }

    /// Renews a lease. Says for how long, if it is there.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, Missed> {
        Ok(self.put(LeaseKeepAliveRequest { id }, true).await?.answer)
    }

    async fn put<A: Ask>(&self, ask: A, by_stream: bool) -> Result<Answered<A::Answer>, Missed> {
        let (mut may_repeat, mut logged_in) = (false, false);
        let mut left = self.members.len();
        loop {
            let live = self.connection().await.map_err(|failure| in_doubt(failure, may_repeat))?;
            let number = live.number;
            left -= 1;
            let waits = Waits { servers: self, number, answers: self.answers.load(Ordering::Relaxed) };
            let answer = if left == 0 {
                live.send(ask.clone(), by_stream).await
            } else {
                match tokio::time::timeout(MOVE_ON, live.send(ask.clone(), by_stream)).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        drop(waits);
                        may_repeat = true;
                        continue;
                    }
                }
            };
            waits.over();
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
                Err(Failure::unreachable(format!("no answer within {CONNECT:?}")))
            }
        }
    }

    /// The connection, made if there is none.
    pub(super) async fn connection(&self) -> Result<Live, Failure> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _alone = self.opening.lock().await;
        match self.live() {
            Some(live) => Ok(live),
            None => self.open().await,
        }
    }

    fn live(&self) -> Option<Live> {
        self.state().live.clone()
    }

    /// Connects to the first member, from the next one on, that can grant locks.
    async fn open(&self) -> Result<Live, Failure> {
        let (first, number) = {
            let mut state = self.state();
            state.number += 1;
            (state.next, state.number)
        };
        let mut second_best = None;
        let mut why: Option<Failure> = None;
        for offset in 0..self.members.len() {
            let member = (first + offset) % self.members.len();
            let (address, endpoint) = &self.members[member];
            let made = tokio::time::timeout(CONNECT, self.make(endpoint, number)).await;
            let made = made
                .unwrap_or_else(|_| Err(Failure::unreachable(format!("no answer within {CONNECT:?}"))))
                .map_err(|failure| Failure {
                    reason: format!("{address}: {}", failure.reason).into(),
                    ..failure
                });
            match made {
                Ok((live, fitness)) => {
                    let obstacle = fitness.obstacle();
                    self.state().fitness[member] = Some(fitness);
                    match obstacle {
                        None => return Ok(self.use_now(live, member)),
                        Some(obstacle) => {
                            second_best.get_or_insert((live, member));
                            why.get_or_insert(Failure::unreachable(format!("{address}: {obstacle}")));
                        }
                    }
                }
                // What can be mended is worth more to know than what is down.
                Err(failure) if failure.kind == FailureKind::Denied => why = Some(failure),
                Err(failure) => {
                    why.get_or_insert(failure);
                }
            }
        }
        match second_best {
            // There may be a leader in a moment: better to wait for it there than to give up.
            Some((live, member)) => Ok(self.use_now(live, member)),
            None => Err(why.unwrap_or_else(|| Failure::unreachable("the URL names no member"))),
        }
    }

    fn use_now(&self, live: Live, member: usize) -> Live {
        let mut state = self.state();
        state.next = member;
        state.live = Some(live.clone());
        drop(state);
        self.in_use.send_replace(live.number);
        live
    }

    async fn make(&self, endpoint: &Endpoint, number: u64) -> Result<(Live, Fitness), Failure> {
        let channel = endpoint.connect().await.map_err(|error| classify_connecting(&error))?;
        let grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        let mut live = Live { grpc, token: None, number };
        let mut unused_login = false;
        if let Some((name, password)) = &self.login {
            let ask = AuthenticateRequest { name: name.clone(), password: password.clone() };
            match live.clone().ask(ask).await {
                Ok(answer) => {
                    let token = answer.token.parse();
                    live.token =
                        Some(token.map_err(|_| Failure::denied("the server's token cannot be used"))?);
                }
                Err(status) if needs_no_login(&status) => unused_login = true,
                Err(status) => return Err(before_asking(classify(&status))),
            }
        }
        let fitness = match live.clone().ask(StatusRequest {}).await {
            Ok(status) => Fitness::read(status, unused_login),
            Err(status) if status.code() == tonic::Code::PermissionDenied => Fitness::Silent,
            Err(status) => return Err(before_asking(classify(&status))),
        };
        Ok((live, fitness))
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

impl Live {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn send<A: Ask>(self, ask: A, by_stream: bool) -> Result<A::Answer, Status> {
        if by_stream { self.ask_by_stream(ask).await } else { self.ask(ask).await }
    }

    async fn ask<A: Ask>(mut self, ask: A) -> Result<A::Answer, Status> {
        let request = self.request(ask);
        self.ready().await?;
        let codec = ProstCodec::<A, A::Answer>::default();
        let answer = self.grpc.unary(request, PathAndQuery::from_static(A::PATH), codec).await?;
        Ok(answer.into_inner())
    }

    async fn ask_by_stream<A: Ask>(mut self, ask: A) -> Result<A::Answer, Status> {
        let request = self.request(stream::iter([ask]));
        let mut answers = self.open::<A>(request).await?;
        let answer = answers.message().await?;
        answer.ok_or_else(|| Status::unknown("the server ended the stream without an answer"))
    }

    async fn open<A: Ask>(
        &mut self,
        request: Request<impl futures_util::Stream<Item = A> + Send + 'static>,
    ) -> Result<Streaming<A::Answer>, Status> {
        self.ready().await?;
        let codec = ProstCodec::<A, A::Answer>::default();
        let answers = self.grpc.streaming(request, PathAndQuery::from_static(A::PATH), codec).await?;
        Ok(answers.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(error.into()))
    }
}

/// Without password and token.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members.iter().map(|(address, _)| address)).finish()
    }
}

/// A question that waits for its answer. Dropped before it came, it ends the connection if nothing else
/// came on it either.
struct Waits<'a> {
    servers: &'a Servers,
    number: u64,
    answers: u64,
}

impl Waits<'_> {
    fn over(self) {
        self.servers.answers.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.servers.answers.load(Ordering::Relaxed) == self.answers {
            self.servers.cut(self.number, true);
        }
    }
}

/// After a question that was sent and not answered, nothing is certain any more.
fn in_doubt(failure: Failure, may_repeat: bool) -> Failure {
    if may_repeat { Failure::unknown(failure.reason) } else { failure }
}

/// No question about a lock was sent yet.
fn before_asking(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Unknown => Failure::unreachable(failure.reason),
        _ => failure,
    }
}

/// For those who share them.
pub(super) type Shared = Arc<Servers>;

//! A session: one connection at a time, taken up again on any server until the ensemble says that it is over.
//!
//! Questions are sent in the order in which they are asked, and answered in that order. One task has
//! the connection; it ends when nobody has the session any more, and the server frees all its nodes then.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel},
        oneshot,
    },
};

use super::{
    config::ZookeeperConfig,
    connection::{self, Connection, Frames, Resume},
    errors::ZkError,
    wire::{self, Change, Reader, Request},
};
use crate::{
    backends,
    clock::{Clock, Moment},
};

/// A question that is not answered for so long is on a connection that is dead.
const SILENT: Duration = Duration::from_secs(5);
/// A server may pause for so long, whatever the timeout.
const HICCUP: Duration = Duration::from_secs(1);
/// How long one server may take to be connected.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest pause between two attempts to take up a session again.
const PAUSE: Duration = Duration::from_millis(500);

/// Who hears what happens to a session, at once and in order with the answers.
pub(super) trait Listener: Send + Sync {
    /// Something that was watched changed.
    fn changed(&self, session: u64, change: Change, path: &str);
    /// The session was taken up again: what was watched is not watched any more.
    fn resumed(&self, session: u64);
    /// The session is over, and with it all its nodes.
    fn expired(&self, session: u64);
}

/// One session.
pub(super) struct Session {
    /// Unlike the server's, never used twice.
    pub(super) key: u64,
    /// The timeout that was asked for.
    pub(super) asked: Duration,
    commands: UnboundedSender<Command>,
    status: Arc<Status>,
}

#[derive(Default)]
struct Status {
    id: AtomicI64,
    timeout_ms: AtomicU64,
    /// How many connections it had.
    connections: AtomicU64,
    expired: AtomicBool,
}

struct Command {
    request: Request,
    tell: oneshot::Sender<Told>,
}

/// An answer, and the number of the connection it came on.
type Told = (Result<Vec<u8>, ZkError>, u64);

/// The answer to a question that was asked already.
#[must_use = "an answer that is not awaited may not even be sent"]
pub(super) struct Answer(oneshot::Receiver<Told>);

impl Answer {
    /// The answer, and the number of the connection it came on: what it made the server watch is watched there.
    pub(super) async fn on_connection(self) -> Told {
        self.0.await.unwrap_or_else(|_| (Err(ended()), 0))
    }
}

impl Future for Answer {
    type Output = Result<Vec<u8>, ZkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(answer.map_or_else(|_| Err(ended()), |(answer, _)| answer))
    }
}

fn ended() -> ZkError {
    ZkError::Lost("the client was ended".into())
}

impl Session {
    /// A new session; it is begun when it is first asked something.
    pub(super) fn new(
        key: u64,
        config: Arc<ZookeeperConfig>,
        timeout: Duration,
        first_host: usize,
        listener: Box<dyn Listener>,
    ) -> Arc<Self> {
        let (commands, queue) = unbounded_channel();
        let status = Arc::new(Status::default());
        let task = Task {
            key,
            host: first_host % config.hosts.len(),
            config,
            timeout,
            queue,
            backlog: VecDeque::new(),
            status: Arc::clone(&status),
            listener,
            clock: Clock::machine(),
            heard: Moment::default(),
            password: vec![0; 16],
            last_zxid: 0,
            xid: 0,
        };
        // It ends with the session.
        drop(backends::attend(task.run()));
        Arc::new(Self { key, asked: timeout, commands, status })
    }

    /// Asks. The question is in its place already when this returns.
    pub(super) fn ask(&self, request: Request) -> Answer {
        let (tell, hear) = oneshot::channel();
        // The task ends only after the session.
        let _ = self.commands.send(Command { request, tell });
        Answer(hear)
    }

    /// The server's number of the session.
    pub(super) fn id(&self) -> i64 {
        self.status.id.load(Ordering::Acquire)
    }

    /// The timeout that was agreed on.
    pub(super) fn timeout(&self) -> Duration {
        match self.status.timeout_ms.load(Ordering::Acquire) {
            0 => self.asked,
            millis => Duration::from_millis(millis),
        }
    }

    /// Another number, another connection: what was watched on an earlier one is not watched any more.
    pub(super) fn connections(&self) -> u64 {
        self.status.connections.load(Ordering::Acquire)
    }

    pub(super) fn is_expired(&self) -> bool {
        self.status.expired.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x}, {:?})", self.id(), self.timeout())
    }
}

/// The task that has the connection.
struct Task {
    key: u64,
    config: Arc<ZookeeperConfig>,
    timeout: Duration,
    queue: UnboundedReceiver<Command>,
    backlog: VecDeque<Command>,
    status: Arc<Status>,
    listener: Box<dyn Listener>,
    clock: Clock,
    /// When a server last said something.
    heard: Moment,
    host: usize,
    password: Vec<u8>,
    last_zxid: i64,
    xid: i32,
}

/// A question that waits for its answer.
struct Pending {
    xid: i32,
    asked: Moment,
    tell: oneshot::Sender<Told>,
}

/// Why a connection is not used any more.
enum End {
    /// Nobody has the session any more.
    Closed,
    Cut,
}

impl Task {
    async fn run(mut self) {
        let mut pause = PAUSE / 16;
        // Nothing is connected before it is needed.
        match self.queue.recv().await {
            Some(command) => self.backlog.push_back(command),
            None => return,
        }
        loop {
            match self.attach().await {
                Ok(connection) => {
                    pause = PAUSE / 16;
                    match self.serve(connection).await {
                        End::Closed => return,
                        // Whichever server is well again; not at once the one that just was not.
                        End::Cut => self.host = (self.host + 1) % self.config.hosts.len(),
                    }
                }
                Err(ZkError::Expired) => return self.expire().await,
                Err(error) => {
                    if self.refuse_all(&error) {
                        return;
                    }
                    let has_begun = self.status.id.load(Ordering::Relaxed) != 0;
                    // Nobody relies on it any more; and where only the answers are lost, every attempt would
                    // keep its nodes in the way of others.
                    let timeout = Duration::from_millis(self.status.timeout_ms.load(Ordering::Relaxed));
                    if has_begun && self.clock.now().since(self.heard) > timeout {
                        return self.expire().await;
                    }
                    tokio::select! {
                        command = self.queue.recv() => match command {
                            Some(command) => self.backlog.push_back(command),
                            None => return,
                        },
                        () = tokio::time::sleep(pause), if has_begun => pause = (pause * 2).min(PAUSE),
                    }
                }
            }
        }
    }

    /// Connects to any server.
    async fn attach(&mut self) -> Result<Connection, ZkError> {
        let mut last = ZkError::NotSent("no server was tried".into());
        let limit = (self.timeout / 3).clamp(CONNECT / 10, CONNECT);
        for _ in 0..self.config.hosts.len() {
            let host = &self.config.hosts[self.host];
            let resume = Resume {
                session: self.status.id.load(Ordering::Relaxed),
                password: &self.password,
                last_zxid: self.last_zxid,
                timeout: self.timeout,
            };
            let opened = tokio::time::timeout(limit, connection::open(&self.config, host, &resume)).await;
            let opened = opened
                .unwrap_or_else(|_| Err(ZkError::NotSent(format!("no answer within {limit:?}").into())));
            let named = |why: &str| format!("{}:{}: {why}", host.0, host.1).into();
            match opened {
                Ok(connection) => {
                    self.password.clone_from(&connection.password);
                    self.status.id.store(connection.session, Ordering::Release);
                    let millis = u64::try_from(connection.timeout.as_millis()).unwrap_or(u64::MAX);
                    self.status.timeout_ms.store(millis, Ordering::Release);
                    if self.status.connections.fetch_add(1, Ordering::AcqRel) > 0 {
                        self.listener.resumed(self.key);
                    }
                    return Ok(connection);
                }
                Err(ZkError::Expired) => return Err(ZkError::Expired),
                Err(ZkError::NotSent(why) | ZkError::Lost(why)) => last = ZkError::NotSent(named(&why)),
                // Another server would say the same.
                Err(ZkError::Denied(why)) => return Err(ZkError::Denied(named(&why))),
                Err(error) => last = error,
            }
            self.host = (self.host + 1) % self.config.hosts.len();
        }
        Err(last)
    }

    /// Nothing can be asked: says so to all who did. Says whether nobody has the session any more.
    fn refuse_all(&mut self, error: &ZkError) -> bool {
        for command in self.backlog.drain(..) {
            let _ = command.tell.send((Err(error.clone()), 0));
        }
        loop {
            match self.queue.try_recv() {
                Ok(command) => drop(command.tell.send((Err(error.clone()), 0))),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// The session is over.
    async fn expire(mut self) {
        self.status.expired.store(true, Ordering::Release);
        self.listener.expired(self.key);
        self.refuse_all(&ZkError::Expired);
        while let Some(command) = self.queue.recv().await {
            let _ = command.tell.send((Err(ZkError::Expired), 0));
        }
    }

    /// Sends and hears until the connection or the session ends.
    async fn serve(&mut self, connection: Connection) -> End {
        let Connection { stream, mut frames, timeout, .. } = connection;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut out, mut sent) = (Vec::new(), 0);
        let mut pending = VecDeque::new();
        self.heard = self.clock.now();
        let mut spoke = self.heard;
        let mut closing = false;
        for command in std::mem::take(&mut self.backlog) {
            self.put(command, &mut out, &mut pending, spoke);
        }
        let why: Arc<str> = loop {
            let now = self.clock.now();
            // Pings are sent after a third: whoever hears nothing for twice as long is cut off.
            let limit = (timeout / 3 * 2).max(HICCUP);
            let late = pending.front().map(|first: &Pending| first.asked + SILENT.min(limit));
            let end = late.into_iter().fold(self.heard + limit, Moment::min);
            if now >= end {
                break "no answer came for too long".into();
            }
            if now >= spoke + timeout / 3 {
                Request::ping().put(wire::XID_PING, &mut out);
                spoke = now;
            }
            tokio::select! {
                biased;
                read = reader.read_buf(frames.room()) => match read {
                    Ok(0) if closing => return End::Closed,
                    Ok(0) => break "the server ended the connection".into(),
                    Err(error) => break format!("the connection was lost: {error}").into(),
                    Ok(_) => {
                        self.heard = self.clock.now();
                        if let Err(error) = self.hear(&mut frames, &mut pending) {
                            break format!("{error:?}").into();
                        }
                    }
                },
                command = self.queue.recv(), if !closing => match command {
                    Some(command) => {
                        spoke = self.clock.now();
                        self.put(command, &mut out, &mut pending, spoke);
                        while let Ok(command) = self.queue.try_recv() {
                            self.put(command, &mut out, &mut pending, spoke);
                        }
                    }
                    None => {
                        closing = true;
                        Request::close().put(self.next_xid(), &mut out);
                    }
                },
                wrote = writer.write(&out[sent..]), if sent < out.len() => match wrote {
                    Ok(count) => {
                        sent += count;
                        if sent == out.len() {
                            out.clear();
                            sent = 0;
                            // Encrypted bytes may wait for more.
                            if self.config.tls.is_some() && writer.flush().await.is_err() {
                                break "the connection was lost".into();
                            }
                        }
                    }
                    Err(error) => break format!("the connection was lost: {error}").into(),
                },
                () = tokio::time::sleep(end.min(spoke + timeout / 3).since(now)) => {}
            }
        };
        let host = &self.config.hosts[self.host];
        let why: Arc<str> = format!("{}:{}: {why}", host.0, host.1).into();
        for question in pending {
            let _ = question.tell.send((Err(ZkError::Lost(Arc::clone(&why))), 0));
        }
        if closing { End::Closed } else { End::Cut }
    }

    fn next_xid(&mut self) -> i32 {
        self.xid = self.xid.checked_add(1).unwrap_or(1);
        self.xid
    }

    fn put(&mut self, command: Command, out: &mut Vec<u8>, pending: &mut VecDeque<Pending>, now: Moment) {
        // Whoever asked went away before it was sent: nothing needs to happen any more.
        if command.tell.is_closed() {
            return;
        }
        let xid = self.next_xid();
        command.request.put(xid, out);
        pending.push_back(Pending { xid, asked: now, tell: command.tell });
    }

    /// Takes all whole messages.
    fn hear(&mut self, frames: &mut Frames, pending: &mut VecDeque<Pending>) -> Result<(), ZkError> {
        while let Some(frame) = frames.next()? {
            let mut read = Reader(frame);
            let (xid, zxid, error) = (read.int()?, read.long()?, read.int()?);
            match xid {
                wire::XID_EVENT => {
                    let (change, path) = wire::event(read.0)?;
                    self.listener.changed(self.key, change, &path);
                    continue;
                }
                wire::XID_PING | wire::XID_AUTH => continue,
                _ => {}
            }
            self.last_zxid = self.last_zxid.max(zxid);
            // The answer to the request that ends the session belongs to nobody.
            let Some(question) = pending.pop_front() else { continue };
            if question.xid != xid {
                return Err(ZkError::garbled());
            }
            let answer = if error == 0 { Ok(read.0.to_vec()) } else { Err(ZkError::Code(error)) };
            let _ = question.tell.send((answer, self.status.connections.load(Ordering::Relaxed)));
        }
        Ok(())
    }
}

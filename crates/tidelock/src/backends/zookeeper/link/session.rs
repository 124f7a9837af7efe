//! A session: one connection at a time, taken up again on any server until the ensemble says that it is over.
//!
//! Questions are sent in the order in which they are asked, and answered in that order. One task has
//! the connection (`task`); it ends when nobody has the session any more, and the server frees all its nodes then.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::{
    mpsc::{UnboundedSender, unbounded_channel},
    oneshot,
};

use super::{
    super::{errors::ZkError, settings::ZookeeperSettings},
    task::Task,
    wire::{Change, Request, Stat},
};
use crate::backends::shared::attend;

/// Is told what happens to a session, at once and in order with the answers.
pub(crate) trait Watcher: Send + Sync {
    /// A node was read to be [watched](Session::watch). If it was found, it is watched on this connection.
    fn watched(&self, session: u64, path: &str, found: Option<Stat>, connection: u64);
    /// Something that was watched changed.
    fn changed(&self, session: u64, change: Change, path: &str);
    /// The connection was lost: nothing is told before the session is taken up again.
    fn cut(&self, _session: u64) {}
    /// The session was taken up again: what was watched is not watched any more.
    fn resumed(&self, session: u64);
    /// The session is over, and with it all its nodes.
    fn expired(&self, session: u64);
}

/// One session.
pub(crate) struct Session {
    /// Unlike the server's, never used twice.
    pub(crate) key: u64,
    /// The timeout that was asked for.
    pub(crate) asked: Duration,
    commands: UnboundedSender<Command>,
    status: Arc<Status>,
}

/// What its task says about a session.
#[derive(Default)]
pub(super) struct Status {
    pub(super) id: AtomicI64,
    pub(super) timeout_ms: AtomicU64,
    /// The last transaction that a server told of.
    pub(super) zxid: AtomicI64,
    /// How many connections it had.
    pub(super) connections: AtomicU64,
    pub(super) expired: AtomicBool,
}

/// A question on its way to the task.
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) tell: Tell,
}

/// Who gets the answer.
pub(super) enum Tell {
    Asker(oneshot::Sender<Told>),
    /// The watcher, about the node at this path.
    Watcher(String),
}

/// An answer, and the number of the connection it came on.
pub(super) type Told = (Result<Vec<u8>, ZkError>, u64);

/// The answer to a question that was asked already.
#[must_use = "an answer that is not awaited may not even be sent"]
pub(crate) struct Answer(oneshot::Receiver<Told>);

impl Answer {
    /// The answer, and the number of the connection it came on: what it made the server watch is watched there.
    pub(crate) async fn on_connection(self) -> Told {
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
    pub(crate) fn new(
        key: u64,
        config: Arc<ZookeeperSettings>,
        timeout: Duration,
        first_host: usize,
        watcher: Arc<dyn Watcher>,
    ) -> Arc<Self> {
        let (commands, queue) = unbounded_channel();
        let status = Arc::new(Status::default());
        let task = Task::new(key, config, timeout, first_host, queue, Arc::clone(&status), watcher);
        // It ends with the session.
        drop(attend(task.run()));
        Arc::new(Self { key, asked: timeout, commands, status })
    }

    /// Asks. The question is in its place already when this returns.
    pub(crate) fn ask(&self, request: Request) -> Answer {
        let (tell, hear) = oneshot::channel();
        // The task ends only after the session.
        let _ = self.commands.send(Command { request, tell: Tell::Asker(tell) });
        Answer(hear)
    }

    /// Has a node watched. The watcher is told whether it was there; nobody is told if the connection is lost,
    /// because nothing is watched after that anyway.
    pub(crate) fn watch(&self, path: &str) {
        // By a read of its data: one of a node that is gone leaves no watch behind.
        let (request, tell) = (Request::get_data(path, true), Tell::Watcher(path.to_owned()));
        let _ = self.commands.send(Command { request, tell });
    }

    /// The server's number of the session.
    pub(crate) fn id(&self) -> i64 {
        self.status.id.load(Ordering::Acquire)
    }

    /// The last transaction that a server told of; 0 before it did.
    pub(crate) fn zxid(&self) -> i64 {
        self.status.zxid.load(Ordering::Acquire)
    }

    /// The timeout that was agreed on.
    pub(crate) fn timeout(&self) -> Duration {
        match self.status.timeout_ms.load(Ordering::Acquire) {
            0 => self.asked,
            millis => Duration::from_millis(millis),
        }
    }

    /// Another number, another connection: what was watched on an earlier one is not watched any more.
    pub(crate) fn connections(&self) -> u64 {
        self.status.connections.load(Ordering::Acquire)
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.status.expired.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x}, {:?})", self.id(), self.timeout())
    }
}

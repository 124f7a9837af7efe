//! The task that has the connection of a session: it sends questions, tells answers, and connects again.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::{UnboundedReceiver, error::TryRecvError},
};

use super::{
    super::{
        errors::{NO_NODE, ZkError},
        settings::ZookeeperSettings,
    },
    connection::{self, Connection, Frames, Resume},
    session::{Command, Status, Tell, Watcher},
    wire::{self, Reader, Request},
};
use crate::{
    backends::shared::{address::host_and_port, failures::no_answer_within},
    clock::{Clock, Moment},
};

/// A connection is dead if questions are open on it, and none of them is answered for this long. A busy server may
/// take longer for the last of very many: to cut it off would only make it answer all of them again.
const SILENT: Duration = Duration::from_secs(5);
/// A server may pause for this long, whatever the timeout.
const HICCUP: Duration = Duration::from_secs(1);
/// How long one server may take to be connected.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest pause between two attempts to take up a session again.
const PAUSE: Duration = Duration::from_millis(500);

/// The task that has the connection.
pub(super) struct Task {
    key: u64,
    config: Arc<ZookeeperSettings>,
    timeout: Duration,
    queue: UnboundedReceiver<Command>,
    backlog: VecDeque<Command>,
    status: Arc<Status>,
    watcher: Arc<dyn Watcher>,
    clock: Clock,
    /// When a server last said something, and when it last answered a question.
    heard: Moment,
    answered: Moment,
    host: usize,
    password: Vec<u8>,
    last_zxid: i64,
    xid: i32,
}

/// A question that waits for its answer.
struct Pending {
    xid: i32,
    asked: Moment,
    tell: Tell,
}

/// Why a connection is not used any more.
enum End {
    /// Nobody has the session any more.
    Closed,
    Cut,
}

impl Task {
    pub(super) fn new(
        key: u64,
        config: Arc<ZookeeperSettings>,
        timeout: Duration,
        first_host: usize,
        queue: UnboundedReceiver<Command>,
        status: Arc<Status>,
        watcher: Arc<dyn Watcher>,
    ) -> Self {
        Self {
            key,
            host: first_host % config.hosts.len(),
            config,
            timeout,
            queue,
            backlog: VecDeque::new(),
            status,
            watcher,
            clock: Clock::machine(),
            heard: Moment::default(),
            answered: Moment::default(),
            password: vec![0; 16],
            last_zxid: 0,
            xid: 0,
        }
    }

    /// Runs until nobody has the session any more.
    pub(super) async fn run(mut self) {
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
                        End::Cut => {
                            self.watcher.cut(self.key);
                            self.host = (self.host + 1) % self.config.hosts.len();
                        }
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
            let opened = opened.unwrap_or_else(|_| Err(ZkError::NotSent(no_answer_within(limit).reason)));
            let named = |why: &str| format!("{}: {why}", host_and_port(&host.0, host.1)).into();
            match opened {
                Ok(connection) => {
                    self.password.clone_from(&connection.password);
                    self.status.id.store(connection.session, Ordering::Release);
                    let millis = u64::try_from(connection.timeout.as_millis()).unwrap_or(u64::MAX);
                    self.status.timeout_ms.store(millis, Ordering::Release);
                    if self.status.connections.fetch_add(1, Ordering::AcqRel) > 0 {
                        self.watcher.resumed(self.key);
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
        for command in std::mem::take(&mut self.backlog) {
            self.tell(command.tell, Err(error.clone()), 0);
        }
        loop {
            match self.queue.try_recv() {
                Ok(command) => self.tell(command.tell, Err(error.clone()), 0),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// The session is over.
    async fn expire(mut self) {
        self.status.expired.store(true, Ordering::Release);
        self.watcher.expired(self.key);
        self.refuse_all(&ZkError::Expired);
        while let Some(command) = self.queue.recv().await {
            self.tell(command.tell, Err(ZkError::Expired), 0);
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
            // Pings are sent after a third: a client that hears nothing for twice as long is cut off.
            let limit = (timeout / 3 * 2).max(HICCUP);
            let open = pending.front().map(|first: &Pending| first.asked.max(self.answered));
            let late = open.map(|since| since + SILENT.min(limit));
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
        let why: Arc<str> = format!("{}: {why}", host_and_port(&host.0, host.1)).into();
        for question in pending {
            self.tell(question.tell, Err(ZkError::Lost(Arc::clone(&why))), 0);
        }
        if closing { End::Closed } else { End::Cut }
    }

    fn next_xid(&mut self) -> i32 {
        self.xid = self.xid.checked_add(1).unwrap_or(1);
        self.xid
    }

    fn put(&mut self, command: Command, out: &mut Vec<u8>, pending: &mut VecDeque<Pending>, now: Moment) {
        // The call was given up before it was sent: nothing needs to happen any more.
        if matches!(&command.tell, Tell::Asker(tell) if tell.is_closed()) {
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
                    self.watcher.changed(self.key, change, &path);
                    continue;
                }
                wire::XID_PING | wire::XID_AUTH => continue,
                _ => {}
            }
            self.last_zxid = self.last_zxid.max(zxid);
            self.status.zxid.store(self.last_zxid, Ordering::Release);
            // The answer to the request that ends the session belongs to nobody.
            let Some(question) = pending.pop_front() else { continue };
            self.answered = self.heard;
            if question.xid != xid {
                return Err(ZkError::garbled());
            }
            let answer = if error == 0 { Ok(read.0.to_vec()) } else { Err(ZkError::Code(error)) };
            self.tell(question.tell, answer, self.status.connections.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Tells the answer that came on this connection, or why none did.
    fn tell(&self, tell: Tell, answer: Result<Vec<u8>, ZkError>, connection: u64) {
        match tell {
            Tell::Asker(tell) => drop(tell.send((answer, connection))),
            Tell::Watcher(path) => match answer.and_then(|answer| wire::data(&answer)) {
                Ok((_, stat)) => self.watcher.watched(self.key, &path, Some(stat), connection),
                Err(error) if error.is(NO_NODE) => self.watcher.watched(self.key, &path, None, connection),
                Err(_) => {}
            },
        }
    }
}

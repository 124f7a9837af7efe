//! One connection to one server: opened, greeted, logged in.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    super::{
        errors::ZkError,
        settings::{Login, ZookeeperSettings},
    },
    sasl,
    wire::{self, Reader, Request},
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{
        tcp::{self, Bytes},
        tls,
    },
    model::claim::random_u64,
};

/// A connection that is part of a session.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Bytes>,
    pub(crate) frames: Frames,
    /// The timeout that the server agreed to.
    pub(crate) timeout: Duration,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

/// A session to be taken up again; zero for a new one.
pub(crate) struct Resume<'a> {
    pub(crate) session: i64,
    pub(crate) password: &'a [u8],
    pub(crate) last_zxid: i64,
    pub(crate) timeout: Duration,
}

/// What was read and is not yet a whole message.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    start: usize,
}

impl Frames {
    /// Room to read into.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(8 << 10);
        &mut self.buffer
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, ZkError> {
        let rest = &self.buffer[self.start..];
        let Some((length, rest)) = rest.split_at_checked(4) else { return Ok(None) };
        let length = Reader(length).int()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= wire::MAX_FRAME);
        let length = length.ok_or_else(ZkError::garbled)?;
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }
}

/// Connects to a host and begins or takes up a session there.
pub(crate) async fn open(
    config: &ZookeeperSettings,
    host: &(String, u16),
    resume: &Resume<'_>,
) -> Result<Connection, ZkError> {
    let mut stream = connect(config, host).await?;
    let millis = i32::try_from(resume.timeout.as_millis()).unwrap_or(i32::MAX);
    let greeting = wire::connect(resume.last_zxid, millis, resume.session, resume.password);
    let mut frames = Frames::default();
    send(&mut *stream, &greeting).await?;
    let (timeout, session, password) = wire::connected(&receive(&mut *stream, &mut frames).await?)?;
    // A server may hand out another session instead of saying that this one is over.
    if timeout <= 0 || resume.session != 0 && session != resume.session {
        return Err(ZkError::Expired);
    }
    if let Some(login) = &config.login {
        log_in(&mut *stream, &mut frames, login).await?;
    }
    let timeout = Duration::from_millis(u64::try_from(timeout).unwrap_or(0));
    Ok(Connection { stream, frames, timeout, session, password })
}

pub(crate) async fn connect(
    config: &ZookeeperSettings,
    (host, port): &(String, u16),
) -> Result<Box<dyn Bytes>, ZkError> {
    let connected = async {
        let stream = tcp::connect(host, *port).await?;
        Ok(match &config.tls {
            None => Box::new(stream) as Box<dyn Bytes>,
            Some(tls) => Box::new(tls::encrypt(stream, tls, host).await?),
        })
    };
    connected.await.map_err(|failure: Failure| match failure.kind {
        FailureKind::Denied => ZkError::Denied(failure.reason),
        FailureKind::Unreachable | FailureKind::Unknown => ZkError::NotSent(failure.reason),
    })
}

async fn log_in(stream: &mut dyn Bytes, frames: &mut Frames, login: &Login) -> Result<(), ZkError> {
    if !login.sasl {
        let secret = format!("{}:{}", login.user, login.password);
        let answer =
            exchange(stream, frames, wire::XID_AUTH, &Request::auth("digest", secret.as_bytes())).await;
        return answer.map(drop);
    }
    let challenge = exchange(stream, frames, 0, &Request::sasl(b"")).await?;
    let answer = sasl::answer(Reader(&challenge).bytes()?, login, random_u64())?;
    exchange(stream, frames, 0, &Request::sasl(&answer)).await.map(drop)
}

/// Asks one thing before anything else is asked.
async fn exchange(
    stream: &mut dyn Bytes,
    frames: &mut Frames,
    xid: i32,
    request: &Request,
) -> Result<Vec<u8>, ZkError> {
    let failed = || ZkError::Denied("the login failed: correct the user and password in the URL".into());
    let mut out = Vec::new();
    request.put(xid, &mut out);
    send(stream, &out).await?;
    // A server that refuses a login just ends the connection.
    let answer = receive(stream, frames).await.map_err(|_| failed())?;
    let mut read = Reader(&answer);
    let (_, _, error) = (read.int()?, read.long()?, read.int()?);
    if error != 0 {
        return Err(failed());
    }
    Ok(read.0.to_vec())
}

async fn send(stream: &mut dyn Bytes, bytes: &[u8]) -> Result<(), ZkError> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| ZkError::NotSent(format!("the connection was lost: {error}").into()))
}

async fn receive(stream: &mut dyn Bytes, frames: &mut Frames) -> Result<Vec<u8>, ZkError> {
    loop {
        if let Some(frame) = frames.next()? {
            return Ok(frame.to_vec());
        }
        match stream.read_buf(frames.room()).await {
            Ok(0) => return Err(ZkError::NotSent("the server ended the connection".into())),
            Ok(_) => {}
            Err(error) => return Err(ZkError::NotSent(format!("the connection was lost: {error}").into())),
        }
    }
}

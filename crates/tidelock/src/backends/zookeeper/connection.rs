//! One connection to one server: opened, greeted, logged in.

use std::{sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    config::{Login, ZookeeperConfig},
    errors::ZkError,
    sasl,
    wire::{self, Reader, Request},
};
use crate::claim::random_u64;

/// Bytes to and from a server, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that is part of a session.
pub(super) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) frames: Frames,
    /// The timeout that the server agreed to.
    pub(super) timeout: Duration,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

/// A session to be taken up again; zero for a new one.
pub(super) struct Resume<'a> {
    pub(super) session: i64,
    pub(super) password: &'a [u8],
    pub(super) last_zxid: i64,
    pub(super) timeout: Duration,
}

/// What was read and is not yet a whole message.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    start: usize,
}

impl Frames {
    /// Room to read into.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(8 << 10);
        &mut self.buffer
    }

    /// The next whole message.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ZkError> {
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
pub(super) async fn open(
    config: &ZookeeperConfig,
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

pub(super) async fn connect(
    config: &ZookeeperConfig,
    host: &(String, u16),
) -> Result<Box<dyn Stream>, ZkError> {
    let refused = |error: std::io::Error| {
        let mend = "start the server, or mend host and port in the URL";
        ZkError::NotSent(format!("{error}: {mend}").into())
    };
    let stream = TcpStream::connect((host.0.as_str(), host.1)).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    let Some(tls) = &config.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.0.clone())
        .map_err(|_| ZkError::Denied("the host in the URL cannot be in a certificate".into()))?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
    let stream = stream.map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => ZkError::Denied(
            format!("the certificate of the server is not valid ({why:?}): mend it or the URL's option ca")
                .into(),
        ),
        _ => ZkError::NotSent(format!("no TLS with the server: {error}").into()),
    })?;
    Ok(Box::new(stream))
}

async fn log_in(stream: &mut dyn Stream, frames: &mut Frames, login: &Login) -> Result<(), ZkError> {
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
    stream: &mut dyn Stream,
    frames: &mut Frames,
    xid: i32,
    request: &Request,
) -> Result<Vec<u8>, ZkError> {
    let failed = || ZkError::Denied("the login failed: mend user and password in the URL".into());
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

async fn send(stream: &mut dyn Stream, bytes: &[u8]) -> Result<(), ZkError> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| ZkError::NotSent(format!("the connection was lost: {error}").into()))
}

async fn receive(stream: &mut dyn Stream, frames: &mut Frames) -> Result<Vec<u8>, ZkError> {
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

/// What a server says about itself, if it lets itself be asked.
pub(super) async fn status(config: &ZookeeperConfig, host: &(String, u16)) -> Option<String> {
    let mut stream = connect(config, host).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    stream.flush().await.ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.ok()?;
    String::from_utf8(text).ok().filter(|text| text.contains("Mode:"))
}

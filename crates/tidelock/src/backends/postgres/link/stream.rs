//! Bytes to and from a server, encrypted or not.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};

use super::super::settings::{Address, PostgresSettings, Tls};
use crate::{
    backend::Failure,
    backends::shared::{
        tcp::{self, Bytes},
        tls,
    },
};

/// Asks for TLS: its length, and a number that no version of the protocol has.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The largest message before the login is done, and all of them together. A server says little then, and a peer that is none
/// may say anything.
const GREETING: Limits = Limits { message: 64 << 10, answer: 1 << 20 };
/// The largest message later, and the largest answer to one statement: a list of all locks is by far the longest.
const SERVICE: Limits = Limits { message: 16 << 20, answer: 64 << 20 };

/// How much may come, in bytes. The driver keeps a message until it is whole, and the rows of an answer until its end.
#[derive(Clone, Copy)]
struct Limits {
    message: u64,
    answer: u64,
}

/// A connection that looks at what comes: at the length of each message, before the driver waits for all of it, and at which
/// process the server said it was, for the cancelling of statements.
///
/// The driver has no limit on the first, and keeps the second to itself. A server says the truth; what stands between, and moves
/// statements from one process to another, has to say something else.
pub(super) struct Stream {
    bytes: Box<dyn Bytes>,
    messages: Messages,
}

/// Where in the stream of messages we are. A message is a letter, a length that counts itself, and what follows.
struct Messages {
    limits: Limits,
    head: [u8; 5],
    has: usize,
    /// What is still to come of the message.
    left: u64,
    /// What came since the last answer ended.
    answer: u64,
    process: Arc<AtomicI32>,
    /// The first bytes of a message that says the process.
    key: Option<Vec<u8>>,
}

/// Connects to a server. The number is filled in when the driver has logged in.
pub(super) async fn open(
    config: &PostgresSettings,
    address: &Address,
) -> Result<(Stream, Arc<AtomicI32>), Failure> {
    let bytes: Box<dyn Bytes> = match address {
        #[cfg(unix)]
        Address::Socket(directory, port) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            Box::new(tokio::net::UnixStream::connect(path).await.map_err(tcp::refused)?)
        }
        #[cfg(not(unix))]
        Address::Socket(..) => {
            return Err(Failure::denied("there are no sockets of that kind on this system"));
        }
        Address::Host(host, port) => {
            let stream = tcp::connect(host, *port).await?;
            match &config.tls {
                Tls::Off => Box::new(stream),
                Tls::On(tls) => Box::new(encrypt(stream, tls, host).await?),
            }
        }
    };
    let process = Arc::new(AtomicI32::new(0));
    Ok((Stream { bytes, messages: Messages::new(Arc::clone(&process)) }, process))
}

async fn encrypt(
    mut stream: TcpStream,
    config: &Arc<rustls::ClientConfig>,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
    stream.write_all(&SSL_REQUEST).await.map_err(tls::no_tls)?;
    if stream.read_u8().await.map_err(tls::no_tls)? != b'S' {
        return Err(Failure::denied(
            "the server does not speak TLS: set ssl = on there, or accept that others may read along with ?sslmode=disable in the URL",
        ));
    }
    tls::encrypt(stream, config, host).await
}

impl Messages {
    fn new(process: Arc<AtomicI32>) -> Self {
        Self { limits: GREETING, head: [0; 5], has: 0, left: 0, answer: 0, process, key: None }
    }

    /// Follows what came. An error if it is, or announces, more than a server says.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let wanted = (self.head.len() - self.has).min(bytes.len());
                let (some, rest) = bytes.split_at(wanted);
                self.head[self.has..self.has + wanted].copy_from_slice(some);
                self.has += wanted;
                bytes = rest;
                if self.has < self.head.len() {
                    break;
                }
                self.begin()?;
            }
            let length = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (some, rest) = bytes.split_at(length);
            if let Some(key) = &mut self.key {
                key.extend_from_slice(some);
            }
            self.left -= length as u64;
            bytes = rest;
            if self.left == 0 {
                self.end();
            }
        }
        Ok(())
    }

    /// The head of a message is there.
    fn begin(&mut self) -> io::Result<()> {
        let [kind, a, b, c, d] = self.head;
        let length = u64::from(u32::from_be_bytes([a, b, c, d]));
        let said = char::from(kind).escape_default();
        let nonsense = |what: String| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{what}: is it a PostgreSQL server, and is nothing broken between?"),
            )
        };
        if length < 4 {
            return Err(nonsense(format!("the peer sent a message '{said}' with the length {length}")));
        }
        if length > self.limits.message {
            return Err(nonsense(format!(
                "the peer announced a message '{said}' of {length} bytes, and at most {} are taken",
                self.limits.message
            )));
        }
        // What is told unasked is no part of an answer: there may be much of it while nothing is asked.
        if kind != b'A' || self.is_greeting() {
            self.answer += length;
        }
        if self.answer > self.limits.answer {
            return Err(nonsense(format!(
                "the peer sent more than {} bytes without an end",
                self.limits.answer
            )));
        }
        self.left = length - 4;
        self.has = 0;
        self.key = (kind == b'K' && self.is_greeting()).then(Vec::new);
        Ok(())
    }

    /// A message is whole.
    fn end(&mut self) {
        if let Some([a, b, c, d, ..]) = self.key.take().as_deref() {
            self.process.store(i32::from_be_bytes([*a, *b, *c, *d]), Ordering::Relaxed);
        }
        if self.head[0] == b'Z' {
            self.limits = SERVICE;
            self.answer = 0;
        }
    }

    fn is_greeting(&self) -> bool {
        self.limits.answer == GREETING.answer
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.bytes).poll_read(context, into))?;
        Poll::Ready(self.messages.read(&into.filled()[before..]))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> (Messages, Arc<AtomicI32>) {
        let process = Arc::new(AtomicI32::new(0));
        (Messages::new(Arc::clone(&process)), process)
    }

    fn message(kind: u8, length: u32) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(length.to_be_bytes());
        bytes.resize(length as usize + 1, 0);
        bytes
    }

    #[test]
    fn the_process_is_read_from_a_greeting_in_pieces() {
        let (mut messages, process) = messages();
        let bytes =
            b"R\0\0\0\x08\0\0\0\0S\0\0\0\x08a\0b\0K\0\0\0\x0c\0\0\x01\x02\x09\x09\x09\x09Z\0\0\0\x05I";
        for byte in bytes {
            assert!(messages.is_greeting());
            messages.read(&[*byte]).unwrap();
        }
        assert!(!messages.is_greeting());
        assert_eq!(process.load(Ordering::Relaxed), 258);
        // Nobody else says it later.
        messages.read(b"K\0\0\0\x0c\0\0\x09\x09\x09\x09\x09\x09").unwrap();
        assert_eq!(process.load(Ordering::Relaxed), 258);
    }

    #[test]
    fn a_message_that_announces_too_much_is_refused_by_its_head() {
        let (mut messages, _) = messages();
        messages.read(&message(b'N', 65_536)).unwrap();
        let refused = messages.read(&[b'N', 0, 1, 0, 1]).unwrap_err();
        assert!(refused.to_string().contains("65537 bytes"), "{refused}");
        let (mut messages, _) = self::messages();
        messages.read(b"Z\0\0\0\x05I").unwrap();
        messages.read(&message(b'D', 65_537)).unwrap();
        assert!(messages.read(&[b'D', 1, 0, 0, 1]).is_err());
        for short in 0..4 {
            assert!(self::messages().0.read(&[b'R', 0, 0, 0, short]).is_err());
        }
    }

    #[test]
    fn messages_without_an_end_are_refused_and_pushes_have_none() {
        let (mut messages, _) = messages();
        let some = message(b'N', 60_000);
        let taken = (0..1_000).take_while(|_| messages.read(&some).is_ok()).count();
        assert_eq!(taken, (1 << 20) / 60_000, "before the login");
        let (mut messages, _) = self::messages();
        messages.read(b"Z\0\0\0\x05I").unwrap();
        let (row, push) = (message(b'D', 1 << 20), message(b'A', 8_000));
        for _ in 0..50_000 {
            messages.read(&push).unwrap();
        }
        let taken = (0..1_000).take_while(|_| messages.read(&row).is_ok()).count();
        assert_eq!(taken, 64);
        let (mut messages, _) = self::messages();
        for _ in 0..1_000 {
            messages.read(b"Z\0\0\0\x05I").unwrap();
            messages.read(&row).unwrap();
        }
    }
}

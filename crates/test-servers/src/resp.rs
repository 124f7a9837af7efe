//! As much of the Redis protocol as it takes to ask a server something.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Error;

/// A plain connection to a Redis server, for asking and for checking what a server really holds.
#[derive(Debug)]
pub struct RedisConnection {
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + fmt::Debug + Send + Sync {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// How long an answer is waited for.
const LIMIT: Duration = Duration::from_secs(2);

impl RedisConnection {
    /// Connects; answers are waited for at most two seconds.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn open(addr: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect_timeout(&addr, LIMIT)
            .and_then(|stream| {
                stream.set_read_timeout(Some(LIMIT))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .map_err(Error::context(format!("no connection to {addr}")))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// As [`open`](Self::open), to the Unix socket of a server.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn open_socket(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path)
            .and_then(|stream| {
                stream.set_read_timeout(Some(LIMIT))?;
                Ok(stream)
            })
            .map_err(Error::context(format!("no connection to {}", path.display())))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends one command and returns the answer as text: nothing for nil, the elements of an
    /// array one per line.
    ///
    /// # Errors
    ///
    /// When the connection breaks, the answer does not come, or the server answers with an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Option<String>, Error> {
        self.send(command)?;
        self.reply()
    }

    /// As [`call`](Self::call), for an array whose elements may hold line breaks themselves.
    pub(crate) fn call_for_list(&mut self, command: &[&str]) -> Result<Vec<String>, Error> {
        self.send(command)?;
        let line = self.line()?;
        match line.strip_prefix('*') {
            Some(rest) => self.elements(length(rest)?.unwrap_or_default()),
            None => Err(Error::new(format!("the server says {line} and not a list"))),
        }
    }

    fn send(&mut self, command: &[&str]) -> Result<(), Error> {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .map_err(Error::context(format!("cannot send {command:?}")))
    }

    fn reply(&mut self) -> Result<Option<String>, Error> {
        let line = self.line()?;
        let (kind, rest) =
            line.split_at_checked(1).ok_or_else(|| Error::new("an empty line in place of an answer"))?;
        match kind {
            "+" | ":" => Ok(Some(rest.to_owned())),
            "$" => match length(rest)? {
                None => Ok(None),
                Some(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes).map_err(lost)?;
                    bytes.truncate(length);
                    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
                }
            },
            "*" => match length(rest)? {
                None => Ok(None),
                Some(length) => Ok(Some(self.elements(length)?.join("\n"))),
            },
            _ => Err(Error::new(format!("the server says {line}"))),
        }
    }

    fn elements(&mut self, length: usize) -> Result<Vec<String>, Error> {
        (0..length).map(|_| Ok(self.reply()?.unwrap_or_default())).collect()
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(Error::new("no answer: the server closed the connection")),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(lost(error)),
        }
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::new(format!("no answer: {error}"))
}

/// A length of the protocol: -1 means nil.
fn length(text: &str) -> Result<Option<usize>, Error> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(number) => usize::try_from(number).map(Some).map_err(Error::context("a bad length")),
        Err(error) => Err(Error::new(format!("a bad length {text:?}: {error}"))),
    }
}

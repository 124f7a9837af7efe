//! As much of the Redis protocol as it takes to ask a server something.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Error;

/// A plain connection to a Redis server, for asking and for checking what a server really holds.
#[derive(Debug)]
pub struct RedisConnection {
    stream: BufReader<TcpStream>,
}

impl RedisConnection {
    /// Connects; answers are waited for at most two seconds.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn open(addr: SocketAddr) -> Result<Self, Error> {
        let limit = Duration::from_secs(2);
        let stream = TcpStream::connect_timeout(&addr, limit)
            .and_then(|stream| {
                stream.set_read_timeout(Some(limit))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .map_err(Error::context(format!("no connection to {addr}")))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and returns the answer as text: nothing for nil, the elements of an
    /// array one per line.
    ///
    /// # Errors
    ///
    /// When the connection breaks, the answer does not come, or the server answers with an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Option<String>, Error> {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .map_err(Error::context(format!("cannot send {command:?}")))?;
        self.reply()
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
                Some(length) => {
                    let elements = (0..length)
                        .map(|_| Ok(self.reply()?.unwrap_or_default()))
                        .collect::<Result<Vec<_>, Error>>()?;
                    Ok(Some(elements.join("\n")))
                }
            },
            _ => Err(Error::new(format!("the server says {line}"))),
        }
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

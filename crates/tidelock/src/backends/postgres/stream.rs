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

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::config::{Place, PostgresConfig, Tls};
use crate::backend::Failure;

/// Asks for TLS: its length, and a number that no version of the protocol has.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A connection that remembers which process the server said it was, for the cancelling of statements.
///
/// The driver keeps that to itself. A server says the truth; what stands between, and moves statements from one process
/// to another, has to say something else.
pub(super) struct Stream {
    bytes: Box<dyn Bytes>,
    greeting: Option<Greeting>,
}

struct Greeting {
    /// What was read and is not yet a whole message.
    read: Vec<u8>,
    process: Arc<AtomicI32>,
}

/// Connects to a server. The number is filled in when the driver has logged in.
pub(super) async fn open(
    config: &PostgresConfig,
    place: &Place,
) -> Result<(Stream, Arc<AtomicI32>), Failure> {
    let refused = |error: io::Error| {
        Failure::unreachable(format!("{error}: start the server, or mend host and port in the URL"))
    };
    let bytes: Box<dyn Bytes> = match place {
        #[cfg(unix)]
        Place::Socket(directory, port) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            Box::new(tokio::net::UnixStream::connect(path).await.map_err(refused)?)
        }
        #[cfg(not(unix))]
        Place::Socket(..) => return Err(Failure::denied("there are no sockets of that kind on this system")),
        Place::Host(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
            stream.set_nodelay(true).map_err(refused)?;
            match &config.tls {
                Tls::Off => Box::new(stream),
                Tls::On(tls) => Box::new(encrypt(stream, tls, host).await?),
            }
        }
    };
    let process = Arc::new(AtomicI32::new(0));
    let greeting = Some(Greeting { read: Vec::new(), process: Arc::clone(&process) });
    Ok((Stream { bytes, greeting }, process))
}

async fn encrypt(
    mut stream: TcpStream,
    tls: &Arc<rustls::ClientConfig>,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
    let lost = |error: io::Error| Failure::unreachable(format!("no TLS with the server: {error}"));
    stream.write_all(&SSL_REQUEST).await.map_err(lost)?;
    if stream.read_u8().await.map_err(lost)? != b'S' {
        return Err(Failure::denied(
            "the server does not speak TLS: set ssl = on there, or accept that others may read along with ?sslmode=disable in the URL",
        ));
    }
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Failure::denied("the host in the URL cannot be in a certificate"))?;
    TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(why)) => Failure::denied(format!(
                "the certificate of the server is not valid ({why:?}): mend it or the URL's option ca"
            )),
            _ => lost(error),
        }
    })
}

impl Greeting {
    /// Says whether the greeting is over.
    fn read(&mut self, bytes: &[u8]) -> bool {
        self.read.extend_from_slice(bytes);
        // A letter, a length that counts itself, and so many bytes.
        while let [kind, a, b, c, d, rest @ ..] = &*self.read {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            if length < 4 || rest.len() < length - 4 {
                return length < 4;
            }
            match (kind, &rest[..length - 4]) {
                (b'K', [a, b, c, d, ..]) => {
                    self.process.store(i32::from_be_bytes([*a, *b, *c, *d]), Ordering::Relaxed);
                    return true;
                }
                (b'Z', _) => return true,
                _ => {}
            }
            self.read.drain(..length + 1);
        }
        false
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.bytes).poll_read(context, into));
        if let Some(greeting) = &mut self.greeting
            && greeting.read(&into.filled()[before..])
        {
            self.greeting = None;
        }
        Poll::Ready(read)
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

    #[test]
    fn the_process_is_read_from_a_greeting_in_pieces() {
        let process = Arc::new(AtomicI32::new(0));
        let mut greeting = Greeting { read: Vec::new(), process: Arc::clone(&process) };
        let bytes =
            b"R\0\0\0\x08\0\0\0\0S\0\0\0\x08a\0b\0K\0\0\0\x0c\0\0\x01\x02\x09\x09\x09\x09Z\0\0\0\x05I";
        let over: Vec<bool> = bytes.iter().map(|byte| greeting.read(&[*byte])).collect();
        assert_eq!(process.load(Ordering::Relaxed), 258);
        assert_eq!(over.iter().position(|over| *over), Some(30));
    }
}

//! A stream that is read now and then, for news that can wait.
//!
//! A server that tells of every change wakes the reader of its stream with each write, which takes it several times as
//! long as the write itself. Nobody waits for this stream: what has come is read every [`PAUSE`].

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use redis::ConnectionAddr;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// How long what came may wait.
const PAUSE: Duration = Duration::from_millis(50);

/// A stream that is not registered with the runtime.
pub(super) struct Lazy {
    stream: Box<dyn Plain>,
    pause: Pin<Box<Sleep>>,
}

/// A stream of the standard library that does not block.
trait Plain: Read + Write + Send {}

impl<S: Read + Write + Send> Plain for S {}

impl Lazy {
    /// Connects to a server. Nothing if it speaks TLS, which needs a stream that can be waited for.
    pub(super) async fn connect(address: &ConnectionAddr) -> io::Result<Option<Self>> {
        // What is taken from the runtime does not block, and is not waited for any more.
        let stream: Box<dyn Plain> = match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?.into_std()?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?.into_std()?),
            _ => return Ok(None),
        };
        Ok(Some(Self { stream, pause: Box::pin(sleep(Duration::ZERO)) }))
    }

    /// Tries again after a pause for as long as the stream is not ready.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut dyn Plain) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(&mut *self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.pause.as_mut().poll(context));
                    self.pause = Box::pin(sleep(PAUSE));
                }
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncRead for Lazy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.poll(context, |stream| stream.read(into.initialize_unfilled())))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Lazy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, |stream| stream.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, |stream| stream.flush())
    }

    /// The stream is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_comes_is_read_and_what_is_written_arrives_however_much_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let mut lazy = Lazy::connect(&ConnectionAddr::Unix(path)).await.unwrap().unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        // More than fits in between.
        let sent = vec![7; 4 << 20];
        let echo = async {
            let mut heard = vec![0; sent.len()];
            other.read_exact(&mut heard).await.unwrap();
            other.write_all(&heard).await.unwrap();
            drop(other);
        };
        let talk = async {
            lazy.write_all(&sent).await.unwrap();
            let mut heard = Vec::new();
            lazy.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let ((), heard) = tokio::join!(echo, talk);
        assert_eq!(heard.len(), sent.len());
    }
}

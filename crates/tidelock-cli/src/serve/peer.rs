//! One connection: who is at its other end, and whether they read.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use hyper::rt::ReadBufCursor;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::set_socket_send_buffer_size,
};
use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
};

/// Who is asking: streams are counted for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    Process(i32),
    Host(IpAddr),
}

/// A stream of bytes.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    /// The plain side of TLS, and who is at its other end.
    Tls(UnixStream, SocketAddr),
}

/// A stream, and what was said to the kernel about it.
#[derive(Debug)]
struct Socket {
    stream: Stream,
    /// Whether few lines may wait in it.
    is_short: AtomicBool,
}

/// The connection that a request came on. Its clones share the socket, which closes with the last of them.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    socket: Arc<Socket>,
    pub(super) client: Client,
    /// The user at the other end, on a Unix socket.
    pub(super) user: Option<u32>,
    /// Who it is, for others that look at its locks.
    pub(super) label: Arc<str>,
}

impl Peer {
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        let (client, user, label) = match &stream {
            Stream::Unix(stream) => {
                let other = stream.peer_cred()?;
                let process = other.pid().unwrap_or_default();
                (Client::Process(process), Some(other.uid()), program(process))
            }
            Stream::Tcp(stream) => of_host(stream.peer_addr()?),
            Stream::Tls(_, address) => of_host(*address),
        };
        let socket = Arc::new(Socket { stream, is_short: AtomicBool::new(false) });
        Ok(Self { socket, client, user, label: label.into() })
    }

    /// Whether it came over TCP, with or without TLS.
    pub(super) fn is_tcp(&self) -> bool {
        !matches!(self.socket.stream, Stream::Unix(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.socket.stream, Stream::Tls(..))
    }

    /// The connection as a task knows it that must not keep it open.
    pub(super) fn distant(&self) -> Distant {
        Distant(Arc::downgrade(&self.socket))
    }

    fn poll_io<T>(
        &self,
        context: &mut Context<'_>,
        ready: impl Fn(&Stream, &mut Context<'_>) -> Poll<io::Result<()>>,
        mut work: impl FnMut(&Stream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(ready(&self.socket.stream, context))?;
            match work(&self.socket.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// A connection that closes when others are done with it.
#[derive(Clone, Debug)]
pub(super) struct Distant(Weak<Socket>);

impl Distant {
    pub(super) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Lets few lines wait in the socket, so that [`is_reading`](Self::is_reading) soon knows.
    pub(super) fn watch_reading(&self) {
        // Once for all holds of a connection.
        if let Some(socket) = self.0.upgrade()
            && !socket.is_short.swap(true, Ordering::Relaxed)
        {
            // The kernel raises it to the least that it allows. If it fails, a reader that hangs is found later.
            let _ = set_socket_send_buffer_size(&socket.stream, 1);
        }
    }

    /// Whether the other end has read all lines but the last one or two.
    ///
    /// On Linux, a Unix socket is ready to be written only while what nobody has read yet takes up less than a quarter
    /// of its buffer (`unix_writable` in the kernel).
    pub(super) fn is_reading(&self) -> bool {
        let Some(socket) = self.0.upgrade() else { return true };
        let mut fds = [PollFd::new(&socket.stream, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => fds[0].revents().contains(PollFlags::OUT),
            // In doubt it reads: the next look tells.
            Err(_) => true,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) | Self::Tls(stream, _) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream.as_fd()
    }
}

impl Stream {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) | Self::Tls(stream, _) => stream.poll_read_ready(context),
            Self::Tcp(stream) => stream.poll_read_ready(context),
        }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) | Self::Tls(stream, _) => stream.poll_write_ready(context),
            Self::Tcp(stream) => stream.poll_write_ready(context),
        }
    }

    /// Reads what is there.
    ///
    /// If that was less than there is room for, the socket is empty: the next read waits for news without asking the
    /// kernel, as tokio's own reads do.
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut read = None;
        let work = || {
            let count = rustix::io::read(self, &mut *bytes)?;
            read = Some(count);
            if 0 < count && count < bytes.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        };
        let done = match self {
            Self::Unix(stream) | Self::Tls(stream, _) => stream.try_io(Interest::READABLE, work),
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, work),
        };
        read.map_or(done, Ok)
    }

    fn write(&self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) | Self::Tls(stream, _) => stream.try_write_vectored(bytes),
            Self::Tcp(stream) => stream.try_write_vectored(bytes),
        }
    }
}

/// Where bytes are read before hyper gets them: its own buffer cannot be lent as a slice without unsafe code.
const CHUNK: usize = 4 * 1024;

impl hyper::rt::Read for Peer {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let most = buffer.remaining().min(CHUNK);
        let read = self.poll_io(context, Stream::poll_readable, |stream| stream.read(&mut chunk[..most]));
        let read = ready!(read)?;
        buffer.put_slice(&chunk[..read]);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Peer {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(context, Stream::poll_writable, |stream| stream.write(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The other end may be gone already, which is as good.
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

fn of_host(address: SocketAddr) -> (Client, Option<u32>, String) {
    (Client::Host(address.ip()), None, format!("client at {address}"))
}

/// A process as others see it: program and process id.
fn program(process: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { format!("client (pid {process})") } else { format!("{name} (pid {process})") }
}

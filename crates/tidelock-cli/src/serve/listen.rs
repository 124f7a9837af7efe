//! Addresses, and the sockets at them.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use serde::Serialize;
use tokio::net::{TcpListener, UnixListener};

use super::{access::Access, peer::Stream, shutdown::Running, tls::Tls};
use crate::output::Trouble;

/// The name of the socket, in a directory of its own.
const SOCKET: &str = "serve.sock";

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Address {
    /// Reads `unix:PATH` or `tcp:ADDRESS:PORT`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.trim_start_matches("//").into())),
            Some(("tcp", address)) => {
                let address = address.trim_start_matches("//").replace("localhost", "127.0.0.1");
                let wrong = "write an address and a port, such as tcp:127.0.0.1:7411";
                address.parse().map(Self::Tcp).map_err(|_| wrong.to_owned())
            }
            _ => Err("write unix:PATH or tcp:ADDRESS:PORT".to_owned()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// What a program that starts a server waits for.
#[derive(Debug, Serialize)]
pub(super) struct Listening {
    event: &'static str,
    listen: String,
    version: &'static str,
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    address: Address,
    /// Whether the path is ours to remove: not if systemd passed the socket.
    is_ours: bool,
    /// Of TCP clients.
    tls: Option<Tls>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at an address, or at the default one.
    pub(super) fn bind(address: Option<Address>, access: &Access, tls: Option<Tls>) -> Result<Self, Trouble> {
        if let Some((socket, address)) = passed(access, tls.is_some())? {
            return Ok(Self { socket, address, is_ours: false, tls });
        }
        let address = match address {
            Some(address) => address,
            None => Address::Unix(default_path()?),
        };
        let failed = |error: io::Error| Trouble::Usage(format!("cannot listen on {address}: {error}"));
        let (socket, address) = match &address {
            Address::Unix(path) => (bind_unix(path).map_err(failed)?, address),
            Address::Tcp(at) => {
                access.check_tcp(at, tls.is_some())?;
                let listener = StdTcpListener::bind(at).map_err(failed)?;
                let at = listener.local_addr()?;
                listener.set_nonblocking(true)?;
                (Socket::Tcp(TcpListener::from_std(listener)?), Address::Tcp(at))
            }
        };
        Ok(Self { socket, address, is_ours: true, tls })
    }

    pub(super) fn announcement(&self) -> Listening {
        Listening { event: "listening", listen: self.address.to_string(), version: env!("CARGO_PKG_VERSION") }
    }

    /// How the addresses of the page begin.
    pub(super) fn origin(&self) -> String {
        match &self.address {
            Address::Tcp(at) => format!("http://{at}"),
            Address::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self, tasks: &Running) -> io::Result<Stream> {
        match &self.socket {
            Socket::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
            Socket::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                // Lines are short, and each is waited for.
                stream.set_nodelay(true)?;
                match &self.tls {
                    Some(tls) => Ok(Stream::Tls(tls.open(stream, tasks)?, client)),
                    None => Ok(Stream::Tcp(stream)),
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), true) = (&self.address, self.is_ours) {
            // The next server finds a socket that nobody answers, if this fails.
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens on a socket that only this user can open.
fn bind_unix(path: &Path) -> io::Result<Socket> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::other("there is a file in its place that is no socket: remove it"));
        }
        Ok(_) => match StdUnixStream::connect(path) {
            Ok(_) => return Err(io::Error::other("another server listens there")),
            // Its server was killed. What does not answer for another reason is not replaced.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Bound under another name: nobody can connect before the mode is right.
    let hidden = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&hidden);
    let listener = StdUnixListener::bind(&hidden)?;
    fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
    // Two servers that start at once find the path taken by the other: a link does not replace.
    let linked = fs::hard_link(&hidden, path);
    fs::remove_file(&hidden)?;
    linked?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Unix(UnixListener::from_std(listener)?))
}

/// The socket that systemd passed, if it did: file 3, for the process `LISTEN_PID`.
#[cfg(target_os = "linux")]
fn passed(access: &Access, has_tls: bool) -> Result<Option<(Socket, Address)>, Trouble> {
    use std::os::{fd::OwnedFd, unix::net::UnixListener as Unix};

    use rustix::{
        net::{AddressFamily, getsockname},
        process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
    };

    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    let wrong = |what: &str| Trouble::Usage(format!("the socket that systemd passed {what}"));
    if number("LISTEN_FDS") != Some(1) {
        return Err(wrong("is not one: write one ListenStream= into its unit"));
    }
    let copy = || -> io::Result<OwnedFd> {
        // Taking over the number itself would need unsafe code.
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(pidfd_getfd(own, 3, PidfdGetfdFlags::empty())?)
    };
    let socket = copy().map_err(|error| wrong(&format!("cannot be used: {error}")))?;
    let family = getsockname(&socket).map_err(|error| wrong(&format!("is none: {error}")))?.address_family();
    Ok(Some(if family == AddressFamily::UNIX {
        let listener = Unix::from(socket);
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().unwrap_or(Path::new("")).to_owned();
        (Socket::Unix(UnixListener::from_std(listener)?), Address::Unix(path))
    } else {
        let listener = StdTcpListener::from(socket);
        let at = listener.local_addr()?;
        access.check_tcp(&at, has_tls)?;
        listener.set_nonblocking(true)?;
        (Socket::Tcp(TcpListener::from_std(listener)?), Address::Tcp(at))
    }))
}

#[cfg(not(target_os = "linux"))]
fn passed(_: &Access, _: bool) -> Result<Option<(Socket, Address)>, Trouble> {
    Ok(None)
}

/// The socket of this user, in a directory that others cannot enter.
fn default_path() -> Result<PathBuf, Trouble> {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|runtime| !runtime.is_empty()) {
        return Ok(Path::new(&runtime).join("tidelock").join(SOCKET));
    }
    let user = geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("tidelock-{user}"));
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    // Everybody can create it there: one that another user made is a trap.
    let found = fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(Trouble::Usage(format!(
            "{} is not a directory that only you can enter: remove it, or give --listen",
            directory.display()
        )));
    }
    Ok(directory.join(SOCKET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_printed() {
        for text in ["unix:/run/x.sock", "unix:x.sock", "tcp:127.0.0.1:7411", "tcp:[::1]:0"] {
            assert_eq!(Address::read(text).unwrap().to_string(), text);
        }
        assert_eq!(Address::read("tcp:localhost:80").unwrap().to_string(), "tcp:127.0.0.1:80");
        for bad in ["", "unix:", "/run/x.sock", "tcp:", "tcp:7411", "http://localhost", "tcp:host:1"] {
            assert!(Address::read(bad).is_err_and(|why| why.starts_with("write ")), "{bad:?}");
        }
    }
}

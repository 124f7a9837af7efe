//! The end: signals, standard input, and tasks that have to end before.

use std::{io, os::unix::net::UnixDatagram, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{exit::Exit, signals::Signals};

/// What ends the server.
#[derive(Debug)]
pub(super) struct End {
    signals: Signals,
    input: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl End {
    pub(super) fn new(until_stdin_closes: bool) -> io::Result<Self> {
        let signals = Signals::forwarded()?;
        let input = until_stdin_closes.then(watch_input);
        Ok(Self { signals, input })
    }

    /// Resolves when the server is asked to end. Cancel safe.
    pub(super) async fn asked(&mut self) -> Exit {
        let input = async {
            match &mut self.input {
                // Either word means that it has ended.
                Some(input) => drop(input.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A server that is asked to end, and does, has done all that it should.
            _ = self.signals.end() => Exit::Done,
            () = input => Exit::Done,
        }
    }
}

/// Reads standard input in a thread, as a pipe from the program that started this one: it ends with that program.
fn watch_input() -> tokio::sync::oneshot::Receiver<()> {
    let (ended, input) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = ended.send(());
    });
    input
}

/// Tasks that can be waited for.
#[derive(Clone, Debug)]
pub(super) struct Running(Arc<watch::Sender<usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
struct Task(Running);

/// Resolves when the last task has ended.
#[derive(Debug)]
pub(super) struct Ended(watch::Receiver<usize>);

impl Running {
    pub(super) fn new() -> (Self, Ended) {
        let (running, ended) = watch::channel(0);
        (Self(Arc::new(running)), Ended(ended))
    }

    /// Starts a task.
    #[allow(clippy::disallowed_methods, reason = "the tasks of the server are started here, and waited for")]
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.send_modify(|count| *count += 1);
        let counted = Task(self.clone());
        // Boxed, or it would be in the task twice: where it is moved to, and where it was.
        let task = Box::pin(task);
        drop(tokio::spawn(async move {
            task.await;
            drop(counted);
        }));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl Ended {
    /// Waits for the tasks, but not for longer than this.
    pub(super) async fn within(mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.0.wait_for(|count| *count == 0)).await;
    }
}

/// Tells systemd that the server listens, if systemd asks for it.
pub(super) fn notify_ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // One that begins with @ has no file. What nobody hears needs no error: systemd gives up on its own.
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let _ = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        None => socket.send_to(b"READY=1", &path),
        Some(name) => abstract_address(name).and_then(|to| socket.send_to_addr(b"READY=1", &to)),
    };
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &str) -> io::Result<std::os::unix::net::SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

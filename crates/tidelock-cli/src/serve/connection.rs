//! HTTP on a connection, within limits.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioTimer;

use super::{
    Server, Stage, answer::Answer, asked, listen::Listener, page, peer::Peer, problem::Problem, route,
};
use crate::{clock::Moment, output};

/// A request line and headers take at most this many bytes.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// How long a client may take to send a head; on a kept connection, how long it may send nothing. A Unix socket is
/// opened by the user itself, so a program may keep one that it needs rarely.
const HEAD_ON_TCP: Duration = Duration::from_secs(30);
const HEAD_ON_UNIX: Duration = Duration::from_secs(600);

/// How long to pause when no file is left for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves every connection that comes in. Returns only with an error of the listening socket.
pub(super) async fn accept(listener: &Listener, server: &Arc<Server>) -> io::Error {
    loop {
        match listener.accept(&server.connections).await.and_then(Peer::new) {
            Ok(peer) => server.connections.spawn(serve(peer, Arc::clone(server))),
            Err(error) if is_of_connection(&error) => {}
            Err(error) if is_full(&error) => {
                output::complain(&format!("no further connections for a moment: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return error,
        }
    }
}

/// Whether only the connection that was to be accepted is lost.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NotConnected
    )
}

/// Whether files or memory have run out, for a while.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

/// Serves one connection to its end.
async fn serve(peer: Peer, server: Arc<Server>) {
    let head = server.idle.unwrap_or(if peer.is_tcp() { HEAD_ON_TCP } else { HEAD_ON_UNIX });
    let of_requests = peer.clone();
    let mut closing = server.closing.clone();
    // Boxed, so that a connection does not keep the memory of all calls while it streams the answer to one.
    let service =
        service_fn(move |request| Box::pin(answer(request, of_requests.clone(), Arc::clone(&server))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        // The end of a client is the end of its stream: it is seen while the stream has nothing to say, too.
        .half_close(false)
        .serve_connection(peer, service);
    // Boxed, so that a task does not keep the place that it was moved from.
    let mut connection = Box::pin(connection);
    tokio::select! {
        // What a client did wrong at this level, it hears from hyper.
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|stage| *stage == Stage::Closing) => {}
    }
    // What is being answered is answered, and nothing else is asked.
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Answers one request.
async fn answer(request: Request<Incoming>, peer: Peer, server: Arc<Server>) -> Result<Answer, Infallible> {
    // Before anything else: what the client may rely on is counted from here, which is after it sent the request.
    let received = Moment::now();
    let answered = async {
        if let Some(call) = page::find(request.method(), request.uri().path()) {
            return page::answer(call, request, received, peer, &server).await;
        }
        server.access.check(&request, &peer)?;
        let (call, parts) = route::find(request.method(), request.uri().path())?;
        let asked = asked::Asked::read(request, received, peer, parts).await?;
        route::answer(call, asked, &server).await
    };
    Ok(answered.await.unwrap_or_else(Problem::into_answer))
}

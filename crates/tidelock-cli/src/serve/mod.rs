//! `tidelock serve`: locks for programs in any language, over HTTP and JSON.
//!
//! The answer to a lock is a stream of lines, and the stream is the hold. What a client relies on is counted from
//! before its own question, so that nothing that is delayed between it and the store can prolong it. The protocol is in
//! `docs/serve.md`.
//!
//! | file | what is in it |
//! |---|---|
//! | [`listen`] | addresses, and the sockets at them |
//! | [`tls`] | TLS of TCP clients |
//! | [`peer`] | one connection: who is at its other end, and whether they read |
//! | [`connection`] | HTTP on a connection, within limits |
//! | [`access`] | who may ask: token, `Host`, `Origin` |
//! | [`limits`] | how much one client and all of them may use |
//! | [`route`] | which call is which function |
//! | [`asked`] | a request: its moment, path, query and body |
//! | [`said`] | what a client says while its answer runs |
//! | [`answer`] | what goes back: JSON, or a stream of lines |
//! | [`lines`] | the lines of a stream, from its task to its connection |
//! | [`problem`] | what went wrong, as kind and status |
//! | [`hold`] | the life of a hold: waiting, granted, renewed, ended |
//! | [`wanted`] | what a hold is made of: locks, a lead, a slot |
//! | [`holds`] | all holds by their ids: confirm, release |
//! | [`queue`] | who waits before whom, for the lines that say so |
//! | [`pace`] | a short pause that all streams share |
//! | [`look`] | who holds what, and taking it away |
//! | [`tickets`] | locks without a stream |
//! | [`terraform`] | state locks of Terraform |
//! | [`elections`] | candidates, leaders, observers |
//! | [`once`] | slots of a period |
//! | [`stock`] | limited stock |
//! | [`figures`] | `/metrics`, for Prometheus |
//! | [`page`] | the page for people, live |
//! | [`openapi`] | the description of all calls, for programs |
//! | [`schema`] | the values in that description |
//! | [`shutdown`] | the end: signals, standard input, drained holds |

mod access;
mod answer;
mod asked;
mod connection;
mod elections;
mod figures;
mod hold;
mod holds;
mod limits;
mod lines;
mod listen;
mod look;
mod once;
mod openapi;
mod pace;
mod page;
mod peer;
mod problem;
mod queue;
mod route;
mod said;
mod schema;
mod shutdown;
mod stock;
mod terraform;
mod tickets;
mod tls;
mod wanted;

use std::{sync::Arc, time::Duration};

use tidelock::Locks;
use tokio::sync::watch;

pub(crate) use self::listen::Address;
use self::{
    access::Access, figures::Figures, holds::Holds, limits::Limits, listen::Listener, queue::Queues,
    shutdown::Running, stock::Items,
};
use crate::{
    args::{Serve, Tls, Ui},
    exit::Exit,
    observe::{Observer, Options},
    output::{self, Trouble},
    store::Store,
};

/// How long answers that are under way have to reach their clients.
const FAREWELL: Duration = Duration::from_secs(1);

/// What all connections share.
struct Server {
    locks: Locks,
    /// The store's URL, without what may be secret.
    place: String,
    holds: Holds,
    queues: Arc<Queues>,
    items: Items,
    limits: Limits,
    access: Access,
    figures: Figures,
    max_hold: Option<Duration>,
    /// How long a client may take to send a head, and may send nothing.
    idle: Option<Duration>,
    observer: Observer,
    /// Whether people may take locks away on the page.
    allow_break: bool,
    closing: watch::Receiver<Stage>,
    /// Tasks of holds, and of connections.
    running: Running,
    connections: Running,
}

/// How far the end of the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Holders are told to let go, and nobody gets a lock.
    Draining,
    /// Connections close.
    Closing,
}

impl Stage {
    fn is_ending(&self) -> bool {
        *self != Self::Serving
    }
}

/// Shows the page of a server of its own, until it is told to end.
pub(crate) async fn ui(args: Ui) -> Result<Exit, Trouble> {
    let access = Access::of_browser()?;
    let open = args.open;
    serve(args.into(), access, |listener, access| page::invite(&listener.origin(), access, open)).await
}

/// Listens, serves until it is told to end, and drains.
pub(crate) async fn run(args: Serve) -> Result<Exit, Trouble> {
    let access = Access::new(args.token_file.as_deref())?;
    serve(args, access, |listener, _| Ok(output::json_line(&listener.announcement())?)).await
}

async fn serve(
    args: Serve,
    access: Access,
    announce: impl FnOnce(&Listener, &Access) -> Result<(), Trouble>,
) -> Result<Exit, Trouble> {
    let store = Store::new(&args.store)?;
    let recorder = figures::Recorder::install()?;
    let mut end = shutdown::End::new(args.until_stdin_closes)?;
    limits::raise_open_files();
    let tls = args.tls.map(|Tls { cert, key }| tls::Tls::read(&cert, &key)).transpose()?;
    let listener = Listener::bind(args.listen, &access, tls)?;
    let mut connect = Locks::builder(store.url()).metrics_groups(args.metrics_group.clone());
    if let Some(limit) = args.max_hold {
        connect = connect.max_hold(limit);
    }
    let locks = tokio::select! {
        locks = connect.connect() => locks?,
        exit = end.asked() => return Ok(exit),
    };
    let (close, closing) = watch::channel(Stage::Serving);
    let (running, holds_ended) = Running::new();
    let (connections, connections_ended) = Running::new();
    let queues = Queues::new(locks.clone(), running.clone());
    let observer =
        Observer::start(locks.clone(), Options { always: args.observe, ..args.watching.options() });
    let server = Arc::new(Server {
        queues: Arc::clone(&queues),
        locks,
        place: store.to_string(),
        holds: Holds::default(),
        items: Items::new(store.url()),
        limits: Limits::new(args.max_streams, args.max_streams_per_client),
        access,
        figures: recorder.figures(args.metrics_group, args.observe),
        max_hold: args.max_hold,
        idle: args.idle,
        observer,
        allow_break: args.watching.allow_break,
        closing,
        running,
        connections,
    });
    announce(&listener, &server.access)?;
    shutdown::notify_ready();
    let exit = tokio::select! {
        exit = end.asked() => exit,
        error = connection::accept(&listener, &server) => return Err(error.into()),
        () = server.figures.keep_up() => unreachable!("it goes on until it is dropped"),
        () = queues.watch() => unreachable!("it watches until it is dropped"),
    };
    drop(listener);
    let locks = server.locks.clone();
    drop(server);
    close.send_replace(Stage::Draining);
    holds_ended.within(args.grace).await;
    close.send_replace(Stage::Closing);
    connections_ended.within(FAREWELL).await;
    // What is still held is left to its lease: its holder may rely on it.
    drop(locks);
    Ok(exit)
}

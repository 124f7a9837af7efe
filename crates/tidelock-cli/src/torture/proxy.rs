//! The network between one client and one server, which can be broken: a TCP proxy.
//!
//! Every client has doors of its own, one per server, so that one client can be cut off while others go on.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// What the network does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Open,
    /// Connections are closed, and new ones too.
    Cut,
    /// Requests are kept, and delivered when the network heals, also if their client is gone.
    HoldRequests,
    /// Requests are applied; answers come when the network heals.
    HoldReplies,
    /// Requests are applied; answers are lost, and their connections close when the network heals.
    LoseReplies,
    /// Everything takes this much longer.
    Delay(Duration),
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    mode: Mode,
    /// Counts the times that all connections were closed.
    closed: u64,
}

/// A proxy in front of one server.
#[derive(Debug)]
pub(super) struct Door {
    addr: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

impl Door {
    /// Opens a door to `server`, a host and port. Its tasks belong to `tasks`.
    pub(super) async fn open(server: String, tasks: &mut JoinSet<()>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        tasks.spawn(accept(listener, server, seen));
        Ok(Self { addr, state })
    }

    /// Where the client connects to.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn set(&self, mode: Mode) {
        self.state.send_modify(|state| {
            state.mode = mode;
            state.closed += u64::from(mode == Mode::Cut);
        });
    }

    /// Closes all connections; new ones are welcome.
    pub(super) fn close_all(&self) {
        self.state.send_modify(|state| state.closed += 1);
    }
}

async fn accept(listener: TcpListener, server: String, state: watch::Receiver<State>) {
    let mut links = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = links.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if state.borrow().mode != Mode::Cut => {
                    links.spawn(link(client, server.clone(), state.clone()));
                }
                Ok(_) => {}
                // Out of descriptors, for example: not again at once.
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
        }
    }
}

async fn link(client: TcpStream, server: String, state: watch::Receiver<State>) {
    let born = state.borrow().closed;
    let Ok(Ok(server)) = timeout(Duration::from_secs(5), TcpStream::connect(server)).await else { return };
    // A stream that is slower than it could be is no fault.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut closing = state.clone();
    tokio::select! {
        // The directions end apart: what a client asked before it went away still arrives.
        _ = async {
            tokio::join!(
                pump(from_client, to_server, Way::Request, state.clone()),
                pump(from_server, to_client, Way::Reply, state),
            )
        } => {}
        _ = closing.wait_for(|state| state.closed != born) => {}
    }
}

/// Passes on what comes, as the network lets it, until either side ends.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 32 * 1024];
    let mut has_hole = false;
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        loop {
            let mode = state.borrow_and_update().mode;
            let is_held = match mode {
                Mode::HoldRequests => way == Way::Request,
                Mode::HoldReplies => way == Way::Reply,
                _ => false,
            };
            if !is_held {
                if let Mode::Delay(time) = mode {
                    sleep(time).await;
                }
                has_hole |= mode == Mode::LoseReplies && way == Way::Reply;
                break;
            }
            if state.changed().await.is_err() {
                return;
            }
        }
        if has_hole {
            if state.borrow().mode == Mode::LoseReplies {
                continue;
            }
            // What follows makes no sense to the client without what was lost.
            return;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

//! The network between one client and one server, which can be broken: a TCP proxy.
//!
//! Every client has doors of its own, one per server, so that one client can be cut off while others go on.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::clock::Moment;

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
    /// The same, on connections on which the client asks: those on which it listens go on.
    Mute,
    /// Everything takes this much longer.
    Delay(Duration),
    /// Answers and news take this much longer, and requests do not.
    Lag(Duration),
    /// Connections on which the client only listens are silent. What they tell comes when the network heals.
    Deaf,
    /// Connections on which the client asks are silent, and those on which it listens are not.
    Stall,
    /// A byte of all that is sent arrives changed.
    Corrupt,
    /// What is sent on a new connection arrives a second time, this much later, on a connection of its own whose answers
    /// nobody reads.
    Double(Duration),
}

/// A client that sent nothing on a connection for this long only listens there.
const LISTENS: Duration = Duration::from_millis(400);

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
            let before = std::mem::replace(&mut state.mode, mode);
            // Connections that are doubled are so from their begin to their end.
            let is_double = |mode| matches!(mode, Mode::Double(_));
            state.closed += u64::from(mode == Mode::Cut || is_double(mode) || is_double(before));
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
    let State { closed: born, mode } = *state.borrow();
    let connect = || timeout(Duration::from_secs(5), TcpStream::connect(&server));
    let Ok(Ok(stream)) = connect().await else { return };
    let mut copy = None;
    if let Mode::Double(later) = mode {
        let Ok(Ok(stream)) = connect().await else { return };
        copy = Some(Copy::start(stream, later));
    }
    // A stream that is slower than it could be is no fault.
    let _ = (client.set_nodelay(true), stream.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = stream.into_split();
    let mut closing = state.clone();
    let asked = Arc::new(AtomicU64::new(0));
    tokio::select! {
        // The directions end apart: what a client asked before it went away still arrives.
        _ = async {
            tokio::join!(
                pump(from_client, to_server, Way::Request, state.clone(), Arc::clone(&asked), copy),
                pump(from_server, to_client, Way::Reply, state, asked, None),
            )
        } => {}
        _ = closing.wait_for(|state| state.closed != born) => {}
    }
}

/// The second connection of one that is doubled. It ends with the first.
struct Copy {
    send: UnboundedSender<(Moment, Vec<u8>)>,
    _tasks: JoinSet<()>,
}

impl Copy {
    fn start(stream: TcpStream, later: Duration) -> Self {
        let (mut answers, mut to) = stream.into_split();
        let (send, mut sent) = unbounded_channel::<(Moment, Vec<u8>)>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Some((at, bytes)) = sent.recv().await {
                sleep(at.plus(later).since(Moment::now())).await;
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        tasks.spawn(async move {
            let mut buffer = vec![0; 32 * 1024];
            while !matches!(answers.read(&mut buffer).await, Ok(0) | Err(_)) {}
        });
        Self { send, _tasks: tasks }
    }
}

/// Passes on what comes, as the network lets it, until either side ends.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut state: watch::Receiver<State>,
    asked: Arc<AtomicU64>,
    copy: Option<Copy>,
) {
    let mut buffer = vec![0; 32 * 1024];
    let mut has_hole = false;
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            // What follows a hole makes no sense to the client.
            _ = state.wait_for(|state| !matches!(state.mode, Mode::LoseReplies | Mode::Mute)), if has_hole => return,
        };
        let length = match read {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let now = Moment::now();
        if way == Way::Request {
            asked.store(now.as_nanos(), Ordering::Relaxed);
            if let Some(copy) = &copy {
                // It is not there any more if the server closed it.
                let _ = copy.send.send((now, buffer[..length].to_vec()));
            }
        }
        let listens = now.since(Moment::from_nanos(asked.load(Ordering::Relaxed))) > LISTENS;
        loop {
            let mode = state.borrow_and_update().mode;
            let is_held = match mode {
                Mode::HoldRequests => way == Way::Request,
                Mode::HoldReplies => way == Way::Reply,
                Mode::Deaf => way == Way::Reply && listens,
                Mode::Stall => way == Way::Reply && !listens,
                _ => false,
            };
            if !is_held {
                match mode {
                    Mode::Delay(time) => sleep(time).await,
                    Mode::Lag(time) if way == Way::Reply => sleep(time).await,
                    Mode::LoseReplies => has_hole |= way == Way::Reply,
                    Mode::Mute => has_hole |= way == Way::Reply && !listens,
                    // The last one: it is the end of a record, and not its length.
                    Mode::Corrupt => buffer[length - 1] ^= 1,
                    _ => {}
                }
                break;
            }
            if state.changed().await.is_err() {
                return;
            }
        }
        if has_hole {
            continue;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

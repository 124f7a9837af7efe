//! A TCP proxy that stands for the network between a client and a server, and breaks like one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;
use crate::deadline::now;
use crate::peer::is_of;
use crate::ports::{self, Port};

/// A proxy in front of one address. Clients connect to [`addr`](Self::addr).
///
/// A *reply* is what one read from the server brings: for clients that ask and wait, the answer to one question.
pub struct Proxy {
    port: Port,
    network: Arc<Network>,
    /// Accepts connections; there is none while the network is cut.
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Network {
    target: SocketAddr,
    state: Mutex<State>,
    /// Told whenever something changes that a pump may wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: bool,
    /// Counts the cuts: a connection that began before a cut must not live after it.
    cuts: u64,
    delay: Duration,
    hold_requests: bool,
    /// Requests on connections that are stranded are held.
    strand: bool,
    hold_replies: bool,
    swallow_replies: bool,
    lose_next_reply: bool,
    corrupt: bool,
    lost: u64,
    next_link: u64,
    links: HashMap<u64, Link>,
    /// Processes that are not let through.
    strangers: HashSet<u32>,
}

/// A connection of a client and the one to the server that belongs to it.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Bytes were swallowed: what follows would make no sense to the client.
    has_hole: bool,
    /// It was open when connections were stranded, and nothing was heard from the server since that ended.
    is_stranded: bool,
    /// Directions that have ended.
    ended: u8,
}

impl Link {
    fn close(&self) {
        // An error means that it is closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// What becomes of a piece of a stream.
enum Verdict {
    Forward,
    Corrupt,
    Swallow,
    Close,
}

/// Some bytes, or the end of a stream, and when they may go on.
struct Piece {
    due: Instant,
    bytes: Option<Vec<u8>>,
}

impl Proxy {
    /// Starts a proxy on a free loopback port, through which everything passes at once.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub fn start(target: SocketAddr) -> Result<Self, Error> {
        ports::retry(|| {
            let proxy = Self {
                port: ports::free()?,
                network: Arc::new(Network { target, state: Mutex::default(), changed: Condvar::new() }),
                acceptor: Mutex::new(None),
            };
            proxy.heal()?;
            Ok(proxy)
        })
    }

    /// Where clients connect to; stays the same over cuts.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Closes all connections and refuses new ones, until [`heal`](Self::heal).
    pub fn cut(&self) {
        let mut acceptor = self.acceptor();
        {
            let mut state = self.network.state();
            state.open = false;
            state.cuts += 1;
            state.close_links(|_| true);
        }
        self.network.changed.notify_all();
        if let Some(thread) = acceptor.take() {
            // Wakes the acceptor; if somebody else just did, nobody listens any more.
            let _ = TcpStream::connect(self.addr());
            // The listener is closed when the thread has ended, and not before.
            let _ = thread.join();
        }
    }

    /// Closes the connections of a process and refuses new ones from it, until it is [welcome](Self::welcome) again.
    pub fn refuse(&self, process: u32) {
        let mut state = self.network.state();
        state.strangers.insert(process);
        state.close_links(|link| is_of(&link.client, process));
        drop(state);
        self.network.changed.notify_all();
    }

    /// Lets a process through again.
    pub fn welcome(&self, process: u32) {
        self.network.state().strangers.remove(&process);
    }

    /// Closes all connections; new ones are welcome at once.
    pub fn disconnect(&self) {
        {
            let mut state = self.network.state();
            state.cuts += 1;
            state.close_links(|_| true);
        }
        self.network.changed.notify_all();
    }

    /// Ends cuts, holds, losses and changes. What was held is delivered now, late; connections that lost
    /// bytes are closed. The delay stays.
    ///
    /// # Errors
    ///
    /// When a stranger took the port during a cut.
    pub fn heal(&self) -> Result<(), Error> {
        let mut acceptor = self.acceptor();
        if acceptor.is_none() {
            let listener = TcpListener::bind(self.addr())
                .map_err(|error| Error::address_in_use(format!("the proxy on {}: {error}", self.addr())))?;
            self.network.state().open = true;
            let network = Arc::clone(&self.network);
            *acceptor = Some(thread::spawn(move || network.accept(&listener)));
        }
        let mut state = self.network.state();
        state.hold_requests = false;
        state.strand = false;
        state.hold_replies = false;
        state.swallow_replies = false;
        state.lose_next_reply = false;
        state.corrupt = false;
        state.close_links(|link| link.has_hole);
        drop(state);
        self.network.changed.notify_all();
        Ok(())
    }

    /// From now on everything takes this much longer, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.network.state().delay = delay;
    }

    /// Requests do not reach the server, replies reach the client. [`heal`](Self::heal) delivers the requests late.
    pub fn hold_requests(&self) {
        self.network.state().hold_requests = true;
    }

    /// On connections that are open now requests do not reach the server; on new ones everything passes.
    /// [`heal`](Self::heal) delivers the requests late, also those of clients that have gone away.
    pub fn strand(&self) {
        let mut state = self.network.state();
        state.strand = true;
        state.links.values_mut().for_each(|link| link.is_stranded = true);
    }

    /// How many of the connections that were stranded are still open, and have not brought a reply since the network
    /// healed.
    #[must_use]
    pub fn stranded(&self) -> usize {
        self.network.state().links.values().filter(|link| link.is_stranded).count()
    }

    /// Requests reach the server and are applied, replies do not reach the client.
    /// [`heal`](Self::heal) delivers them late.
    pub fn hold_replies(&self) {
        self.network.state().hold_replies = true;
    }

    /// Requests reach the server and are applied, replies are lost for good.
    /// [`heal`](Self::heal) closes the connections that lost one.
    pub fn swallow_replies(&self) {
        self.network.state().swallow_replies = true;
    }

    /// The next reply, on whichever connection it comes, is lost, and that connection is then
    /// closed: the request was applied, but its answer is lost.
    pub fn drop_replies_once(&self) {
        self.network.state().lose_next_reply = true;
    }

    /// From now on, a byte of all that is sent arrives changed, in each direction.
    pub fn corrupt(&self) {
        self.network.state().corrupt = true;
    }

    /// How many replies were lost until now.
    #[must_use]
    pub fn replies_lost(&self) -> u64 {
        self.network.state().lost
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.network.state().links.len()
    }

    fn acceptor(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr())
            .field("target", &self.network.target)
            .finish_non_exhaustive()
    }
}

impl State {
    fn close_links(&mut self, which: impl Fn(&Link) -> bool) {
        self.links.retain(|_, link| {
            let close = which(link);
            if close {
                link.close();
            }
            !close
        });
    }
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let cuts = {
                let state = self.state();
                if !state.open {
                    return;
                }
                state.cuts
            };
            if let Ok(client) = client {
                let network = Arc::clone(self);
                // Connecting may take long, and a client that cannot be connected is closed.
                thread::spawn(move || network.connect(client, cuts));
            }
        }
    }

    /// Whether a client is to be kept out. Without the lock meanwhile: on a busy machine it takes long to find out, and
    /// one that is refused and tries again and again must not keep others from their connections.
    fn refuses(&self, client: &TcpStream) -> bool {
        let strangers = self.state().strangers.clone();
        strangers.iter().any(|process| is_of(client, *process))
    }

    fn connect(self: Arc<Self>, client: TcpStream, cuts: u64) -> io::Result<()> {
        // Nor keep the server busy.
        if self.refuses(&client) {
            return Ok(());
        }
        let server = TcpStream::connect_timeout(&self.target, Duration::from_secs(10))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Link {
            client: client.try_clone()?,
            server: server.try_clone()?,
            has_hole: false,
            is_stranded: false,
            ended: 0,
        };
        let ends = [
            (Direction::Request, client.try_clone()?, server.try_clone()?),
            (Direction::Reply, server, client),
        ];
        let id = {
            let mut state = self.state();
            if state.cuts != cuts {
                return Ok(());
            }
            state.next_link += 1;
            let id = state.next_link;
            state.links.insert(id, link);
            id
        };
        // It may have become a stranger before it was among the links.
        if self.refuses(&ends[0].1) {
            self.state().links.remove(&id).iter().for_each(Link::close);
            return Ok(());
        }
        for (direction, from, to) in ends {
            let (pieces, queue) = mpsc::channel();
            let network = Arc::clone(&self);
            thread::spawn(move || network.read(from, &pieces));
            let network = Arc::clone(&self);
            thread::spawn(move || network.write(id, direction, to, &queue));
        }
        Ok(())
    }

    /// Reading and writing are two threads, so that a delay makes a stream late but not slow.
    fn read(&self, mut from: TcpStream, pieces: &Sender<Piece>) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A stream that broke has ended.
                Err(_) => 0,
                Ok(length) => length,
            };
            let piece = Piece {
                due: now() + self.state().delay,
                bytes: (length > 0).then(|| buffer[..length].to_vec()),
            };
            if pieces.send(piece).is_err() || length == 0 {
                return;
            }
        }
    }

    fn write(&self, id: u64, direction: Direction, mut to: TcpStream, queue: &Receiver<Piece>) {
        for piece in queue {
            let passed = match (self.judge(id, direction, &piece), piece.bytes) {
                (Verdict::Close, _) => false,
                (Verdict::Swallow, _) => true,
                (Verdict::Forward, Some(bytes)) => to.write_all(&bytes).is_ok(),
                (Verdict::Corrupt, Some(mut bytes)) => {
                    // The last one: with TLS it is the end of a record, and not its length.
                    bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
                    to.write_all(&bytes).is_ok()
                }
                (Verdict::Forward | Verdict::Corrupt, None) => to.shutdown(Shutdown::Write).is_ok(),
            };
            if !passed {
                return self.end(id, true);
            }
        }
        self.end(id, false);
    }

    /// Waits until the piece is due and nothing holds it, and says what becomes of it.
    fn judge(&self, id: u64, direction: Direction, piece: &Piece) -> Verdict {
        let mut state = self.state();
        loop {
            let Some(link) = state.links.get(&id) else { return Verdict::Close };
            let held = match direction {
                Direction::Request => state.hold_requests || state.strand && link.is_stranded,
                Direction::Reply => state.hold_replies,
            };
            let early = piece.due.saturating_duration_since(now());
            state = if held {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if !early.is_zero() {
                self.changed.wait_timeout(state, early).unwrap_or_else(PoisonError::into_inner).0
            } else {
                break;
            };
        }
        let passes = if state.corrupt { Verdict::Corrupt } else { Verdict::Forward };
        if direction == Direction::Request {
            return passes;
        }
        let is_reply = piece.bytes.is_some();
        if !state.strand
            && let Some(link) = state.links.get_mut(&id)
        {
            link.is_stranded = false;
        }
        if state.swallow_replies {
            state.lost += u64::from(is_reply);
            if let Some(link) = state.links.get_mut(&id) {
                link.has_hole = true;
            }
            Verdict::Swallow
        } else if state.lose_next_reply && is_reply {
            state.lose_next_reply = false;
            state.lost += 1;
            Verdict::Close
        } else {
            passes
        }
    }

    /// One direction has ended; the link is gone when both have, or at once when it broke. A link
    /// with a hole stays, silent, until the network heals.
    fn end(&self, id: u64, broken: bool) {
        let mut state = self.state();
        let Some(link) = state.links.get_mut(&id) else {
            return;
        };
        link.ended += 1;
        if broken || (link.ended == 2 && !link.has_hole) {
            link.close();
            state.links.remove(&id);
            self.changed.notify_all();
        }
    }
}

//! A relay between clients and a server that speaks enough of the protocol to do what proxies, address moves and broken
//! servers do: it sets `CLIENT_FOUND_ROWS` for all clients, leads new connections to another server, or spoils answers.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// The bit of `CLIENT_FOUND_ROWS` in the first byte of a client's answer to the greeting.
const FOUND_ROWS: u8 = 2;

/// How answers are spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    /// Other bytes instead of those of the server.
    Garbage,
    /// The beginning of each answer, and then nothing.
    Half,
    /// A packet that never ends.
    Flood,
    /// "All is well", and no rows.
    Empty,
    /// An error that no server knows.
    Error,
}

struct State {
    target: Mutex<SocketAddr>,
    links: Mutex<Vec<TcpStream>>,
    spoil: Mutex<Option<Spoil>>,
    sets_found_rows: bool,
    has_ended: AtomicBool,
    /// Spoilt bytes that were sent on one connection, at most.
    most: AtomicU64,
}

/// Clients connect to [`addr`](Self::addr).
pub(crate) struct Relay {
    addr: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// A relay that changes nothing.
    pub(crate) fn to(target: SocketAddr) -> Self {
        Self::start(target, false)
    }

    /// A relay that sets `CLIENT_FOUND_ROWS` for all clients.
    pub(crate) fn with_found_rows(target: SocketAddr) -> Self {
        Self::start(target, true)
    }

    fn start(target: SocketAddr, sets_found_rows: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            target: Mutex::new(target),
            links: Mutex::default(),
            spoil: Mutex::new(None),
            sets_found_rows,
            has_ended: AtomicBool::new(false),
            most: AtomicU64::new(0),
        });
        let inner = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if inner.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                // An error means that one of the two has gone: the other hears it.
                let _ = client.and_then(|client| link(client, &inner));
            }
        });
        Self { addr, state }
    }

    /// The URL of a server, through this relay.
    pub(crate) fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (_, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        format!("{scheme}://{login}{}{database}", self.addr)
    }

    /// Leads new connections to another server. Those that are open stay where they are.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        *lock(&self.state.target) = target;
    }

    /// Spoils all answers from now on, or none.
    pub(crate) fn spoil(&self, how: Option<Spoil>) {
        *lock(&self.state.spoil) = how;
    }

    /// Closes all connections.
    pub(crate) fn disconnect(&self) {
        for stream in lock(&self.state.links).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many bytes a client took on one connection, at most.
    pub(crate) fn most(&self) -> u64 {
        self.state.most.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        self.disconnect();
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn link(client: TcpStream, state: &Arc<State>) -> io::Result<()> {
    let target = *lock(&state.target);
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        lock(&state.links).push(stream.try_clone()?);
    }
    let (questions, answers) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let (here, there) = (Arc::clone(state), Arc::clone(state));
    thread::spawn(move || ends(ask(&questions.0, &questions.1, &here), &questions));
    thread::spawn(move || ends(answer(&answers.0, &answers.1, &there), &answers));
    Ok(())
}

fn ends(_: io::Result<()>, (from, to): &(TcpStream, TcpStream)) {
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn ask(mut client: &TcpStream, mut server: &TcpStream, state: &State) -> io::Result<()> {
    if state.sets_found_rows {
        let mut first = [0; 5];
        client.read_exact(&mut first)?;
        first[4] |= FOUND_ROWS;
        server.write_all(&first)?;
    }
    io::copy(&mut client, &mut server).map(drop)
}

fn answer(mut server: &TcpStream, mut client: &TcpStream, state: &State) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut sent = 0;
    loop {
        let n = server.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        let spoil = *lock(&state.spoil);
        let mut send = |bytes: &[u8]| {
            client.write_all(bytes)?;
            sent += bytes.len() as u64;
            state.most.fetch_max(sent, Ordering::SeqCst);
            Ok::<_, io::Error>(())
        };
        match spoil {
            None => send(&buffer[..n])?,
            Some(Spoil::Garbage) => {
                let garbage = buffer[..n].iter().enumerate().map(|(at, byte)| byte ^ (at as u8 | 0x55));
                send(&garbage.collect::<Vec<u8>>())?;
            }
            Some(Spoil::Half) => send(&buffer[..n / 2])?,
            Some(Spoil::Empty) => send(&[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])?,
            Some(Spoil::Error) => send(b"\x0d\0\0\x01\xff\x34\xff#XX000what")?,
            Some(Spoil::Flood) => {
                // As long as packets can be, one after the other, all of them parts of one answer.
                let mut number = 1;
                loop {
                    send(&[0xff, 0xff, 0xff, number])?;
                    send(&vec![0; 0xff_ffff])?;
                    number = number.wrapping_add(1);
                }
            }
        }
    }
}

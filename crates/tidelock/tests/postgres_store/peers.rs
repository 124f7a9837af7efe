//! Servers that begin to misbehave, before the login and in the middle of a connection: they send without end, announce what
//! never comes, or say nothing any more. What is taken from them is bounded, and clients recover when they behave again.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{LONG, NAME, Place, RENEWED, login::refusal, report, shared, within};

trials! {
    a_peer_that_sends_without_end_before_the_login_is_cut_off,
    a_peer_that_sends_nonsense_before_the_login_is_refused,
    a_server_that_sends_without_end_in_mid_connection_is_cut_off_and_clients_recover,
    a_server_that_sends_nonsense_in_mid_connection_costs_no_lock,
}

/// What may be on its way beside what a client took: the buffers of two sockets.
const ON_THE_WAY: u64 = 16 << 20;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// What a peer sends.
#[derive(Clone)]
enum Sends {
    /// This, and then the other one without end.
    Endless(Vec<u8>, Vec<u8>),
    /// This, and then nothing any more.
    Once(Vec<u8>),
}

/// A peer before which there may be a server, whose answers it passes on while it behaves.
struct Peer {
    addr: SocketAddr,
    misbehaves: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl Peer {
    fn start(sends: &Sends, server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (misbehaves, sent) = (Arc::new(AtomicBool::new(server.is_none())), Arc::new(AtomicU64::new(0)));
        let (is, count, sends) = (Arc::clone(&misbehaves), Arc::clone(&sent), sends.clone());
        // It ends with the process: there is no other way to end those that wait for a connection.
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let (is, count, sends) = (Arc::clone(&is), Arc::clone(&count), sends.clone());
                thread::spawn(move || drop(attend(client, server, &is, &count, &sends)));
            }
        });
        Self { addr, misbehaves, sent }
    }

    fn misbehave(&self, is_so: bool) {
        self.misbehaves.store(is_so, Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

/// Serves one connection until it ends.
fn attend(
    mut client: TcpStream,
    server: Option<SocketAddr>,
    misbehaves: &AtomicBool,
    sent: &AtomicU64,
    sends: &Sends,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    if let Some(server) = server {
        let mut server = TcpStream::connect(server)?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        server.set_read_timeout(Some(Duration::from_millis(20)))?;
        while !misbehaves.load(Ordering::SeqCst) {
            match server.read(&mut buffer) {
                // What was asked while it misbehaves is not answered.
                Ok(_) if misbehaves.load(Ordering::SeqCst) => break,
                Ok(0) => return client.shutdown(std::net::Shutdown::Both),
                Ok(length) => client.write_all(&buffer[..length])?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    } else {
        // What a client says first.
        let _ = client.read(&mut buffer)?;
    }
    let mut send = |bytes: &[u8]| {
        let length = client.write(bytes)?;
        sent.fetch_add(length as u64, Ordering::SeqCst);
        client.write_all(&bytes[length..])?;
        sent.fetch_add((bytes.len() - length) as u64, Ordering::SeqCst);
        std::io::Result::Ok(())
    };
    match sends {
        Sends::Endless(first, then) => {
            send(first)?;
            let many = then.repeat((16 << 10) / then.len() + 1);
            loop {
                send(&many)?;
            }
        }
        Sends::Once(bytes) => {
            send(bytes)?;
            while client.read(&mut buffer)? > 0 {}
            Ok(())
        }
    }
}

fn authenticated() -> Vec<u8> {
    message(b'R', &[0; 4])
}

fn error(code: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0C{code}\0Mno\0\0").as_bytes())
}

async fn a_peer_that_sends_without_end_before_the_login_is_cut_off() {
    let huge = [b'N', 0x7f, 0xff, 0xff, 0xff];
    for (what, first, then) in [
        ("notices", vec![], message(b'N', &[b'x'; 1_000])),
        ("one message", huge.to_vec(), vec![0; 1_000]),
        ("settings", authenticated(), message(b'S', b"a\0b\0")),
        ("one message after it let us in", [&*authenticated(), &huge].concat(), vec![0; 1_000]),
    ] {
        let peer = Peer::start(&Sends::Endless(first, then), None);
        let error = refusal(&Place::on(&format!("postgres://postgres@{}/postgres", peer.addr))).await;
        report(&format!("{what} without end before the login: {} bytes were sent: {error}", peer.sent()));
        assert!(error.is_unavailable(), "{what}: {error}");
        // The driver refuses notices itself before anybody is let in.
        assert!(what == "notices" || error.to_string().contains("the peer"), "{what}: {error}");
        assert!(peer.sent() < ON_THE_WAY, "{what}: {}", peer.sent());
    }
}

async fn a_peer_that_sends_nonsense_before_the_login_is_refused() {
    for (what, sends) in [
        ("a length of nothing", Sends::Once(vec![b'R', 0, 0, 0, 0])),
        ("a length that is negative", Sends::Once(vec![b'R', 0xff, 0xff, 0xff, 0xff])),
        ("half a message", Sends::Once(vec![b'R', 0, 0, 0, 8, 0])),
        ("nothing", Sends::Once(vec![])),
        ("another protocol", Sends::Once(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())),
        ("a row", Sends::Once(message(b'D', &[0, 0]))),
        ("errors without end", Sends::Endless(vec![], error("XX000"))),
    ] {
        let peer = Peer::start(&sends, None);
        let error = refusal(&Place::on(&format!("postgres://postgres@{}/postgres", peer.addr))).await;
        report(&format!("{what}: {error}"));
        assert!(peer.sent() < ON_THE_WAY, "{what}: {}", peer.sent());
    }
}

/// A client holds a lock while the server misbehaves, and later when it behaves again.
async fn misbehaves(what: &str, sends: Sends) -> u64 {
    let place = Place::shared();
    let peer = Peer::start(&sends, Some(shared().addr()));
    let locks = place.through(&format!("postgres://postgres@{}/postgres", peer.addr)).connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    peer.misbehave(true);
    let asked = within("it is answered", locks.mutex("another").ttl(RENEWED).try_lock()).await;
    assert!(asked.is_err(), "{what}: {asked:?}");
    let sent = peer.sent();
    peer.misbehave(false);
    within("it serves again", async {
        while locks.mutex("another").ttl(RENEWED).try_lock().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(guard.is_held(), "{what}");
    guard.release().await.unwrap();
    report(&format!("{what}: {sent} bytes were sent; nothing was lost"));
    sent
}

async fn a_server_that_sends_without_end_in_mid_connection_is_cut_off_and_clients_recover() {
    for (what, first, then, most) in [
        ("one message", vec![b'D', 0x7f, 0xff, 0xff, 0xff], vec![0; 1_000], ON_THE_WAY),
        ("rows", vec![], message(b'D', &[0; 1_000]), (64 << 20) + ON_THE_WAY),
        ("settings", vec![], message(b'S', b"a\0b\0"), (64 << 20) + ON_THE_WAY),
        ("errors", vec![], error("40001"), (64 << 20) + ON_THE_WAY),
    ] {
        let sent = misbehaves(what, Sends::Endless(first, then)).await;
        // Each time it connects again meanwhile it is sent some more.
        assert!(sent < 8 * most, "{what}: {sent}");
    }
}

async fn a_server_that_sends_nonsense_in_mid_connection_costs_no_lock() {
    for (what, bytes) in [
        ("a length of nothing", vec![b'D', 0, 0, 0, 0]),
        ("half a message", vec![b'D', 0, 0, 1, 0, 1, 2]),
        ("nothing", vec![]),
        ("zeros", vec![0; 100]),
        ("an end that nobody asked for", message(b'Z', b"I")),
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ] {
        misbehaves(what, Sends::Once(bytes)).await;
    }
}

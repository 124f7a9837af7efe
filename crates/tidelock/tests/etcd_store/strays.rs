//! What a client sent arrives a second time, after the claim that it asked for was given back or put out.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tidelock::{LockState, Locks, backend::ClaimId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{
    LONG, NAME, Place, SHORT, got, report, shared, until, until_idle, until_waiting, waiter, within,
};

trials! {
    a_question_that_arrives_again_after_the_release_blocks_its_lock_for_about_a_ttl,
    a_question_that_arrives_again_after_an_eviction_blocks_its_lock_for_about_a_ttl,
    a_try_that_was_refused_and_arrives_again_blocks_its_lock_for_about_a_ttl,
    a_client_that_takes_out_strays_keeps_all_claims_that_are_in_use,
}

/// A network that remembers what clients sent.
struct Network {
    addr: SocketAddr,
    server: SocketAddr,
    /// For each connection.
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
    _tasks: JoinSet<()>,
}

impl Network {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&sent)));
        Self { addr, server, sent, _tasks: tasks }
    }

    /// A client whose questions are remembered.
    async fn connect(&self, place: &Place) -> Locks {
        place.through(&format!("etcd://{}", self.addr)).connect().await
    }

    /// What was sent so far.
    fn sent(&self) -> Vec<Vec<u8>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Delivers it once more. The connections last until this is dropped.
    async fn deliver(&self, sent: &[Vec<u8>]) -> JoinSet<()> {
        let mut copies = JoinSet::new();
        for bytes in sent {
            let mut stream = TcpStream::connect(self.server).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            copies.spawn(async move {
                let _ = copy(&mut stream, &mut sink()).await;
            });
        }
        copies
    }

    /// Delivers it once more, until the client has a claim again that it does not know.
    async fn make_stray(&self, sent: &[Vec<u8>], client: &Locks, name: &str) {
        let _copies = self.deliver(sent).await;
        until(client, name, |view| view.holders.first().is_some_and(|holder| client.is_own(holder.id))).await;
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, sent: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut links = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(stream) = TcpStream::connect(server).await else { continue };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = stream.into_split();
        let sent = Arc::clone(&sent);
        let number = {
            let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.push(Vec::new());
            sent.len() - 1
        };
        links.spawn(async move {
            let _ = copy(&mut from_server, &mut to_client).await;
        });
        links.spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                sent.lock().unwrap_or_else(PoisonError::into_inner)[number]
                    .extend_from_slice(&buffer[..read]);
                if to_server.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A client behind a network that remembers, and another one. The first holds a lock, so that its lease is renewed.
struct Pair {
    network: Network,
    locks: Locks,
    other: Locks,
    kept: tidelock::Guard,
}

impl Pair {
    async fn connect() -> Self {
        let place = Place::shared();
        let network = Network::to(shared().addr()).await;
        let (locks, other) = (network.connect(&place).await, place.connect().await);
        let kept = locks.mutex("kept").ttl(SHORT).lock().await.unwrap();
        Self { network, locks, other, kept }
    }

    /// Who holds the lock.
    async fn holder(&self) -> ClaimId {
        self.other.look(&[NAME]).await.unwrap()[0].holders[0].id
    }

    /// What was sent arrives again. The lock is blocked by a claim that nobody knows, and comes free all the same.
    async fn survives(self, sent: Vec<Vec<u8>>) {
        until_idle(&self.other, NAME).await;
        self.network.make_stray(&sent, &self.locks, NAME).await;
        let began = Instant::now();
        let next = got(waiter(&self.other, NAME, LONG)).await;
        report(&format!("blocked for {:?} with a ttl of {SHORT:?}", began.elapsed()));
        next.release().await.unwrap();
        assert_eq!(self.kept.state(), LockState::Held);
        self.kept.release().await.unwrap();
    }
}

async fn a_question_that_arrives_again_after_the_release_blocks_its_lock_for_about_a_ttl() {
    let pair = Pair::connect().await;
    let guard = pair.locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let sent = pair.network.sent();
    guard.release().await.unwrap();
    pair.survives(sent).await;
}

async fn a_question_that_arrives_again_after_an_eviction_blocks_its_lock_for_about_a_ttl() {
    let pair = Pair::connect().await;
    let guard = pair.locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let sent = pair.network.sent();
    assert!(pair.other.evict(NAME, pair.holder().await, "by hand").await.unwrap());
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    pair.survives(sent).await;
}

async fn a_try_that_was_refused_and_arrives_again_blocks_its_lock_for_about_a_ttl() {
    let pair = Pair::connect().await;
    let guard = pair.other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert!(pair.locks.mutex(NAME).ttl(SHORT).try_lock().await.unwrap().is_none());
    let sent = pair.network.sent();
    guard.release().await.unwrap();
    pair.survives(sent).await;
}

/// Each stray that goes away shows that the client looked through the keys of its lease.
async fn a_client_that_takes_out_strays_keeps_all_claims_that_are_in_use() {
    let Pair { network, locks, other, kept } = Pair::connect().await;
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let sent = network.sent();
    guard.release().await.unwrap();
    let (ours, theirs) = (locks.mutex("owned").owner("ann"), other.mutex("owned").owner("ann"));
    let guards = [
        kept,
        locks.rw_lock("read").ttl(SHORT).read().await.unwrap(),
        locks.semaphore("permits", 5).ttl(SHORT).acquire(2).await.unwrap(),
        // Two clients ride on each other's hold.
        theirs.ttl(SHORT).lock().await.unwrap(),
        ours.ttl(SHORT).lock().await.unwrap(),
        // With leases of their own.
        locks.mutex("alone").ttl(LONG).auto_renew(false).lock().await.unwrap(),
        locks.mutex("detached").ttl(LONG).detached(true).lock().await.unwrap(),
        other.mutex("waited for").ttl(SHORT).lock().await.unwrap(),
    ];
    let ticket = locks.mutex("left").ttl(LONG).detached(true).lock().await.unwrap();
    let ticket = ticket.leave_behind().unwrap();
    let waiting = waiter(&locks, "waited for", SHORT);
    until_waiting(&other, "waited for", 1).await;
    let names = ["kept", "read", "permits", "owned", "alone", "detached", "left", "waited for"];
    let claims = async || -> Vec<Vec<ClaimId>> {
        let views = other.look(&names).await.unwrap();
        views
            .iter()
            .map(|view| view.holders.iter().chain(&view.waiters).map(|claim| claim.id).collect())
            .collect()
    };
    let before = claims().await;
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 2, 1, 1, 1, 2]);
    for _ in 0..3 {
        network.make_stray(&sent, &locks, NAME).await;
        until_idle(&other, NAME).await;
        assert_eq!(claims().await, before);
    }
    assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
    for guard in guards {
        guard.release().await.unwrap();
    }
    got(waiting).await.release().await.unwrap();
    other.release(&ticket).await.unwrap();
}

//! Keys and leases that somebody else deletes, and history that is compacted.

use std::{sync::Arc, time::Duration};

use test_servers::{Etcd, Proxy, Server};
use tidelock::{
    LockState, Locks, Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Left, Share},
    backends::etcd::{EtcdBackend, EtcdConfig},
};

use crate::support::{
    LONG, NAME, Place, eventually, got, held_and_waited_for, shared, until_idle, until_waiting, waiter,
    within,
};

trials! {
    a_lease_revoked_by_hand_is_heard_at_once,
    a_key_deleted_by_hand_is_heard_at_once_by_a_holder_and_by_a_waiter,
    a_waiter_gets_the_lock_after_a_compaction,
    a_lease_that_ended_while_nothing_was_held_is_no_harm,
    a_lock_without_renewal_has_a_lease_of_its_own,
    many_locks_share_one_lease_and_few_keep_alives,
    a_leave_says_whether_the_claim_was_there,
}

fn keys(place: &Place) -> Vec<String> {
    let keys = shared().ask(&["get", "--prefix", "--keys-only", &place.prefix]).unwrap();
    // The base of epochs is for good.
    let is_claim = |key: &&str| !key.is_empty() && !key.ends_with("%epoch");
    keys.lines().filter(is_claim).map(str::to_owned).collect()
}

/// The leases of the keys of a place, in hexadecimal digits.
fn leases(place: &Place) -> Vec<String> {
    let fields = shared().ask(&["get", "--prefix", "-w", "fields", &place.prefix]).unwrap();
    let numbers = fields.lines().filter_map(|line| line.strip_prefix("\"Lease\" : "));
    let numbers = numbers.map(|number| number.trim().parse::<i64>().unwrap()).filter(|lease| *lease != 0);
    let mut leases: Vec<_> = numbers.map(|number| format!("{number:x}")).collect();
    leases.sort();
    leases.dedup();
    leases
}

async fn a_lease_revoked_by_hand_is_heard_at_once() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    // Its next renewal is minutes away: whatever is heard before was pushed.
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let lease = leases(&place).into_iter().find(|lease| {
        let remaining = shared().ask(&["lease", "timetolive", lease]).unwrap();
        remaining.contains(&format!("granted with TTL({}s)", 20 * LONG.as_secs() + 1))
    });
    shared().ask(&["lease", "revoke", &lease.expect("the lease of the holder")]).unwrap();
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    let next = got(waiting).await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
    // And the client gets itself another lease.
    within("it can be had", locks.mutex(NAME).ttl(20 * LONG).lock()).await.unwrap().release().await.unwrap();
}

async fn a_key_deleted_by_hand_is_heard_at_once_by_a_holder_and_by_a_waiter() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let place_of = |view: &tidelock::backend::LockView| view.waiters.first().map(|claim| claim.id);
    let seen = locks.look(&[NAME]).await.unwrap().remove(0);
    let first = place_of(&seen);
    let key_of = |locks: &Locks| {
        let mut claims = seen.holders.iter().chain(&seen.waiters);
        let own = claims.find(|claim| locks.is_own(claim.id)).expect("a claim of this client");
        let client = format!("/{:?}-", own.id.client());
        keys(&place).into_iter().find(|key| key.contains(&client)).expect("a key of this client")
    };
    shared().ask(&["del", &key_of(&other)]).unwrap();
    // It takes a new place.
    crate::support::until(&locks, NAME, |view| place_of(view).is_some_and(|id| Some(id) != first)).await;
    shared().ask(&["del", &key_of(&locks)]).unwrap();
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

/// What the watch would begin with is not there any more. On a server of its own: Go's package gives up
/// when the history that it waits for is compacted.
async fn a_waiter_gets_the_lock_after_a_compaction() {
    let server = Etcd::new().start().unwrap();
    let place = Place::at(&server);
    let proxy = Proxy::start(server.addr()).unwrap();
    let (locks, other) = (place.connect().await, place.behind(&proxy).connect().await);
    for cut in [false, true] {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        if cut {
            proxy.cut();
        }
        // Somebody else writes a lot, and all of it is forgotten.
        let mut revision = String::new();
        for n in 0..20 {
            let fields = server.ask(&["put", "something else", &n.to_string(), "-w", "fields"]).unwrap();
            revision = fields
                .lines()
                .find_map(|line| line.strip_prefix("\"Revision\" : "))
                .unwrap()
                .trim()
                .to_owned();
        }
        server.ask(&["compaction", &revision]).unwrap();
        if cut {
            // While it was away: only reading can tell.
            guard.release().await.unwrap();
            proxy.heal().unwrap();
        } else {
            guard.release().await.unwrap();
        }
        got(waiting).await.release().await.unwrap();
        until_idle(&locks, NAME).await;
    }
}

async fn a_lease_that_ended_while_nothing_was_held_is_no_harm() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mutex = locks.mutex(NAME).ttl(Duration::from_secs(1));
    let first = mutex.lock().await.unwrap();
    let lease = leases(&place).remove(0);
    let token = first.token();
    first.release().await.unwrap();
    eventually("the lease is over", || {
        shared().ask(&["lease", "timetolive", &lease]).unwrap().contains("already expired")
    })
    .await;
    let second = within("it can be had", mutex.lock()).await.unwrap();
    assert!(second.token() > token);
    second.release().await.unwrap();
}

async fn a_lock_without_renewal_has_a_lease_of_its_own() {
    let place = Place::shared();
    let locks = place.connect().await;
    let kept = locks.mutex("kept").ttl(LONG).lock().await.unwrap();
    let also_kept = locks.mutex("kept too").ttl(LONG).lock().await.unwrap();
    assert_eq!(leases(&place).len(), 1);
    let alone = locks.mutex("alone").ttl(LONG).auto_renew(false).lock().await.unwrap();
    let left = locks.mutex("left").ttl(LONG).detached(true).lock().await.unwrap();
    assert_eq!(leases(&place).len(), 3);
    let own: Vec<_> = leases(&place);
    for guard in [kept, also_kept, alone, left] {
        guard.release().await.unwrap();
    }
    assert_eq!(keys(&place), [] as [String; 0]);
    let is_over =
        |lease: &&String| shared().ask(&["lease", "timetolive", lease]).unwrap().contains("already expired");
    assert_eq!(own.iter().filter(is_over).count(), 2, "those that belonged to one lock are revoked");
}

async fn many_locks_share_one_lease_and_few_keep_alives() {
    const LOCKS: usize = 500;
    let server = Etcd::new().start().unwrap();
    let locks = Place::on(server.url()).connect().await;
    let mut guards = Vec::new();
    for n in 0..LOCKS {
        guards.push(locks.mutex(format!("orders/{n}")).ttl(Duration::from_secs(12)).lock().await.unwrap());
    }
    let before = keep_alives(&server);
    // Two rounds of renewal.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let sent = keep_alives(&server) - before;
    assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
    assert!((1..=10).contains(&sent), "{sent} keep-alives for {LOCKS} locks");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// How many keep-alives a server has heard.
fn keep_alives(server: &Server) -> u64 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| {
        line.starts_with("grpc_server_msg_received_total") && line.contains("grpc_method=\"LeaseKeepAlive\"")
    });
    line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap()
}

/// What a holder is told when it gives back a lock whose key is not there any more.
async fn a_leave_says_whether_the_claim_was_there() {
    let place = Place::shared();
    let config = EtcdConfig::from_url(&place.url()).unwrap();
    let id = ClientId::from_u64(7);
    let backend = EtcdBackend::connect(config, id).await.unwrap();
    for (number, by_hand) in [(1, false), (2, true)] {
        let claim = Arc::new(
            Claim::new(ClaimId::new(id, number), Name::new(NAME).unwrap(), Share::Exclusive, LONG)
                .label("test"),
        );
        assert!(matches!(backend.enter(&claim, Ask::Queue).await.unwrap(), Entered::Held(_)));
        if by_hand {
            shared().ask(&["del", &keys(&place)[0]]).unwrap();
        }
        let left = backend.leave(&claim.name, claim.id, Leave::Done).await.unwrap();
        assert_eq!(left, Left::from_was_there(!by_hand));
        // A second one finds nothing.
        let again = backend.leave(&claim.name, claim.id, Leave::Done).await.unwrap();
        assert_eq!(again, Left::Absent);
    }
}

//! Servers that are killed, paused and started again, with their data or without.

use std::{sync::Arc, time::Duration};

use test_servers::Redis;
use tidelock::{
    LockState,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Share},
    backends::redis::{RedisBackend, RedisConfig},
};

use crate::{
    support::{
        LONG, NAME, Place, SHORT, eventually, got, pass_on, report, until, until_idle, until_waiting, waiter,
        within,
    },
    witness::Witness,
};

trials! {
    after_a_kill_with_a_durable_file_the_lock_is_still_held_and_waiters_keep_their_order,
    after_a_kill_with_a_durable_file_tokens_do_not_go_back,
    a_server_that_forgot_grants_nothing_until_the_longest_lease_is_over,
    a_holder_hears_that_the_server_forgot_as_soon_as_it_is_back,
    a_waiter_on_a_server_that_forgot_hears_why_and_may_ask_again,
    a_lock_that_somebody_deletes_is_seen_as_held_twice_by_the_witness,
    a_server_paused_for_less_than_the_ttl_costs_nobody_a_lock,
    a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_the_next_begins,
}

async fn after_a_kill_with_a_durable_file_the_lock_is_still_held_and_waiters_keep_their_order() {
    let server = Redis::new().durable().start().unwrap();
    let place = Place::on(server.url());
    let (locks, stranger) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut waiters = Vec::new();
    for n in 1..=3 {
        let client = place.connect().await;
        waiters.push(waiter(&client, NAME, LONG));
        until_waiting(&stranger, NAME, n).await;
    }
    server.kill().unwrap();
    server.restart().unwrap();

    until(&stranger, NAME, |view| view.holders.len() == 1 && view.waiters.len() == 3).await;
    assert!(stranger.mutex(NAME).try_lock().await.unwrap().is_none());
    assert!(guard.is_held());
    // A client that cannot be told is passed over: all of them are back before the lock moves.
    eventually("all clients listen again", || place.listeners(&server) == 5).await;
    pass_on(guard, waiters).await;
}

async fn after_a_kill_with_a_durable_file_tokens_do_not_go_back() {
    let server = Redis::new().durable().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let before = locks.mutex(NAME).lock().await.unwrap();
    let token = before.token();
    before.release().await.unwrap();
    // As after a clock that went back by ten minutes: the epoch that was kept is ahead of the clock.
    let ahead = token.epoch() + 600_000_000;
    let key = place.key(NAME);
    server.command(&["SET", &key, &format!("I{ahead}"), "PX", "60000"]).unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    let after = within("it is granted again", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).lock().await {
                return guard;
            }
        }
    });
    let after = after.await;
    assert_eq!(after.token().epoch(), ahead + 1);
    after.release().await.unwrap();
}

/// Past the engine, which pauses between tries: the first command after the restart asks for a lock.
async fn a_server_that_forgot_grants_nothing_until_the_longest_lease_is_over() {
    for scripting in ["scripting=on", "scripting=off"] {
        nothing_is_granted_until_the_longest_lease_is_over(scripting).await;
    }
}

async fn nothing_is_granted_until_the_longest_lease_is_over(scripting: &str) {
    const LOCKS: u64 = 16;
    let ttl = Duration::from_secs(3);
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url()).with(scripting);
    let (holder, client) = (place.connect().await, ClientId::random());
    let config = RedisConfig::from_url(&place.url()).unwrap();
    let other = Arc::new(RedisBackend::connect(config, client).await.unwrap());
    let (mut guards, mut tries) = (Vec::new(), Vec::new());
    for n in 0..LOCKS {
        let guard = holder.mutex(n.to_string()).ttl(ttl).lock().await.unwrap();
        let (before, other) = (guard.holding(), Arc::clone(&other));
        let claim = Arc::new(
            Claim::new(ClaimId::new(client, n), before.name().clone(), Share::Exclusive, ttl).label("other"),
        );
        guards.push(guard);
        // Asked once before the server dies: it is known how long a lease may be.
        assert_eq!(other.enter(&claim, Ask::Try).await.unwrap(), Entered::Busy);
        tries.push(tokio::spawn(async move {
            let mut refused = 0;
            loop {
                match other.enter(&claim, Ask::Try).await {
                    Ok(Entered::Held(grant)) => {
                        assert!(!before.is_held(), "two hold {:?}", before.name());
                        assert!(grant.epoch > before.token().epoch());
                        return refused;
                    }
                    Ok(_) => {}
                    Err(failure) => refused += usize::from(failure.reason.contains("has forgotten")),
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    server.kill().unwrap();
    server.restart().unwrap();
    for guard in &guards {
        let loss = within("the old holder hears it", guard.lost()).await;
        assert!(loss.is_lost(), "{loss}");
    }
    let mut refused = 0;
    for outcome in tries {
        refused += within("it is granted again", outcome).await.unwrap();
    }
    report(&format!("a server that forgot refused {refused} tries, and no two held at once"));
    assert!(refused > 0);
}

async fn a_holder_hears_that_the_server_forgot_as_soon_as_it_is_back() {
    let server = Redis::new().start().unwrap();
    // Its next renewal is far beyond the patience of this test.
    let guard = Place::on(server.url()).connect().await.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    let loss = within("it is heard", guard.lost()).await;
    assert!(loss.is_lost(), "{loss}");
}

async fn a_waiter_on_a_server_that_forgot_hears_why_and_may_ask_again() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let (holder, other) = (place.connect().await, place.connect().await);
    let witness = Witness::default();
    let guard = witness.lock(&holder.mutex(NAME).ttl(SHORT)).await.unwrap();
    let waiting = waiter(&other, NAME, SHORT);
    until_waiting(&holder, NAME, 1).await;
    server.kill().unwrap();
    server.restart().unwrap();
    // It may be told, or find the lock free after its pause: both are fine, to hang is not.
    match within("the waiter hears something", waiting).await.unwrap() {
        Ok(next) => witness.saw(&next, Some(guard.token())),
        Err(error) => assert!(error.is_unavailable() && error.to_string().contains("restarted"), "{error}"),
    }
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    let mutex = other.mutex(NAME).ttl(SHORT);
    let again = within("it can be had again", async {
        loop {
            if let Ok(guard) = witness.lock(&mutex).await {
                return guard;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    again.await.release().await.unwrap();
    assert_eq!(witness.doubles(), 0);
}

/// Not about the store: the counts of other trials are worth something only if they can be other than zero.
async fn a_lock_that_somebody_deletes_is_seen_as_held_twice_by_the_witness() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let witness = Witness::default();
    let first = witness.lock(&locks.mutex(NAME).ttl(LONG)).await.unwrap();
    crate::support::shared().command(&["DEL", &place.key(NAME)]).unwrap();
    let second = witness.lock(&other.mutex(NAME).ttl(LONG)).await.unwrap();
    assert_eq!((witness.grants(), witness.doubles()), (2, 1));
    drop((first, second));
}

async fn a_server_paused_for_less_than_the_ttl_costs_nobody_a_lock() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let ttl = Duration::from_secs(6);
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    server.pause().unwrap();
    // Long enough for a renewal to fail, and no longer.
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    server.resume().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    pass_on(guard, vec![waiting]).await;
}

async fn a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_the_next_begins() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let witness = Witness::default();
    let guard = witness.lock(&locks.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    let waiting = waiter(&other, NAME, SHORT);
    until_waiting(&locks, NAME, 1).await;
    server.pause().unwrap();
    let loss = within("the holder hears it while nobody answers", guard.lost()).await;
    assert!(loss.to_string().contains("no renewal confirmed"), "{loss}");
    server.resume().unwrap();
    let next = got(waiting).await;
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    assert!(guard.release().await.unwrap_err().is_lost());
    next.release().await.unwrap();
    // What was asked during the pause, and answered after it, leaves nothing behind either.
    until_idle(&other, NAME).await;
}

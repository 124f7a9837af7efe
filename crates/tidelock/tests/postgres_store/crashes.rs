//! Servers and single backends that are killed, and take with them what they had not written yet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use test_servers::{Postgres, Proxy, Server};
use tidelock::{
    Guard, Locks, Token,
    backend::{Left, Share, Standing},
};

use crate::{
    RENEWALS,
    renewals::Client,
    sql,
    support::{
        LONG, NAME, Place, SHORT, eventually, got, report,
        turns::{Turns, Verdict},
        until, until_idle, until_waiting, waiter, within,
    },
};

trials! {
    servers_and_backends_killed_in_mid_load_make_no_second_holder_and_no_older_token,
    grants_that_a_crash_undid_make_no_second_holder,
    without_the_rule_for_crashes_grants_that_one_undid_make_second_holders,
    a_client_that_comes_while_the_server_is_quiet_gets_the_lock_when_that_ends,
    a_rider_is_not_let_in_while_the_server_is_quiet,
    a_long_lease_and_an_eviction_outlive_a_crash,
    a_long_lease_that_was_renewed_with_others_outlives_a_crash,
    renewals_that_go_together_grant_nothing_while_the_server_is_quiet,
    a_server_that_was_stopped_in_order_grants_at_once,
    the_longest_lease_is_written_down_before_it_is_given,
}

/// What is committed is not written for so long that a crash is sure to undo it.
fn forgetful() -> Postgres {
    Postgres::new().setting("wal_writer_delay=10s").setting("wal_writer_flush_after=1GB")
}

/// How often something is killed, unless the environment says otherwise.
fn rounds() -> usize {
    std::env::var("TIDELOCK_CRASHES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(6)
}

/// Several processes take one lock in turns while the server, or one of its backends, is killed with 9.
async fn servers_and_backends_killed_in_mid_load_make_no_second_holder_and_no_older_token() {
    const WORKERS: usize = 4;
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    // Enough for all rounds: some turns more are taken while something is killed.
    let each = 30 * (rounds() + 2);
    let turns = Turns::begin(&place.url(), WORKERS, each, Duration::from_secs(2));
    turns.all_take_part().await;
    let mut crashes = 0;
    for round in 0..rounds() {
        turns.go_on(50).await;
        if turns.count() > each * (WORKERS - 1) {
            break;
        }
        if round % 2 == 0 {
            server.kill().unwrap();
            server.restart().unwrap();
        } else {
            kill_a_backend(&server).await;
        }
        crashes += 1;
    }
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "{turns} turns of {WORKERS} processes over {crashes} crashes: {errors} errors, {overlaps} overlaps, {unordered} tokens out of order"
    ));
    assert_eq!((overlaps, unordered, turns), (0, 0, each * WORKERS));
    assert!(crashes >= rounds() / 2, "only {crashes} crashes");
}

/// One backend dies, and the server ends all others and recovers: it does not start anew.
async fn kill_a_backend(server: &Server) {
    let pid = server
        .ask(&["-c", "SELECT pid FROM pg_stat_activity WHERE application_name = 'tidelock' LIMIT 1"])
        .unwrap();
    let Ok(pid) = pid.trim().parse() else { return };
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("the server has recovered", || server.ping().is_ok()).await;
}

/// So many crashes lose something for sure.
const CRASHES: usize = 10;

/// Locks are taken and kept up to the moment of the crash and beyond: what was granted last is what it takes with it.
async fn grants_that_a_crash_undid_make_no_second_holder() {
    for kill_all in [true, false] {
        // What is written is not ours to say: until a crash takes something with it.
        let mut undone = 0;
        for _ in 0..CRASHES {
            undone = crash_in_a_rush(kill_all).await;
            if undone > 0 {
                break;
            }
        }
        assert!(undone > 0, "nothing was lost in {CRASHES} crashes: this shows nothing");
    }
}

/// Says how many grants a crash undid while others were kept out. No two may hold after it.
async fn crash_in_a_rush(kill_all: bool) -> usize {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let over = Arc::new(AtomicBool::new(false));
    let taking = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut guards: Vec<Guard> = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let mutex = locks.mutex(guards.len().to_string()).ttl(SHORT);
                // One that is not granted for sure is not relied on.
                if let Ok(Ok(guard)) = tokio::time::timeout(SHORT / 10, mutex.lock()).await {
                    guards.push(guard);
                }
            }
            guards
        }
    });
    eventually("some are taken", || sql(&server, "SELECT count(*) > 50 FROM tidelock.line") == "t").await;
    if kill_all {
        server.kill().unwrap();
        server.restart().unwrap();
    } else {
        kill_a_backend(&server).await;
    }
    over.store(true, Ordering::Relaxed);
    let guards = within("the rush ends", taking).await.unwrap();
    let (mut undone, mut refused) = (0, 0);
    for guard in &guards {
        let next = within("the server answers", async {
            loop {
                match other.mutex(guard.name().as_str()).ttl(SHORT).try_lock().await {
                    Ok(next) => return next,
                    Err(error) => {
                        refused += usize::from(error.to_string().contains("grants nothing for another"));
                    }
                }
            }
        });
        if let Some(next) = next.await {
            assert!(!guard.is_held(), "two hold {:?}", guard.name());
            assert!(next.token() > guard.token());
            undone += 1;
            next.release().await.unwrap();
        }
    }
    report(&format!(
        "a crash undid {undone} of {} grants; {refused} tries were refused, and no two held",
        guards.len()
    ));
    // If nobody was refused, the crash lost nothing, or it lasted until all leases had ended.
    if refused > 0 { undone } else { 0 }
}

/// Shows that the trial before can fail: an administrator who says that there was no crash turns the rule off.
async fn without_the_rule_for_crashes_grants_that_one_undid_make_second_holders() {
    for has_rule in [false, true] {
        // What is written is not ours to say: until a crash takes something with it.
        let mut undone = 0;
        for crash in 1..=CRASHES {
            let (lost, doubles) = crash_while_held(has_rule).await;
            report(&format!(
                "crash {crash} {} the rule undid {lost} grants: {doubles} locks had two holders",
                if has_rule { "with" } else { "without" }
            ));
            assert_eq!(doubles, if has_rule { 0 } else { lost });
            undone = lost;
            if undone > 0 {
                break;
            }
        }
        assert!(undone > 0, "nothing was lost: this shows nothing");
    }
}

/// A crash while a client holds locks and hears nothing of it. Says how many grants it undid, and how many of
/// those locks another client got while the first could still rely on them.
async fn crash_while_held(has_rule: bool) -> (usize, usize) {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let proxy = Proxy::start(server.addr()).unwrap();
    let locks = place.behind(&proxy).connect().await;
    let mut guards = Vec::new();
    for n in 0..50 {
        guards.push(locks.mutex(n.to_string()).ttl(LONG).lock().await.unwrap());
    }
    proxy.cut();
    server.kill().unwrap();
    server.restart().unwrap();
    if !has_rule {
        sql(
            &server,
            "INSERT INTO tidelock.awake (quiet_until, here) VALUES (0, tidelock.here('tidelock.awake'))",
        );
    }
    let other = place.connect().await;
    let (mut lost, mut doubles) = (0, 0);
    for guard in &guards {
        match other.mutex(guard.name().as_str()).ttl(LONG).try_lock().await {
            // It was written in time.
            Ok(None) => continue,
            Ok(Some(second)) => doubles += usize::from(guard.is_held() && second.is_held()),
            Err(error) => assert!(error.to_string().contains("grants nothing for another"), "{error}"),
        }
        lost += 1;
    }
    (lost, doubles)
}

async fn a_client_that_comes_while_the_server_is_quiet_gets_the_lock_when_that_ends() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    // Long, so that there is time to come even on a slow machine.
    let guard = locks.mutex(NAME).ttl(5 * SHORT).lock().await.unwrap();
    let token = guard.token();
    server.kill().unwrap();
    server.restart().unwrap();
    // It may be lost.
    let _ = guard.release().await;
    let (first, second) = (place.connect().await, place.connect().await);
    assert!(
        first.concerns().iter().any(|concern| concern.contains("grants nothing")),
        "{:?}",
        first.concerns()
    );
    let waiting = waiter(&first, NAME, LONG);
    until(&locks, NAME, |view| view.waiters.len() == 1 && view.holders.is_empty()).await;
    let behind = waiter(&second, NAME, LONG);
    until(&locks, NAME, |view| view.waiters.len() == 2 && view.holders.is_empty()).await;
    let next = got(waiting).await;
    assert!(next.token() > token && !behind.is_finished());
    next.release().await.unwrap();
    got(behind).await.release().await.unwrap();
}

/// The hold that it would ride on may be over, and what came after it undone.
async fn a_rider_is_not_let_in_while_the_server_is_quiet() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    // What is written is not ours to say: until a crash takes a release with it.
    for n in 0..10 {
        let (locks, other) = (place.connect().await, place.connect().await);
        let name = format!("{NAME} {n}");
        let guard = locks.mutex(&*name).ttl(2 * LONG).owner("ann").lock().await.unwrap();
        sql(&server, "CHECKPOINT");
        guard.release().await.unwrap();
        let held = other.mutex(&*name).ttl(LONG).lock().await.unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        let third = place.connect().await;
        let seen = third.look(&[&*name]).await.unwrap();
        let holder = seen.first().and_then(|view| view.holders.first()?.owner.clone());
        if holder.is_some_and(|owner| owner.as_str() == "ann") {
            let answer = third.mutex(&*name).ttl(SHORT).owner("ann").try_lock().await;
            assert!(!matches!(answer, Ok(Some(_))), "{answer:?}");
            drop(held);
            return;
        }
    }
    panic!("no release was lost: this shows nothing");
}

async fn a_long_lease_and_an_eviction_outlive_a_crash() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let long = locks.mutex("long").ttl(2 * LONG).lock().await.unwrap();
    let evicted = locks.mutex("evicted").ttl(SHORT).lock().await.unwrap();
    let handed = locks.mutex("handed").ttl(SHORT).lock().await.unwrap();
    let waiting = waiter(&other, "handed", 2 * LONG);
    until_waiting(&locks, "handed", 1).await;
    handed.release().await.unwrap();
    let handed = got(waiting).await;
    let holder = other.look(&["evicted"]).await.unwrap()[0].holders[0].id;
    other.evict("evicted", holder, "by hand").await.unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    let third = place.connect().await;
    let seen = |name: &'static str| {
        let third = third.clone();
        async move { third.look(&[name]).await.unwrap().first().map_or(0, |view| view.holders.len()) }
    };
    assert_eq!((seen("long").await, seen("evicted").await, seen("handed").await), (1, 0, 1));
    assert!(third.mutex("long").try_lock().await.unwrap().is_none());
    assert!(within("the evicted one hears it", evicted.lost()).await.is_lost());
    long.release().await.unwrap();
    handed.release().await.unwrap();
}

/// A crash undoes what was not flushed, and the server is quiet for a minute then: shorter than this lease.
async fn a_long_lease_that_was_renewed_with_others_outlives_a_crash() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let mut client = Client::connect(&place).await;
    let claims = [client.lock("a").await, client.enter("b", Share::Exclusive, 2 * LONG).await];
    let standings = client.renew(&claims).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))), "{standings:?}");
    let confirmed = (RENEWALS.lapses)(&server, &place);
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!((RENEWALS.lapses)(&server, &place), confirmed);
}

async fn renewals_that_go_together_grant_nothing_while_the_server_is_quiet() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let (mut client, mut other) = (Client::connect(&place).await, Client::connect(&place).await);
    let held = other.lock("b").await;
    let claims = [client.lock("a").await, client.lock("b").await, client.lock("c").await];
    sql(&server, "CHECKPOINT");
    server.kill().unwrap();
    server.restart().unwrap();
    let answered = async {
        while other.renew(std::slice::from_ref(&held)).await.is_err() || client.renew(&claims).await.is_err()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the server answers again", answered).await;
    assert_eq!(other.leave(&held).await, Left::Removed);
    // Commits may have been lost: somebody may hold it who is not in line.
    let standings = client.renew(&claims).await.unwrap();
    let holds = standings.iter().map(|standing| matches!(standing, Standing::Held(_)));
    assert_eq!(holds.collect::<Vec<_>>(), [true, false, true]);
}

async fn a_server_that_was_stopped_in_order_grants_at_once() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let token = guard.token();
    let first = Pid::from_raw(server.pid().unwrap().cast_signed()).unwrap();
    kill_process(first, Signal::INT).unwrap();
    eventually("the server has stopped", || server.pid().is_none()).await;
    server.restart().unwrap();
    let other = place.connect().await;
    assert!(!other.concerns().iter().any(|concern| concern.contains("grants nothing")));
    let quick = within("another lock is granted", other.mutex("another").lock()).await.unwrap();
    quick.release().await.unwrap();
    assert!(other.mutex(NAME).try_lock().await.unwrap().is_none(), "what was held is held");
    guard.release().await.unwrap();
    let next: Token = within("it goes on", other.mutex(NAME).lock()).await.unwrap().token();
    assert!(next > token);
    until_idle(&locks, NAME).await;
}

async fn the_longest_lease_is_written_down_before_it_is_given() {
    let server = forgetful().start().unwrap();
    let place = Place::on(server.url());
    let locks: Locks = place.connect().await;
    for seconds in [2, 5, 3] {
        let guard = locks.mutex(NAME).ttl(Duration::from_secs(seconds)).lock().await.unwrap();
        guard.release().await.unwrap();
    }
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(sql(&server, "SELECT longest FROM tidelock.state"), "5000000");
    let locks = place.connect().await;
    let left = "SELECT quiet_until - (extract(epoch FROM clock_timestamp()) * 1e6)::bigint <= 5000000 FROM tidelock.awake";
    assert_eq!(sql(&server, left), "t");
    drop(locks);
}

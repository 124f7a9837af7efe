//! The usual mistakes of locks in Redis, one trial each: none of them can happen here.

use std::{sync::Arc, time::Duration};

use test_servers::{Proxy, Redis, Server};
use tidelock::{
    Locks, Name,
    backend::{Backend, ClientId, Leave},
    backends::redis::{RedisBackend, RedisConfig},
    testing::{Clock, defect::Defects},
};

use crate::{
    support::{
        LONG, NAME, Place, SHORT, eventually, got, held_and_waited_for, report, shared, until_idle,
        until_waiting, waiter, within,
    },
    witness::Witness,
    worker::Worker,
};

trials! {
    the_lease_is_written_with_the_lock_and_not_in_a_second_step,
    nobody_gives_back_what_another_holds,
    a_release_that_arrives_after_the_lease_ended_does_not_free_the_next_holder,
    a_client_whose_clock_is_wrong_takes_nothing_and_tokens_come_from_the_server,
    a_try_in_vain_changes_nothing_about_the_lease_of_the_holder,
    work_that_takes_longer_than_the_ttl_keeps_the_lock,
    an_owner_that_entered_twice_from_two_processes_has_to_leave_twice,
    a_waiter_does_not_poll,
    no_key_of_a_lock_is_ever_without_an_expiry,
    a_server_whose_clock_has_few_digits_keeps_leases_and_tokens,
    a_line_that_cannot_be_read_is_refused_by_its_form_shown_and_cleared_by_force,
    a_line_of_the_version_before_is_shared_while_it_is_one_key_and_never_held_twice,
}

/// How long each key of a place lives, in milliseconds; nothing if there is none.
fn expiries(server: &Server, place: &Place) -> Vec<(String, i64)> {
    let mut administrator = server.administrator().unwrap();
    let keys = administrator.call(&["KEYS", &format!("{}*", place.prefix)]).unwrap().unwrap_or_default();
    let mut expiries = Vec::new();
    for key in keys.lines() {
        let left = administrator.call(&["PTTL", key]).unwrap().unwrap().parse().unwrap();
        expiries.push((key.to_owned(), left));
    }
    expiries
}

/// Mistake: `SETNX`, then `EXPIRE`; a crash between the two locks everybody out for ever.
async fn the_lease_is_written_with_the_lock_and_not_in_a_second_step() {
    let (server, place) = (shared(), Place::shared());
    let proxy = Proxy::start(server.addr()).unwrap();
    let dying = place.behind(&proxy).connect().await;
    let other = place.connect().await;
    // The first command is applied, and then the client is gone for good.
    proxy.swallow_replies();
    let asking = waiter(&dying, NAME, SHORT);
    eventually("the first command is applied", || !expiries(&server, &place).is_empty()).await;
    proxy.cut();
    for (key, left) in expiries(&server, &place) {
        assert!(left > 0, "{key} has no expiry");
    }
    asking.abort();
    drop(dying);
    within("the lease ends", other.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
}

/// Mistake: `DEL` without looking whose lock it is.
async fn nobody_gives_back_what_another_holds() {
    let place = Place::shared();
    let (former, locks, third) = (place.connect().await, place.connect().await, place.connect().await);
    let lost = former.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let id = third.look(&[NAME]).await.unwrap()[0].holders[0].id;
    third.evict(NAME, id, "").await.unwrap();
    let guard = within("it is free", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(lost.release().await.unwrap_err().is_lost());
    // The same question past the engine, which would not even ask it.
    let config = RedisConfig::from_url(&place.url()).unwrap();
    let backend = RedisBackend::connect(config, ClientId::random()).await.unwrap();
    for why in [Leave::Done, Leave::evicted("again")] {
        backend.leave(&Name::new(NAME).unwrap(), id, why).await.unwrap();
    }
    assert!(third.mutex(NAME).try_lock().await.unwrap().is_none());
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// Mistake: `GET`, compare, `DEL`: the lock may have changed hands between the two.
async fn a_release_that_arrives_after_the_lease_ended_does_not_free_the_next_holder() {
    let (server, place) = (shared(), Place::shared());
    let proxy = Proxy::start(server.addr()).unwrap();
    let (slow, other) = (place.behind(&proxy).connect().await, place.connect().await);
    let witness = Witness::default();
    let first = witness.lock(&slow.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    proxy.hold_requests();
    let releasing = tokio::spawn(first.release());
    let second = within("the lease ends", other.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    witness.saw(&second, before);
    proxy.heal().unwrap();
    // Whatever it was told: the release has been delivered by now.
    let _ = within("the release ends", releasing).await.unwrap();
    within("the late client is served again", slow.look(&[NAME])).await.unwrap();
    assert!(second.is_held() && slow.mutex(NAME).try_lock().await.unwrap().is_none());
    assert_eq!(witness.doubles(), 0);
    second.release().await.unwrap();
}

/// Mistake: an expiry that the client computes and others compare with their own clocks.
async fn a_client_whose_clock_is_wrong_takes_nothing_and_tokens_come_from_the_server() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let micros = || {
        let time = server.command(&["TIME"]).unwrap().unwrap();
        let (seconds, micros) = time.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
    };
    let (client, clock) = (ClientId::random(), Clock::driven(0));
    let config = RedisConfig::from_url(&place.url()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::connect(config, client).await.unwrap());
    let ahead = Locks::on_clock(backend, clock.clone(), Defects::NONE);
    clock.jump(Duration::from_secs(24 * 3_600));
    assert!(ahead.mutex(NAME).try_lock().await.unwrap().is_none());
    let waiting = waiter(&ahead, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    clock.jump(Duration::from_secs(24 * 3_600));
    assert!(guard.is_held());
    let token = guard.token();
    let earliest = micros();
    guard.release().await.unwrap();
    let next = got(waiting).await;
    assert!(next.token() > token);
    assert!((earliest..=micros()).contains(&next.token().epoch()));
    next.release().await.unwrap();
}

/// Mistake: `GETSET`, whose loser has overwritten the expiry of the winner.
async fn a_try_in_vain_changes_nothing_about_the_lease_of_the_holder() {
    let (server, place) = (shared(), Place::shared());
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut administrator = server.administrator().unwrap();
    let mut look = || {
        let value = administrator.call(&["GET", &place.key(NAME)]).unwrap();
        (value, administrator.call(&["PEXPIRETIME", &place.key(NAME)]).unwrap())
    };
    let before = look();
    for _ in 0..50 {
        assert!(other.mutex(NAME).ttl(20 * LONG).try_lock().await.unwrap().is_none());
    }
    assert_eq!(look(), before);
    // A waiter changes the queue, and not when the holder's lease ends.
    let lapse = |view: &tidelock::backend::LockView| view.holders[0].lapse_in;
    let earlier = lapse(&locks.look(&[NAME]).await.unwrap()[0]);
    assert!(other.mutex(NAME).try_lock_for(Duration::from_millis(50)).await.unwrap().is_none());
    assert!(lapse(&locks.look(&[NAME]).await.unwrap()[0]) < earlier);
    guard.release().await.unwrap();
}

/// Mistake: an expiry that is a guess about how long the work takes.
async fn work_that_takes_longer_than_the_ttl_keeps_the_lock() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let work = async |_| {
        for _ in 0..10 {
            tokio::time::sleep(SHORT / 4).await;
            assert!(other.mutex(NAME).try_lock().await.unwrap().is_none());
        }
    };
    locks.mutex(NAME).ttl(SHORT).run(work).await.unwrap();
    until_idle(&other, NAME).await;
}

/// Mistake: a count of entries that lives in one process, or none.
async fn an_owner_that_entered_twice_from_two_processes_has_to_leave_twice() {
    let place = Place::shared();
    let (locks, stranger) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).owner("the job").ttl(LONG).lock().await.unwrap();
    let mut again = Worker::start(&place.url(), "hold the job", SHORT);
    again.hear("held");
    let third = locks.mutex(NAME).owner("the job").ttl(LONG).try_lock().await.unwrap().expect("its own");
    guard.release().await.unwrap();
    assert!(stranger.mutex(NAME).try_lock().await.unwrap().is_none());
    third.release().await.unwrap();
    assert!(stranger.mutex(NAME).try_lock().await.unwrap().is_none());
    let waiting = waiter(&stranger, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    again.kill();
    got(waiting).await.release().await.unwrap();
}

/// Mistake: asking again and again until the lock is free.
async fn a_waiter_does_not_poll() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    // What scripts call is counted too; what is sent is what costs a network.
    let sent = || -> u64 {
        let stats = server.command(&["INFO", "commandstats"]).unwrap().unwrap();
        let of = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let ours = ["evalsha", "eval", "ping", "subscribe", "scan"].contains(&name);
            ours.then(|| rest.split(',').next()?.parse::<u64>().ok())?
        };
        stats.lines().filter_map(of).sum()
    };
    let (before, clock) = (sent(), Clock::machine());
    let began = clock.now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let asked = sent() - before;
    let seconds = clock.now().since(began).as_secs_f64();
    report(&format!("a holder and a waiter sent {asked} commands in {seconds:.1} s"));
    assert!((asked as f64) < 3.0 * seconds, "{asked} commands in {seconds} s");
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

/// Mistake: a key that nobody removes once its client has crashed.
async fn no_key_of_a_lock_is_ever_without_an_expiry() {
    let (server, place) = (shared(), Place::shared());
    let (locks, other) = (place.connect().await, place.connect().await);
    let check = |when: &str, keys: usize| {
        let expiries = expiries(&server, &place);
        assert_eq!(expiries.len(), keys, "{when}: {expiries:?}");
        for (key, left) in expiries {
            assert!(left > 0, "{when}: {key} has no expiry");
        }
    };
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let waiting = waiter(&other, NAME, SHORT);
    until_waiting(&locks, NAME, 1).await;
    check("a queue", 1);
    tokio::time::sleep(2 * SHORT).await;
    check("a queue, renewed", 1);
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    // With an owner it is more than a queue, and still one key.
    let guard = locks.mutex(NAME).owner("somebody").ttl(SHORT).lock().await.unwrap();
    check("held", 1);
    let waiting = waiter(&other, NAME, SHORT);
    until_waiting(&locks, NAME, 1).await;
    check("waited for", 1);
    tokio::time::sleep(2 * SHORT).await;
    check("renewed", 1);
    guard.release().await.unwrap();
    let guard = got(waiting).await;
    check("handed over", 1);
    let shared = locks.rw_lock("shared").read().await.unwrap();
    let permits = locks.semaphore("permits", 3).acquire(1).await.unwrap();
    let (again, once_more) = (locks.mutex("mine").owner("me"), other.mutex("mine").owner("me"));
    let both = (again.lock().await.unwrap(), once_more.lock().await.unwrap());
    for (key, left) in expiries(&server, &place) {
        assert!(left > 0, "{key} has no expiry");
    }
    drop((guard, shared, permits, both));
    for name in [NAME, "shared", "permits", "mine"] {
        until_idle(&locks, name).await;
    }
    check("given back: the epoch is remembered for a while", 4);
    let mut dead = Worker::start(&place.url(), "hold", SHORT);
    dead.hear("held");
    dead.kill();
    check("its holder is dead", 4);
}

/// Mistake: a record of another version that is taken for none.
async fn a_line_that_cannot_be_read_is_refused_by_its_form_shown_and_cleared_by_force() {
    let server = shared();
    for scripting in ["scripting=scripts", "scripting=off"] {
        let place = Place::shared().with(scripting);
        let locks = place.connect().await;
        let damaged = format!("V01{}", "0".repeat(200));
        let found = [
            ("L1700000000000000,1,1,1,0,1,0,0,2,1,1", "form L"),
            ("V02 something", "form V02"),
            (&*damaged, "damaged"),
            ("hello", "begins with \"hello\""),
            ("Sxyz", "begins with"),
        ];
        for (number, (head, said)) in found.into_iter().enumerate() {
            let name = format!("{NAME} {number}");
            server.command(&["SET", &place.key(&name), head, "PX", "600000"]).unwrap();
            let error = locks.mutex(&name).try_lock().await.unwrap_err();
            assert!(error.is_denied() && error.to_string().contains(said), "{head}: {error}");
            crate::support::is_one_sentence(&error);
            let view = locks.look(&[&name]).await.unwrap().remove(0);
            assert!(view.holders[0].label.contains(said), "{head}: {:?}", view.holders);
            assert_eq!(server.command(&["GET", &place.key(&name)]).unwrap().as_deref(), Some(head));
            locks.evict(&name, view.holders[0].id, "it cannot be read").await.unwrap();
            assert!(locks.look(&[&name]).await.unwrap().is_empty(), "{head}");
            let guard = locks.mutex(&name).try_lock().await.unwrap().expect("it was cleared");
            assert!(guard.token().epoch() > 1_700_000_000_000_000);
            guard.release().await.unwrap();
        }
    }
}

/// Mistake: an upgrade during which the old clients and the new ones each have a holder.
async fn a_line_of_the_version_before_is_shared_while_it_is_one_key_and_never_held_twice() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let now = || -> u64 {
        let time = server.command(&["TIME"]).unwrap().unwrap();
        let (seconds, micros) = time.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
    };
    // As the version before wrote them: one claim, and a queue of two.
    let old = |client: u64, held: bool| {
        let (at, ttl, hold) = (now(), 3_000_000, u8::from(held));
        format!("{client:016x}{:016x}{at:016}{ttl:016}{at:016}{hold}{at:016}{at:016}x0,\n\nold", 1)
    };
    for waiters in [0, 1] {
        let (first, second) = (old(1, true), old(2, false));
        let head = if waiters == 0 {
            format!("S{first}")
        } else {
            let (lapse, expiry) = (now() + 100_000, now() / 1_000 + 600_000);
            format!("Q{lapse:016}{expiry:016}0002\u{1e}{first}\u{1e}{second}")
        };
        server.command(&["SET", &place.key(NAME), &head, "PX", "600000"]).unwrap();
        let view = locks.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, waiters));
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none(), "an old client holds it");
        let owned = locks.mutex(NAME).owner("a new client");
        let next = within("the old leases end", owned.lock()).await.unwrap();
        assert!(next.token().epoch() > view.epoch);
        next.release().await.unwrap();
        until_idle(&locks, NAME).await;
    }
}

/// Mistake: times that are compared as text and have fewer digits before September 2001, as on a board that boots in 1970.
async fn a_server_whose_clock_has_few_digits_keeps_leases_and_tokens() {
    let server = Redis::new().start().unwrap();
    let library = RedisConfig::function_library().replace("redis.call('TIME')", "{'1000', '7'}");
    server.command(&["FUNCTION", "LOAD", &library]).unwrap();
    let function = |verb: &str| {
        let mut names =
            library.split("register_function('").filter_map(|text| text.split_once('\'')).map(|of| of.0);
        names.find(|name| name.starts_with(&format!("tidelock_{verb}_"))).unwrap().to_owned()
    };
    let call = |verb: &str, args: &[&str]| {
        let name = function(verb);
        let command: Vec<_> =
            ["FCALL", &*name, "1", "t:{a}"].into_iter().chain(args.iter().copied()).collect();
        server.command(&command).unwrap().unwrap_or_default()
    };
    let expiry = || server.command(&["PTTL", "t:{a}"]).unwrap().unwrap().parse::<u64>().unwrap();
    let id = "0".repeat(31) + "1";
    // Only what is written with a time of its own: the stub does not change when the server lets keys expire.
    let enter = || call("enter", &[&id, "q", "0000000030000000", "630000", "x0,\n\na"]);
    let mut epoch = 1_000_000_006;
    for _ in 0..3 {
        let granted = enter();
        assert!(granted.len() == 16 && granted.parse::<u64>().is_ok_and(|new| new > epoch), "{granted:?}");
        epoch = granted.parse().unwrap();
        assert_eq!(enter(), granted);
        assert!(call("renew", &["1", &id]).starts_with(&format!("1\n{epoch}\n30000000\n0\n")));
        assert!((600_000..=640_000).contains(&expiry()), "{}", expiry());
        assert_eq!(call("leave", &[&id]), "1");
        assert_eq!(call("leave", &[&id]), "0");
    }
}

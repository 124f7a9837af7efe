//! Keys are set, deleted and changed by commands, as other programs do it.

use std::{sync::Arc, time::Duration};

use test_servers::Redis;
use tidelock::{Locks, backend::LockView};

use crate::{
    support::{
        LONG, NAME, Place, SHORT, eventually, got, held_and_waited_for, is_one_sentence, pass_on, report,
        shared, until, until_idle, until_waiting, waiter, within,
    },
    witness::Witness,
};

trials! {
    a_key_of_set_nx_and_a_lock_exclude_each_other,
    a_key_without_an_expiry_is_respected_and_named,
    a_binary_value_is_compared_as_bytes,
    a_hash_of_redisson_and_a_lock_exclude_each_other,
    readers_share_a_hash_of_redisson_and_writers_do_not,
    a_claim_that_waits_for_another_program_is_no_holder_and_keeps_its_place,
    a_lock_whose_key_is_deleted_is_lost_and_not_taken_again,
    a_lock_whose_key_another_program_has_is_not_given_back_for_it,
    a_released_lock_wakes_redisson_and_python_redis_lock,
    the_key_lives_for_as_long_as_the_lease_and_no_shorter,
    a_holder_of_another_program_can_be_seen_and_put_out,
    what_is_no_lock_of_these_programs_is_an_error_that_names_it,
    what_cannot_be_shared_is_refused_with_the_reason,
    clients_with_a_mode_and_without_exclude_each_other,
    a_claim_that_a_client_without_a_mode_evicts_leaves_no_entry,
    clients_with_a_mode_hand_over_in_order_and_leave_nothing,
    in_a_cluster_a_key_in_another_slot_is_refused,
    a_ticket_whose_key_was_deleted_is_not_renewed,
}

const SETNX: &str = "mode=setnx&lock_key=";
const REDISSON: &str = "mode=redisson&lock_key=";

/// A place with other programs, and their key for its lock.
fn place(mode: &str) -> (Place, String) {
    let place = Place::shared();
    (place.with(&format!("{mode}{}{{name}}", place.prefix)), format!("{}{NAME}", place.prefix))
}

fn ask(command: &[&str]) -> String {
    shared().command(command).unwrap().unwrap_or_default()
}

async fn view(locks: &Locks) -> LockView {
    locks.look(&[NAME]).await.unwrap().remove(0)
}

async fn a_key_of_set_nx_and_a_lock_exclude_each_other() {
    let (place, key) = place(SETNX);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert_eq!(ask(&["SET", &key, "theirs", "NX", "PX", "30000"]), "");
    guard.release().await.unwrap();
    assert_eq!(ask(&["SET", &key, "theirs", "NX", "PX", "30000"]), "OK");
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    until(&locks, NAME, |view| view.waiters.is_empty()).await;
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    assert_eq!(ask(&["GET", &key]), "theirs");
    ask(&["DEL", &key]);
    got(waiting).await.release().await.unwrap();
    // One that expires is followed, too.
    ask(&["SET", &key, "theirs", "NX", "PX", "700"]);
    locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    assert_eq!(ask(&["EXISTS", &key]), "0");
}

async fn a_key_without_an_expiry_is_respected_and_named() {
    let (place, key) = place(SETNX);
    let locks = place.connect().await;
    ask(&["SET", &key, "for ever"]);
    assert!(locks.mutex(NAME).ttl(LONG).try_lock_for(Duration::from_secs(1)).await.unwrap().is_none());
    let view = view(&locks).await;
    assert!(view.holders[0].label.contains("without an expiry"), "{view:?}");
    ask(&["DEL", &key]);
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

async fn a_binary_value_is_compared_as_bytes() {
    let (place, key) = place(SETNX);
    let locks = place.connect().await;
    ask(&["EVAL", "return redis.call('SET', KEYS[1], '\\0\\255\\10x', 'PX', 30000)", "1", &key]);
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    let view = view(&locks).await;
    assert!(view.holders[0].label.contains("\\x00\\xff\\nx"), "{view:?}");
    locks.evict(NAME, view.holders[0].id, "").await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_hash_of_redisson_and_a_lock_exclude_each_other() {
    let (place, key) = place(REDISSON);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let field = ask(&["HKEYS", &key]);
    let (uuid, number) = field.split_once(':').unwrap();
    assert!(uuid.len() == 36 && number.parse::<u64>().is_ok(), "{field}");
    assert_eq!(ask(&["HGET", &key, &field]), "1");
    guard.release().await.unwrap();
    assert_eq!(ask(&["EXISTS", &key]), "0");

    ask(&["HSET", &key, "8743c9c0-0795-4907-87fd-6c719a6b4586:61", "2"]);
    ask(&["PEXPIRE", &key, "30000"]);
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    let view = view(&locks).await;
    assert!(view.holders[0].label.contains("6c719a6b4586:61, entered 2 times"), "{view:?}");
    // As Redisson gives it back.
    ask(&[
        "EVAL",
        "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[1], '0')",
        "1",
        &key,
        &format!("redisson_lock__channel:{{{key}}}"),
    ]);
    got(waiting).await.release().await.unwrap();
}

async fn readers_share_a_hash_of_redisson_and_writers_do_not() {
    let (place, key) = place(REDISSON);
    let (locks, other) = (place.connect().await, place.connect().await);
    let first = locks.rw_lock(NAME).ttl(LONG).read().await.unwrap();
    assert_eq!(ask(&["HGET", &key, "mode"]), "read");
    let second = other.rw_lock(NAME).ttl(LONG).read().await.unwrap();
    assert_eq!(ask(&["HLEN", &key]), "3");
    let timeouts = format!("{{{key}}}:*:rwlock_timeout:1");
    assert_eq!(ask(&["KEYS", &timeouts]).lines().count(), 2);
    first.release().await.unwrap();
    assert_eq!((ask(&["HLEN", &key]).as_str(), ask(&["KEYS", &timeouts]).lines().count()), ("2", 1));
    second.release().await.unwrap();
    assert_eq!((ask(&["EXISTS", &key]).as_str(), ask(&["KEYS", &timeouts]).as_str()), ("0", ""));

    let writer = locks.rw_lock(NAME).ttl(LONG).write().await.unwrap();
    assert_eq!(ask(&["HGET", &key, "mode"]), "write");
    assert!(ask(&["HKEYS", &key]).lines().any(|field| field.ends_with(":write")));
    writer.release().await.unwrap();

    // A reader of theirs lets ours in, and keeps a writer of ours out.
    let theirs = "8743c9c0-0795-4907-87fd-6c719a6b4586:61";
    let timeout = format!("{{{key}}}:{theirs}:rwlock_timeout:1");
    ask(&["HSET", &key, "mode", "read", theirs, "1"]);
    ask(&["SET", &timeout, "1", "PX", "30000"]);
    ask(&["PEXPIRE", &key, "30000"]);
    let reader = locks.rw_lock(NAME).ttl(SHORT).read().await.unwrap();
    assert!(ask(&["PTTL", &key]).parse::<u64>().unwrap() > 20_000, "their lease is not cut short");
    reader.release().await.unwrap();
    assert_eq!(ask(&["HLEN", &key]), "2", "their reader is still there");
    assert!(locks.rw_lock(NAME).try_write().await.unwrap().is_none());
    ask(&["DEL", &key, &timeout]);
}

async fn a_claim_that_waits_for_another_program_is_no_holder_and_keeps_its_place() {
    for mode in [SETNX, REDISSON] {
        let (place, key) = place(mode);
        let (locks, other) = (place.connect().await, place.connect().await);
        let theirs = if mode == SETNX {
            ask(&["SET", &key, "x", "PX", "30000"])
        } else {
            ask(&["HSET", &key, "x", "1"])
        };
        assert!(!theirs.is_empty());
        let first = waiter(&locks, NAME, LONG);
        until_waiting(&other, NAME, 1).await;
        let second = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 2).await;
        let view = view(&locks).await;
        assert!(
            view.holders.len() == 1 && view.waiters.iter().all(|claim| claim.epoch.is_none()),
            "{view:?}"
        );
        assert!(!first.is_finished() && !second.is_finished());
        ask(&["DEL", &key]);
        let guard = got(first).await;
        assert!(!second.is_finished());
        let token = guard.token();
        guard.release().await.unwrap();
        let guard = got(second).await;
        assert!(guard.token() > token);
        guard.release().await.unwrap();
        until_idle(&locks, NAME).await;
    }
}

async fn a_lock_whose_key_is_deleted_is_lost_and_not_taken_again() {
    for mode in [SETNX, REDISSON] {
        let (place, key) = place(mode);
        let (locks, other) = (place.connect().await, place.connect().await);
        let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
        assert_eq!(ask(&["DEL", &key]), "1");
        assert!(within("the holder hears it", guard.lost()).await.is_lost());
        assert!(guard.release().await.is_err());
        // It may be that nobody renewed in between: giving it back tells as well.
        let guard = other.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
        ask(&["DEL", &key]);
        let error = guard.release().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        until_idle(&locks, NAME).await;
    }
}

async fn a_lock_whose_key_another_program_has_is_not_given_back_for_it() {
    let (place, key) = place(SETNX);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    ask(&["SET", &key, "theirs", "PX", "30000"]);
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(ask(&["GET", &key]), "theirs");
    let guard = {
        ask(&["DEL", &key]);
        locks.mutex(NAME).ttl(SHORT).lock().await.unwrap()
    };
    ask(&["SET", &key, "theirs", "PX", "1000000"]);
    assert!(within("the renewal tells", guard.lost()).await.is_lost());
    let left: u64 = ask(&["PTTL", &key]).parse().unwrap();
    assert!(left > 900_000, "their key is not renewed by us: {left}");
    ask(&["DEL", &key]);
}

async fn a_released_lock_wakes_redisson_and_python_redis_lock() {
    let (place, key) = place(REDISSON);
    let server = shared();
    let channel = format!("redisson_lock__channel:{{{key}}}");
    let mut subscriber =
        server.client().args(["SUBSCRIBE", &channel]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it is subscribed", || ask(&["PUBSUB", "NUMSUB", &channel]).ends_with('1')).await;
    place.serves().await;
    let mut output = std::io::BufReader::new(subscriber.stdout.take().unwrap());
    let said = tokio::task::spawn_blocking(move || {
        let mut lines = Vec::new();
        while lines.last().map(String::as_str) != Some("message") {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut output, &mut line).unwrap();
            lines.push(line.trim().to_owned());
        }
        let mut rest = String::new();
        std::io::BufRead::read_line(&mut output, &mut rest).unwrap();
        rest.clear();
        std::io::BufRead::read_line(&mut output, &mut rest).unwrap();
        rest.trim().to_owned()
    });
    assert_eq!(within("it is told", said).await.unwrap(), "0");
    subscriber.kill().unwrap();
    subscriber.wait().unwrap();

    let place = Place::shared();
    let (name, place) = (place.prefix.clone(), place.with("mode=setnx&lock_key=lock:{name}"));
    let locks = place.connect().await;
    locks.mutex(&*name).lock().await.unwrap().release().await.unwrap();
    assert_eq!(ask(&["LPOP", &format!("lock-signal:{name}")]), "1");
}

async fn the_key_lives_for_as_long_as_the_lease_and_no_shorter() {
    for mode in [SETNX, REDISSON] {
        let (place, key) = place(mode);
        let locks = place.connect().await;
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        // What is left of the lease is read later, and is less all the same.
        let theirs = Duration::from_millis(ask(&["PTTL", &key]).parse().unwrap());
        let ours = guard.valid_for();
        assert!(theirs > ours && theirs <= LONG, "{ours:?} {theirs:?}");
        guard.release().await.unwrap();
    }
}

async fn a_holder_of_another_program_can_be_seen_and_put_out() {
    let (place, key) = place(REDISSON);
    let locks = place.connect().await;
    ask(&["HSET", &key, "8743c9c0-0795-4907-87fd-6c719a6b4586:61", "1"]);
    ask(&["PEXPIRE", &key, "30000"]);
    let seen = view(&locks).await;
    assert!(seen.holders[0].lapse_in > Duration::from_secs(10) && seen.token().is_none(), "{seen:?}");
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    locks.evict(NAME, seen.holders[0].id, "it hangs").await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

async fn what_is_no_lock_of_these_programs_is_an_error_that_names_it() {
    for (mode, put, found) in [
        (SETNX, ["HSET", "x", "1"].as_slice(), "has a hash"),
        (SETNX, &["LPUSH", "x"], "has a list"),
        (REDISSON, &["SET", "x"], "has a string"),
    ] {
        let (place, key) = place(mode);
        let locks = place.connect().await;
        let command: Vec<_> = [put[0], &key].into_iter().chain(put[1..].iter().copied()).collect();
        ask(&command);
        let error = locks.mutex(NAME).lock().await.unwrap_err();
        is_one_sentence(&error);
        assert!(error.is_denied() && error.to_string().contains(found), "{error}");
        assert!(view(&locks).await.holders[0].label.contains("no lock"));
        assert_eq!(ask(&["DEL", &key]), "1", "it was left alone");
        locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
}

async fn what_cannot_be_shared_is_refused_with_the_reason() {
    let (setnx, _) = place(SETNX);
    let locks = setnx.connect().await;
    let error = locks.rw_lock(NAME).read().await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.is_denied() && error.to_string().contains("no readers"), "{error}");
    for mode in [SETNX, REDISSON] {
        let (place, _) = place(mode);
        let error = place.connect().await.semaphore(NAME, 3).acquire(1).await.unwrap_err();
        is_one_sentence(&error);
        assert!(error.is_invalid_option() && error.to_string().contains("permits"), "{error}");
    }
    let place = Place::shared();
    let same = place.with(&format!("mode=setnx&lock_key={}{{{{name}}}}", place.prefix));
    let error = same.connect().await.mutex(NAME).lock().await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.is_denied() && error.to_string().contains("our own line"), "{error}");
    for url in ["mode=setnx&scripting=off", "mode=redisson&scripting=functions"] {
        let error = Place::shared().with(url).try_connect().await.unwrap_err();
        is_one_sentence(&error);
        assert!(error.is_invalid_url(), "{error}");
    }
}

async fn clients_with_a_mode_and_without_exclude_each_other() {
    for mode in [SETNX, REDISSON] {
        let (with, key) = place(mode);
        let mut without = with.clone();
        without.options.clear();
        let (modern, plain) = (with.connect().await, without.connect().await);
        for _ in 0..3 {
            let (guard, waiting) = held_and_waited_for(&modern, &plain, NAME).await;
            let token = guard.token();
            guard.release().await.unwrap();
            let guard = got(waiting).await;
            assert!(guard.token() > token);
            let waiting = waiter(&modern, NAME, LONG);
            until_waiting(&plain, NAME, 1).await;
            assert_eq!(ask(&["EXISTS", &key]), "0");
            guard.release().await.unwrap();
            got(waiting).await.release().await.unwrap();
        }
        // All of them in turns, as during a roll-over, under the eyes of one witness.
        let witness = Arc::new(Witness::default());
        let mut turns = Vec::new();
        for place in [&with, &without, &with, &without] {
            let (mutex, witness) = (place.connect().await.mutex(NAME).ttl(LONG), Arc::clone(&witness));
            turns.push(tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = witness.lock(&mutex).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                }
            }));
        }
        for turn in turns {
            within("all have their turns", turn).await.unwrap();
        }
        let (grants, doubles) = (witness.grants(), witness.doubles());
        report(&format!("{grants} grants of clients with and without {mode}: {doubles} of them twice"));
        assert_eq!((grants, doubles), (200, 0));
    }
}

async fn a_claim_that_a_client_without_a_mode_evicts_leaves_no_entry() {
    let (with, key) = place(REDISSON);
    let mut without = with.clone();
    without.options.clear();
    let (modern, plain) = (with.connect().await, without.connect().await);
    let guard = modern.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    plain.evict(NAME, plain.look(&[NAME]).await.unwrap()[0].holders[0].id, "it hangs").await.unwrap();
    assert!(within("it hears it", guard.lost()).await.is_lost());
    eventually("its entry is gone", || ask(&["EXISTS", &key]) == "0").await;
}

async fn clients_with_a_mode_hand_over_in_order_and_leave_nothing() {
    for mode in [SETNX, REDISSON] {
        let (place, key) = place(mode);
        let locks = place.connect().await;
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let mut waiters = Vec::new();
        for number in 1..5 {
            waiters.push(waiter(&place.connect().await, NAME, LONG));
            until_waiting(&locks, NAME, number).await;
        }
        pass_on(guard, waiters).await;
        until_idle(&locks, NAME).await;
        assert_eq!(ask(&["EXISTS", &key]), "0");
    }
}

async fn in_a_cluster_a_key_in_another_slot_is_refused() {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url());
    let locks = place.with("mode=setnx&lock_key=lock:{name}").connect().await;
    let error = locks.mutex("a").lock().await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.is_denied() && error.to_string().contains("slot"), "{error}");
    for options in ["mode=setnx", "mode=redisson", "mode=redisson&lock_key=lock:{{name}}"] {
        let (locks, other) = (place.with(options).connect().await, place.with(options).connect().await);
        for name in ["a", "b", "c", "d"] {
            let (guard, waiting) = held_and_waited_for(&locks, &other, name).await;
            guard.release().await.unwrap();
            got(waiting).await.release().await.unwrap();
        }
        assert!(locks.mutex("a{b}").lock().await.unwrap_err().is_denied());
    }
}

async fn a_ticket_whose_key_was_deleted_is_not_renewed() {
    let (place, key) = place(REDISSON);
    let (locks, other) = (place.connect().await, place.connect().await);
    let ticket = locks.mutex(NAME).ttl(LONG).detached(true).lock().await.unwrap().leave_behind().unwrap();
    other.renew(&ticket).await.unwrap();
    ask(&["DEL", &key]);
    assert!(other.renew(&ticket).await.unwrap_err().is_lost());
    // The line still has it: it is taken out, and was lost all the same.
    assert!(other.release(&ticket).await.unwrap_err().is_lost());
    until_idle(&locks, NAME).await;
}

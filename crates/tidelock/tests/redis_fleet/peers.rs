//! The libraries themselves and we want the same locks.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use test_servers::Redis;

use crate::{
    alternating::{Does, LEASE, Trial, place_for, take_turns},
    programs::{Library, NEW, OLD, Peer},
    support::{LONG, NAME, Place, SHORT, got, report, shared, until, waiter, within},
    worker::Worker,
};

trials! {
    redisson_and_we_take_turns_and_never_overlap,
    an_old_redisson_and_we_take_turns_and_never_overlap,
    redisson_on_a_cluster_and_we_take_turns_and_never_overlap,
    readers_and_writers_of_redisson_and_ours_never_overlap,
    redis_py_and_we_take_turns_and_never_overlap,
    node_redlock_and_we_take_turns_and_never_overlap,
    redsync_and_we_take_turns_and_never_overlap,
    redislock_and_we_take_turns_and_never_overlap,
    python_redis_lock_and_we_take_turns_and_never_overlap,
    pottery_and_we_take_turns_and_never_overlap,
    rslock_and_we_take_turns_and_never_overlap,
    jedis_and_we_take_turns_and_never_overlap,
    lettuce_and_we_take_turns_and_never_overlap,
    redisson_and_we_wake_each_other_and_outlive_each_other,
    an_old_redisson_and_we_wake_each_other_and_outlive_each_other,
    redis_py_and_we_wake_each_other_and_outlive_each_other,
    node_redlock_and_we_wake_each_other_and_outlive_each_other,
    redsync_and_we_wake_each_other_and_outlive_each_other,
    redislock_and_we_wake_each_other_and_outlive_each_other,
    python_redis_lock_and_we_wake_each_other_and_outlive_each_other,
    pottery_and_we_wake_each_other_and_outlive_each_other,
    rslock_and_we_wake_each_other_and_outlive_each_other,
    jedis_and_we_wake_each_other_and_outlive_each_other,
    lettuce_and_we_wake_each_other_and_outlive_each_other,
    a_lock_that_redisson_takes_away_is_heard_as_lost,
    the_watchdogs_of_redisson_and_ours_extend_only_their_own,
}

async fn on_one_server(library: Library) -> Trial {
    let place = Place::shared();
    let hosts = place.hosts().to_owned();
    take_turns(library, place, &hosts, "", Does::Lock, || ()).await
}

async fn redisson_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(NEW).await
}

async fn an_old_redisson_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(OLD).await
}

async fn redisson_on_a_cluster_and_we_take_turns_and_never_overlap() -> Trial {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url());
    let hosts = cluster.masters()[0].addr().to_string();
    take_turns(NEW, place, &hosts, "cluster", Does::Lock, || ()).await
}

async fn readers_and_writers_of_redisson_and_ours_never_overlap() -> Trial {
    let place = Place::shared();
    let hosts = place.hosts().to_owned();
    take_turns(NEW, place, &hosts, "", Does::ReadAndWrite, || ()).await
}

async fn redis_py_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::RedisPy).await
}

async fn node_redlock_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::NodeRedlock).await
}

async fn redsync_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Redsync).await
}

async fn redislock_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Redislock).await
}

async fn python_redis_lock_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::PythonRedisLock).await
}

async fn pottery_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Pottery).await
}

async fn rslock_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Rslock).await
}

async fn jedis_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Jedis).await
}

async fn lettuce_and_we_take_turns_and_never_overlap() -> Trial {
    on_one_server(Library::Lettuce).await
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Their waiter gets what we give back and ours what they give back; who is killed is followed after its lease.
async fn both_ways(library: Library) -> Trial {
    both_ways_at(library, &Place::shared()).await
}

pub(crate) async fn both_ways_at(library: Library, place: &Place) -> Trial {
    let program = tokio::task::spawn_blocking(move || library.program()).await.unwrap()?;
    let (place, name) = place_for(library, place, false);
    let hosts = place.hosts().to_owned();
    let locks = place.connect().await;
    let command = |program: &Command, words: &[&str]| {
        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).args(words).env("LEASE_MS", LEASE);
        command
    };

    let mut other = Peer::ready(&mut command(&program, &["wait", &hosts, &name])).await;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        other.tell();
        // They ask before we give it back, so that they wait.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let given_back = Instant::now();
        guard.release().await.unwrap();
        within("they hold", other.hear()).await;
        theirs.push(given_back.elapsed());
        // They give it back at once.
        let waited = Instant::now();
        locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
        ours.push(waited.elapsed());
    }
    report(&format!(
        "{library:?}: in the median they hold {:?} after us, and we {:?} after them",
        median(theirs),
        median(ours)
    ));

    // We wait for them, they are seen, and they give it back.
    let held = format!("{NAME}-0");
    let mut holder = Peer::ready(&mut command(&program, &["hold", &hosts, &name, "1"])).await;
    let waiting = waiter(&locks, &held, LONG);
    until(&locks, &held, |view| view.holders.len() == 1 && view.waiters.len() == 1).await;
    let view = locks.look(&[&held]).await.unwrap().remove(0);
    assert!(view.holders[0].label.contains("client"), "{view:?}");
    assert!(locks.mutex(&*held).try_lock().await.unwrap().is_none());
    holder.let_go();
    got(waiting).await.release().await.unwrap();

    // A holder of theirs that is killed is followed.
    let mut short = command(&program, &["hold", &hosts, &name, "1"]);
    let mut holder = Peer::ready(short.env("LEASE_MS", SHORT.as_millis().to_string())).await;
    let waiting = waiter(&locks, &held, LONG);
    until(&locks, &held, |view| view.waiters.len() == 1).await;
    holder.kill();
    got(waiting).await.release().await.unwrap();

    // A holder of ours that is killed is followed by them.
    let mut worker = Worker::start(&place.url(), "hold ", SHORT);
    let worker = tokio::task::spawn_blocking(move || {
        worker.hear("held");
        worker
    });
    let mut worker = worker.await.unwrap();
    other.tell();
    worker.kill();
    within("they follow", other.hear()).await;
    Ok(())
}

async fn redisson_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(NEW).await
}

async fn an_old_redisson_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(OLD).await
}

async fn redis_py_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::RedisPy).await
}

async fn node_redlock_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::NodeRedlock).await
}

async fn redsync_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Redsync).await
}

async fn redislock_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Redislock).await
}

async fn python_redis_lock_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::PythonRedisLock).await
}

async fn pottery_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Pottery).await
}

async fn rslock_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Rslock).await
}

async fn jedis_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Jedis).await
}

async fn lettuce_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    both_ways(Library::Lettuce).await
}

async fn a_lock_that_redisson_takes_away_is_heard_as_lost() -> Trial {
    let mut program = tokio::task::spawn_blocking(|| NEW.program()).await.unwrap()?;
    let (place, name) = place_for(NEW, &Place::shared(), false);
    let hosts = place.hosts().to_owned();
    let locks = place.connect().await;
    // Heard by the next renewal, or before it.
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let mut force = Peer::start(program.args(["force", &hosts, &name]));
    assert_eq!(within("it is taken away", force.hear()).await, "true");
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    assert!(guard.release().await.is_err());
    Ok(())
}

async fn the_watchdogs_of_redisson_and_ours_extend_only_their_own() -> Trial {
    let mut program = tokio::task::spawn_blocking(|| NEW.program()).await.unwrap()?;
    let (place, name) = place_for(NEW, &Place::shared(), false);
    let hosts = place.hosts().to_owned();
    let locks = place.connect().await;
    let server = shared();
    // Theirs renews a lock of its own all the time, ours the same.
    program.args(["hold", &hosts, &name, "1"]).env("LEASE_MS", SHORT.as_millis().to_string());
    let holder = Peer::ready(&mut program).await;
    let ours = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let waiting = waiter(&locks, &format!("{NAME}-0"), LONG);
    // For longer than any lease: each lives by its own renewals, and a claim that waits takes nothing.
    tokio::time::sleep(2 * SHORT).await;
    assert!(ours.is_held() && !waiting.is_finished());
    // When the renewals of one end, the other's do not keep it.
    server.command(&["HSET", &name, "stranger", "1"]).unwrap();
    ours.release().await.unwrap();
    assert_eq!(server.command(&["HKEYS", &name]).unwrap().unwrap(), "stranger");
    server.command(&["DEL", &name]).unwrap();
    drop(holder);
    got(waiting).await.release().await.unwrap();
    Ok(())
}

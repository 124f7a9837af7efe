//! What tests of programs that use locks rely on: a clock of their own, and locks that are taken away.
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

use std::time::Duration;

use tidelock::{
    Locks, LossReason, Result,
    backends::memory::MemoryConfig,
    testing::{Clock, take_away},
};

const TTL: Duration = Duration::from_secs(30);

async fn client(url: &str, clock: &Clock) -> Locks {
    Locks::builder(url).clock(clock).ttl(TTL).connect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_ends_the_lease_of_the_holder_and_of_the_store() {
    let clock = Clock::tokio();
    let (locks, other) = (client("memory:jumps", &clock).await, client("memory:jumps", &clock).await);
    let guard = locks.mutex("a").lock().await.unwrap();
    clock.jump(TTL - Duration::from_secs(5));
    assert!(guard.is_held() && other.mutex("a").try_lock().await.unwrap().is_none());
    clock.jump(Duration::from_secs(6));
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await.loss_reason(), Some(LossReason::Expired));
    let next = other.mutex("a").try_lock().await.unwrap().expect("it has expired in the store as well");
    assert!(next.token() > guard.token());
}

#[tokio::test(start_paused = true)]
async fn hours_pass_at_once_and_leases_are_renewed_in_them() {
    let clock = Clock::tokio();
    let locks = client("memory:", &clock).await;
    let (start, guard) = (clock.now(), locks.mutex("a").lock().await.unwrap());
    let short = locks.mutex("b").auto_renew(false).lock().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(clock.now().since(start) >= Duration::from_secs(3_600));
    assert!(guard.is_held() && !short.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_named_store_share_its_clock() {
    let clock = Clock::tokio();
    let (one, other) =
        (client("memory:shared clock", &clock).await, client("memory:shared clock", &clock).await);
    let held = one.mutex("a").auto_renew(false).lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await.map(|guard| guard.token()) });
    let token = waiting.await.unwrap().unwrap();
    assert!(token > held.token() && !held.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_named_store_in_use_with_another_clock_is_refused() {
    let clock = Clock::tokio();
    let target = || MemoryConfig::named("two clocks");
    let first = Locks::builder(target()).clock(&clock).connect().await.unwrap();
    let others = [
        Locks::builder(target()).clock(&Clock::tokio()).connect().await,
        Locks::connect_with(target()).await,
        Locks::connect("memory:two clocks").await,
    ];
    for refused in others {
        let error = refused.unwrap_err();
        assert!(error.is_invalid_option() && error.to_string().contains("the same clock"), "{error}");
    }
    client("memory:two clocks", &clock.clone()).await;
    drop(first);
}

#[cfg(feature = "file")]
#[tokio::test]
async fn a_store_outside_of_the_process_refuses_a_clock_before_it_is_asked() {
    use tidelock::backends::file::FileConfig;

    let clock = Clock::tokio();
    let by_url = Locks::builder("file:/nowhere").clock(&clock).connect().await;
    let by_config =
        Locks::builder(FileConfig::from_url("file:/nowhere").unwrap()).clock(&clock).connect().await;
    for refused in [by_url, by_config] {
        let error = refused.unwrap_err();
        assert!(error.is_invalid_option() && error.to_string().contains("only a store in memory"), "{error}");
    }
    // The machine's clock is what such a store runs on.
    let folder = std::env::temp_dir().join(format!("tidelock-clock-{}", std::process::id()));
    let url = format!("file:{}", folder.display());
    drop(Locks::builder(url).clock(&Clock::machine()).connect().await.unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn all_holders_of_a_lock_that_is_taken_away_learn_the_reason() {
    let locks = Locks::builder("memory:").namespace("shop/").connect().await.unwrap();
    let permits = locks.semaphore("permits", 3);
    let (one, two) = (permits.acquire(1).await.unwrap(), permits.acquire(2).await.unwrap());
    let waiting = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire(3).await.map(|guard| guard.token()) }
    });
    while locks.look(["permits"]).await.unwrap()[0].waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(take_away(&locks, "permits", "the test says so").await.unwrap(), 2);
    for guard in [&one, &two] {
        let loss = guard.lost().await;
        assert_eq!(loss.loss_reason(), Some(LossReason::Evicted));
        assert!(loss.to_string().contains("the test says so"), "{loss}");
    }
    assert!(waiting.await.unwrap().unwrap() > two.token(), "who waits is not taken away, but gets the lock");
}

#[tokio::test]
async fn nothing_is_taken_away_where_nobody_holds() {
    let locks = Locks::connect("memory:").await.unwrap();
    assert_eq!(take_away(&locks, "a", "no reason").await.unwrap(), 0);
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(take_away(&locks, "a", "two\nlines").await.unwrap_err().is_invalid_option());
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lock_that_is_taken_away_stops() {
    let locks = client("memory:", &Clock::tokio()).await;
    let other = locks.clone();
    let mutex = locks.mutex("a");
    let work = mutex.run(|held| async move {
        take_away(&other, held.name().as_str(), "enough").await.unwrap();
        std::future::pending::<()>().await;
    });
    let ended: Result<()> = work.await;
    assert!(ended.unwrap_err().is_lost());
}

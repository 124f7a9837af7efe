//! A job that uses a lock, and the tests of the paths that it rarely takes. No server, no waiting.
//!
//! ```sh
//! cargo run --example testing_your_code --features testing
//! ```
//!
//! In your project, `nightly` is in `src/`, and each of the functions below is a `#[tokio::test]`.

use std::time::Duration;

use tidelock::{
    Locks, LossReason,
    testing::{Clock, take_away},
};

const TTL: Duration = Duration::from_secs(30);

/// The code under test: an hour of work, if no other process does it.
async fn nightly(locks: &Locks) -> tidelock::Result<bool> {
    let Some(guard) = locks.mutex("nightly").ttl(TTL).try_lock().await? else { return Ok(false) };
    guard.run(|_held| tokio::time::sleep(Duration::from_secs(3_600))).await?;
    Ok(true)
}

/// A client for the code, one for the test, and the clock of both.
async fn two_clients(store: &str) -> tidelock::Result<(Locks, Locks, Clock)> {
    let clock = Clock::tokio();
    let client = || Locks::builder(store).clock(&clock).connect();
    Ok((client().await?, client().await?, clock))
}

async fn it_works_for_an_hour_under_the_lock() -> tidelock::Result<()> {
    let (code, _, _) = two_clients("memory:hour").await?;
    assert!(nightly(&code).await?);
    assert!(code.look_all().await?.is_empty(), "the lock is released");
    Ok(())
}

async fn it_leaves_the_work_to_the_one_who_is_at_it() -> tidelock::Result<()> {
    let (code, test, _) = two_clients("memory:busy").await?;
    let guard = test.mutex("nightly").lock().await?;
    assert!(!nightly(&code).await?);
    guard.release().await
}

async fn it_stops_when_an_operator_takes_the_lock_away() -> tidelock::Result<()> {
    let (code, test, _) = two_clients("memory:taken").await?;
    let (ended, taken) = tokio::join!(nightly(&code), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        take_away(&test, "nightly", "maintenance").await
    });
    assert_eq!(taken?, 1);
    assert_eq!(ended.expect_err("it stops").loss_reason(), Some(LossReason::Evicted));
    Ok(())
}

async fn it_stops_when_the_machine_was_suspended_for_too_long() -> tidelock::Result<()> {
    let (code, test, clock) = two_clients("memory:suspended").await?;
    let (ended, ()) = tokio::join!(nightly(&code), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        clock.jump(2 * TTL);
    });
    assert_eq!(ended.expect_err("it stops").loss_reason(), Some(LossReason::Expired));
    assert!(nightly(&test).await?, "the next one can work");
    Ok(())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> tidelock::Result<()> {
    it_works_for_an_hour_under_the_lock().await?;
    it_leaves_the_work_to_the_one_who_is_at_it().await?;
    it_stops_when_an_operator_takes_the_lock_away().await?;
    it_stops_when_the_machine_was_suspended_for_too_long().await?;
    println!("four tests, three hours, no waiting");
    Ok(())
}

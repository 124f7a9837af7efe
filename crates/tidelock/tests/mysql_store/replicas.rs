//! A primary dies, and its replica takes over with what it has got.

use test_servers::MariaDb;

use crate::support::{NAME, Place, report, within, witness::Rush};

trials! {
    a_replica_that_is_told_later_may_let_others_in_and_it_is_counted,
    a_replica_that_is_told_before_the_answer_lets_nobody_in,
    a_replica_is_refused_while_it_takes_no_writes,
}

/// How many locks were taken up to the death of the primary, and how many of them two held at once.
async fn taken_and_doubled(synchronous: bool) -> (usize, usize) {
    let pair = MariaDb::new().durable().start_replicated(synchronous).unwrap();
    let place = Place::at(pair.primary());
    let locks = place.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let rush = Rush::begin(&locks, |n| format!("taken/{n}"));
    within("some are taken", async {
        while place.ask(pair.primary(), "SELECT COUNT(*) > 200 FROM tidelock_lines") != "1" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    pair.primary().kill().unwrap();
    pair.promote().unwrap();
    let other = place.through(pair.replica().url()).connect().await;
    rush.end(&other).await
}

async fn a_replica_that_is_told_later_may_let_others_in_and_it_is_counted() {
    let (taken, doubled) = taken_and_doubled(false).await;
    assert!(taken > 0);
    report(&format!(
        "asynchronous replica promoted: of {taken} locks that were held, {doubled} were held twice"
    ));
}

async fn a_replica_that_is_told_before_the_answer_lets_nobody_in() {
    let (taken, doubled) = taken_and_doubled(true).await;
    report(&format!("semi-synchronous replica promoted: of {taken} locks, {doubled} were held twice"));
    assert!(taken > 0);
    assert_eq!(doubled, 0);
}

async fn a_replica_is_refused_while_it_takes_no_writes() {
    let pair = MariaDb::new().durable().start_replicated(false).unwrap();
    let place = Place::at(pair.primary());
    let error = within("it is said", async {
        loop {
            // The database comes to the replica a moment later.
            match place.through(pair.replica().url()).try_connect().await {
                Err(error) if error.to_string().contains("Unknown database") => {
                    tokio::task::yield_now().await
                }
                outcome => return outcome.unwrap_err(),
            }
        }
    })
    .await;
    assert!(error.is_unavailable() && error.to_string().contains("takes writes"), "{error}");
}

//! PgBouncer in transaction mode: every statement may go to another session than the one before.

use test_servers::{PgBouncer, Postgres};
use tidelock::LockState;

use crate::{
    sql,
    support::{
        LONG, NAME, Place, SHORT, eventually, got, held_and_waited_for, report, until_idle, within,
        witness::Storm,
    },
};

trials! {
    behind_a_pooler_locks_are_kept_and_doctor_hears_of_it,
    behind_a_pooler_transactions_that_the_server_undoes_are_repeated,
}

async fn behind_a_pooler_locks_are_kept_and_doctor_hears_of_it() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let pooler = PgBouncer::new(3).start(&server).unwrap();
    let pooled = place.through(pooler.url());
    let (direct, locks, other) = (place.connect().await, pooled.connect().await, pooled.connect().await);
    assert!(!direct.concerns().iter().any(|concern| concern.contains("pooler")));
    assert!(locks.concerns().iter().any(|concern| concern.contains("pooler")), "{:?}", locks.concerns());
    // Hand-overs between clients behind it, and to and from those that are not.
    for (a, b) in [(&locks, &other), (&direct, &locks), (&locks, &direct)] {
        let (guard, waiting) = held_and_waited_for(a, b, NAME).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = got(waiting).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
        until_idle(a, NAME).await;
    }
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(guard.state(), LockState::Held, "it is renewed");
    pooler.kill().unwrap();
    pooler.restart().unwrap();
    guard.release().await.unwrap();
    let storm = Storm::begin(&pooled, "storm", LONG, 8).await;
    storm.goes_on().await;
    let grants = storm.witness.grants();
    let doubles = storm.end().await;
    report(&format!(
        "behind a pooler with 3 sessions 8 clients had {grants} grants, {doubles} of them twice"
    ));
    assert_eq!(doubles, 0);
}

/// The default of the server applies, because nothing of a session is ours.
async fn behind_a_pooler_transactions_that_the_server_undoes_are_repeated() {
    let server = Postgres::new().setting("default_transaction_isolation=serializable").start().unwrap();
    let place = Place::on(server.url());
    let pooler = PgBouncer::new(4).start(&server).unwrap();
    let pooled = place.through(pooler.url());
    let storm = Storm::begin(&pooled, "storm", LONG, 4).await;
    storm.goes_on().await;
    assert_eq!(storm.end().await, 0);
    let locks = place.connect().await;
    within("it can be had", locks.mutex("storm").lock()).await.unwrap().release().await.unwrap();
    eventually("nothing is left", || {
        sql(&server, "SELECT count(*) FROM tidelock.line WHERE claims IS NOT NULL") == "0"
    })
    .await;
}

//! Primaries with replicas: one dies and its replica takes over, a planned switch-over, and replicas that restart.

use test_servers::{MariaDb, MariaDbPair, Server};

use crate::{
    demoted::administered,
    relay::Relay,
    sql,
    support::{
        NAME, Place, SHORT, eventually, report,
        turns::{Turns, Verdict},
        within,
        witness::Rush,
    },
};

trials! {
    a_replica_that_restarts_goes_on_with_rows_in_the_binary_log,
    a_replica_that_restarts_goes_on_with_a_mixed_binary_log,
    a_planned_switch_over_under_load_lets_no_two_in,
    a_fail_over_under_load_to_a_replica_that_is_told_before_the_answer_lets_no_two_in,
    a_replica_that_is_told_later_may_let_others_in_and_it_is_counted,
    a_replica_that_is_told_before_the_answer_lets_nobody_in,
    a_replica_is_refused_while_it_takes_no_writes,
}

/// How many turns each of four clients takes. The servers write every one of them to the disk.
const TURNS: usize = 100;

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

/// Tables that the primary's binary log names, and statements in it.
fn logged(server: &Server) -> (Vec<String>, Vec<String>) {
    let (mut tables, mut statements) = (Vec::new(), Vec::new());
    for log in sql(server, "SHOW BINARY LOGS").lines() {
        let name = log.split('\t').next().unwrap();
        for event in sql(server, &format!("SHOW BINLOG EVENTS IN '{name}'")).lines() {
            let columns: Vec<_> = event.split('\t').collect();
            match columns[..] {
                [_, _, "Table_map", _, _, info] => {
                    let table = info.rsplit_once('.').unwrap().1;
                    tables.push(table.trim_end_matches(')').to_owned());
                }
                [_, _, "Query", _, _, info] => statements.push(info.to_owned()),
                _ => {}
            }
        }
    }
    tables.sort_unstable();
    tables.dedup();
    (tables, statements)
}

/// Waits until a replica has done all that its primary has written by now, and says so if it stops instead.
async fn until_in_step(pair: &MariaDbPair) {
    let wanted = sql(pair.primary(), "SELECT @@gtid_binlog_pos");
    eventually("the replica is in step", || {
        let state = pair.replica().ask(&["-e", "SHOW SLAVE STATUS"]).unwrap_or_default();
        // The twentieth column is why it stopped.
        assert_eq!(state.split('\t').nth(19).unwrap_or_default(), "", "the replica has stopped");
        let waited = pair.replica().ask(&["-e", &format!("SELECT MASTER_GTID_WAIT('{wanted}', 0.2)")]);
        waited.is_ok_and(|waited| waited.trim() == "0")
    })
    .await;
}

/// Locks are handed over all the time, the replica is killed and starts again, and clients come back to the primary.
async fn restarts(format: &str) {
    const ROUNDS: usize = 2;
    let pair = MariaDb::new()
        .durable()
        .option(&format!("--binlog-format={format}"))
        .start_replicated(false)
        .unwrap();
    let relay = Relay::to(pair.primary().addr());
    let place = Place::at(pair.primary());
    let turns = Turns::begin(&place.through(&relay.url(pair.primary().url())).url(), 3, 150, SHORT);
    turns.all_take_part().await;
    until_in_step(&pair).await;
    for _ in 0..ROUNDS {
        pair.replica().kill().unwrap();
        turns.go_on(10).await;
        pair.replica().restart().unwrap();
        // Those who listen say again that they do.
        relay.disconnect();
        turns.go_on(20).await;
    }
    let Verdict { turns, overlaps, errors, .. } = turns.end().await;
    until_in_step(&pair).await;
    let (tables, statements) = logged(pair.primary());
    report(&format!(
        "replica restarted {ROUNDS} times, {format}: {turns} turns, {errors} errors, {overlaps} overlaps, in the binary log: {}",
        tables.join(", ")
    ));
    assert_eq!(overlaps, 0);
    let ours =
        ["tidelock_claims", "tidelock_evictions", "tidelock_gone", "tidelock_lines", "tidelock_settings"];
    assert!(tables.iter().all(|table| ours.contains(&table.as_str())), "{tables:?}");
    for statement in statements {
        let is_ddl =
            ["CREATE", "ALTER", "DROP", "BEGIN", "COMMIT"].iter().any(|word| statement.contains(word));
        assert!(is_ddl, "changes are logged as rows, not as {statement}");
    }
}

async fn a_replica_that_restarts_goes_on_with_rows_in_the_binary_log() {
    restarts("ROW").await;
}

async fn a_replica_that_restarts_goes_on_with_a_mixed_binary_log() {
    restarts("MIXED").await;
}

/// The steps of an administrator: the primary takes no writes any more, the replica catches up and takes them, and the
/// address moves. Connections to the old primary stay open.
async fn a_planned_switch_over_under_load_lets_no_two_in() {
    let pair = MariaDb::new().durable().start_replicated(false).unwrap();
    let relay = Relay::to(pair.primary().addr());
    let place = administered(pair.primary());
    let user = place.prefix.clone();
    let url = place.through(&relay.url(pair.primary().url())).logged_in(&user, "x").url();
    let turns = Turns::begin(&url, 4, TURNS, SHORT);
    turns.all_take_part().await;
    turns.go_on(40).await;
    sql(pair.primary(), "SET GLOBAL read_only = 1");
    until_in_step(&pair).await;
    let then = place.ask(pair.primary(), "SELECT @@gtid_binlog_pos");
    pair.promote().unwrap();
    relay.lead_to(pair.replica().addr());
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "planned switch-over: {turns} turns, {errors} errors, {overlaps} overlaps, {unordered} tokens out of order"
    ));
    assert_eq!((overlaps, unordered, turns), (0, 0, 4 * TURNS));
    assert_eq!(
        place.ask(pair.primary(), "SELECT @@gtid_binlog_pos"),
        then,
        "the old primary wrote nothing more"
    );
}

async fn a_fail_over_under_load_to_a_replica_that_is_told_before_the_answer_lets_no_two_in() {
    let pair = MariaDb::new().durable().start_replicated(true).unwrap();
    let relay = Relay::to(pair.primary().addr());
    let place = Place::at(pair.primary());
    let url = place.through(&relay.url(pair.primary().url())).url();
    let turns = Turns::begin(&url, 4, TURNS, SHORT);
    turns.all_take_part().await;
    turns.go_on(40).await;
    pair.primary().kill().unwrap();
    pair.promote().unwrap();
    relay.lead_to(pair.replica().addr());
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "fail-over, semi-synchronous: {turns} turns, {errors} errors, {overlaps} overlaps, {unordered} tokens out of order"
    ));
    assert_eq!((overlaps, unordered, turns), (0, 0, 4 * TURNS));
}

//! A primary that dies, and a standby that is promoted.

use rustix::process::{Pid, Signal, kill_process};
use test_servers::{Postgres, Server};
use tidelock::{Guard, Locks};

use crate::{
    sql,
    support::{LONG, Place, SHORT, eventually, report, within, witness::Storm},
};

trials! {
    a_promoted_standby_makes_no_second_holder_even_if_it_lacks_grants,
    a_synchronous_standby_lacks_nothing,
    a_standby_is_refused_and_the_next_server_is_tried,
    a_server_that_is_made_read_only_stops_granting_to_those_who_are_connected,
    a_planned_switch_over_under_load_makes_no_second_holder,
}

/// The locks of a database, on whichever of two servers is the primary.
fn both(place: &Place, one: &Server, two: &Server) -> Place {
    place.through(&format!("postgres://postgres@{},{}/postgres", one.addr(), two.addr()))
}

fn promote(standby: &Server) {
    assert_eq!(standby.ask(&["-c", "SELECT pg_promote()"]).unwrap().trim(), "t");
}

async fn in_step(primary: &Server) {
    let text = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    eventually("the standby is in step", || {
        primary.ask(&["-c", text]).is_ok_and(|count| count.trim() == "1")
    })
    .await;
}

async fn a_promoted_standby_makes_no_second_holder_even_if_it_lacks_grants() {
    let primary = Postgres::new().start().unwrap();
    let place = Place::on(primary.url());
    // Once its connection is lost it does not come back before it is promoted.
    let standby = Postgres::new().setting("wal_retrieve_retry_interval=1h").start_standby(&primary).unwrap();
    let place = both(&place, &primary, &standby);
    let storm = Storm::begin(&place, "storm", SHORT, 3).await;
    in_step(&primary).await;
    let other = place.connect().await;
    primary.ask(&["-c", "SELECT pg_terminate_backend(pid) FROM pg_stat_replication"]).unwrap();
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..50 {
        guards.push(other.mutex(format!("kept/{n}")).ttl(SHORT).lock().await.unwrap());
    }
    primary.kill().unwrap();
    promote(&standby);
    let third = place.connect().await;
    let (mut lacking, mut doubles) = (0, 0);
    for guard in &guards {
        let mutex = third.mutex(guard.name().as_str()).ttl(SHORT);
        let next = within("the server answers", async {
            loop {
                if let Ok(next) = mutex.try_lock().await {
                    return next;
                }
            }
        });
        if let Some(next) = next.await {
            assert!(next.token() > guard.token());
            lacking += 1;
            doubles += usize::from(guard.is_held() && next.is_held());
            next.release().await.unwrap();
        }
    }
    storm.goes_on().await;
    doubles += storm.end().await;
    report(&format!(
        "an asynchronous standby lacked {lacking} of {} grants when it was promoted; {doubles} were held twice",
        guards.len(),
    ));
    assert!(lacking > 0 && doubles == 0);
}

async fn a_synchronous_standby_lacks_nothing() {
    let primary = Postgres::new().setting("synchronous_standby_names=*").start().unwrap();
    // Whatever is written there now would wait for a standby.
    let standby = Postgres::new().start_standby(&primary).unwrap();
    in_step(&primary).await;
    let place = Place::on(primary.url());
    let place = both(&place, &primary, &standby);
    let locks: Locks = place.connect().await;
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..50 {
        guards.push(locks.mutex(format!("kept/{n}")).ttl(LONG).lock().await.unwrap());
    }
    primary.kill().unwrap();
    promote(&standby);
    let rows = "SELECT count(*) FROM tidelock.line WHERE name LIKE '%kept/%' AND claims IS NOT NULL";
    assert_eq!(sql(&standby, rows), "50");
    report("a synchronous standby lacked 0 of 50 grants when it was promoted");
    let other = place.connect().await;
    for guard in guards {
        assert!(other.mutex(guard.name().as_str()).try_lock().await.unwrap().is_none());
        within("it is given back", guard.release()).await.unwrap();
    }
}

async fn a_standby_is_refused_and_the_next_server_is_tried() {
    let primary = Postgres::new().start().unwrap();
    let place = Place::on(primary.url());
    place.connect().await.mutex("first").lock().await.unwrap().release().await.unwrap();
    let standby = Postgres::new().start_standby(&primary).unwrap();
    let alone = place.through(standby.url());
    let error = alone.try_connect().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("name its primary"), "{error}");
    let locks = both(&place, &standby, &primary).connect().await;
    locks.mutex("first").lock().await.unwrap().release().await.unwrap();
}

/// Keeps everybody from writing, as before a switch-over, or lets them again.
fn fence(server: &Server, is_fenced: bool) {
    let change = if is_fenced {
        "SET default_transaction_read_only = on"
    } else {
        "RESET default_transaction_read_only"
    };
    let change = format!("ALTER SYSTEM {change}");
    server.ask(&["-c", &change, "-c", "SELECT pg_reload_conf()"]).unwrap();
}

async fn a_server_that_is_made_read_only_stops_granting_to_those_who_are_connected() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    locks.mutex("first").ttl(SHORT).lock().await.unwrap().release().await.unwrap();
    fence(&server, true);
    // It takes a moment until all sessions have heard it.
    within("nothing is granted", async {
        loop {
            match locks.mutex("first").ttl(SHORT).try_lock().await {
                Ok(Some(guard)) => drop(guard.release().await),
                Ok(None) => {}
                Err(error) => return assert!(error.is_unavailable(), "{error}"),
            }
        }
    })
    .await;
    for _ in 0..3 {
        let error = locks.mutex("first").ttl(SHORT).try_lock().await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    let error = within("it is refused", place.try_connect()).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("default_transaction_read_only"), "{error}");
    fence(&server, false);
    within("it grants again", async {
        while locks.mutex("first").ttl(SHORT).try_lock().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The old primary is fenced, stopped in order and made the standby of the new one, while clients take locks.
async fn a_planned_switch_over_under_load_makes_no_second_holder() {
    let primary = Postgres::new().start().unwrap();
    let place = Place::on(primary.url());
    let standby = Postgres::new().start_standby(&primary).unwrap();
    in_step(&primary).await;
    let place = both(&place, &primary, &standby);
    let storm = Storm::begin(&place, "storm", SHORT, 3).await;
    let (mut old, mut new) = (&primary, &standby);
    for round in 0..2 {
        fence(old, true);
        let first = Pid::from_raw(old.pid().unwrap().cast_signed()).unwrap();
        kill_process(first, Signal::INT).unwrap();
        eventually("the server has stopped", || old.pid().is_none()).await;
        // What it still replays may get in the way of the question.
        eventually("the other one is promoted", || {
            let _ = new.ask(&["-c", "SELECT pg_promote()"]);
            new.ask(&["-c", "SELECT pg_is_in_recovery()"]).is_ok_and(|is| is.trim() == "f")
        })
        .await;
        Postgres::demote(old, new).unwrap();
        old.restart().unwrap();
        // The fence came along with nothing: it is in the settings of the old one only.
        let unfenced = old.folder().join("data/postgresql.auto.conf");
        let text = std::fs::read_to_string(&unfenced).unwrap();
        std::fs::write(&unfenced, text.replace("default_transaction_read_only = 'on'", "")).unwrap();
        sql(old, "SELECT pg_reload_conf()");
        in_step(new).await;
        storm.goes_on().await;
        report(&format!("switch-over {}: {} grants so far", round + 1, storm.witness.grants()));
        (old, new) = (new, old);
    }
    let grants = storm.witness.grants();
    let doubles = storm.end().await;
    report(&format!("two planned switch-overs under load: {grants} grants, {doubles} of them twice"));
    assert_eq!(doubles, 0);
}

//! Servers that are made read-only while clients are connected, as in a planned switch-over.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use test_servers::{MariaDb, Server};

use crate::{
    schema::apply_at,
    sql,
    support::{LONG, NAME, Place, eventually, report, until_idle, within},
};

trials! {
    a_server_that_is_made_read_only_grants_nothing_more_to_those_who_are_connected,
    a_server_that_is_made_read_only_renews_and_changes_nothing,
}

/// A place whose procedures an administrator made, and that is reached by a user who may only call them.
pub(crate) fn administered(server: &Server) -> Place {
    let place = Place::at(server);
    let user = &place.prefix;
    apply_at(server, &place);
    sql(
        server,
        &format!(
            "CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'; GRANT EXECUTE ON {user}.* TO {user}@'127.0.0.1'"
        ),
    );
    place.logged_in(user, "x")
}

async fn a_server_that_is_made_read_only_grants_nothing_more_to_those_who_are_connected() {
    const CLIENTS: usize = 4;
    let server = MariaDb::new().durable().start().unwrap();
    let place = administered(&server);
    let (demoted, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (before, after, refused) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let locks = place.connect().await;
        let (demoted, ended) = (Arc::clone(&demoted), Arc::clone(&ended));
        let (before, after, refused) = (Arc::clone(&before), Arc::clone(&after), Arc::clone(&refused));
        clients.push(tokio::spawn(async move {
            let mut n = 0;
            while !ended.load(Ordering::SeqCst) {
                n += 1;
                let was_demoted = demoted.load(Ordering::SeqCst);
                // A name that is new, and one that all of them want.
                for name in [format!("new/{client}/{n}"), NAME.to_owned()] {
                    match locks.mutex(name).ttl(LONG).try_lock().await {
                        Ok(Some(_)) if was_demoted => after.fetch_add(1, Ordering::SeqCst),
                        Ok(_) => before.fetch_add(1, Ordering::SeqCst),
                        Err(error) => {
                            assert!(error.is_unavailable(), "{error}");
                            refused.fetch_add(1, Ordering::SeqCst)
                        }
                    };
                }
            }
        }));
    }
    eventually("they take locks", || before.load(Ordering::SeqCst) > 100).await;
    sql(&server, "SET GLOBAL read_only = 1");
    demoted.store(true, Ordering::SeqCst);
    let rows = |_: ()| place.ask(&server, "SELECT COUNT(*), MAX(epoch) FROM tidelock_lines");
    // What was under way may still be written, and is not told to anybody as a grant.
    eventually("all are refused", || refused.load(Ordering::SeqCst) >= 4 * CLIENTS).await;
    let then = rows(());
    let more = refused.load(Ordering::SeqCst) + 2 * CLIENTS;
    eventually("they go on asking", || refused.load(Ordering::SeqCst) > more).await;
    assert_eq!(rows(()), then, "nothing is written to a server that is read-only");
    ended.store(true, Ordering::SeqCst);
    for client in clients {
        within("it ends", client).await.unwrap();
    }
    let after = after.load(Ordering::SeqCst);
    report(&format!(
        "read_only = 1: {} answers before, {after} grants after, {} refusals",
        before.load(Ordering::SeqCst),
        refused.load(Ordering::SeqCst)
    ));
    assert_eq!(after, 0);
    // What it was made for: later it takes writes again.
    sql(&server, "SET GLOBAL read_only = 0");
    place.serves().await;
}

async fn a_server_that_is_made_read_only_renews_and_changes_nothing() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = administered(&server);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    sql(&server, "SET GLOBAL read_only = 1");
    let calls = [
        "CALL tidelock_enter('new', 1, 1, 0, 0, 0, '', '', 9000000)",
        "CALL tidelock_renew('')",
        "CALL tidelock_leave('x', 1, 1, NULL)",
        "CALL tidelock_release('x', 1, 1)",
        "CALL tidelock_shut_out('x', 1, 1)",
        "CALL tidelock_heard(1, 1)",
        "CALL tidelock_listen(1, 0.01, '')",
        "CALL tidelock_stock_fill('x', 1, 1, 1, 1)",
        "CALL tidelock_stock_replan('x', 1, '', NULL)",
    ];
    let call = |text: &str| server.ask(&["-e", &format!("USE {}; {text}", place.prefix)]);
    for text in calls {
        let error = call(text).unwrap_err().to_string();
        assert!(error.contains("1290") && error.contains("read-only"), "{text}: {error}");
    }
    sql(&server, "SET GLOBAL read_only = 0");
    guard.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

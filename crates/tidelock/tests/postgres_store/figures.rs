//! How large the tables get. Takes minutes: only when `TIDELOCK_GRANTS` is set.

use std::{sync::Arc, time::Instant};

use test_servers::Postgres;
use tidelock::Locks;

use crate::{
    sql,
    support::{LONG, Place, report},
};

trials! {
    a_million_grants_leave_tables_under_ten_mebibytes,
}

async fn a_million_grants_leave_tables_under_ten_mebibytes() -> Result<(), &'static str> {
    const GRANTS: usize = 1_000_000;
    const CLIENTS: usize = 8;
    const NAMES: usize = 1_000;
    if std::env::var_os("TIDELOCK_GRANTS").is_none() {
        return Err("it takes minutes: set TIDELOCK_GRANTS");
    }
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = Arc::new(place.connect().await);
    let began = Instant::now();
    let tasks: Vec<_> = (0..CLIENTS * 8)
        .map(|task| {
            let locks: Arc<Locks> = Arc::clone(&locks);
            tokio::spawn(async move {
                for n in 0..GRANTS / (CLIENTS * 8) {
                    let name = format!("orders/{}", (n * 64 + task) % NAMES);
                    locks.mutex(name).ttl(LONG).lock().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let took = began.elapsed();
    let size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'tidelock' AND relkind = 'r'";
    let bytes: u64 = sql(&server, size).parse().unwrap();
    let stats = sql(
        &server,
        "SELECT n_tup_upd || ' updates, ' || n_tup_hot_upd || ' of them within their page' FROM pg_stat_user_tables WHERE schemaname = 'tidelock' AND relname = 'line'",
    );
    report(&format!("{GRANTS} grants of {NAMES} names in {took:?}: {bytes} bytes, {stats}"));
    assert!(bytes < 10 << 20, "{bytes} bytes");
    Ok(())
}

//! Names that nobody used before, and names that nobody uses any more.

use test_servers::{PgBouncer, Postgres, Server};

use crate::{
    sql,
    support::{LONG, Place, eventually, names::use_names, within},
};

trials! {
    names_are_found_by_index_however_small_the_table_was_when_plans_were_made,
    names_that_nobody_used_for_as_long_as_the_administrator_says_are_forgotten,
}

fn figure(server: &Server, column: &str) -> usize {
    let text = format!("SELECT {column} FROM pg_stat_all_tables WHERE relid = 'tidelock.line'::regclass");
    sql(server, &text).parse().unwrap()
}

async fn names_are_found_by_index_however_small_the_table_was_when_plans_were_made() {
    let server = Postgres::new().start().unwrap();
    let pooler = PgBouncer::new(2).start(&server).unwrap();
    for (round, url) in [server.url(), pooler.url()].into_iter().enumerate() {
        let locks = Place::on(url).connect().await;
        sql(&server, "DELETE FROM tidelock.line");
        sql(&server, "VACUUM ANALYZE tidelock.line");
        // Plans are made, and kept.
        use_names(&locks, "few", 32).await;
        let (index, read) = (figure(&server, "idx_scan"), figure(&server, "seq_tup_read"));
        use_names(&locks, "many", 640).await;
        within("the client ends", locks.shutdown(LONG)).await;
        drop(locks);
        // Sessions tell what they did when they end, or are idle for a while.
        eventually("it is counted", || figure(&server, "idx_scan") > index + 640).await;
        let read = figure(&server, "seq_tup_read") - read;
        // Each was looked for several times: this would be some hundred thousand. An administrator may have looked at the table.
        assert!(read < 20_000, "{read} rows were read one after the other, in round {round}");
    }
}

async fn names_that_nobody_used_for_as_long_as_the_administrator_says_are_forgotten() {
    let server = Postgres::new().start().unwrap();
    let locks = Place::on(server.url()).connect().await;
    use_names(&locks, "old", 160).await;
    sql(
        &server,
        "UPDATE tidelock.line SET used = used - 2 * 3600000000::bigint, epoch = epoch - 2 * 3600000000::bigint",
    );
    // One of them has a mark for a question that may come too late.
    sql(&server, "UPDATE tidelock.line SET late = used + 3 * 3600000000::bigint WHERE name LIKE '%old/3/3'");
    let old = || {
        sql(&server, "SELECT count(*) FROM tidelock.line WHERE name LIKE '%old/%'").parse::<usize>().unwrap()
    };
    use_names(&locks, "new", 320).await;
    assert_eq!(old(), 160, "a day has not passed");
    sql(&server, "UPDATE tidelock.state SET remembered = 3600000000");
    let mut round = 0;
    while old() > 1 {
        round += 1;
        assert!(round < 50, "{} are still there", old());
        use_names(&locks, &format!("newer {round}"), 320).await;
    }
    assert_eq!(sql(&server, "SELECT count(*) FROM tidelock.line WHERE late IS NOT NULL"), "1");
    let notes = locks.notes();
    assert!(notes.iter().any(|note| note.contains("a name is kept for")), "{notes:?}");
}

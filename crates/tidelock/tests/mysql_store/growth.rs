//! Names that nobody used before.

use test_servers::{MariaDb, Server};

use crate::{
    sql,
    support::{Place, names::use_names},
};

trials! {
    names_are_found_by_index_however_small_the_table_was_when_it_was_last_counted,
}

/// How many rows the server has read one after the other so far, of tables and of what was sent to it.
fn rows_read(server: &Server) -> usize {
    let text = "SELECT CAST(SUM(VARIABLE_VALUE) AS UNSIGNED) FROM information_schema.GLOBAL_STATUS
        WHERE VARIABLE_NAME IN ('HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT')";
    sql(server, text).parse().unwrap()
}

async fn names_are_found_by_index_however_small_the_table_was_when_it_was_last_counted() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let locks = place.connect().await;
    use_names(&locks, "few", 32).await;
    // The planner goes by this from now on: a thread of the server would count again, at some time.
    place.ask(&server, "ALTER TABLE tidelock_lines STATS_AUTO_RECALC = 0");
    place.ask(&server, "ANALYZE TABLE tidelock_lines");
    let before = rows_read(&server);
    use_names(&locks, "many", 3_200).await;
    let read = rows_read(&server) - before;
    // Each was looked for several times: these would be some hundred thousand.
    assert!(read < 80_000, "{read} rows were read");
}

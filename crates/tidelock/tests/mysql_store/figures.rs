//! How large the tables get.

use test_servers::MariaDb;

use crate::support::{
    Place,
    figures::{are_small, grant_often},
};

trials! {
    very_many_grants_leave_tables_under_ten_mebibytes,
}

async fn very_many_grants_leave_tables_under_ten_mebibytes() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let granted = grant_often(&place).await;
    // Files, because what the server says of its tables is as old as its statistics.
    let sizes = format!(
        "SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name LIKE '{}/tidelock%'",
        place.prefix
    );
    let bytes = place.ask(&server, &sizes).lines().map(|size| size.parse::<u64>().unwrap()).sum();
    are_small(granted, bytes, "");
}

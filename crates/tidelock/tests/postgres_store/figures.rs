//! How large the tables get.

use test_servers::Postgres;

use crate::{
    sql,
    support::{
        Place,
        figures::{are_small, grant_often},
    },
};

trials! {
    very_many_grants_leave_tables_under_ten_mebibytes,
}

async fn very_many_grants_leave_tables_under_ten_mebibytes() {
    let server = Postgres::new().start().unwrap();
    let granted = grant_often(&Place::on(server.url())).await;
    let size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'tidelock' AND relkind = 'r'";
    let bytes = sql(&server, size).parse().unwrap();
    let updates = "SELECT ', ' || n_tup_upd || ' updates, ' || n_tup_hot_upd || ' of them within their page' FROM pg_stat_user_tables WHERE schemaname = 'tidelock' AND relname = 'line'";
    are_small(granted, bytes, &sql(&server, updates));
}

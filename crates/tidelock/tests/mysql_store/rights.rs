//! Tables and procedures of our names that somebody else made: nothing of theirs runs with the rights of those who take
//! locks, and nothing breaks exclusion without a word.

use test_servers::Server;

use crate::{
    sql,
    support::{Place, login::refusal, shared},
};

trials! {
    a_procedure_that_would_run_with_the_callers_rights_is_not_called,
    a_procedure_of_somebody_else_among_ours_is_refused_by_the_name_of_its_owner,
    a_view_in_place_of_a_table_is_refused,
    a_trigger_on_a_table_of_locks_is_refused_by_the_name_of_its_owner,
    a_table_without_its_key_or_its_transactions_is_refused,
}

/// Somebody with rights on one database only.
fn squatter(server: &Server, place: &Place) -> String {
    let name = format!("squatter_{}", place.prefix);
    sql(
        server,
        &format!("CREATE USER {name}@'127.0.0.1'; GRANT ALL ON {}.* TO {name}@'127.0.0.1'", place.prefix),
    );
    name
}

/// What somebody does in the database of a place.
fn as_user(server: &Server, user: &str, place: &Place, text: &str) {
    let mut client = server.client();
    let text = format!("USE {};\n{text}", place.prefix);
    let done = client.args([format!("--user={user}").as_str(), "-e", &text]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn a_procedure_that_would_run_with_the_callers_rights_is_not_called() {
    let (server, place) = (shared(), Place::shared());
    let squatter = squatter(&server, &place);
    let thief = format!("thief_{}", place.prefix);
    let trap = format!(
        "CREATE PROCEDURE tidelock_version() SQL SECURITY INVOKER \
         BEGIN CREATE USER {thief}@'127.0.0.1'; GRANT ALL ON *.* TO {thief}@'127.0.0.1'; SELECT 1; END"
    );
    as_user(&server, &squatter, &place, &format!("DELIMITER //\n{trap}//"));
    let error = refusal(&place).await;
    let thieves = sql(&server, &format!("SELECT COUNT(*) FROM mysql.user WHERE user = '{thief}'"));
    assert_eq!(thieves, "0", "it ran with the rights of who connected");
    assert!(error.is_denied() && error.to_string().contains(&squatter), "{error}");
    assert!(error.to_string().contains("tidelock_version"), "{error}");
}

async fn a_procedure_of_somebody_else_among_ours_is_refused_by_the_name_of_its_owner() {
    let (server, place) = (shared(), Place::shared());
    let squatter = squatter(&server, &place);
    place.serves().await;
    as_user(
        &server,
        &squatter,
        &place,
        "DROP PROCEDURE tidelock_sweep; CREATE PROCEDURE tidelock_sweep() DELETE FROM tidelock_lines",
    );
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains(&squatter), "{error}");
    assert!(error.to_string().contains("tidelock_sweep"), "{error}");
}

async fn a_view_in_place_of_a_table_is_refused() {
    let (server, place) = (shared(), Place::shared());
    let squatter = squatter(&server, &place);
    as_user(
        &server,
        &squatter,
        &place,
        "CREATE TABLE theirs (name INT); CREATE SQL SECURITY INVOKER VIEW tidelock_gone AS SELECT * FROM theirs",
    );
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains("tidelock_gone"), "{error}");
    assert_eq!(
        place.ask(&server, "SHOW PROCEDURE STATUS WHERE Db = DATABASE()"),
        "",
        "nothing is made there"
    );
}

async fn a_trigger_on_a_table_of_locks_is_refused_by_the_name_of_its_owner() {
    let (server, place) = (shared(), Place::shared());
    let squatter = squatter(&server, &place);
    place.serves().await;
    as_user(
        &server,
        &squatter,
        &place,
        "CREATE TRIGGER theirs BEFORE UPDATE ON tidelock_lines FOR EACH ROW SET NEW.client = NULL",
    );
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains(&squatter), "{error}");
    place.ask(&server, "DROP TRIGGER theirs");
    place.serves().await;
}

async fn a_table_without_its_key_or_its_transactions_is_refused() {
    for (made, what) in [
        ("CREATE TABLE tidelock_lines (name VARBINARY(512) NOT NULL, day INT)", "key"),
        ("CREATE TABLE tidelock_lines (name VARBINARY(512) NOT NULL PRIMARY KEY) ENGINE = MyISAM", "InnoDB"),
    ] {
        let (server, place) = (shared(), Place::shared());
        place.ask(&server, made);
        let error = refusal(&place).await;
        let text = error.to_string();
        assert!(error.is_denied() && text.contains("tidelock_lines") && text.contains(what), "{error}");
    }
}

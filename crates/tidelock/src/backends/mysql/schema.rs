//! Tables and procedures, and how they come into the database.

use mysql_async::{Conn, Row, prelude::Queryable};

use super::{
    errors::{classify_connecting, code, is_no_right},
    link::exec,
    owners,
};
use crate::backend::Failure;

/// What calls mean: clients and procedures must agree on it.
const VERSION: u64 = 1;

/// What this build needs at least. Procedures of a later revision serve earlier clients as well.
const REVISION: u64 = 7;

/// Separates statements, for people's clients as well.
const END: &str = "\n//\n";

/// Procedures keep the mode that they were made in; and a table that is not InnoDB keeps nothing. Calls that sleep in the
/// server keep a procedure from being replaced for some seconds.
const MODE: &str =
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION lock_wait_timeout = 40";

/// What says that all is there goes before procedures are replaced, so that those who connect meanwhile wait, and comes
/// last. Tables come before that: a user who may not make them changes nothing.
const BEGIN: &str = "DROP PROCEDURE IF EXISTS tidelock_version\n//\n";
pub(super) const PARTS: [&str; 5] = [
    include_str!("schema/tables.sql"),
    include_str!("schema/stock.sql"),
    include_str!("schema/line.sql"),
    include_str!("schema/together.sql"),
    include_str!("schema/verbs.sql"),
];

/// A table in memory that procedures of the first revision wrote to. It stopped replicas that restarted, so nobody changes
/// it any more; a user who may not drop it leaves it.
const LEFT_OVER: &str = "DROP TABLE IF EXISTS tidelock_listeners";

/// Of those who make tables and procedures, one at a time.
const LOCK: &str = "CONCAT('tidelock schema ', LEFT(DATABASE(), 40))";

/// How long others may take to put the same into the database.
const PATIENCE_SECONDS: u32 = 30;

/// All that locks need in a database, as the clients `mysql` and `mariadb` read it. A client that finds it there makes
/// nothing, and needs no right but `EXECUTE`.
pub fn schema() -> String {
    let [tables, procedures @ ..] = PARTS;
    let procedures = procedures.concat();
    format!(
        "-- tidelock: tables and procedures for locks, version {VERSION}, revision {REVISION}.\n\
         -- mariadb --user=ADMINISTRATOR DATABASE < this file\n\
         -- GRANT EXECUTE ON DATABASE.* TO the users that take locks.\n\
         DELIMITER //\n{MODE}{END}DO GET_LOCK({LOCK}, {PATIENCE_SECONDS}){END}\
         {tables}{BEGIN}{procedures}{LEFT_OVER}{END}DELIMITER ;\n"
    )
}

/// What a database has of what locks need.
enum State {
    Ready,
    /// Nothing, or an earlier revision: the sentence says which.
    Lacking(&'static str),
    /// Something that somebody else made, which may not be used.
    Foreign(Failure),
}

/// Makes sure that the database has what locks need, and that nobody else made it.
pub(super) async fn ensure(conn: &mut Conn) -> Result<(), Failure> {
    if matches!(state(conn).await?, State::Ready) {
        return Ok(());
    }
    // Many may start at once, and somebody may be in the middle of it.
    let got: Option<Option<u8>> = conn
        .query_first(format!("SELECT GET_LOCK({LOCK}, {PATIENCE_SECONDS})"))
        .await
        .map_err(classify_connecting)?;
    if got.flatten() != Some(1) {
        return Err(Failure::unreachable(
            "another client has been putting tables and procedures into the database for long: try again, or apply what `tidelock schema --print mysql` prints",
        ));
    }
    match state(conn).await? {
        State::Ready => {}
        State::Foreign(failure) => return Err(failure),
        State::Lacking(what) => {
            install(conn, what).await?;
            // Somebody may have put something of theirs in between.
            if let State::Foreign(failure) = state(conn).await? {
                return Err(failure);
            }
        }
    }
    let done = conn.query_drop(format!("DO RELEASE_LOCK({LOCK})")).await;
    done.map_err(classify_connecting)
}

async fn install(conn: &mut Conn, what: &str) -> Result<(), Failure> {
    let failed = |error: mysql_async::Error| {
        if !is_no_right(&error) {
            return classify_connecting(error);
        }
        let failure = Failure::denied(format!(
            "the database has {what}, and this user may not make them ({}): have an administrator apply what `tidelock schema --print mysql` prints, and grant EXECUTE on the database",
            code(&error)
        ));
        failure.caused_by(error)
    };
    conn.query_drop(MODE).await.map_err(failed)?;
    for statement in statements() {
        conn.query_drop(statement).await.map_err(failed)?;
    }
    match conn.query_drop(LEFT_OVER).await {
        Err(error) if !is_no_right(&error) => return Err(failed(error)),
        _ => {}
    }
    conn.query_drop("SET SESSION lock_wait_timeout = 10").await.map_err(failed)
}

fn statements() -> impl Iterator<Item = &'static str> {
    let [tables, procedures @ ..] = PARTS;
    let parts = [tables, BEGIN].into_iter().chain(procedures);
    parts.flat_map(|part| part.split(END)).filter(|text| !text.trim().is_empty())
}

/// What the database has. Nothing in it is called before it is known who made it.
async fn state(conn: &mut Conn) -> Result<State, Failure> {
    let failed = classify_connecting;
    let found = exec(conn, owners::QUESTION, ()).await.map_err(failed)?;
    if let Some(why) = owners::foreign(&found) {
        return Ok(State::Foreign(Failure::denied(why)));
    }
    let nothing = State::Lacking("no tables and procedures for locks yet");
    let found: Result<Option<Row>, _> = conn.query_first("CALL tidelock_version()").await;
    let row = match found {
        Ok(row) => row,
        // There is no such procedure.
        Err(error) if code(&error) == 1305 => return Ok(nothing),
        Err(error) => return Err(failed(error)),
    };
    let number = |index| row.as_ref().and_then(|row| row.get::<u64, _>(index));
    match (number(0), number(1).unwrap_or(1)) {
        (Some(VERSION), REVISION..) => Ok(State::Ready),
        (Some(VERSION), _) => Ok(State::Lacking(
            "an earlier revision of the tables and procedures for locks than this build needs",
        )),
        (other, _) => Err(Failure::denied(format!(
            "the database has version {} of the tables and procedures for locks, and this build needs {VERSION}: use the build that made them, or another database",
            other.map_or("an unknown".to_owned(), |version| version.to_string())
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_installation_runs() {
        let text = schema();
        assert!(text.contains("DELIMITER //") && text.ends_with("DELIMITER ;\n"));
        for statement in statements() {
            assert!(text.contains(statement), "{statement}");
            assert!(!statement.contains("//"), "{statement}");
        }
        // What says that all is there comes last.
        assert!(text.trim_end().rfind("CREATE PROCEDURE tidelock_version") > text.rfind("DROP PROCEDURE"));
    }
}

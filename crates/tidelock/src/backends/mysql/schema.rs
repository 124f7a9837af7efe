//! Tables and procedures, and how they come into the database.

use mysql_async::{Conn, Row, prelude::Queryable};

use super::errors::{classify_connecting, code, is_no_right};
use crate::backend::Failure;

/// What this build works with.
const VERSION: u64 = 1;

/// Separates statements, for people's clients as well.
const END: &str = "\n//\n";

/// Procedures keep the mode that they were made in; and a table that is not InnoDB keeps nothing.
const MODE: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";

/// What says that all is there comes last.
const PARTS: [&str; 4] = [
    include_str!("schema/tables.sql"),
    include_str!("schema/stock.sql"),
    include_str!("schema/line.sql"),
    include_str!("schema/verbs.sql"),
];

/// How long others may take to put the same into the database.
const PATIENCE_SECONDS: u32 = 30;

/// All that locks need in a database, as the clients `mysql` and `mariadb` read it. A client that finds it there makes
/// nothing, and needs no right but `EXECUTE`.
pub fn schema() -> String {
    format!(
        "-- tidelock: tables and procedures for locks, version {VERSION}.\n\
         -- mariadb --user=ADMINISTRATOR DATABASE < this file\n\
         -- GRANT EXECUTE ON DATABASE.* TO whoever takes locks.\n\
         DELIMITER //\n{MODE}{END}{}DELIMITER ;\n",
        PARTS.concat()
    )
}

/// Makes sure that the database has what locks need.
pub(super) async fn ensure(conn: &mut Conn) -> Result<(), Failure> {
    if is_there(conn).await? {
        return Ok(());
    }
    let failed = |error: mysql_async::Error| {
        let failure = classify_connecting(&error);
        if !is_no_right(&error) {
            return failure;
        }
        Failure::denied(format!(
            "the database has no tables and procedures for locks yet, and this user may not make them ({}): have an administrator apply what `tidelock schema --print mysql` prints, and grant EXECUTE on the database",
            code(&error)
        ))
    };
    // Many may start at once.
    let lock = "CONCAT('tidelock schema ', LEFT(DATABASE(), 40))";
    let got: Option<Option<u8>> =
        conn.query_first(format!("SELECT GET_LOCK({lock}, {PATIENCE_SECONDS})")).await.map_err(failed)?;
    if got.flatten() != Some(1) {
        return Err(Failure::unreachable(
            "another client has been putting tables and procedures into the database for long: try again, or apply what `tidelock schema --print mysql` prints",
        ));
    }
    if !is_there(conn).await? {
        conn.query_drop(MODE).await.map_err(failed)?;
        for statement in PARTS.iter().flat_map(|part| part.split(END)).filter(|text| !text.trim().is_empty())
        {
            conn.query_drop(statement).await.map_err(failed)?;
        }
    }
    conn.query_drop(format!("DO RELEASE_LOCK({lock})")).await.map_err(failed)
}

/// Whether the database has what this build works with.
async fn is_there(conn: &mut Conn) -> Result<bool, Failure> {
    let found: Result<Option<Row>, _> = conn.query_first("CALL tidelock_version()").await;
    match found {
        Ok(row) => match row.and_then(|row| row.get::<u64, _>(0)) {
            Some(VERSION) => Ok(true),
            other => Err(Failure::denied(format!(
                "the database has version {} of the tables and procedures for locks, and this build needs {VERSION}: use the build that made them, or another database",
                other.map_or("an unknown".to_owned(), |version| version.to_string())
            ))),
        },
        // There is no such procedure.
        Err(error) if code(&error) == 1305 => Ok(false),
        Err(error) => Err(classify_connecting(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_installation_runs() {
        let text = schema();
        assert!(text.contains("DELIMITER //") && text.ends_with("DELIMITER ;\n"));
        let statements = PARTS.iter().flat_map(|part| part.split(END)).filter(|text| !text.trim().is_empty());
        for statement in statements {
            assert!(text.contains(statement), "{statement}");
            assert!(!statement.contains("//"), "{statement}");
        }
        // What says that all is there comes last.
        assert!(text.trim_end().rfind("CREATE PROCEDURE tidelock_version") > text.rfind("DROP PROCEDURE"));
    }
}

//! Fences: let your own resources reject writes from a holder whose lease has expired.
//!
//! A lock cannot stop a process that was paused between its last check of the clock and its write. The
//! resource can. [`Fence`] is for tables of a database, [`Highest`] for files, maps and APIs.
//!
//! In a table, an additional column keeps the largest [`Token`](crate::Token) that has written a row, and every
//! write names its token. A write with a smaller token changes nothing, and the number of changed rows tells
//! you so.
//!
//! ```
//! use tidelock::fence::Fence;
//!
//! let fence = Fence::postgres("orders", "id", "fence")?;
//! assert_eq!(
//!     fence.update("state = $3"),
//!     r#"UPDATE "orders" SET "fence" = $2, state = $3 WHERE "id" = $1 AND "fence" <= $2"#
//! );
//!
//! let fence = Fence::mysql("orders", "id", "fence")?;
//! assert_eq!(
//!     fence.update("state = ?"),
//!     "UPDATE `orders` SET `fence` = ?, state = ? WHERE `id` = ? AND `fence` <= ?"
//! );
//! # Ok::<(), tidelock::Error>(())
//! ```
//!
//! Run the statement with your own driver and bind the key, the token
//! ([`Token::as_i64`](crate::Token::as_i64)) and the values. If no row changed, a later holder has written,
//! and the work must stop. The project's page `docs/fencing.md` shows a complete example.

pub use self::highest::Highest;
use crate::error::{Error, Result};

mod highest;

/// A table whose rows are protected by a column with the largest token that wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    dialect: Dialect,
    table: String,
    key: String,
    column: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Postgres,
    Mysql,
}

impl Fence {
    /// Describes a PostgreSQL table by its name, its key column and the column that keeps the token.
    ///
    /// The table name may be qualified with its schema, separated by a dot.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when a name is empty, too long or contains a
    /// control character.
    pub fn postgres(table: &str, key: &str, column: &str) -> Result<Self> {
        Self::new(Dialect::Postgres, table, key, column)
    }

    /// Describes a MySQL or MariaDB table, as [`postgres`](Self::postgres) does for PostgreSQL.
    ///
    /// # Errors
    /// As [`postgres`](Self::postgres).
    pub fn mysql(table: &str, key: &str, column: &str) -> Result<Self> {
        Self::new(Dialect::Mysql, table, key, column)
    }

    fn new(dialect: Dialect, table: &str, key: &str, column: &str) -> Result<Self> {
        let table: Vec<_> =
            table.split('.').map(|part| dialect.quote("table", part)).collect::<Result<_>>()?;
        Ok(Self {
            dialect,
            table: table.join("."),
            key: dialect.quote("key", key)?,
            column: dialect.quote("column", column)?,
        })
    }

    /// Returns the statement that adds the column to a table without it. All rows start below every token.
    pub fn add_column(&self) -> String {
        format!("ALTER TABLE {} ADD COLUMN {} BIGINT NOT NULL DEFAULT 0", self.table, self.column)
    }

    /// Returns the condition under which a write with a token is accepted, for your own statements.
    ///
    /// Bind the token at `place`, counted from 1. Your statement must also write the token into the column.
    pub fn condition(&self, place: usize) -> String {
        format!("{} <= {}", self.column, self.dialect.bind(place))
    }

    /// Returns the statement that changes one row unless a larger token has written it.
    ///
    /// `assignments` is the SQL that follows `SET`. Never pass untrusted text.
    ///
    /// In PostgreSQL, bind the key as `$1`, the token as `$2`, and your own values from `$3` on. In MySQL,
    /// bind in the order of the question marks: the token, your own values, the key, the token again.
    ///
    /// MySQL counts a row as changed only if something in it is new, unless the connection was made with
    /// `CLIENT_FOUND_ROWS`, which most drivers set. Without it, a write that is repeated with the same token
    /// looks like one that was refused.
    pub fn update(&self, assignments: &str) -> String {
        let Self { dialect, table, key, column } = self;
        let (row, token) = (dialect.bind(1), dialect.bind(2));
        format!(
            "UPDATE {table} SET {column} = {token}, {assignments} WHERE {key} = {row} AND {column} <= {token}"
        )
    }

    /// Returns the statement that claims one row for a token before any other write of the transaction.
    ///
    /// If no row changed, a larger token has written the row. The row stays locked until the transaction
    /// ends, so no other write gets in between. Bind the values as for [`update`](Self::update).
    pub fn claim(&self) -> String {
        let Self { dialect, table, key, column } = self;
        let (row, token) = (dialect.bind(1), dialect.bind(2));
        format!("UPDATE {table} SET {column} = {token} WHERE {key} = {row} AND {column} <= {token}")
    }
}

impl Dialect {
    fn bind(self, place: usize) -> String {
        match self {
            Self::Postgres => format!("${place}"),
            Self::Mysql => "?".to_owned(),
        }
    }

    fn quote(self, what: &str, name: &str) -> Result<String> {
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            return Err(Error::invalid_option(format!(
                "the name of the {what} of a fence is empty, longer than 64 bytes or has control characters: correct it"
            )));
        }
        Ok(match self {
            Self::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::Mysql => format!("`{}`", name.replace('`', "``")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_quote_names_and_bind_values() {
        let fence = Fence::postgres("shop.orders", "id", "fe\"nce").unwrap();
        assert_eq!(
            fence.claim(),
            r#"UPDATE "shop"."orders" SET "fe""nce" = $2 WHERE "id" = $1 AND "fe""nce" <= $2"#
        );
        assert_eq!(fence.condition(7), r#""fe""nce" <= $7"#);
        let fence = Fence::mysql("orders", "id", "fe`nce").unwrap();
        assert_eq!(
            fence.update("state = ?"),
            "UPDATE `orders` SET `fe``nce` = ?, state = ? WHERE `id` = ? AND `fe``nce` <= ?"
        );
        assert!(fence.add_column().starts_with("ALTER TABLE `orders` ADD COLUMN `fe``nce` BIGINT"));
    }

    #[test]
    fn bad_names_get_one_clear_sentence() {
        for (table, key, column) in
            [("", "id", "f"), ("a.", "id", "f"), ("a", "\n", "f"), ("a", "id", &"x".repeat(65))]
        {
            let error = Fence::postgres(table, key, column).unwrap_err();
            assert!(error.is_invalid_option() && error.to_string().contains("fence"), "{error}");
        }
    }
}

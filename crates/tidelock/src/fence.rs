//! Fences: how a table of your own refuses writes of a holder that slept through the end of its lease.
//!
//! The lock cannot stop a process that was paused between its last look at the clock and its write; the table can. It
//! keeps the largest [`Token`](crate::Token) that has written a row, in one column more, and every write says with which token it
//! is made. One that is smaller changes nothing, and the number of changed rows says so.
//!
//! ```
//! use tidelock::fence::Fence;
//!
//! let fence = Fence::postgres("orders", "id", "fence")?;
//! assert_eq!(
//!     fence.update("state = $3"),
//!     r#"UPDATE "orders" SET "fence" = $2, state = $3 WHERE "id" = $1 AND "fence" <= $2"#
//! );
//! # Ok::<(), tidelock::Error>(())
//! ```
//!
//! The statement is run by whichever driver the program has, with the key, the token ([`Token::as_i64`](crate::Token::as_i64)) and the
//! values; no rows changed means that a later holder has written, and the work has to stop. The page `docs/fencing.md` of
//! the project shows it whole.

use crate::error::{Error, Result};

/// A table whose rows are guarded by a column with the largest token that wrote them.
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
    /// A table in PostgreSQL, the column that names a row, and the one that keeps the token. The table may have its schema
    /// before it, with a dot between.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when a name is empty, too long or has a control character.
    pub fn postgres(table: &str, key: &str, column: &str) -> Result<Self> {
        Self::new(Dialect::Postgres, table, key, column)
    }

    /// The same in MySQL or MariaDB.
    ///
    /// # Errors
    /// As for [`postgres`](Self::postgres).
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

    /// Adds the column to a table that does not have it. All rows begin below every token.
    pub fn add_column(&self) -> String {
        format!("ALTER TABLE {} ADD COLUMN {} BIGINT NOT NULL DEFAULT 0", self.table, self.column)
    }

    /// The condition under which a write with a token counts, for statements of your own: the token is to be bound at
    /// `place`, counted from 1. It must also be written into the column.
    pub fn condition(&self, place: usize) -> String {
        format!("{} <= {}", self.column, self.dialect.bind(place))
    }

    /// Changes one row, unless a larger token has written it. `assignments` is SQL as it stands after `SET`, never text of
    /// strangers.
    ///
    /// In PostgreSQL bind the key as `$1`, the token as `$2`, and your own values from `$3` on. In MySQL bind in the order in which
    /// the question marks stand: the token, your own values, the key, the token again.
    ///
    /// MySQL counts a row as changed only if something in it is new, unless the connection was made with `CLIENT_FOUND_ROWS`, which
    /// most drivers do: without it a write that repeats itself with the same token looks like one that was refused.
    pub fn update(&self, assignments: &str) -> String {
        let Self { dialect, table, key, column } = self;
        let (row, token) = (dialect.bind(1), dialect.bind(2));
        format!(
            "UPDATE {table} SET {column} = {token}, {assignments} WHERE {key} = {row} AND {column} <= {token}"
        )
    }

    /// Claims one row for a token before anything else is written, in the same transaction: no row changed means that a larger
    /// token has been there. The row stays locked until the transaction ends, so nobody gets between. Bound as for
    /// [`update`](Self::update).
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
                "the name of the {what} of a fence is empty, longer than 64 bytes or has control characters: mend it"
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

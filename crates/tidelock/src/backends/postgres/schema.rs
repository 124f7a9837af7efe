//! What is kept in the database besides the locks: tables, rules, and one function for each verb.

/// The version of the functions that this client calls: what `tidelock.version()` answers.
pub(super) const VERSION: i32 = 1;

/// The advisory lock of whoever installs.
pub(super) const INSTALLING: i64 = 7_594_868_131_420_104_811;

const TABLES: &str = include_str!("schema/tables.sql");
const RULES: &str = include_str!("schema/rules.sql");
const VERBS: &str = include_str!("schema/verbs.sql");
const ADVISORY: &str = include_str!("schema/advisory.sql");
const STOCK: &str = include_str!("schema/stock.sql");
const RIGHTS: &str = include_str!("schema/rights.sql");

/// The statements that make the schema `tidelock`, or bring it up to date: to be run in one transaction. Clients run
/// them by themselves when the schema is not there and they may.
pub fn schema() -> String {
    [TABLES, RULES, VERBS, ADVISORY, STOCK, RIGHTS].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_of_the_version_that_clients_ask_for() {
        assert!(schema().contains(&format!("AS 'SELECT {VERSION}';")));
        assert!(schema().contains(&format!("pg_advisory_xact_lock({INSTALLING})")));
    }
}

//! What is kept in the database besides the locks: tables, rules, and one function for each verb.

/// What clients have to know to call the functions: what `tidelock.version()` answers.
pub(super) const VERSION: i32 = 1;

/// What this client installs, and needs: what `tidelock.revision()` answers.
pub(super) const REVISION: i32 = 5;

/// The advisory lock of the client that installs.
pub(super) const INSTALLING: i64 = 7_594_868_131_420_104_811;

const TABLES: &str = include_str!("schema/tables.sql");
const STRANGERS: &str = include_str!("schema/strangers.sql");
const RULES: &str = include_str!("schema/rules.sql");
const VERBS: &str = include_str!("schema/verbs.sql");
const TOGETHER: &str = include_str!("schema/together.sql");
const ADVISORY: &str = include_str!("schema/advisory.sql");
const STOCK: &str = include_str!("schema/stock.sql");
const RIGHTS: &str = include_str!("schema/rights.sql");

/// The statements that make the schema `tidelock`, or bring it up to date: to be run in one transaction. Clients run
/// them automatically when the schema is not there and they may.
pub fn schema() -> String {
    let tables = TABLES.replace("-- strangers", STRANGERS);
    [&*tables, RULES, VERBS, TOGETHER, ADVISORY, STOCK, RIGHTS].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_of_the_version_that_clients_ask_for() {
        for (name, number) in [("version", VERSION), ("revision", REVISION)] {
            let function = format!(
                "FUNCTION tidelock.{name}() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT {number}';"
            );
            assert!(schema().contains(&function));
        }
        assert!(schema().contains(&format!("pg_advisory_xact_lock({INSTALLING})")));
        assert!(!schema().contains("-- strangers"));
    }
}

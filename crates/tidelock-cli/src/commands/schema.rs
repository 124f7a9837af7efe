//! `tidelock schema`: what an administrator has to load into a server.

use tidelock::{
    Locks,
    backends::{mysql, postgres, redis::RedisConfig},
};

use crate::{
    args::Schema,
    commands::stores,
    exit::Exit,
    output::{self, Trouble},
};

/// Those that have one.
const HAVE: &str = "mysql, postgres and redis have a schema";

/// Prints the schema of a store, and nothing else: it is piped into the server's own client.
pub(crate) fn run(args: &Schema) -> Result<Exit, Trouble> {
    output::text(&schema(&args.print)?)?;
    Ok(Exit::Done)
}

fn schema(store: &str) -> Result<String, Trouble> {
    // A URL names its store as well; the rest of it may be a password and is not shown.
    let store = stores::store_of(store.split(':').next().unwrap_or_default());
    match store {
        "mysql" => return Ok(mysql::schema()),
        "postgres" => return Ok(postgres::schema()),
        "redis" => return Ok(RedisConfig::function_library()),
        _ => {}
    }
    let why = if Locks::schemes().contains(&store) {
        format!("store {store:?} needs no schema: there is nothing to load; {HAVE}")
    } else {
        format!("there is no store {store:?}: tidelock stores lists those of this build; {HAVE}")
    };
    Err(Trouble::Usage(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_has_a_library_of_functions() {
        for store in ["redis", "redis://me:secret@host", "rediss+cluster"] {
            assert!(schema(store).unwrap().starts_with("#!lua name=tidelock_"), "{store}");
        }
    }

    #[test]
    fn postgres_has_tables_and_functions() {
        for store in ["postgres", "postgresql://me:secret@host/app"] {
            assert!(schema(store).unwrap().contains("CREATE SCHEMA IF NOT EXISTS tidelock;"), "{store}");
        }
    }

    #[test]
    fn mysql_has_tables_and_procedures() {
        for store in ["mysql", "mariadb://me:secret@host/app"] {
            assert!(schema(store).unwrap().contains("CREATE PROCEDURE tidelock_enter("), "{store}");
        }
    }

    #[test]
    fn a_store_without_a_schema_says_so_and_no_password_is_shown() {
        for (store, says) in [
            ("file", "\"file\" needs no schema"),
            ("memory:", "\"memory\" needs no schema"),
            ("oracle://me:secret@host", "no store \"oracle\""),
            ("", "no store \"\""),
        ] {
            let text = schema(store).unwrap_err().to_string();
            assert!(text.contains(says) && !text.contains("secret"), "{text}");
        }
    }
}

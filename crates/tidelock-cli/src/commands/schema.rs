//! `tidelock schema`: what an administrator has to load into a server.

use tidelock::Locks;

use crate::{
    args::Schema,
    commands::stores,
    exit::Exit,
    output::{self, Trouble},
};

/// Prints the schema of a store, and nothing else: it is piped into the server's own client.
pub(crate) fn run(args: &Schema) -> Result<Exit, Trouble> {
    output::text(&if args.stock { stock(&args.print) } else { schema(&args.print) }?)?;
    Ok(Exit::Done)
}

fn schema(store: &str) -> Result<String, Trouble> {
    // A URL names its store as well; the rest of it may be a password and is not shown.
    let found = stores::find(store);
    if let Some(schema) = found.and_then(|store| store.schema()) {
        return Ok(schema);
    }
    let why = match found {
        Some(store) => format!("store {:?} needs no schema: there is nothing to load", store.name),
        None => {
            let name = store.split(':').next().unwrap_or_default();
            format!("there is no store {name:?}: tidelock stores lists those of this build")
        }
    };
    Err(Trouble::Usage(format!("{why}; {}", those_with_one())))
}

fn stock(store: &str) -> Result<String, Trouble> {
    let needed = stores::find(store).and_then(|store| store.stock_schema());
    match needed {
        Some(schema) => Ok(schema),
        // A mistake in the name is said as without the flag.
        None => {
            schema(store)?;
            Err(Trouble::Usage("stock needs nothing besides in this store: leave --stock out".to_owned()))
        }
    }
}

/// The stores that have a schema, in a sentence.
fn those_with_one() -> String {
    let stores = Locks::stores().iter().filter(|store| store.schema().is_some());
    let mut names: Vec<_> = stores.map(|store| store.name).collect();
    names.sort_unstable();
    match names.split_last() {
        Some((last, [])) => format!("{last} has a schema"),
        Some((last, others)) => format!("{} and {last} have a schema", others.join(", ")),
        None => "no store of this build has one".to_owned(),
    }
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
    fn redis_has_another_library_for_stock_and_databases_have_none() {
        assert!(stock("redis").unwrap().starts_with("#!lua name=tidelock_stock_"));
        assert!(!schema("redis").unwrap().contains("stock"));
        assert!(stock("postgres").unwrap_err().to_string().contains("leave --stock out"));
        assert!(stock("oracle").unwrap_err().to_string().contains("no store \"oracle\""));
    }

    #[test]
    fn postgres_has_tables_and_functions() {
        for store in ["postgres", "postgresql://me:secret@host/app"] {
            assert!(schema(store).unwrap().contains("CREATE SCHEMA tidelock;"), "{store}");
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
            assert!(text.ends_with("; mysql, postgres and redis have a schema"), "{text}");
            assert!(text.contains(says) && !text.contains("secret"), "{text}");
        }
    }
}

//! Function calls that each change one row, with asynchronous commits.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls, Statement};

use super::{BareLock, Commands};
use crate::drive::{
    by_hand::{self, Row},
    library::{Failed, Library, Use},
};

/// The least that could do: a function that changes one row, found by its name.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, number bigint NOT NULL, holder uuid) WITH (fillfactor = 50);
CREATE OR REPLACE FUNCTION bare(p_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  given bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE bare SET number = number + 1 WHERE name = p_name RETURNING number INTO given;
  RETURN given;
END $$";

#[derive(Debug)]
pub(in crate::drive) struct Postgres(Arc<Connection>);

pub(in crate::drive) struct Connection {
    client: Client,
    call: Statement,
    look: Statement,
    /// A row with a time, for what is to last.
    row: Option<Row>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A client whose connection ends with it.
pub(in crate::drive) async fn connect(url: &str) -> Result<Client, Failed> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(Failed::because)?;
    #[allow(clippy::disallowed_methods, reason = "it ends with the client, and nobody waits for it")]
    drop(tokio::spawn(connection));
    Ok(client)
}

/// Makes tables, one process after the other: making the same tables at the same time fails.
pub(in crate::drive) async fn make(client: &Client, schema: &str) -> Result<(), Failed> {
    // Statements of their own: what is made is there for others before it is their turn.
    for statement in ["SELECT pg_advisory_lock(1)", schema, "SELECT pg_advisory_unlock(1)"] {
        client.batch_execute(statement).await.map_err(Failed::because)?;
    }
    Ok(())
}

impl Postgres {
    pub(in crate::drive) async fn connect(url: &str, lasting: bool) -> Result<Self, Failed> {
        let client = connect(url).await?;
        make(&client, SCHEMA).await?;
        let call = client.prepare("SELECT bare($1)").await.map_err(Failed::because)?;
        let look =
            client.prepare("SELECT number FROM bare WHERE name = $1").await.map_err(Failed::because)?;
        let row = if lasting { Some(by_hand::row(url).await?) } else { None };
        Ok(Self(Arc::new(Connection { client, call, look, row })))
    }
}

impl Connection {
    async fn call(&self, name: &str) -> Result<(), Failed> {
        self.client.query_one(&self.call, &[&name]).await.map(drop).map_err(Failed::because)
    }
}

impl Library for Postgres {
    type Lock = BareLock<Connection>;

    async fn lock(&self, name: &str, wanted: Use) -> Result<BareLock<Connection>, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        self.open(name).await?;
        Ok(BareLock::new(&self.0, name))
    }

    async fn renew(&self, names: &[String]) -> Result<(), Failed> {
        match &self.0.row {
            Some(row) => row.renew(names).await,
            None => Ok(()),
        }
    }

    /// A call without its row changes nothing, so the row is made with the first.
    async fn trip(&self, name: &str) -> Result<(), Failed> {
        let given = self.0.client.query_one(&self.0.call, &[&name]).await.map_err(Failed::because)?;
        if given.get::<_, Option<i64>>(0).is_none() {
            self.open(name).await?;
        }
        Ok(())
    }

    async fn open(&self, name: &str) -> Result<(), Failed> {
        let insert = "INSERT INTO bare VALUES ($1, 0, NULL) ON CONFLICT DO NOTHING";
        self.0.client.execute(insert, &[&name]).await.map(drop).map_err(Failed::because)
    }

    async fn sell(&self, name: &str, _order: u64) -> Result<(), Failed> {
        self.0.call(name).await
    }
}

impl Commands for Connection {
    type Held = ();

    async fn take(&self, name: &str) -> Result<Option<()>, Failed> {
        match &self.row {
            Some(row) => Ok(row.take(name).await?.then_some(())),
            None => self.call(name).await.map(Some),
        }
    }

    async fn give_back(&self, name: &str, (): ()) -> Result<(), Failed> {
        match &self.row {
            Some(row) => row.give_back(name).await,
            None => self.call(name).await,
        }
    }

    async fn is_free(&self, name: &str) -> Result<bool, Failed> {
        let row = self.client.query_opt(&self.look, &[&name]).await.map_err(Failed::because)?;
        Ok(row.is_none())
    }
}

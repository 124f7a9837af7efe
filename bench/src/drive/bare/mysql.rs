//! Updates of one row, each committed.

use std::sync::Arc;

use mysql_async::{Conn, Opts, OptsBuilder, prelude::Queryable};
use tokio::sync::Mutex;

use crate::drive::{
    by_hand::{self, Row},
    library::{Failed, Library, Lock, Use},
};

const UPDATE: &str = "UPDATE bare SET value = value + ? WHERE name = ?";

#[derive(Debug)]
pub(in crate::drive) struct Mysql {
    url: String,
    conn: Mutex<Conn>,
    /// A row with a time, for what is to last.
    row: Option<Arc<Row>>,
}

/// A connection that goes over the network, as those of locks do.
pub(in crate::drive) async fn connect(url: &str) -> Result<Conn, Failed> {
    let opts = Opts::from_url(url).map_err(Failed::because)?;
    Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.map_err(Failed::because)
}

impl Mysql {
    pub(in crate::drive) async fn connect(url: &str, lasting: bool) -> Result<Self, Failed> {
        let mut conn = connect(url).await?;
        let table =
            "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(512) PRIMARY KEY, value BIGINT) ENGINE = InnoDB";
        conn.query_drop(table).await.map_err(Failed::because)?;
        let row = if lasting { Some(Arc::new(by_hand::row(url).await?)) } else { None };
        Ok(Self { url: url.to_owned(), conn: Mutex::new(conn), row })
    }
}

impl Library for Mysql {
    type Lock = Updates;

    /// A connection for each task: the driver carries one question at a time.
    async fn lock(&self, name: &str, wanted: Use) -> Result<Updates, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        self.open(name).await?;
        let way = match &self.row {
            Some(row) => {
                row.open(name).await?;
                Way::Row(Arc::clone(row))
            }
            None => Way::Bare(connect(&self.url).await?),
        };
        Ok(Updates { way, name: name.to_owned() })
    }

    async fn renew(&self, names: &[String]) -> Result<(), Failed> {
        match &self.row {
            Some(row) => row.renew(names).await,
            None => Ok(()),
        }
    }

    async fn trip(&self, name: &str) -> Result<(), Failed> {
        let mut conn = self.conn.lock().await;
        conn.exec_drop(UPDATE, (1, name)).await.map_err(Failed::because)?;
        if conn.affected_rows() == 0 {
            conn.exec_drop("INSERT INTO bare VALUES (?, 0)", (name,)).await.map_err(Failed::because)?;
        }
        Ok(())
    }

    async fn open(&self, name: &str) -> Result<(), Failed> {
        let mut conn = self.conn.lock().await;
        conn.exec_drop("INSERT IGNORE INTO bare VALUES (?, 0)", (name,)).await.map_err(Failed::because)
    }

    async fn sell(&self, name: &str, _order: u64) -> Result<(), Failed> {
        self.trip(name).await
    }
}

/// What a bare lock is.
#[derive(Debug)]
enum Way {
    Bare(Conn),
    Row(Arc<Row>),
}

#[derive(Debug)]
pub(in crate::drive) struct Updates {
    way: Way,
    name: String,
}

impl Lock for Updates {
    type Held = ();

    async fn take(&mut self) -> Result<(), Failed> {
        match &mut self.way {
            Way::Bare(conn) => conn.exec_drop(UPDATE, (1, &self.name)).await.map_err(Failed::because),
            Way::Row(row) => {
                while !row.take(&self.name).await? {
                    tokio::time::sleep(super::AGAIN).await;
                }
                Ok(())
            }
        }
    }

    async fn give_back(&mut self, (): ()) -> Result<(), Failed> {
        match &mut self.way {
            Way::Bare(conn) => conn.exec_drop(UPDATE, (1, &self.name)).await.map_err(Failed::because),
            Way::Row(row) => row.give_back(&self.name).await,
        }
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        let Way::Bare(conn) = &mut self.way else { return Err(Failed::NoSuchThing) };
        let look = "SELECT value FROM bare WHERE name = ?";
        let row: Option<i64> = conn.exec_first(look, (&self.name,)).await.map_err(Failed::because)?;
        Ok(row.is_none())
    }
}

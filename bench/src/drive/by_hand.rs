//! What people write themselves, where there is no library: a map of mutexes, a row that is asked for again
//! and again, `GET_LOCK`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use mysql_async::{Conn, prelude::Queryable};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio_postgres::{Client, Statement};

use super::{
    bare::{mysql, postgres},
    lease,
    library::{Failed, Library, Lock, Use},
};

/// How often a row is asked for by those who poll.
const POLL: Duration = Duration::from_millis(100);

/// Tokio's locks by name, in one process.
#[derive(Debug)]
pub(super) struct Map {
    /// Whether a name is looked up each time that its lock is taken.
    looks_up: bool,
    mutexes: Mutexes,
    rw_locks: StdMutex<HashMap<String, Arc<RwLock<()>>>>,
}

type Mutexes = Arc<StdMutex<HashMap<String, Arc<Mutex<()>>>>>;

impl Map {
    pub(super) async fn connect(looks_up: bool) -> Result<Self, Failed> {
        Ok(Self { looks_up, mutexes: Arc::default(), rw_locks: StdMutex::default() })
    }
}

fn named(mutexes: &Mutexes, name: &str) -> Arc<Mutex<()>> {
    let mut known = mutexes.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get(name) {
        Some(mutex) => Arc::clone(mutex),
        None => Arc::clone(known.entry(name.to_owned()).or_default()),
    }
}

#[derive(Debug)]
pub(super) enum Local {
    Named(Mutexes, String),
    Alone(Arc<Mutex<()>>),
    Read(Arc<RwLock<()>>),
    Write(Arc<RwLock<()>>),
}

#[derive(Debug)]
#[expect(dead_code, reason = "a guard is there to be dropped")]
pub(super) enum LocalGuard {
    Alone(OwnedMutexGuard<()>),
    Read(OwnedRwLockReadGuard<()>),
    Write(OwnedRwLockWriteGuard<()>),
}

impl Library for Map {
    type Lock = Local;

    async fn lock(&self, name: &str, wanted: Use) -> Result<Local, Failed> {
        match wanted {
            Use::Alone if self.looks_up => {
                return Ok(Local::Named(Arc::clone(&self.mutexes), name.to_owned()));
            }
            Use::Alone => return Ok(Local::Alone(named(&self.mutexes, name))),
            Use::Read | Use::Write => {}
            Use::Lead | Use::Poll => return Err(Failed::NoSuchThing),
        }
        let mut known = self.rw_locks.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::clone(known.entry(name.to_owned()).or_default());
        Ok(if wanted == Use::Read { Local::Read(lock) } else { Local::Write(lock) })
    }
}

impl Lock for Local {
    type Held = LocalGuard;

    async fn take(&mut self) -> Result<LocalGuard, Failed> {
        Ok(match self {
            Self::Named(mutexes, name) => LocalGuard::Alone(named(mutexes, name).lock_owned().await),
            Self::Alone(mutex) => LocalGuard::Alone(Arc::clone(mutex).lock_owned().await),
            Self::Read(lock) => LocalGuard::Read(Arc::clone(lock).read_owned().await),
            Self::Write(lock) => LocalGuard::Write(Arc::clone(lock).write_owned().await),
        })
    }

    async fn give_back(&mut self, _: LocalGuard) -> Result<(), Failed> {
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        match self {
            Self::Named(mutexes, name) => Ok(named(mutexes, name).try_lock().is_ok()),
            Self::Alone(mutex) => Ok(mutex.try_lock().is_ok()),
            _ => Err(Failed::NoSuchThing),
        }
    }
}

/// A row that is taken if its time is over, as ShedLock and its kind have it.
#[derive(Debug)]
pub(super) enum Row {
    Postgres(Box<PostgresRow>),
    Mysql(Mutex<Conn>),
}

pub(super) struct PostgresRow {
    client: Client,
    take: Statement,
    give_back: Statement,
    renew: Statement,
}

impl std::fmt::Debug for PostgresRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresRow").finish_non_exhaustive()
    }
}

/// A connection to the table of such rows.
pub(super) async fn row(url: &str) -> Result<Row, Failed> {
    let millis = lease().as_millis();
    if url.starts_with("postgres") {
        let client = postgres::connect(url).await?;
        let table =
            "CREATE TABLE IF NOT EXISTS polled (name text PRIMARY KEY, lock_until timestamptz NOT NULL)";
        postgres::make(&client, table).await?;
        let take = format!(
            "INSERT INTO polled VALUES ($1, now() + interval '{millis} ms') ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until WHERE polled.lock_until <= now()"
        );
        let renew =
            format!("UPDATE polled SET lock_until = now() + interval '{millis} ms' WHERE name = ANY($1)");
        let take = client.prepare(&take).await.map_err(Failed::because)?;
        let renew = client.prepare(&renew).await.map_err(Failed::because)?;
        let give_back = client.prepare("UPDATE polled SET lock_until = now() WHERE name = $1").await;
        let give_back = give_back.map_err(Failed::because)?;
        return Ok(Row::Postgres(Box::new(PostgresRow { client, take, give_back, renew })));
    }
    let mut conn = mysql::connect(url).await?;
    let table = "CREATE TABLE IF NOT EXISTS polled (name VARBINARY(512) PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_by BIGINT NOT NULL) ENGINE = InnoDB";
    conn.query_drop(table).await.map_err(Failed::because)?;
    Ok(Row::Mysql(Mutex::new(conn)))
}

impl Row {
    /// Whether it was free.
    pub(super) async fn take(&self, name: &str) -> Result<bool, Failed> {
        match self {
            Self::Postgres(row) => {
                let changed = row.client.execute(&row.take, &[&name]).await.map_err(Failed::because)?;
                Ok(changed == 1)
            }
            Self::Mysql(conn) => {
                let mut conn = conn.lock().await;
                let take = format!(
                    "UPDATE polled SET lock_until = TIMESTAMPADD(MICROSECOND, {}, UTC_TIMESTAMP(3)), locked_by = CONNECTION_ID() WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)",
                    lease().as_micros()
                );
                conn.exec_drop(take, (name,)).await.map_err(Failed::because)?;
                Ok(conn.affected_rows() == 1)
            }
        }
    }

    pub(super) async fn give_back(&self, name: &str) -> Result<(), Failed> {
        match self {
            Self::Postgres(row) => {
                row.client.execute(&row.give_back, &[&name]).await.map(drop).map_err(Failed::because)
            }
            Self::Mysql(conn) => {
                let give = "UPDATE polled SET lock_until = UTC_TIMESTAMP(3) WHERE name = ?";
                conn.lock().await.exec_drop(give, (name,)).await.map_err(Failed::because)
            }
        }
    }

    /// All of them in one statement.
    pub(super) async fn renew(&self, names: &[String]) -> Result<(), Failed> {
        match self {
            Self::Postgres(row) => {
                row.client.execute(&row.renew, &[&names]).await.map(drop).map_err(Failed::because)
            }
            Self::Mysql(conn) => {
                let renew = format!(
                    "UPDATE polled SET lock_until = TIMESTAMPADD(MICROSECOND, {}, UTC_TIMESTAMP(3)) WHERE locked_by = CONNECTION_ID()",
                    lease().as_micros()
                );
                conn.lock().await.query_drop(renew).await.map_err(Failed::because)
            }
        }
    }

    /// Makes a row of that name, if there is none.
    pub(super) async fn open(&self, name: &str) -> Result<(), Failed> {
        if let Self::Mysql(conn) = self {
            let insert = "INSERT IGNORE INTO polled VALUES (?, '2001-01-01', 0)";
            conn.lock().await.exec_drop(insert, (name,)).await.map_err(Failed::because)?;
        }
        Ok(())
    }
}

/// Rows that are asked for every 100 ms while somebody else has them.
#[derive(Debug)]
pub(super) struct PolledRow(String);

#[derive(Debug)]
pub(super) struct Polled {
    row: Row,
    name: String,
}

impl PolledRow {
    pub(super) async fn connect(url: &str) -> Result<Self, Failed> {
        Ok(Self(url.to_owned()))
    }
}

impl Library for PolledRow {
    type Lock = Polled;

    async fn lock(&self, name: &str, wanted: Use) -> Result<Polled, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        let row = row(&self.0).await?;
        row.open(name).await?;
        Ok(Polled { row, name: name.to_owned() })
    }
}

impl Lock for Polled {
    type Held = ();

    async fn take(&mut self) -> Result<(), Failed> {
        while !self.row.take(&self.name).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn give_back(&mut self, (): ()) -> Result<(), Failed> {
        self.row.give_back(&self.name).await
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        self.row.take(&self.name).await
    }
}

/// `GET_LOCK` of MySQL: no leases, no tokens, nothing committed; the lock ends with its connection.
#[derive(Debug)]
pub(super) struct GetLock(String);

#[derive(Debug)]
pub(super) struct Named {
    conn: Conn,
    name: String,
}

impl GetLock {
    pub(super) async fn connect(url: &str) -> Result<Self, Failed> {
        Ok(Self(url.to_owned()))
    }
}

impl Library for GetLock {
    type Lock = Named;

    async fn lock(&self, name: &str, wanted: Use) -> Result<Named, Failed> {
        if wanted != Use::Alone {
            return Err(Failed::NoSuchThing);
        }
        Ok(Named { conn: mysql::connect(&self.0).await?, name: name.to_owned() })
    }
}

impl Named {
    async fn get(&mut self, seconds: u32) -> Result<bool, Failed> {
        let got: Option<Option<u8>> = self
            .conn
            .exec_first("SELECT GET_LOCK(?, ?)", (&self.name, seconds))
            .await
            .map_err(Failed::because)?;
        Ok(got.flatten() == Some(1))
    }
}

impl Lock for Named {
    type Held = ();

    async fn take(&mut self) -> Result<(), Failed> {
        while !self.get(10).await? {}
        Ok(())
    }

    async fn give_back(&mut self, (): ()) -> Result<(), Failed> {
        self.conn.exec_drop("DO RELEASE_LOCK(?)", (&self.name,)).await.map_err(Failed::because)
    }

    async fn attempt(&mut self) -> Result<bool, Failed> {
        self.get(0).await
    }
}

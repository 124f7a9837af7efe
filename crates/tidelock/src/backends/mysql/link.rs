//! Connections to the server. MySQL answers one question after the other on each, so a client has a few, and
//! each is lent to one call at a time.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mysql_async::{Conn, Row, Value, prelude::Queryable};
use tokio::sync::Semaphore;

use super::{
    MysqlConfig,
    errors::{classify, classify_connecting, code, is_broken, is_missing, is_rolled_back},
    fitness::{Fitness, UPTIME, VARIABLES, WSREP},
    schema,
};
use crate::{
    backend::{Failure, FailureKind},
    backends::unanswered::Asking,
};

/// How many calls a client has under way.
pub(super) const CONNECTIONS: usize = 8;

/// How long a connection may take to be made and checked, and how long what locks need may take to be put into the
/// database, by this client or another.
const CONNECT: Duration = Duration::from_secs(5);
const ENSURE: Duration = Duration::from_secs(45);

/// How often a call is made that is known to have changed nothing, or that means the same once.
const TRIES: u32 = 8;

/// Nothing of the server's or the user's settings changes what calls mean. A line is never locked for long.
const SESSION: &str = "SET NAMES binary, SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 2, SESSION wait_timeout = 28800, SESSION group_concat_max_len = 1048576";
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// The way to the server.
pub(super) struct Link {
    config: MysqlConfig,
    turns: Semaphore,
    spare: Mutex<Vec<Conn>>,
    fitness: Mutex<Fitness>,
}

impl Link {
    pub(super) fn new(config: MysqlConfig) -> Self {
        Self {
            config,
            turns: Semaphore::new(CONNECTIONS),
            spare: Mutex::default(),
            fitness: Mutex::default(),
        }
    }

    pub(super) fn config(&self) -> &MysqlConfig {
        &self.config
    }

    /// What should be mended about the server.
    pub(super) fn concerns(&self) -> Vec<String> {
        lock(&self.fitness).concerns(self.config.longest_ttl)
    }

    /// Whether the server may forget what it confirmed.
    pub(super) fn forgets(&self) -> bool {
        lock(&self.fitness).forgets().is_some()
    }

    /// Whether the connection that listens is woken.
    pub(super) fn note_deaf(&self, is_deaf: bool) {
        lock(&self.fitness).is_deaf = is_deaf;
    }

    /// Opens a connection and looks whether the server is fit for locks.
    pub(super) async fn connect(&self) -> Result<Conn, Failure> {
        let late = |limit: Duration| {
            Failure::unreachable(format!(
                "no connection to {} within {limit:?}: mend host and port in the URL, or look at the server",
                self.config.address
            ))
        };
        let opening = tokio::time::timeout(CONNECT, self.open()).await;
        let mut conn = opening.unwrap_or_else(|_| Err(late(CONNECT)))?;
        let ensuring = tokio::time::timeout(ENSURE, schema::ensure(&mut conn)).await;
        ensuring.unwrap_or_else(|_| Err(late(ENSURE)))?;
        Ok(conn)
    }

    async fn open(&self) -> Result<Conn, Failure> {
        let failed = |error| classify_connecting(&error);
        let mut conn = Conn::new(self.config.opts.clone()).await.map_err(failed)?;
        conn.query_drop(SESSION).await.map_err(failed)?;
        conn.query_drop(ISOLATION).await.map_err(failed)?;
        let question = format!("SELECT @@global.{}", VARIABLES.join(", @@global."));
        let row: Option<Row> = conn.query_first(question).await.map_err(failed)?;
        let value = |index| row.as_ref().and_then(|row| row.get::<String, _>(index)).unwrap_or_default();
        let variables = VARIABLES.iter().enumerate().map(|(index, name)| (*name, value(index)));
        let wsrep: Result<Option<String>, _> = conn.query_first(format!("SELECT @@global.{WSREP}")).await;
        let wsrep = match wsrep {
            Ok(wsrep) => wsrep.unwrap_or_default(),
            // It does not know it.
            Err(error) if code(&error) == 1193 => String::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Fitness::read(variables.chain([(WSREP, wsrep)]));
        if found.forgets().is_some() {
            let uptime: Option<(String, u64)> = conn.query_first(UPTIME).await.map_err(failed)?;
            found.runs_for(uptime.map_or(0, |(_, seconds)| seconds));
        }
        found.check(self.config.longest_ttl)?;
        {
            let mut known = lock(&self.fitness);
            found.is_deaf = known.is_deaf;
            *known = found;
        }
        Ok(conn)
    }

    /// Makes a call. It is made again where nothing was changed, and where a connection that was used before
    /// turns out to be closed: a call that is repeated means the same once.
    pub(super) async fn call(&self, text: &'static str, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        self.call_for(text, values, None).await
    }

    /// The same, for a claim for which the call may be under way for longer than anybody waits.
    pub(super) async fn call_for(
        &self,
        text: &'static str,
        values: Vec<Value>,
        mut asking: Option<&mut Asking<'_>>,
    ) -> Result<Vec<Row>, Failure> {
        let turn = self.turns.acquire().await;
        let _turn = turn.map_err(|_| Failure::unreachable("the client is closed"))?;
        // Whether an earlier try may have changed something.
        let mut heard = false;
        let known = |failure: Failure, heard: bool| match failure.kind {
            FailureKind::Unreachable if heard => Failure::unknown(failure.reason),
            _ => failure,
        };
        for _ in 1..TRIES {
            let spare = lock(&self.spare).pop();
            let is_new = spare.is_none();
            let mut conn = match spare {
                Some(conn) => conn,
                None => self.connect().await.map_err(|failure| known(failure, heard))?,
            };
            if let Some(asking) = &mut asking {
                asking.sent();
            }
            let answer = conn.exec(text, values.clone()).await;
            if let Some(asking) = &mut asking {
                asking.ended(answer.as_ref().err().map(|error| classify(error).kind));
            }
            let error = match answer {
                Ok(rows) => {
                    lock(&self.spare).push(conn);
                    return Ok(rows);
                }
                Err(error) => error,
            };
            let failure = classify(&error);
            if is_broken(&error) {
                // The others are of the same age.
                lock(&self.spare).clear();
                if is_new {
                    return Err(known(failure, heard));
                }
                heard |= failure.kind == FailureKind::Unknown;
            } else if is_missing(&error) {
                // A new connection puts it there again, if it may.
                lock(&self.spare).clear();
                if is_new {
                    return Err(known(failure, heard));
                }
            } else {
                lock(&self.spare).push(conn);
                if !is_rolled_back(&error) {
                    return Err(known(failure, heard));
                }
            }
        }
        Err(known(Failure::unreachable("others had the line of this lock for too long: try again"), heard))
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?})", self.config)
    }
}

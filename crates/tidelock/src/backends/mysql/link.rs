//! Connections to the server. MySQL answers one question after the other on each, so each is lent to one call at a time. A
//! client has one for its calls, and a few more only while calls take long.

use std::{fmt, io, sync::Mutex, time::Duration};

use mysql_async::{Conn, Error, Params, Row, Value, prelude::Queryable};
use tokio::sync::{Notify, Semaphore};

use super::{
    errors::{classify, classify_connecting, code, conclude, is_broken, is_missing, is_rolled_back},
    fitness::{Fitness, UPTIME, VARIABLES, WSREP},
    schema,
    settings::MysqlSettings,
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{
        failures::{client_is_closed, in_doubt},
        mutex::lock,
        provider,
        unanswered::Asking,
    },
    clock::{Clock, Moment},
};

/// How many calls a client has under way.
pub(super) const CONNECTIONS: usize = 8;

/// How long a call waits for a connection that another call has, before it opens one more: longer than most calls take.
const PATIENCE: Duration = Duration::from_millis(2);

/// Of the connections that were not used for so long, one stays open.
const UNUSED: Duration = Duration::from_secs(5);

/// How long a connection may take to be made and checked, and how long what locks need may take to be put into the
/// database, by this client or another.
const CONNECT: Duration = Duration::from_secs(5);
const ENSURE: Duration = Duration::from_secs(45);

/// How often a call is made that is known to have changed nothing, or that means the same once.
const TRIES: u32 = 7;

/// Nothing of the server's or the user's settings changes what calls mean. A line is never locked for long. A commit that
/// began the next transaction (`completion_type`) would leave later grants without theirs. MySQL reads the last as a comment.
const SESSION: &str = "SET NAMES binary, SESSION character_set_results = utf8mb4, SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION completion_type = 0, SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 10, SESSION wait_timeout = 28800, SESSION group_concat_max_len = 1048576, SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, SESSION sql_select_limit = 18446744073709551615 /*M!, SESSION max_statement_time = 0 */";
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE";

/// How much a server may answer to one call. A line of all the waiters that a server has connections for is less.
const LARGEST_ANSWER: usize = 64 << 20;

/// What a call was answered.
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// Whether an earlier try may have changed something.
    pub(super) is_repeated: bool,
}

/// The way to the server.
pub(super) struct Link {
    config: MysqlSettings,
    clock: Clock,
    turns: Semaphore,
    /// Those that no call has, the one that was used last at the end.
    spare: Mutex<Vec<Spare>>,
    /// One has come back.
    back: Notify,
    fitness: Mutex<Fitness>,
}

struct Spare {
    conn: Conn,
    since: Moment,
}

impl Link {
    pub(super) fn new(config: MysqlSettings) -> Self {
        Self {
            config,
            clock: Clock::machine(),
            turns: Semaphore::new(CONNECTIONS),
            spare: Mutex::default(),
            back: Notify::new(),
            fitness: Mutex::default(),
        }
    }

    pub(super) fn config(&self) -> &MysqlSettings {
        &self.config
    }

    /// Problems found in the server.
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
                "no connection to {} within {limit:?}: correct the host and port in the URL, or look at the server",
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
        let failed = classify_connecting;
        if self.config.opts.ssl_opts().is_some() {
            provider::ensure();
        }
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

    /// A connection for a call that has a turn. Nothing: it has to open one.
    async fn borrow(&self) -> Option<Conn> {
        let mut patience = std::pin::pin!(tokio::time::sleep(PATIENCE));
        loop {
            let back = self.back.notified();
            if let Some(spare) = lock(&self.spare).pop() {
                return Some(spare.conn);
            }
            if self.turns.available_permits() + 1 >= CONNECTIONS {
                // No other call is under way.
                return None;
            }
            tokio::select! {
                () = back => {}
                () = &mut patience => return None,
            }
        }
    }

    fn give_back(&self, conn: Conn) {
        lock(&self.spare).push(Spare { conn, since: self.clock.now() });
        self.back.notify_one();
    }

    /// Closes connections that are left over from a time when calls took long.
    pub(super) fn close_unused(&self) {
        let now = self.clock.now();
        let mut spare = lock(&self.spare);
        let old = spare.iter().take_while(|spare| now.since(spare.since) >= UNUSED).count();
        let unused = old.min(spare.len().saturating_sub(1));
        let closed: Vec<_> = spare.drain(..unused).collect();
        // Closing them is not for others to wait for.
        drop(spare);
        drop(closed);
    }

    /// Makes a call. It is made again where nothing was changed, and where a connection that was used before
    /// turns out to be closed: a call that is repeated means the same once.
    pub(super) async fn call(&self, text: &'static str, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        Ok(self.call_for(text, values, None).await?.rows)
    }

    /// The same, for a claim for which the call may be under way for longer than anybody waits.
    pub(super) async fn call_for(
        &self,
        text: &'static str,
        values: Vec<Value>,
        asking: Option<&mut Asking<'_>>,
    ) -> Result<Answer, Failure> {
        self.call_up_to(TRIES, text, values, asking).await
    }

    /// Makes a call once: a line that somebody keeps locked for long is an error soon.
    pub(super) async fn call_once(
        &self,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Failure> {
        Ok(self.call_up_to(1, text, values, None).await?.rows)
    }

    async fn call_up_to(
        &self,
        tries: u32,
        text: &'static str,
        values: Vec<Value>,
        mut asking: Option<&mut Asking<'_>>,
    ) -> Result<Answer, Failure> {
        let turn = self.turns.acquire().await;
        let _turn = turn.map_err(|_| client_is_closed())?;
        // Whether an earlier try may have changed something.
        let mut heard = false;
        let known = |failure: Failure, heard: bool| match failure.kind {
            FailureKind::Unreachable if heard => in_doubt(failure),
            _ => failure,
        };
        for _ in 0..tries {
            let spare = self.borrow().await;
            let is_new = spare.is_none();
            let mut conn = match spare {
                Some(conn) => conn,
                None => self.connect().await.map_err(|failure| known(failure, heard))?,
            };
            let called = exec(&mut conn, text, values.clone());
            let answer = match &mut asking {
                Some(asking) => asking.send(called, conclude).await,
                None => called.await,
            };
            let error = match answer {
                Ok(rows) => {
                    self.give_back(conn);
                    return Ok(Answer { rows, is_repeated: heard });
                }
                Err(error) => error,
            };
            let kind = conclude(&error).kind;
            if is_broken(&error) {
                // The others are of the same age.
                lock(&self.spare).clear();
                if is_new {
                    return Err(known(classify(error), heard));
                }
                heard |= kind == FailureKind::Unknown;
            } else if is_missing(&error) {
                // A new connection puts it there again, if it may.
                lock(&self.spare).clear();
                if is_new {
                    return Err(known(classify(error), heard));
                }
            } else if is_rolled_back(&error) {
                self.give_back(conn);
            } else {
                // Not used again: a statement that was ended from outside leaves its transaction open, and the next grant
                // would be part of it, answered and not committed.
                return Err(known(classify(error), heard));
            }
        }
        Err(known(Failure::unreachable("others had the line of this lock for too long: try again"), heard))
    }
}

/// Makes a call and takes in what is answered, within bounds: a server that is broken does not fill the memory.
pub(super) async fn exec(
    conn: &mut Conn,
    text: &str,
    values: impl Into<Params> + Send,
) -> Result<Vec<Row>, Error> {
    let mut result = conn.exec_iter(text, values).await?;
    let (mut rows, mut size) = (Vec::new(), 0);
    while let Some(row) = result.next().await? {
        size += (0..row.len()).map(|index| row.as_ref(index).map_or(0, size_of)).sum::<usize>();
        if size > LARGEST_ANSWER {
            return Err(io::Error::other(format!("the answer is larger than {LARGEST_ANSWER} bytes")).into());
        }
        rows.push(row);
    }
    // An error that follows the rows says that they do not count.
    result.drop_result().await?;
    Ok(rows)
}

fn size_of(value: &Value) -> usize {
    std::mem::size_of::<Value>()
        + match value {
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({:?})", self.config)
    }
}

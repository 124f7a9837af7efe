//! Connections for transactions: each is used by one at a time, because what a connection watches and
//! has queued is a state of the connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{
    AsyncConnectionConfig, Client, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    errors::classify_connecting,
    link::{CONNECT, Link},
};
use crate::backend::Failure;

/// How many transactions a client has under way at one server.
pub(super) const CONNECTIONS: usize = 8;

/// Connections to one server, made when they are needed.
#[derive(Debug)]
pub(super) struct Pool {
    turns: Arc<Semaphore>,
    spare: Mutex<Vec<Spare>>,
}

#[derive(Debug)]
struct Spare {
    connection: MultiplexedConnection,
    /// Of the link's connection beside which it was made: when that is over, so is this.
    number: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(CONNECTIONS)), spare: Mutex::default() }
    }
}

impl Pool {
    /// Waits until one more connection may be used.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.map_err(|_| Failure::unreachable("the client is closed"))
    }

    /// A connection that was used before.
    pub(super) fn spare(&self, number: u64) -> Option<MultiplexedConnection> {
        let mut spare = self.lock();
        spare.retain(|spare| spare.number == number);
        spare.pop().map(|spare| spare.connection)
    }

    pub(super) fn put(&self, connection: MultiplexedConnection, number: u64) {
        self.lock().push(Spare { connection, number });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped without [`give_back`](Self::give_back), as by a call that is
/// cancelled, it is closed: nobody finds half a transaction on it.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) link: Arc<Link>,
    pub(super) connection: MultiplexedConnection,
    pub(super) number: u64,
    /// Whether it was made just now: an old one may have been closed by the server since its last use.
    pub(super) is_new: bool,
    pub(super) turn: OwnedSemaphorePermit,
}

impl Lent {
    /// Sends commands at once and waits for all answers, of which any may be an error.
    pub(super) async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let silence = self.link.await_answer();
        let answers = self.connection.req_packed_commands(commands, 0, commands.len()).await;
        silence.over(&answers);
        answers
    }

    /// Nothing is under way on it.
    pub(super) fn give_back(self) {
        let Self { link, connection, number, turn, .. } = self;
        link.take_back(connection, number);
        // Only now: whoever is next finds it.
        drop(turn);
    }
}

/// Makes a connection on which transactions work.
pub(super) async fn connect(client: &Client) -> Result<MultiplexedConnection, Failure> {
    let failed = |error| classify_connecting(&error);
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.map_err(failed)?;
    // Where MULTI is refused, what is sent behind it would be done at once, watched or not.
    let mut empty = redis::pipe();
    empty.cmd("MULTI").cmd("EXEC");
    for answer in connection.req_packed_commands(&empty, 0, empty.len()).await.map_err(failed)? {
        answer.extract_error().map_err(failed)?;
    }
    Ok(connection)
}

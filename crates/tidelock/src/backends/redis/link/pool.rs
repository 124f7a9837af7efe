//! Connections for transactions: each is used by one at a time, because what a connection watches and
//! has queued is a state of the connection.

use std::sync::{Arc, Mutex};

use redis::{
    AsyncConnectionConfig, Client, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{super::errors::classify_connecting, Server, open::CONNECT};
use crate::{
    backend::Failure,
    backends::shared::{
        failures::{client_is_closed, no_answer_within},
        mutex::lock,
    },
};

/// How many transactions a client has under way at one server.
pub(crate) const CONNECTIONS: usize = 8;

/// Connections to one server, made when they are needed.
#[derive(Debug)]
pub(super) struct Pool {
    turns: Arc<Semaphore>,
    spare: Mutex<Vec<Spare>>,
}

#[derive(Debug)]
struct Spare {
    connection: MultiplexedConnection,
    /// Of the server's connection beside which it was made: when that is over, so is this.
    number: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(CONNECTIONS)), spare: Mutex::default() }
    }
}

impl Pool {
    /// Waits until one more connection may be used.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.map_err(|_| client_is_closed())
    }

    /// A connection that was used before.
    fn spare(&self, number: u64) -> Option<MultiplexedConnection> {
        let mut spare = lock(&self.spare);
        spare.retain(|spare| spare.number == number);
        spare.pop().map(|spare| spare.connection)
    }

    fn put(&self, connection: MultiplexedConnection, number: u64) {
        lock(&self.spare).push(Spare { connection, number });
    }
}

impl Server {
    /// Lends a connection that nobody else uses, for a transaction.
    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent, Failure> {
        let turn = self.pool.turn().await?;
        // First the one on which pushes are heard: its server was found fit, and what a transaction
        // gives to this client must not be told to nobody.
        let (_, number) = self.connection().await?;
        if let Some(connection) = self.pool.spare(number) {
            return Ok(Lent { server: Arc::clone(self), connection, number, is_new: false, turn });
        }
        let asked = self.silence.asked();
        let made = tokio::time::timeout(CONNECT, connect(&self.client)).await;
        let connection = match made {
            Ok(made) => {
                asked.answered(&made);
                made
            }
            Err(_) => Err(no_answer_within(CONNECT)),
        };
        let connection = connection.map_err(|failure| self.named(failure))?;
        Ok(Lent { server: Arc::clone(self), connection, number, is_new: true, turn })
    }
}

/// A connection in use. Dropped without [`give_back`](Self::give_back), as by a call that is
/// cancelled, it is closed: nobody finds half a transaction on it.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) server: Arc<Server>,
    connection: MultiplexedConnection,
    pub(crate) number: u64,
    /// Whether it was made just now: an old one may have been closed by the server since its last use.
    pub(crate) is_new: bool,
    turn: OwnedSemaphorePermit,
}

impl Lent {
    /// Sends commands at once and waits for all answers, of which any may be an error.
    pub(crate) async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let asked = self.server.silence.asked();
        let answers = self.connection.req_packed_commands(commands, 0, commands.len()).await;
        asked.answered(&answers);
        answers
    }

    /// Nothing is under way on it.
    pub(crate) fn give_back(self) {
        let Self { server, connection, number, turn, .. } = self;
        server.pool.put(connection, number);
        // Only now: the next one finds it.
        drop(turn);
    }
}

/// Makes a connection on which transactions work.
async fn connect(client: &Client) -> Result<MultiplexedConnection, Failure> {
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

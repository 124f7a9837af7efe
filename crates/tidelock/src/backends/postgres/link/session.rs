//! A session of the server, and the statements in it.

use tokio::task::AbortHandle;
use tokio_postgres::{
    Client, Error, Row, Statement,
    types::{ToSql, Type},
};

use super::{Link, Verb};

/// A session of the server, over a connection that is open.
#[derive(Debug)]
pub(in crate::backends::postgres) struct Session {
    pub(super) client: Client,
    number: u64,
    /// Nothing where statements may go to another session than those before them.
    pub(super) prepared: Vec<Statement>,
    /// Behind a pooler: whose turn it is.
    pub(super) turn: Option<tokio::sync::Mutex<()>>,
    driver: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

impl Session {
    pub(super) fn new(client: Client, number: u64, driver: AbortHandle) -> Self {
        Self { client, number, prepared: Vec::new(), turn: None, driver }
    }

    /// Another number, another session.
    pub(in crate::backends::postgres) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Ends it now. Statements that are under way fail.
    pub(super) fn end(&self) {
        self.driver.abort();
    }

    /// Behind a pooler waits until no other statement is under way.
    ///
    /// A statement is several messages. When the answer to one comes while half of the next has been passed on, PgBouncer takes
    /// the session for free, and passes the other half on to another one, where it meets a statement of somebody else.
    pub(super) async fn alone<'a>(&'a self, link: &'a Link) -> Option<Alone<'a>> {
        let turn = self.turn.as_ref()?.lock().await;
        Some(Alone { link, number: self.number, _turn: turn })
    }

    pub(super) async fn ask(
        &self,
        number: usize,
        verb: &Verb,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        match self.prepared.get(number) {
            Some(statement) => self.client.query(statement, values).await,
            None => {
                let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                    values.iter().copied().zip(verb.types.iter().cloned()).collect();
                self.client.query_typed(verb.text, &typed).await
            }
        }
    }
}

/// The only statement under way. Dropped before its answer came it takes the connection along: nobody knows how far it is.
pub(super) struct Alone<'a> {
    link: &'a Link,
    number: u64,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Alone<'_> {
    pub(super) fn answered(mut self) {
        // There is no connection with this number.
        self.number = 0;
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.link.cut(self.number, "a question was given up before its answer came");
    }
}

//! Opening a connection: the server is checked, the schema installed if it is not there, and the session prepared.

use std::{
    future::poll_fn,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::future::try_join_all;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, tls::NoTlsStream};

use super::{
    super::{
        codec::{self, channel},
        errors::{classify, classify_connecting},
        fitness::{Fitness, QUESTION, ReadOnly},
        owners::Found,
        schema::{INSTALLING, schema},
        settings::Address,
    },
    Link,
    session::Session,
    stream::{self, Stream},
};
use crate::{
    backend::{ClientId, Failure, FailureKind},
    backends::shared::{
        attend,
        failures::no_answer_within,
        kept::Kept,
        units::{from_micros, natural},
    },
};

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// How long the schema may take to be installed by the client that comes first.
pub(super) const INSTALL: Duration = Duration::from_secs(20);

impl Link {
    /// A session of a server that can grant, and what the server says about itself.
    pub(super) async fn make(
        self: &Arc<Self>,
        address: &Address,
        number: u64,
    ) -> Result<(Session, Fitness), Failure> {
        let (client, process, driver) = tokio::time::timeout(CONNECT, self.log_in(address, number))
            .await
            .unwrap_or_else(|_| Err(no_answer_within(CONNECT)))?;
        let mut session = Session::new(client, number, driver);
        let first = classify_connecting;
        let (mut fitness, found) = session.question(&format!("BEGIN; {QUESTION}; COMMIT"), process).await?;
        fitness.check(self.config.advisory)?;
        session.turn = fitness.is_pooled.then(Default::default);
        let owner = self.config.owner.as_deref();
        if !found.is_installed(owner)? {
            session.install(owner).await?;
        }
        if !fitness.is_pooled {
            session.client.batch_execute(&settings(&fitness, self.client)).await.map_err(first)?;
        }
        let hello = session.client.query_typed_one("SELECT quiet_left FROM tidelock.hello()", &[]).await;
        fitness.quiet_left = from_micros(hello.and_then(|row| row.try_get(0)).map_err(first)?);
        fitness.kept = session.kept().await;
        if !fitness.is_pooled {
            // One after the other, without waiting for answers.
            let preparing = self.verbs.iter().map(|verb| session.client.prepare_typed(verb.text, verb.types));
            session.prepared = try_join_all(preparing).await.map_err(first)?;
        }
        Ok((session, fitness))
    }

    async fn log_in(
        self: &Arc<Self>,
        address: &Address,
        number: u64,
    ) -> Result<(Client, i32, AbortHandle), Failure> {
        let (stream, process) = stream::open(&self.config, address).await?;
        let logged_in = self.config.login.connect_raw(stream, NoTls).await;
        let (client, connection) = logged_in.map_err(classify_connecting)?;
        let driver = attend(drive(connection, Arc::downgrade(self), number));
        Ok((client, process.load(Ordering::Relaxed), driver))
    }
}

/// Carries what is asked and answered over a connection until it ends, and hands on what comes unasked.
async fn drive(mut connection: Connection<Stream, NoTlsStream>, link: Weak<Link>, number: u64) {
    let why = loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(told))) => {
                let Some(link) = link.upgrade() else { return };
                if let Some(key) = codec::followed(told.payload()) {
                    link.tell_followers(key);
                } else if let Some(news) = codec::news(told.payload(), link.prefix()) {
                    link.tell(news);
                }
            }
            // Notices are for people who type statements.
            Some(Ok(_)) => {}
            Some(Err(error)) => break classify(error).reason,
            None => break "the connection was lost".into(),
        }
    };
    if let Some(link) = link.upgrade() {
        link.cut(number, &why);
    }
}

impl Session {
    /// Asks the server what it is, and what is in the database.
    async fn question(&self, text: &str, process: i32) -> Result<(Fitness, Found), Failure> {
        let answer = self.client.simple_query(text).await;
        let read = answer.and_then(|answer| Fitness::read(&answer, process));
        let read = read.map_err(classify_connecting)?;
        read.ok_or_else(|| Failure::unreachable("the server does not say what it is"))
    }

    /// What the database keeps of names. A role may lack the right to know: nothing else depends on it.
    async fn kept(&self) -> Option<Kept> {
        let text = "SELECT bytes, names, remembered FROM tidelock.kept()";
        let row = self.client.query_typed_one(text, &[]).await.ok()?;
        let number = |index| row.try_get::<_, i64>(index).ok();
        Some(Kept {
            bytes: natural(number(0)?),
            names: u64::try_from(number(1)?).ok(),
            remembered: from_micros(number(2)?),
            oldest: None,
        })
    }

    /// Makes the schema, or brings it up to date, unless somebody else just did.
    async fn install(&self, owner: Option<&str>) -> Result<(), Failure> {
        // One at a time, and only the first: what it makes must not be changed under the hands of those who use it already.
        // Without limits on waiting, whatever the role has: the first client installs for all.
        let first = classify_connecting;
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_catalog.pg_advisory_xact_lock({INSTALLING})"
        );
        self.client.batch_execute(&begin).await.map_err(first)?;
        if !self.question(QUESTION, 0).await?.1.is_installed(owner)? {
            self.client.batch_execute(&schema()).await.map_err(|error| {
                let failure = classify_connecting(error);
                let fix = "have an administrator run what `tidelock schema --print postgres` prints";
                match failure.kind {
                    FailureKind::Denied => {
                        let reason = format!(
                            "the schema tidelock is missing or old and cannot be installed ({}): {fix}",
                            failure.reason
                        );
                        Failure { cause: failure.cause, ..Failure::denied(reason) }
                    }
                    _ => failure,
                }
            })?;
        }
        self.client.batch_execute("COMMIT").await.map_err(first)
    }
}

/// What holds for all statements of a session that is ours alone.
fn settings(fitness: &Fitness, client: ClientId) -> String {
    // A row that somebody keeps locked must not keep all other locks waiting, and a server that is busy must not
    // end a session that only listens. Nothing depends on what the role or the database has for its sessions.
    let idle = if fitness.version >= 140_000 { "SET idle_session_timeout = 0;" } else { "" };
    // Rows are found by index. A plan that was made while a table was small would go on reading all of it.
    // Where the configuration of the server says it, it is for us as well, also when it says it later: so only if needed.
    let writes = match fitness.read_only {
        ReadOnly::Role => "SET default_transaction_read_only = off;",
        _ => "",
    };
    format!(
        "SET search_path = pg_catalog, pg_temp; SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off; {writes} SET statement_timeout = '30s'; SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = 0; SET jit = off; SET enable_seqscan = off; SET tidelock.client = '{:016x}'; {idle} LISTEN {}",
        client.get(),
        channel(client)
    )
}

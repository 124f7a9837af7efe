//! The connection that listens: it sleeps in the server until somebody who made a claim of this client a holder ends its
//! sleep with `KILL QUERY`.
//!
//! The client that wakes another has committed before. So either the listener sees the grant before it falls asleep, or it is woken.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use mysql_async::{Conn, Row, Value, prelude::Queryable};

use super::{
    codec::column,
    errors::{classify, code},
    link::exec,
    store::MysqlStore,
};
use crate::{
    backend::{ClaimId, ClientId, Failure, News, What},
    backends::shared::{
        answers::grant,
        following::{Following, Heard, Tell},
    },
    clock::Clock,
    model::name::Name,
};

/// How long it sleeps when nobody wakes it; shorter where nobody can.
const SLEEP: Duration = Duration::from_secs(10);
const DOZE: Duration = Duration::from_millis(100);

/// How long it is tried to wake it, and the pause between two tries.
const REHEARSAL: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

/// What is kept between two calls of `wait`.
#[derive(Debug)]
pub(crate) struct Wake {
    listener: Listener,
    following: Following,
}

impl Wake {
    pub(super) fn new(heard: Tell, following: Following) -> Self {
        let listener = Listener {
            clock: Clock::machine(),
            sleeper: None,
            known: Known::default(),
            news: VecDeque::new(),
            heard,
        };
        Self { listener, following }
    }

    /// The next thing that happens to a claim unasked. Meanwhile names are followed.
    pub(super) async fn next(&mut self, store: &Arc<MysqlStore>) -> Result<News, Failure> {
        let news = tokio::select! {
            biased;
            news = self.listener.next(store) => news,
            never = self.following.run(store) => match never {},
        };
        if news.is_err() {
            // Nobody listens only when the client is gone.
            let _ = self.listener.heard.send(Heard::Cut);
        }
        news
    }
}

/// The connection that listens, and what it heard.
#[derive(Debug)]
struct Listener {
    clock: Clock,
    sleeper: Option<Sleeper>,
    known: Known,
    news: VecDeque<News>,
    heard: Tell,
}

/// What the client was told and the server still tells of.
#[derive(Debug, Default)]
struct Known {
    /// Claims that became holders.
    claims: BTreeSet<u64>,
    /// The numbers of names that are followed, and changed.
    names: BTreeSet<u64>,
}

impl Known {
    /// As `tidelock_listen` reads it.
    fn text(&self) -> String {
        let claims = self.claims.iter().map(ToString::to_string);
        claims.chain(self.names.iter().map(|number| format!("f{number}"))).collect::<Vec<_>>().join(",")
    }
}

/// The connection that sleeps in the server, and for how long if nobody wakes it.
#[derive(Debug)]
struct Sleeper {
    conn: Conn,
    sleep: Duration,
}

impl Listener {
    /// The next thing that happens to a claim unasked.
    async fn next(&mut self, store: &MysqlStore) -> Result<News, Failure> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            store.link.close_unused();
            // A caller that stops waiting in the middle closes the connection.
            let Some(mut sleeper) = self.sleeper.take() else {
                self.sleeper = Some(self.open(store).await?);
                // That may have brought news.
                continue;
            };
            if let Some(rows) = listen(&mut sleeper.conn, store.client, sleeper.sleep, &self.known).await? {
                self.note(&mut sleeper.conn, store.client, &rows).await?;
            }
            self.sleeper = Some(sleeper);
        }
    }

    /// Opens the connection, and finds out whether it can be woken.
    async fn open(&mut self, store: &MysqlStore) -> Result<Sleeper, Failure> {
        let mut conn = store.link.connect().await?;
        let began = self.clock.now();
        let known = std::mem::take(&mut self.known);
        let rows = {
            let mut asleep = std::pin::pin!(listen(&mut conn, store.client, REHEARSAL, &known));
            loop {
                let bell = Value::from(format!("{},", store.client.get()));
                let mut ring = std::pin::pin!(store.link.call("CALL tidelock_ring(?)", vec![bell]));
                let woke = tokio::select! {
                    woke = &mut asleep => Some(woke),
                    rung = &mut ring => rung.map(|_| None)?,
                };
                if let Some(rows) = woke {
                    // To its end: a call that is given up costs a connection.
                    ring.await?;
                    break rows?;
                }
                tokio::select! {
                    rows = &mut asleep => break rows?,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        };
        // A call that was ended by the bell was woken, however long a busy server took for it.
        let woken = rows.is_none() || self.clock.now().since(began) < REHEARSAL;
        store.link.note_deaf(!woken);
        if let Some(rows) = rows {
            self.note(&mut conn, store.client, &rows).await?;
        }
        Ok(Sleeper { conn, sleep: if woken { SLEEP } else { DOZE } })
    }

    /// Notes what the server told.
    async fn note(&mut self, conn: &mut Conn, client: ClientId, rows: &[Row]) -> Result<(), Failure> {
        let (mut known, mut evicted) = (Known::default(), Vec::new());
        for row in rows {
            let kind: String = column(row, 0)?;
            let claim: u64 = column(row, 1)?;
            let name: Vec<u8> = column(row, 2)?;
            let Ok(name) = Name::new(&String::from_utf8_lossy(&name)) else { continue };
            let what = match &*kind {
                "E" => {
                    evicted.push(claim);
                    let reason: Vec<u8> = column(row, 6)?;
                    What::Evicted(String::from_utf8_lossy(&reason).into())
                }
                // The number of a name that is followed.
                "F" => {
                    known.names.insert(claim);
                    if !self.known.names.contains(&claim) {
                        let _ = self.heard.send(Heard::Changed(name.as_str().to_owned()));
                    }
                    continue;
                }
                _ => {
                    known.claims.insert(claim);
                    if self.known.claims.contains(&claim) {
                        continue;
                    }
                    What::Granted(grant(column(row, 3)?, column(row, 4)?, column(row, 5)?))
                }
            };
            self.news.push_back(News { name, id: ClaimId::new(client, claim), what });
        }
        self.known = known;
        for claim in evicted {
            // Only now: the bell for what was just read may ring while this is called, and end it after the change.
            match conn.exec_drop("CALL tidelock_heard(?, ?)", (client.get(), claim)).await {
                Err(error) if code(&error) != 1317 => return Err(classify(error)),
                // If it is still there it is told twice.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Listens for a while. Nothing: it was woken in a moment in which it could not say what for.
async fn listen(
    conn: &mut Conn,
    client: ClientId,
    sleep: Duration,
    known: &Known,
) -> Result<Option<Vec<Row>>, Failure> {
    let values: Vec<Value> = vec![client.get().into(), sleep.as_secs_f64().into(), known.text().into()];
    let asked = exec(conn, "CALL tidelock_listen(?, ?, ?)", values).await;
    match asked {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if code(&error) == 1317 => Ok(None),
        Err(error) => Err(classify(error)),
    }
}

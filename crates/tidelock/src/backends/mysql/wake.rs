//! The connection that listens: it sleeps in the server until somebody who made a claim of this client a holder ends its
//! sleep with `KILL QUERY`.
//!
//! Whoever wakes has committed before. So either the listener sees the grant before it falls asleep, or it is woken.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use mysql_async::{Conn, Error, Row, Value, prelude::Queryable};

use super::{
    errors::{classify, code},
    store::{MysqlStore, column, grant},
};
use crate::{
    backend::{ClaimId, ClientId, Failure, News, What},
    clock::{Clock, Moment},
    name::Name,
};

/// How long it sleeps when nobody wakes it; shorter where nobody can.
const SLEEP: Duration = Duration::from_secs(10);
const DOZE: Duration = Duration::from_millis(100);

/// How long it is tried to wake it, and the pause between two tries.
const REHEARSAL: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

/// How often it says that it is still there.
const PRESENT: Duration = Duration::from_secs(3_600);

/// What is kept between two calls of `wait`.
#[derive(Debug)]
pub(super) struct Listener {
    clock: Clock,
    ear: Option<Ear>,
    /// Claims that became holders and were told so, and that the server still tells of.
    known: BTreeSet<u64>,
    news: VecDeque<News>,
}

#[derive(Debug)]
struct Ear {
    conn: Conn,
    sleep: Duration,
    present: Moment,
}

impl Listener {
    pub(super) fn new() -> Self {
        Self { clock: Clock::machine(), ear: None, known: BTreeSet::new(), news: VecDeque::new() }
    }

    /// The next thing that happens to a claim unasked.
    pub(super) async fn wait(&mut self, store: &MysqlStore) -> Result<News, Failure> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            // Whoever stops waiting in the middle closes the connection.
            let Some(mut ear) = self.ear.take() else {
                self.ear = Some(self.open(store).await?);
                // Something may have been heard by that.
                continue;
            };
            if self.clock.now().since(ear.present) > PRESENT {
                attend(&mut ear.conn, store.client).await?;
                ear.present = self.clock.now();
            }
            if let Some(rows) = listen(&mut ear.conn, store.client, ear.sleep, &self.known).await? {
                self.hear(&mut ear.conn, store.client, &rows).await?;
            }
            self.ear = Some(ear);
        }
    }

    /// Opens the connection, and finds out whether it can be woken.
    async fn open(&mut self, store: &MysqlStore) -> Result<Ear, Failure> {
        let mut conn = store.link.connect().await?;
        attend(&mut conn, store.client).await?;
        let began = self.clock.now();
        let known = std::mem::take(&mut self.known);
        let heard = {
            let mut asleep = std::pin::pin!(listen(&mut conn, store.client, REHEARSAL, &known));
            loop {
                let bell = Value::from(format!("{},", store.client.get()));
                let ring = async {
                    let rung = store.link.call("CALL tidelock_ring(?)", vec![bell]).await;
                    tokio::time::sleep(AGAIN).await;
                    rung
                };
                tokio::select! {
                    heard = &mut asleep => break heard?,
                    rung = ring => rung.map(drop)?,
                }
            }
        };
        let woken = self.clock.now().since(began) < REHEARSAL;
        store.link.note_deaf(!woken);
        if let Some(rows) = heard {
            self.hear(&mut conn, store.client, &rows).await?;
        }
        Ok(Ear { conn, sleep: if woken { SLEEP } else { DOZE }, present: began })
    }

    /// Notes what the server told.
    async fn hear(&mut self, conn: &mut Conn, client: ClientId, rows: &[Row]) -> Result<(), Failure> {
        let (mut known, mut evicted) = (BTreeSet::new(), Vec::new());
        for row in rows {
            let kind: String = column(row, 0)?;
            let claim: u64 = column(row, 1)?;
            let name: Vec<u8> = column(row, 2)?;
            let Ok(name) = Name::new(&String::from_utf8_lossy(&name)) else { continue };
            let what = if kind == "E" {
                evicted.push(claim);
                let reason: Vec<u8> = column(row, 6)?;
                What::Evicted(String::from_utf8_lossy(&reason).into())
            } else {
                known.insert(claim);
                if self.known.contains(&claim) {
                    continue;
                }
                What::Granted(grant(column(row, 3)?, column(row, 4)?, column(row, 5)?))
            };
            self.news.push_back(News { name, id: ClaimId::new(client, claim), what });
        }
        self.known = known;
        for claim in evicted {
            // Only now: the bell for what was just read may ring while this is called, and end it after the change.
            match conn.exec_drop("CALL tidelock_heard(?, ?)", (client.get(), claim)).await {
                Err(error) if code(&error) != 1317 => return Err(classify(&error)),
                // If it is still there it is told twice.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Says on which connection a client listens.
async fn attend(conn: &mut Conn, client: ClientId) -> Result<(), Failure> {
    conn.exec_drop("CALL tidelock_attend(?)", (client.get(),)).await.map_err(|error| classify(&error))
}

/// Listens for a while. Nothing: it was woken in a moment in which it could not say what for.
async fn listen(
    conn: &mut Conn,
    client: ClientId,
    sleep: Duration,
    known: &BTreeSet<u64>,
) -> Result<Option<Vec<Row>>, Failure> {
    let known: Vec<_> = known.iter().map(ToString::to_string).collect();
    let asked: Result<_, Error> = conn
        .exec("CALL tidelock_listen(?, ?, ?)", (client.get(), sleep.as_secs_f64(), known.join(",")))
        .await;
    match asked {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if code(&error) == 1317 => Ok(None),
        Err(error) => Err(classify(&error)),
    }
}

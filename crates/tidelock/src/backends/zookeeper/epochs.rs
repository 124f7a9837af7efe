//! The base of epochs: tokens grow though a server that lost its data counts transactions anew.
//!
//! An epoch is a base and the transaction that made the claim's node, added. The base is in the node `%epoch` below
//! the path of the URL, with the one before it: what was made before the node was last written has that one. So the
//! epoch follows from the transaction and from what is in the node, no matter which client works it out, and grows with transactions.
//!
//! Nobody asks for it with each lock. A session reads the node once for each connection and has it watched. What a
//! server says comes in order: had the base changed before a claim's node was made, its client would have heard so
//! before it hears of its node.
//!
//! A base is taken from the wall clock in µs when there is none, as after a loss of all data; when epochs are more than
//! an hour behind the clock, as with an old copy of the data; and when this client has seen a larger epoch.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use super::{
    errors::{BAD_VERSION, NO_NODE, NODE_EXISTS, ZkError},
    link::{
        session::{Answer, Session},
        wire::{self, Mode, Request},
    },
    store::{TRIES, ZookeeperStore},
};
use crate::{backends::shared::mutex::lock, clock::wall_micros};

/// What data of this form begin with.
const VERSION: &str = "tl1";
/// How far epochs may fall behind the wall clock, in µs.
const BEHIND: i64 = 3_600 * 1_000_000;
/// No clock is believed past this: later epochs would not fit into a token.
const LATEST: i64 = 1 << 52;

/// What a client knows of the base.
#[derive(Debug)]
pub(super) struct Epochs {
    pub(super) path: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    base: Option<Base>,
    /// The connection of each session on which the node is watched.
    watched: HashMap<u64, u64>,
    /// The largest epoch that a claim of this client got.
    largest: i64,
}

/// The base as it is in its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    number: i64,
    previous: i64,
    /// The transaction that wrote it.
    since: i64,
    version: i32,
}

/// What was asked before a claim is made.
#[must_use = "what is not awaited may not be sent"]
pub(super) struct Prepared {
    raised: Option<Answer>,
    read: Option<Answer>,
}

impl Epochs {
    pub(super) fn new(root: &str) -> Self {
        Self { path: format!("{root}/%epoch"), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// The node was written or deleted, as a session hears.
    pub(super) fn changed(&self, session: u64) {
        self.known().watched.remove(&session);
    }

    /// A session is over.
    pub(super) fn forget(&self, session: u64) {
        self.known().watched.remove(&session);
    }

    /// The largest epoch so far: a claim that is made from now on gets a larger one.
    pub(super) fn largest(&self) -> i64 {
        self.known().largest
    }

    /// The epoch of a transaction that a session heard of on a connection, if the base is watched there.
    fn of(&self, session: u64, connection: u64, zxid: i64) -> Option<i64> {
        let known = self.known();
        let is_current = connection != 0 && known.watched.get(&session) == Some(&connection);
        known.base.filter(|_| is_current).map(|base| base.at(zxid) + zxid)
    }

    /// The epoch of a transaction, for people; nothing while there is no base.
    pub(super) fn shown(&self, zxid: i64) -> Option<u64> {
        let base = self.known().base?.at(zxid);
        u64::try_from(base + zxid).ok()
    }

    /// What is in the node, as a session read it on a connection.
    fn take(&self, session: u64, connection: u64, base: Base) {
        let mut known = self.known();
        if known.base != Some(base) {
            known.watched.clear();
        }
        known.base = Some(base);
        known.watched.insert(session, connection);
    }

    /// What to write if epochs are behind the wall clock.
    fn behind(&self, zxid: i64) -> Option<(Vec<u8>, i32)> {
        let base = self.known().base?;
        let is_behind = zxid > 0 && wall() - (base.number + zxid) > BEHIND;
        is_behind.then(|| (data(wall() - zxid, base.number), base.version))
    }
}

impl Base {
    fn read(body: &[u8]) -> Result<Option<Self>, i32> {
        let (data, stat) = wire::data(body).map_err(|_| -1)?;
        let read = || {
            let mut words = std::str::from_utf8(&data).ok()?.split(' ');
            words.next().filter(|version| *version == VERSION)?;
            let mut number =
                || words.next()?.parse().ok().filter(|number: &i64| (1..=LATEST).contains(number));
            Some((number()?, number()?))
        };
        match read() {
            Some((number, previous)) => {
                Ok(Some(Self { number, previous, since: stat.mzxid, version: stat.version }))
            }
            None => Err(stat.version),
        }
    }

    /// The base of a transaction.
    fn at(&self, zxid: i64) -> i64 {
        if zxid > self.since { self.number } else { self.previous }
    }
}

impl ZookeeperStore {
    /// Asks for the base if it is not watched on this connection, and raises it if it is behind. To be called before a
    /// claim is made: what is asked first is answered first.
    pub(super) fn prepare_epochs(&self, session: &Session) -> Prepared {
        let path = &self.epochs.path;
        let raised = self.epochs.behind(session.zxid());
        let is_watched = self.epochs.of(session.key, session.connections(), 1).is_some();
        let must_read = raised.is_some() || !is_watched;
        let raised = raised.map(|(data, version)| session.ask(Request::set_data(path, &data, version)));
        Prepared { raised, read: must_read.then(|| session.ask(Request::get_data(path, true))) }
    }

    /// Remembers what was asked before.
    pub(super) async fn learn_epochs(&self, session: &Session, prepared: Prepared) {
        let Prepared { raised, read } = prepared;
        if let Some(raised) = raised {
            // Somebody else may have been first, or this client may not write it.
            let _ = raised.await;
        }
        if let Some(read) = read {
            let (read, connection) = read.on_connection().await;
            if let Ok(Ok(Some(base))) = read.map(|read| Base::read(&read)) {
                self.epochs.take(session.key, connection, base);
            }
        }
    }

    /// The epoch of a transaction that was heard of on a connection of a session.
    pub(super) async fn epoch_of(&self, session: &Session, mut on: u64, zxid: i64) -> Result<i64, ZkError> {
        let path = &self.epochs.path;
        for _ in 0..TRIES {
            if let Some(epoch) = self.epochs.of(session.key, on, zxid) {
                return Ok(epoch);
            }
            let (read, connection) = session.ask(Request::get_data(path, true)).on_connection().await;
            on = connection;
            match read.map(|read| Base::read(&read)) {
                Ok(Ok(Some(base))) => self.epochs.take(session.key, connection, base),
                Ok(Ok(None) | Err(-1)) => return Err(ZkError::garbled()),
                // Somebody wrote something else there.
                Ok(Err(version)) => self.raise_epochs(session, zxid, Some(version)).await?,
                Err(error) if error.is(NO_NODE) => self.raise_epochs(session, zxid, None).await?,
                Err(error) => return Err(error),
            }
        }
        Err(ZkError::Lost("the base of epochs changed all the time".into()))
    }

    /// Writes a base that is larger than all that this client knows of, and not behind the wall clock.
    async fn raise_epochs(&self, session: &Session, zxid: i64, version: Option<i32>) -> Result<(), ZkError> {
        let path = &self.epochs.path;
        let number = (wall() - zxid).max(self.epochs.largest() + 1 - zxid).max(1);
        let old = self.epochs.known().base.map_or(number, |base| base.number);
        // Where there was none, what was made before has the same: nobody can have had another.
        let written = match version {
            Some(version) => session.ask(Request::set_data(path, &data(number.max(old), old), version)).await,
            None => {
                let (data, acl) = (data(number, number), &self.config.acl);
                session.ask(Request::create(path, &data, acl, Mode::Persistent)).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(error) if error.is(BAD_VERSION) || error.is(NODE_EXISTS) || error.is(NO_NODE) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a claim that was made after `before` was the largest epoch has a larger one. If not, the server goes by
    /// an older copy of its data: the base is raised, and the claim has to be made once more.
    pub(super) async fn is_later(
        &self,
        session: &Session,
        before: i64,
        (zxid, epoch): (i64, i64),
    ) -> Result<bool, ZkError> {
        if epoch > before {
            let mut known = self.epochs.known();
            known.largest = known.largest.max(epoch);
            return Ok(true);
        }
        let version = self.epochs.known().base.map_or(-1, |base| base.version);
        self.raise_epochs(session, zxid, Some(version)).await?;
        Ok(false)
    }
}

fn data(number: i64, previous: i64) -> Vec<u8> {
    format!("{VERSION} {number} {previous}").into_bytes()
}

fn wall() -> i64 {
    i64::try_from(wall_micros()).unwrap_or(LATEST).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_before_a_base_has_the_one_before_it() {
        let base = Base { number: 900, previous: 500, since: 70, version: 1 };
        assert_eq!((base.at(69), base.at(71)), (500, 900));
    }

    #[test]
    fn a_base_counts_only_on_the_connection_on_which_it_is_watched() {
        let epochs = Epochs::new("/locks");
        assert_eq!(epochs.path, "/locks/%epoch");
        let base = Base { number: 900, previous: 500, since: 70, version: 1 };
        epochs.take(1, 3, base);
        assert_eq!((epochs.of(1, 3, 71), epochs.of(1, 4, 71), epochs.of(2, 3, 71)), (Some(971), None, None));
        epochs.changed(1);
        assert_eq!(epochs.of(1, 3, 71), None);
        // Another base is watched by the client that read it, and by no other.
        epochs.take(1, 3, base);
        epochs.take(2, 1, Base { number: 1_000, version: 2, ..base });
        assert_eq!((epochs.of(1, 3, 71), epochs.of(2, 1, 71)), (None, Some(1_071)));
    }

    #[test]
    fn epochs_that_are_far_behind_the_clock_are_raised() {
        let epochs = Epochs::new("");
        epochs.take(1, 1, Base { number: wall() - 2 * BEHIND, previous: 1, since: 1, version: 4 });
        let (data, version) = epochs.behind(5).unwrap();
        assert!(version == 4 && String::from_utf8(data).unwrap().starts_with("tl1 "));
        assert!(epochs.behind(2 * BEHIND).is_none() && epochs.behind(0).is_none());
    }
}

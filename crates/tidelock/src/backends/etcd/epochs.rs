//! The base of epochs: tokens grow though a restored snapshot takes revisions back.
//!
//! An epoch is a base and the create revision of the claim's key, added. The base is in the key `<prefix>%epoch`.
//! Every transaction that enters a claim requires that this key is as its client knows it, and writes the base into
//! the claim's value. So there is one base at each revision, and all clients see the same epoch of a claim. A base is
//! only ever replaced by one that is no smaller, so epochs grow in the order of revisions. No clock is part of that.
//!
//! A restored snapshot takes back revisions, claims and the base together. Then a base is needed with which epochs
//! are larger than all that were lost. It is taken from the wall clock in µs: a cluster does not reach a revision in
//! each µs, so epochs never run ahead of the clock. A client raises the base when
//!
//! 1. there is none;
//! 2. the cluster's id is not the one that the base was written for, or its raft term is smaller;
//! 3. raft has fewer entries beyond the revisions than when the base was written: in the life of a cluster each
//!    entry adds one revision or none, so their number only grows, and a restored cluster begins without entries;
//! 4. this client has seen a larger revision before;
//! 5. the epochs are more than an hour behind the wall clock: whatever the other signs missed.
//!
//! Signs 2 and 3 are looked for once on each connection, and a claim is entered only on a connection on which they
//! were: a server that is restored ends all connections. A proxy may hide that, so after a pause they are looked for
//! once more, together with the question.
//!
//! To raise it without need costs one transaction, and each client one question more.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    link::{Link, Missed},
    proto::{
        Compare, KeyValue, RangeRequest, RequestOp, ResponseHeader, StatusRequest, StatusResponse,
        TxnRequest, revision,
    },
};
use crate::{
    backend::{Failure, FailureKind},
    backends::shared::{mutex::lock, units::natural_or_most},
    clock::{Clock, Moment, wall_micros},
};

/// What records of this form begin with.
const VERSION: &str = "tl1";
/// How far epochs may fall behind the wall clock, in µs.
const BEHIND: i64 = 3_600 * 1_000_000;
/// No clock is believed past this: later epochs would not fit into a token.
const LATEST: i64 = 1 << 52;
/// No server behind a proxy goes back to a snapshot within this time.
const IDLE: Duration = Duration::from_millis(300);
/// How often a base is raised that others raise at the same time.
const TRIES: usize = 8;

/// A base as it is in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) number: i64,
    /// What the key has to be.
    pub(super) value: Vec<u8>,
    /// The connection on which that was made sure of, and on which claims are entered with it.
    pub(super) connection: u64,
}

/// What is in the key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    base: i64,
    cluster: u64,
    term: u64,
    /// How many entries raft had beyond the revisions, at least.
    spare: i64,
}

#[derive(Debug)]
pub(super) struct Epochs {
    key: Vec<u8>,
    link: Arc<Link>,
    clock: Clock,
    known: Mutex<Known>,
    raising: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    record: Option<Record>,
    /// The largest revision that was seen.
    revision: i64,
    /// No epoch that this client knows of is larger.
    epoch: i64,
    /// The cluster was restored from a snapshot, and nobody was told yet.
    was_restored: bool,
    /// The base has to be read again before it is used, and raised if it is of another life of the cluster.
    is_doubtful: bool,
    /// The connection of which the status was looked at.
    connection: u64,
    /// When an answer last came, without a pause since the cluster was looked at.
    heard: Moment,
}

impl Epochs {
    pub(super) fn new(key: Vec<u8>, link: Arc<Link>, clock: Clock) -> Self {
        Self { key, link, clock, known: Mutex::default(), raising: tokio::sync::Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Requires that the base is still the one with which a claim is written.
    pub(super) fn unchanged(&self, base: &Base) -> Compare {
        Compare::value_is(self.key.clone(), base.value.clone())
    }

    /// Reads the base, for a client that finds that it changed.
    pub(super) fn read(&self) -> RequestOp {
        RequestOp::range(self.key.clone(), Vec::new())
    }

    /// The largest revision so far: an answer to what is asked from now on has no smaller one.
    pub(super) fn before(&self) -> i64 {
        self.known().revision
    }

    /// An answer came. Says whether revisions went back since the question was asked: the cluster was restored.
    pub(super) fn saw(&self, before: i64, at: i64) -> bool {
        let mut known = self.known();
        if at < before {
            known.is_doubtful = true;
            return true;
        }
        known.see(at, self.clock.now());
        false
    }

    /// Looks at the cluster again after a pause, in which a server behind a proxy may have been restored. Says whether
    /// this is still the life of the cluster that the base is of.
    pub(super) async fn still_lives(&self, connection: u64) -> Result<bool, Failure> {
        let now = self.clock.now();
        let record = {
            let known = self.known();
            match &known.record {
                Some(record) if now.since(known.heard) > IDLE => record.clone(),
                _ => return Ok(true),
            }
        };
        let Some(status) = self.status(connection).await? else { return Ok(true) };
        let is_of = record.is_of(status.header.as_ref(), Some(&status));
        if is_of {
            self.known().heard = now;
        } else {
            self.doubt();
        }
        Ok(is_of)
    }

    async fn status(&self, connection: u64) -> Result<Option<StatusResponse>, Missed> {
        match self.link.ask_on(connection, StatusRequest {}).await {
            Ok(answered) => Ok(Some(answered.answer)),
            // Its user may not ask.
            Err(Missed::Failed(failure)) if failure.kind == FailureKind::Denied => Ok(None),
            Err(missed) => Err(missed),
        }
    }

    /// The base is not the expected one.
    pub(super) fn doubt(&self) {
        self.known().is_doubtful = true;
    }

    /// The base to write a claim with, read or raised if need be. The flag says that the cluster was restored from a
    /// snapshot since this client last asked.
    pub(super) async fn base(&self) -> Result<(Base, bool), Failure> {
        if let Some(base) = self.at_hand() {
            return Ok((base, false));
        }
        let _alone = self.raising.lock().await;
        if let Some(base) = self.at_hand() {
            return Ok((base, false));
        }
        if let Some(base) = self.greeted() {
            return Ok((base, false));
        }
        for _ in 0..TRIES {
            let connection = self.link.connection().await?.number;
            let before = self.before();
            let found = match self.look(connection).await {
                Err(Missed::Moved { .. }) => continue,
                found => found?,
            };
            if let Some(taken) = self.accept(&found, before, connection) {
                return Ok(taken);
            }
            let raised = self.raised(&found);
            let expected = match found.kv {
                Some(kv) => Compare::value_is(self.key.clone(), kv.value),
                None => Compare::absent(self.key.clone()),
            };
            let write = TxnRequest {
                compare: vec![expected],
                success: vec![RequestOp::put(self.key.clone(), raised.value(), 0)],
                failure: Vec::new(),
            };
            let answer = self.link.ask(write).await?.answer;
            let at = revision(answer.header.as_ref());
            let mut known = self.known();
            // What a majority just agreed on is not late, as a read may be.
            if at < before + i64::from(answer.succeeded) {
                known.was_restored = true;
                known.revision = at;
            }
            // If others came in between it is read again: two of ours may have raised it at once.
            known.take(None);
        }
        Err(Failure::unknown("others raise the base of epochs all the time"))
    }

    /// Takes the base as it was found, if claims may be entered with it.
    fn accept(&self, found: &Found, before: i64, connection: u64) -> Option<(Base, bool)> {
        let (at, now) = (found.revision(), self.clock.now());
        let mut known = self.known();
        // Known from before, and not of this life of the cluster: that one ended.
        known.was_restored |= !known.record.iter().all(|record| found.is_of(record));
        let is_good = |record: &Record| at >= before && found.is_of(record) && !record.is_behind(at);
        let record = found.record().filter(is_good)?;
        if known.was_restored {
            known.revision = at;
        }
        let base = record.base(connection);
        known.take(Some(record));
        known.heard = now;
        known.see(at, now);
        (known.is_doubtful, known.connection) = (false, connection);
        Some((base, mem::take(&mut known.was_restored)))
    }

    /// What a connection says about the base and about the life of the cluster.
    async fn look(&self, connection: u64) -> Result<Found, Missed> {
        // First the entries, then the revisions: what is written must not be more than is true.
        let first = self.status(connection).await?;
        let read = RangeRequest::one(self.key.clone());
        let answer = self.link.ask_on(connection, read).await?.answer;
        let (header, kv) = (answer.header, answer.kvs.into_iter().next());
        let mut found = Found { last: first.clone(), first, header, kv };
        let known = self.known().record.clone();
        if !found.record().iter().chain(&known).all(|record| found.is_of(record)) {
            // A member may have been late when it was first asked; it is not after it has read the key.
            found.last = self.status(connection).await?;
        }
        Ok(found)
    }

    fn at_hand(&self) -> Option<Base> {
        let connection = self.link.number();
        let known = self.known();
        let record =
            known.record.as_ref().filter(|_| !known.is_doubtful && known.connection == connection)?;
        (!record.is_behind(known.revision)).then(|| record.base(connection))
    }

    /// The base as a member said it when it was connected, if that is all that is needed.
    fn greeted(&self) -> Option<Base> {
        let connection = self.link.number();
        let greeting = self.link.greeting(connection)?;
        let mut known = self.known();
        if known.is_doubtful || known.connection == connection {
            return None;
        }
        let header = greeting.base.header.as_ref();
        let record = Record::read(&greeting.base.kvs.first()?.value)?;
        let is_of = |record: &Record| record.is_of(header, Some(&greeting.status));
        if !is_of(&record) || !known.record.iter().all(is_of) || record.is_behind(revision(header)) {
            return None;
        }
        let base = record.base(connection);
        known.take(Some(record));
        known.connection = connection;
        Some(base)
    }

    /// A base with which epochs are larger than all that may have been lost.
    fn raised(&self, found: &Found) -> Record {
        let at = found.revision();
        let old = found.record().map_or(0, |record| record.base);
        let base = (wall() - at).max(self.known().epoch + 1 - at).max(old).max(1);
        let (header, first) = (found.header.as_ref(), found.first.as_ref());
        Record {
            base,
            cluster: header.map_or(0, |header| header.cluster_id),
            term: header.map_or(0, |header| header.raft_term),
            spare: first.map_or(i64::MIN, |status| natural_or_most(status.raft_applied_index) - at),
        }
    }
}

/// The base as a connection said it, with the status of its member before and after.
struct Found {
    first: Option<StatusResponse>,
    last: Option<StatusResponse>,
    header: Option<ResponseHeader>,
    kv: Option<KeyValue>,
}

impl Found {
    fn revision(&self) -> i64 {
        revision(self.header.as_ref())
    }

    fn record(&self) -> Option<Record> {
        Record::read(&self.kv.as_ref()?.value)
    }

    fn is_of(&self, record: &Record) -> bool {
        record.is_of(self.header.as_ref(), self.last.as_ref())
    }
}

impl Known {
    fn see(&mut self, at: i64, now: Moment) {
        // An answer after a pause may be from another life of the cluster.
        if now.since(self.heard) <= IDLE {
            self.heard = now;
        }
        self.revision = self.revision.max(at);
        let base = self.record.as_ref().map_or(0, |record| record.base);
        self.epoch = self.epoch.max(base + self.revision);
    }

    fn take(&mut self, record: Option<Record>) {
        self.record = record;
    }
}

impl Record {
    fn base(&self, connection: u64) -> Base {
        Base { number: self.base, value: self.value(), connection }
    }

    fn value(&self) -> Vec<u8> {
        let Self { base, cluster, term, spare } = self;
        format!("{VERSION} {base} {cluster:x} {term} {spare}").into_bytes()
    }

    fn read(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let base = words.next()?.parse().ok().filter(|base| (1..=LATEST).contains(base))?;
        let cluster = u64::from_str_radix(words.next()?, 16).ok()?;
        let (term, spare) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let record = Self { base, cluster, term, spare };
        // What is compared is what would be written.
        (record.value() == value).then_some(record)
    }

    /// Whether it was written in this life of the cluster, as far as can be told.
    fn is_of(&self, header: Option<&ResponseHeader>, status: Option<&StatusResponse>) -> bool {
        let same =
            header.is_some_and(|header| header.cluster_id == self.cluster && header.raft_term >= self.term);
        // The server reads the revision first, so this is no less than is true.
        let spare =
            status.map(|status| natural_or_most(status.raft_index) - revision(status.header.as_ref()));
        same && spare.is_none_or(|spare| spare >= self.spare)
    }

    fn is_behind(&self, at: i64) -> bool {
        wall() - (self.base + at) > BEHIND
    }
}

fn wall() -> i64 {
    natural_or_most(wall_micros()).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record { base: 1_700_000_000_000_000, cluster: 0xab, term: 7, spare: -3 };

    fn header(cluster_id: u64, raft_term: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, raft_term, revision, ..ResponseHeader::default() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        assert_eq!(Record::read(&RECORD.value()), Some(RECORD));
        for bad in [
            "",
            "tl1",
            "tl2 1 a 1 1",
            "tl1 0 a 1 1",
            "tl1 01 a 1 1",
            "tl1 1 a 1 1 1",
            "tl1 9999999999999999 a 1 1",
        ] {
            assert_eq!(Record::read(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn another_life_of_the_cluster_is_recognised() {
        let status = |raft_index, at| StatusResponse {
            raft_index,
            header: Some(header(0xab, 7, at)),
            ..StatusResponse::default()
        };
        let is_of = |header, status: Option<&StatusResponse>| RECORD.is_of(Some(&header), status);
        assert!(is_of(header(0xab, 7, 9), None) && is_of(header(0xab, 8, 9), Some(&status(6, 9))));
        assert!(!is_of(header(0xac, 7, 9), None), "another cluster");
        assert!(!is_of(header(0xab, 6, 9), None), "terms began anew");
        assert!(!is_of(header(0xab, 7, 9), Some(&status(5, 9))), "entries began anew");
    }
}

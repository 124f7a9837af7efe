//! The verbs on lines.
//!
//! A change happens under the flock of the name's shard and takes a few microseconds. Bells are
//! rung after it, outside: a client that does not answer is dead, so its claims are let go in another
//! change, and so on until a living claim holds.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    boot::survivors,
    bucket::BUCKETS,
    claims::Claims,
    codec::{Ring, hash, records, write_only_holder, write_record},
    follow::Outbox,
    order::{ends_with_its_client, ids, moved},
    session::{Life, Session},
    shard::{Change, Judge, Section, Shard},
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, ClientId, Entered, Failure, Follows, Grant, Leave, Left, LockView, News, Scope,
        Share, Standing,
    },
    clock::{Clock, wall_micros},
    model::line::{Effect, Line, PartHold, StoreTime},
    model::name::Name,
};

const SHARDS: usize = 64;
/// How often a shard that is in use is tried again at once: a change takes a few microseconds.
const SPINS: usize = 16;
/// How long a shard may be in use before somebody is told that it stands still.
const STALLED: Duration = Duration::from_secs(1);

/// Bells to ring, and for which claims.
pub(super) type Rings = Vec<(ClaimId, Ring)>;

/// The files of a directory, as one client sees them.
#[derive(Debug)]
pub(super) struct FileStore {
    pub(super) directory: PathBuf,
    pub(super) client: ClientId,
    /// This start of the machine.
    boot: u64,
    pub(super) clock: Clock,
    pub(super) shards: Box<[Shard]>,
    pub(super) session: Session,
    /// Others cannot find this client any more: it must not take anything.
    cut_off: AtomicBool,
    pub(super) claims: Mutex<Claims>,
    pub(super) outbox: Mutex<Outbox>,
    /// Tells the wake that there is something to do.
    pub(super) nudge: Notify,
    pub(super) follows: Follows,
}

impl FileStore {
    pub(super) fn new(directory: &Path, session: Session, client: ClientId, boot: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            client,
            boot,
            clock: Clock::machine(),
            shards: (0..SHARDS).map(|index| Shard::new(directory, index)).collect(),
            session,
            cut_off: AtomicBool::new(false),
            claims: Mutex::default(),
            outbox: Mutex::default(),
            nudge: Notify::new(),
            follows: Follows::new(),
        }
    }

    /// Enters. [`None`]: the shard is in use, try again.
    pub(super) fn try_enter(&self, claim: &Arc<Claim>, ask: Ask) -> Result<Option<Entered>, Failure> {
        if self.cut_off.load(Ordering::Relaxed) {
            return Err(self.removed());
        }
        let name = &claim.name;
        let mut in_line = Vec::new();
        let enters = |line: &mut Line, at, effects: &mut Vec<Effect>| {
            let before = line.len();
            let answer = line.enter(claim, ask, at, effects);
            match answer {
                // Noted before anybody else can move the line.
                Entered::Waiting(_) => self.note(claim, line),
                Entered::Busy => in_line
                    .extend(line.parts().filter(ends_with_its_client).map(|part| part.claim.id.client())),
                _ => {}
            }
            let unchanged = matches!(answer, Entered::Busy | Entered::Refused(_)) && line.len() == before;
            (answer, unchanged)
        };
        let (shard, bucket) = self.bucket_of(name);
        let changed = begin(shard).and_then(|section| {
            let Some(mut section) = section else { return Ok(None) };
            let at = self.now();
            if self.is_displaced(shard, at) {
                return Err(self.removed());
            }
            if claim.share == Share::Exclusive
                && let Some(grant) = self.enter_empty(&mut section, bucket, claim, at)?
            {
                return Ok(Some((Entered::Held(grant), Rings::new())));
            }
            if ask == Ask::Queue
                && let Some(place) = self.queue(&mut section, bucket, claim, at)?
            {
                return Ok(Some((Entered::Waiting(place), Rings::new())));
            }
            self.change(section, bucket, name, at, enters).map(Some)
        });
        if !matches!(changed, Ok(Some((Entered::Waiting(_), _)))) {
            self.forget(claim.id);
        }
        let Some((answer, rings)) = changed? else { return Ok(None) };
        self.follow(name, rings);
        if answer == Entered::Busy {
            // The holder may be dead without anybody having noticed.
            let dead = self.dead_among(in_line);
            if !dead.is_empty() && self.let_go(name, dead) {
                return self.try_enter(claim, ask);
            }
        }
        Ok(Some(answer))
    }

    /// Nearly every claim enters a line that nobody is in: it holds, and nobody has to hear of it.
    /// [`None`]: somebody is in line.
    fn enter_empty(
        &self,
        section: &mut Section<'_>,
        bucket: u64,
        claim: &Claim,
        at: StoreTime,
    ) -> Result<Option<Grant>, Failure> {
        section.change(bucket, self, |payload, floor, out| {
            for record in records(payload) {
                if record.name == claim.name.as_str().as_bytes() {
                    return Change::Keep(None);
                }
                out.extend_from_slice(record.whole);
            }
            let hold = PartHold::of_first(floor, at);
            write_only_holder(out, claim, hold);
            Change::Write(Some(Grant::new(hold.epoch, claim.ttl, 0)), hold.epoch)
        })
    }

    /// Renews. [`None`]: the shard is in use, try again.
    pub(super) fn try_renew(&self, claim: &Arc<Claim>) -> Result<Option<Standing>, Failure> {
        let (shard, _) = self.bucket_of(&claim.name);
        if !self.session.is_found() {
            self.cut_off.store(true, Ordering::Relaxed);
        }
        // Clients that use the directory now do not know this claim, or take it for a dead one's.
        if shard.was_replaced() || self.cut_off.load(Ordering::Relaxed) {
            self.forget(claim.id);
            return Ok(Some(Standing::Gone));
        }
        let changed = self.try_change(&claim.name, |line, at, effects| {
            let standing = line.renew(claim.id, at, effects);
            if matches!(standing, Standing::Waiting(_)) {
                self.note(claim, line);
            }
            (standing, false)
        });
        let Some((standing, rings)) = changed? else { return Ok(None) };
        if !matches!(standing, Standing::Waiting(_)) {
            self.forget(claim.id);
        }
        self.follow(&claim.name, rings);
        Ok(Some(standing))
    }

    /// Leaves. [`None`]: the shard is in use, try again.
    pub(super) fn try_leave(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<Option<Left>, Failure> {
        self.forget(id);
        let (shard, bucket) = self.bucket_of(name);
        let Some(mut section) = begin(shard)? else { return Ok(None) };
        // Nearly every claim leaves a line that it has for itself.
        let look = shard.is_look_due(self.clock.now()) || self.cut_off.load(Ordering::Relaxed);
        // Out of files that others do not use any more: nobody here knows what was granted in the meantime.
        let displaced = look && shard.was_replaced();
        let alone = section.change(bucket, self, |payload, _, out| {
            let mut epoch = None;
            for record in records(payload) {
                if *why == Leave::Done && record.name == name.as_str().as_bytes() && record.is_only(id) {
                    epoch = record.last_epoch();
                } else {
                    out.extend_from_slice(record.whole);
                }
            }
            epoch.map_or(Change::Keep(false), |epoch| Change::Write(true, epoch))
        })?;
        if alone {
            return Ok(Some(Left::from_was_there(!displaced)));
        }
        let leave = |line: &mut Line, at, effects: &mut Vec<Effect>| {
            let before = line.len();
            let was_there = line.leave(id, why.clone(), at, effects);
            (was_there, line.len() == before)
        };
        let at = self.now();
        if *why == Leave::Done
            && let Some(ring) = self.hand_over(&mut section, bucket, name, id, at)?
        {
            drop(section);
            self.follow(name, vec![ring]);
            return Ok(Some(Left::from_was_there(!displaced)));
        }
        let (was_there, rings) = self.change(section, bucket, name, at, leave)?;
        self.follow(name, rings);
        Ok(Some(Left::from_was_there(was_there && !displaced)))
    }

    /// What people see.
    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let at = self.now();
        let mut views = Vec::new();
        match scope {
            Scope::Names(names) => {
                for name in names {
                    let (shard, bucket) = self.bucket_of(name);
                    let payload = self.read(shard, bucket).await?;
                    views.extend(find(&payload, name).map(|line| line.look(name, at)));
                }
            }
            Scope::All => {
                for shard in &self.shards {
                    for bucket in shard.used()? {
                        let payload = self.read(shard, bucket).await?;
                        for record in records(&payload) {
                            let Some(name) = record.read_name() else { continue };
                            views.extend(record.read_line(&name).map(|line| line.look(&name, at)));
                        }
                    }
                    tokio::task::yield_now().await;
                }
                views.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
        views.retain(|view| !view.holders.is_empty() || !view.waiters.is_empty());
        Ok(views)
    }

    /// Tries again until the shard of a name is free, for a while.
    pub(super) async fn until_free<T>(
        &self,
        name: &Name,
        mut attempt: impl FnMut() -> Result<Option<T>, Failure> + Send,
    ) -> Result<T, Failure> {
        let end = self.clock.now() + STALLED;
        for round in 0.. {
            if let Some(answer) = attempt()? {
                return Ok(answer);
            }
            if self.clock.now() > end {
                return Err(self.stalled(self.bucket_of(name).0));
            }
            if round < 8 {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        unreachable!("the loop has no end of its own")
    }

    /// The shard and the bucket of a name.
    pub(super) fn bucket_of(&self, name: &Name) -> (&Shard, u64) {
        let hash = hash(0, name.as_str().as_bytes());
        (&self.shards[(hash >> 58) as usize % SHARDS], (hash >> 20) % BUCKETS)
    }

    /// Whether others use other files by now, or cannot find this client. Looked at now and then only.
    fn is_displaced(&self, shard: &Shard, at: StoreTime) -> bool {
        if shard.is_look_due(at.lease) && (shard.was_replaced() || !self.session.is_found()) {
            // It stays so.
            self.cut_off.store(true, Ordering::Relaxed);
        }
        self.cut_off.load(Ordering::Relaxed)
    }

    fn now(&self) -> StoreTime {
        StoreTime { lease: self.clock.now(), micros: wall_micros() }
    }

    fn removed(&self) -> Failure {
        Failure::denied(format!(
            "the files in {} were removed or replaced while this client used them: connect again",
            self.directory.display()
        ))
    }

    fn stalled(&self, shard: &Shard) -> Failure {
        let who = shard
            .inode()
            .and_then(writer)
            .map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
        Failure::unreachable(format!(
            "{} has been in use by {who} for {STALLED:?}: let it go on (kill -CONT) or end it",
            shard.path().display()
        ))
    }

    /// A payload, read without the lock if that is possible.
    async fn read(&self, shard: &Shard, bucket: u64) -> Result<Vec<u8>, Failure> {
        for _ in 0..100 {
            if let Some(payload) = shard.peek(bucket, self)? {
                return Ok(payload);
            }
            // Both copies do not fit: under the lock it shows whether that is because they change.
            if let Some(mut section) = begin(shard)? {
                return section.change(bucket, self, |payload, _, _| Change::Keep(payload.to_vec()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err(self.stalled(shard))
    }

    pub(super) fn try_change<T>(
        &self,
        name: &Name,
        change: impl FnOnce(&mut Line, StoreTime, &mut Vec<Effect>) -> (T, bool),
    ) -> Result<Option<(T, Rings)>, Failure> {
        let (shard, bucket) = self.bucket_of(name);
        let Some(section) = begin(shard)? else { return Ok(None) };
        let at = self.now();
        self.change(section, bucket, name, at, change).map(Some)
    }

    /// Changes a line: says the answer, and which bells to ring now that the change is done. The
    /// change says whether the line is as it was. The time was read under the lock, so that later
    /// changes have later times.
    fn change<T>(
        &self,
        mut section: Section<'_>,
        bucket: u64,
        name: &Name,
        at: StoreTime,
        change: impl FnOnce(&mut Line, StoreTime, &mut Vec<Effect>) -> (T, bool),
    ) -> Result<(T, Rings), Failure> {
        let changed = section.change(bucket, self, |payload, floor, out| {
            let mut line = Line::from_parts(floor, []);
            for record in records(payload) {
                if record.name != name.as_str().as_bytes() {
                    out.extend_from_slice(record.whole);
                } else if let Some(found) = record.read_line(name) {
                    line = found;
                } else {
                    return Change::Keep(None);
                }
            }
            let before: Vec<_> = ids(&line);
            let held = line.holders();
            let mut effects = Vec::new();
            let (answer, unchanged) = change(&mut line, at, &mut effects);
            if unchanged && effects.is_empty() {
                return Change::Keep(Some((answer, Vec::new())));
            }
            let told = effects
                .into_iter()
                .map(|Effect { id, what }| (id, Ring::News(News { name: name.clone(), id, what })));
            let mut rings: Rings = told.collect();
            if before.len() > 1 {
                rings.extend(moved(&before, held, &line).into_iter().map(|id| (id, Ring::Moved(id))));
            }
            if !line.is_empty() {
                write_record(out, name, &line);
            }
            Change::Write(Some((answer, rings)), line.last_epoch())
        })?;
        changed.ok_or_else(|| {
            Failure::denied(format!(
                "{} has a line that cannot be read: stop the programs that use it and remove the file",
                self.bucket_of(name).0.path().display()
            ))
        })
    }
}

impl Judge for FileStore {
    fn boot(&self) -> u64 {
        self.boot
    }

    fn survivors(&self, payload: &[u8]) -> Vec<u8> {
        survivors(payload, self.clock.now(), |client| {
            client == self.client || self.session.probe(client) == Life::Alive
        })
    }
}

/// Begins a change of a shard, if it is free within a moment.
fn begin(shard: &Shard) -> Result<Option<Section<'_>>, Failure> {
    for _ in 0..SPINS {
        if let Some(section) = shard.try_begin()? {
            return Ok(Some(section));
        }
        std::thread::yield_now();
    }
    Ok(None)
}

pub(super) fn find(payload: &[u8], name: &Name) -> Option<Line> {
    records(payload).find(|record| record.name == name.as_str().as_bytes())?.read_line(name)
}

/// The process that has the flock of a file, as the kernel lists it. Costs nothing until it is asked.
fn writer(inode: u64) -> Option<u32> {
    // The list is read in pieces while others change it: what was skipped is there the next time.
    (0..8).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let held = locks.lines().find(|line| {
            let mut words = line.split_whitespace();
            let kind = words.nth(1);
            // "->" marks somebody who waits for it.
            kind == Some("FLOCK") && words.any(|word| word.rsplit(':').next() == Some(&inode.to_string()))
        })?;
        held.split_whitespace().nth(4)?.parse().ok().filter(|pid| *pid > 0)
    })
}

//! The verbs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::{join, join_all};
use tokio::sync::Notify;

use super::{
    codec::{Seen, Space, has_own_lease, value},
    leases::Leases,
    proto::{
        Compare, KeyValue, LeaseTimeToLiveRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, revision,
    },
    rules::{Order, Ride, capacity, order, ride},
    servers::{Missed, Shared},
    table::{Stand, Table},
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, ClaimView, Entered, Failure, FailureKind, Grant, Leave, LockView, Place,
        Refusal, Scope, Share, Standing,
    },
    clock::{Clock, wall_micros},
    name::Name,
};

/// How many lines one transaction reads; a server takes 128 operations unless it was told otherwise.
const LINES: usize = 100;
/// How often something is tried again that others came in between of.
const TRIES: usize = 8;
/// For how long a question that was given up may still arrive.
const LATEST: Duration = Duration::from_secs(300);

/// The locks of an installation, as one client sees them.
#[derive(Debug)]
pub(super) struct EtcdStore {
    pub(super) space: Space,
    pub(super) servers: Shared,
    pub(super) leases: Leases,
    pub(super) clock: Clock,
    pub(super) table: Mutex<Table>,
    /// Told when the listener has something to do that no watch told it of.
    pub(super) stirred: Notify,
}

/// What becomes of a claim in line.
enum Settled {
    Stands(Stand),
    /// Its owner holds this, which is too little for it.
    TooSmall(Share),
}

/// A line as it was read, and at which revision.
type Reading = (Vec<Seen>, i64);

impl EtcdStore {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        for _ in 0..TRIES {
            let before = self.table().lease_of(claim);
            let lease = match before {
                Some(lease) => lease,
                None => self.leases.for_claim(claim).await?,
            };
            // Not answered until it is: this call may be dropped at any await.
            let key = self.table().asking(&self.space, claim, lease);
            let entered = self.enter_under(claim, ask, &key, lease).await;
            if !matches!(&entered, Err(Missed::Failed(failure)) if failure.kind == FailureKind::Unknown) {
                self.table().answered(claim);
            }
            match entered {
                Err(Missed::Lease) => {
                    self.leases.forget(lease);
                    self.table().lease_is_over(claim);
                }
                Err(Missed::Failed(failure)) => {
                    self.table().forget_unasked(claim, self.clock.now());
                    return Err(failure);
                }
                Ok(entered @ (Entered::Busy | Entered::Refused(_))) => {
                    if ask == Ask::Try {
                        self.table().tried(&claim.name, true);
                    }
                    self.withdraw(claim).await?;
                    return Ok(entered);
                }
                Ok(entered) => {
                    if ask == Ask::Try {
                        self.table().tried(&claim.name, false);
                    }
                    return Ok(entered);
                }
            }
        }
        Err(Failure::unknown("its leases end as soon as they are granted"))
    }

    async fn enter_under(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
        key: &[u8],
        lease: i64,
    ) -> Result<Entered, Missed> {
        if ask == Ask::Try && self.table().is_busy(&claim.name) {
            // Most likely it still is: that costs a server no write.
            let line = self.read_line(&claim.name).await?;
            return self.try_enter(claim, line, key, lease).await;
        }
        let first = self.entering(claim, ask, key, lease);
        let answered = if self.leases.is_fresh(lease, claim.ttl) {
            self.servers.ask(first).await?
        } else {
            let (answered, kept) = join(self.servers.ask(first), self.leases.keep(lease, claim.ttl)).await;
            let answered = answered?;
            // The claim may be in line by now, whatever became of its lease.
            let kept = kept.map_err(|failure| Failure::unknown(failure.reason))?;
            if !kept {
                return Err(Missed::Lease);
            }
            answered
        };
        if answered.may_repeat {
            self.table().may_repeat(claim);
        }
        let answer = answered.answer;
        let at = revision(answer.header.as_ref());
        let mut seen = self.space.claims(&claim.name, kvs(answer.responses));
        if answer.succeeded {
            seen.push(Seen { key: key.to_vec(), created: at, lease, ..Seen::last(claim) });
        }
        if seen.iter().any(|other| other.id == claim.id) {
            return self.entered(claim, (seen, at), lease).await;
        }
        match ask {
            Ask::Try => self.try_enter(claim, (seen, at), key, lease).await,
            Ask::Queue => match mismatch(&seen, claim.share) {
                Some(refusal) => Ok(Entered::Refused(refusal)),
                None => Err(Failure::unreachable("this claim was left before").into()),
            },
        }
    }

    /// The question that nearly every claim is decided by.
    fn entering(&self, claim: &Claim, ask: Ask, key: &[u8], lease: i64) -> TxnRequest {
        let (from, to) = self.space.range(&claim.name);
        let mut compare = vec![Compare::absent(self.space.left(claim.id))];
        match (ask, claim.share) {
            (Ask::Queue, share) => {
                compare.push(Compare::absent(key.to_vec()));
                let capacity = share.capacity();
                let others = capacity.map(|capacity| self.space.other_capacities(&claim.name, capacity));
                compare.extend(others.into_iter().flatten().map(|(from, to)| Compare::none_in(from, to)));
            }
            // Readers hold together with readers.
            (Ask::Try, share @ Share::Shared) => {
                compare.push(Compare::absent(key.to_vec()));
                let others = share.capacity().map(|capacity| self.space.others(&claim.name, capacity));
                compare.extend(others.into_iter().flatten().map(|(from, to)| Compare::none_in(from, to)));
            }
            (Ask::Try, _) => compare.push(Compare::none_in(from.clone(), to.clone())),
        }
        let read = RequestOp::range(from, to);
        let put = RequestOp::put(key.to_vec(), value(claim, None), lease);
        // First the line: what is written need not be read again.
        TxnRequest { compare, success: vec![read.clone(), put], failure: vec![read] }
    }

    /// A try that found others in line, with whom it may hold all the same.
    async fn try_enter(
        &self,
        claim: &Arc<Claim>,
        (mut seen, mut at): Reading,
        key: &[u8],
        lease: i64,
    ) -> Result<Entered, Missed> {
        for _ in 0..TRIES {
            if seen.iter().any(|other| other.id == claim.id) {
                return self.entered(claim, (seen, at), lease).await;
            }
            if let Some(refusal) = mismatch(&seen, claim.share) {
                return Ok(Entered::Refused(refusal));
            }
            let now = order(&seen);
            let (from, to) = self.space.range(&claim.name);
            let (guard, rides) = match ride(&seen, &now, &Seen::last(claim)) {
                Ride::TooSmall(held) => return Ok(Entered::Refused(Refusal::Upgrade(held))),
                Ride::On(holder) => {
                    (Compare::created_at(holder.key.clone(), holder.created), Some(holder.hold()))
                }
                Ride::None if !would_hold(&seen, claim) => return Ok(Entered::Busy),
                Ride::None => (Compare::unchanged_since(from.clone(), to.clone(), at), None),
            };
            let read = RequestOp::range(from, to);
            let enter = TxnRequest {
                compare: vec![
                    guard,
                    Compare::absent(key.to_vec()),
                    Compare::absent(self.space.left(claim.id)),
                ],
                success: vec![RequestOp::put(key.to_vec(), value(claim, rides), lease), read.clone()],
                failure: vec![read],
            };
            let answered = self.servers.ask(enter).await?;
            if answered.may_repeat {
                self.table().may_repeat(claim);
            }
            at = revision(answered.answer.header.as_ref());
            seen = self.space.claims(&claim.name, kvs(answered.answer.responses));
        }
        // Others came in between each time.
        Ok(Entered::Busy)
    }

    /// The claim is in line: how it stands.
    async fn entered(&self, claim: &Arc<Claim>, (seen, at): Reading, lease: i64) -> Result<Entered, Missed> {
        // It may be there from before, under another lease.
        if let Some(me) = seen.iter().find(|other| other.id == claim.id) {
            self.table().is_there(claim, me);
            if me.lease != lease && !self.leases.keep(me.lease, claim.ttl).await? {
                return Err(Missed::Lease);
            }
        }
        let is_new = self.table().is_asking(claim);
        match self.settle(claim, (seen, at), is_new).await? {
            Settled::TooSmall(held) => Ok(Entered::Refused(Refusal::Upgrade(held))),
            Settled::Stands(Stand::Held { epoch, waiting }) => {
                self.stir();
                Ok(Entered::Held(grant(claim, epoch, waiting)))
            }
            Settled::Stands(Stand::Waiting { ahead }) => {
                self.stir();
                Ok(Entered::Waiting(place(ahead)))
            }
            Settled::Stands(Stand::Gone) => {
                Err(Failure::unknown("its key was deleted by somebody else").into())
            }
        }
    }

    /// Works out how a claim in line stands. If its owner holds, it rides on that; a new one that asks for more
    /// is refused.
    async fn settle(&self, claim: &Claim, reading: Reading, is_new: bool) -> Result<Settled, Failure> {
        let (mut seen, mut at) = reading;
        for _ in 0..TRIES {
            let now = order(&seen);
            let me = seen.iter().position(|other| other.id == claim.id);
            // One that holds already is as large as it is, unless it came just now.
            let may_ride = |me: &usize| seen[*me].rides.is_none() && (is_new || now.waiters.contains(me));
            let me = me.filter(|me| claim.owner.is_some() && may_ride(me));
            let ride = me.map_or(Ride::None, |me| ride(&seen, &now, &seen[me]));
            match (me, ride) {
                (Some(me), Ride::On(holder)) => (seen, at) = self.mount(claim, &seen[me], holder).await?,
                (_, Ride::TooSmall(held)) if is_new => return Ok(Settled::TooSmall(held)),
                _ => return Ok(Settled::Stands(self.note(claim, &seen, &now, at))),
            }
        }
        Err(Failure::unknown("others came in between each time"))
    }

    /// How a claim stands in a line that was read.
    pub(super) async fn stand(
        &self,
        claim: &Claim,
        seen: &[Seen],
        order: &Order,
        at: i64,
    ) -> Result<Stand, Failure> {
        if claim.owner.is_none() {
            return Ok(self.note(claim, seen, order, at));
        }
        match self.settle(claim, (seen.to_vec(), at), false).await? {
            Settled::Stands(stand) => Ok(stand),
            Settled::TooSmall(_) => Err(Failure::unknown("a claim that is not new was refused")),
        }
    }

    /// Writes down that a claim rides on a hold of its owner, if that is still there; reads the line.
    async fn mount(&self, claim: &Claim, me: &Seen, holder: &Seen) -> Result<Reading, Failure> {
        let (from, to) = self.space.range(&claim.name);
        let read = RequestOp::range(from, to);
        let there = |seen: &Seen| Compare::created_at(seen.key.clone(), seen.created);
        let mount = TxnRequest {
            compare: vec![there(holder), there(me)],
            success: vec![
                RequestOp::rewrite(me.key.clone(), value(claim, Some(holder.hold()))),
                read.clone(),
            ],
            failure: vec![read],
        };
        let answer = self.servers.ask(mount).await?.answer;
        let at = revision(answer.header.as_ref());
        Ok((self.space.claims(&claim.name, kvs(answer.responses)), at))
    }

    fn note(&self, claim: &Claim, seen: &[Seen], order: &Order, at: i64) -> Stand {
        self.table().stands(&self.space, (&claim.name, claim.id), (seen, order), at, self.clock.now())
    }

    /// The listener may have something to do.
    fn stir(&self) {
        if self.table().is_restless() {
            self.stirred.notify_one();
        }
    }

    /// A claim that did not stay: nothing of it may come later, either.
    async fn withdraw(&self, claim: &Arc<Claim>) -> Result<(), Failure> {
        let needed = self.table().must_be_left(claim, self.clock.now());
        if needed { self.leave(&claim.name, claim.id, &Leave::Done).await } else { Ok(()) }
    }

    pub(super) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let mut leases: HashMap<i64, Duration> = HashMap::new();
        let mut unknown = Vec::new();
        {
            let table = self.table();
            for claim in claims {
                match table.lease_of(claim) {
                    Some(lease) => longest(&mut leases, lease, claim.ttl),
                    None => unknown.push(claim),
                }
            }
        }
        // Left to us by somebody else: found by name.
        for (line, claim) in
            self.read_lines(unknown.iter().map(|claim| &claim.name)).await?.iter().zip(&unknown)
        {
            let found = line.0.iter().find(|seen| seen.id == claim.id);
            if let Some(lease) = found.map(|seen| seen.lease).filter(|lease| *lease != 0) {
                longest(&mut leases, lease, claim.ttl);
            }
        }
        // First the leases, then the keys: some servers confirm a lease that they just ended.
        let kept = join_all(leases.into_iter().map(async |(lease, ttl)| {
            let is_kept = self.leases.keep(lease, ttl).await?;
            Ok(is_kept.then_some(lease))
        }));
        let kept = kept.await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let mut names: Vec<_> = claims.iter().map(|claim| &claim.name).collect();
        names.sort();
        names.dedup();
        let lines = self.read_lines(names.iter().copied()).await?;
        let lines: HashMap<_, _> = names
            .into_iter()
            .zip(lines)
            .map(|(name, (seen, at))| {
                let order = order(&seen);
                (name, (seen, order, at))
            })
            .collect();
        let mut standings = Vec::with_capacity(claims.len());
        for claim in claims {
            let Some((seen, order, at)) = lines.get(&claim.name) else { continue };
            let me = seen.iter().find(|seen| seen.id == claim.id);
            standings.push(match self.stand(claim, seen, order, *at).await? {
                // A key without its lease is about to be deleted.
                _ if me.is_some_and(|me| !kept.contains(&Some(me.lease))) => Standing::Gone,
                Stand::Held { epoch, waiting } => Standing::Held(grant(claim, epoch, waiting)),
                Stand::Waiting { ahead } => Standing::Waiting(place(ahead)),
                Stand::Gone => Standing::Gone,
            });
        }
        self.stir();
        Ok(standings)
    }

    pub(super) async fn leave(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<(), Failure> {
        let mine = if *why == Leave::Done { self.table().leaving(name, id, self.clock.now()) } else { None };
        let Some(mine) = mine else { return self.put_out(name, id, why).await };
        let mut leave = TxnRequest::default();
        if mine.created != 0 {
            // Its key may be used for another claim by now.
            leave.compare.push(Compare::created_at(mine.key.clone(), mine.created));
            leave.success.push(RequestOp::delete(mine.key));
        }
        if mine.may_repeat {
            // A question may arrive after this: then it has to find that it is too late.
            let lease = self.leases.grant(LATEST).await?;
            self.leases.forget(lease);
            let mark = RequestOp::put(self.space.left(id), Vec::new(), lease);
            leave.success.push(mark.clone());
            leave.failure.push(mark);
        }
        if !leave.success.is_empty() {
            self.servers.ask(leave).await?;
        }
        if mine.created == 0 {
            // Whether it ever came was not said; from now on it cannot come any more.
            self.put_out(name, id, why).await?;
        }
        if has_own_lease(&mine.claim) && mine.lease != 0 {
            self.leases.revoke(mine.lease).await;
        }
        self.table().forget(name, id, self.clock.now());
        Ok(())
    }

    /// Takes a claim out of line that is not known here, or that somebody does not want to be there.
    async fn put_out(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<(), Failure> {
        let (seen, _) = self.read_line(name).await?;
        let Some(claim) = seen.into_iter().find(|seen| seen.id == id) else { return Ok(()) };
        let mut put_out = TxnRequest {
            compare: vec![Compare::created_at(claim.key.clone(), claim.created)],
            success: vec![RequestOp::delete(claim.key.clone())],
            failure: Vec::new(),
        };
        if let Leave::Evicted(reason) = why
            && claim.lease != 0
        {
            // Kept for as long as there is somebody to read it.
            let reason = RequestOp::put(self.space.reason(id), reason.as_bytes().to_vec(), claim.lease);
            put_out.success.push(reason);
        }
        match self.servers.ask(put_out).await {
            // Its lease ended in the meantime, and so did it.
            Ok(_) | Err(Missed::Lease) => {}
            Err(Missed::Failed(failure)) => return Err(failure),
        }
        if *why == Leave::Done && claim.own_lease {
            self.leases.revoke(claim.lease).await;
        }
        Ok(())
    }

    /// Reads one line.
    pub(super) async fn read_line(&self, name: &Name) -> Result<Reading, Failure> {
        let (key, range_end) = self.space.range(name);
        let answer = self.servers.ask(RangeRequest { key, range_end }).await?.answer;
        Ok((self.space.claims(name, answer.kvs), revision(answer.header.as_ref())))
    }

    /// Reads some lines, in order.
    async fn read_lines<'a>(&self, names: impl Iterator<Item = &'a Name>) -> Result<Vec<Reading>, Failure> {
        let names: Vec<_> = names.collect();
        if let [name] = names[..] {
            return Ok(vec![self.read_line(name).await?]);
        }
        let asked = names.chunks(LINES).map(async |some| {
            let read = |name: &&Name| {
                let (from, to) = self.space.range(name);
                RequestOp::range(from, to)
            };
            let read = TxnRequest { success: some.iter().map(read).collect(), ..TxnRequest::default() };
            let answer = self.servers.ask(read).await?.answer;
            let at = revision(answer.header.as_ref());
            if answer.responses.len() != some.len() {
                return Err(Failure::unknown("the server answered another question"));
            }
            let lines = some.iter().zip(answer.responses);
            Ok(lines.map(|(name, line)| (self.space.claims(name, kvs(vec![line])), at)).collect::<Vec<_>>())
        });
        let answers = join_all(asked).await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        Ok(answers.into_iter().flatten().collect())
    }

    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let lines: Vec<(Name, Vec<Seen>)> = match scope {
            Scope::Names(names) => {
                let lines = self.read_lines(names.iter()).await?;
                names.iter().cloned().zip(lines.into_iter().map(|(seen, _)| seen)).collect()
            }
            Scope::All => self.read_all().await?,
        };
        let mut leases: Vec<_> =
            lines.iter().flat_map(|(_, seen)| seen.iter().map(|seen| seen.lease)).collect();
        leases.sort_unstable();
        leases.dedup();
        leases.retain(|lease| *lease != 0);
        let left = join_all(leases.iter().map(async |lease| {
            let answer = self.servers.ask(LeaseTimeToLiveRequest { id: *lease }).await.ok()?;
            u64::try_from(answer.answer.ttl).ok().map(Duration::from_secs)
        }));
        let left: HashMap<_, _> = leases.iter().copied().zip(left.await).collect();
        let views = lines.iter().filter(|(_, seen)| !seen.is_empty());
        Ok(views.map(|(name, seen)| view(name, seen, &left)).collect())
    }

    async fn read_all(&self) -> Result<Vec<(Name, Vec<Seen>)>, Failure> {
        let (key, range_end) = self.space.all();
        let answer = self.servers.ask(RangeRequest { key, range_end }).await?.answer;
        let mut lines: HashMap<Name, Vec<KeyValue>> = HashMap::new();
        // What has no lease is something else that is kept there.
        for kv in answer.kvs.into_iter().filter(|kv| kv.lease != 0) {
            if let Some((name, _)) = self.space.name(&kv.key) {
                lines.entry(name).or_default().push(kv);
            }
        }
        let mut lines: Vec<_> =
            lines.into_iter().map(|(name, kvs)| (name.clone(), self.space.claims(&name, kvs))).collect();
        lines.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(lines)
    }
}

/// Of several claims under one lease, the longest counts.
fn longest(leases: &mut HashMap<i64, Duration>, lease: i64, ttl: Duration) {
    let known = leases.entry(lease).or_default();
    *known = (*known).max(ttl);
}

/// The keys that a transaction read.
fn kvs(responses: Vec<ResponseOp>) -> Vec<KeyValue> {
    responses.into_iter().find_map(|response| response.range).map(|range| range.kvs).unwrap_or_default()
}

fn mismatch(seen: &[Seen], share: Share) -> Option<Refusal> {
    match (share.capacity(), capacity(seen)) {
        (Some(asked), Some(agreed)) if asked != agreed => Some(Refusal::Capacity(agreed)),
        _ => None,
    }
}

/// Whether a claim would hold at once.
fn would_hold(seen: &[Seen], claim: &Claim) -> bool {
    let mut with = seen.to_vec();
    with.push(Seen::last(claim));
    order(&with).waiters.is_empty()
}

fn grant(claim: &Claim, epoch: i64, waiting: usize) -> Grant {
    Grant { epoch: epoch as u64, ttl: claim.ttl, waiting: u32::try_from(waiting).unwrap_or(u32::MAX) }
}

/// Who is ahead is watched, so nobody has to be told when to look again.
fn place(ahead: usize) -> Place {
    Place { ahead: u32::try_from(ahead).unwrap_or(u32::MAX), lapse_in: None }
}

fn view(name: &Name, seen: &[Seen], left: &HashMap<i64, Option<Duration>>) -> LockView {
    let order = order(seen);
    let epoch = order.holders.iter().map(|index| seen[*index].hold()).max().unwrap_or(0);
    let mut view = LockView::new(name.clone(), capacity(seen), epoch as u64);
    let now = wall_micros();
    let shown = |index: &usize, holds: bool| {
        let claim = &seen[*index];
        let age = Duration::from_micros(now.saturating_sub(claim.since));
        let left = left.get(&claim.lease).copied().flatten().unwrap_or_default();
        ClaimView::new(&claim.claim(name), holds.then_some(claim.hold() as u64), age, left)
    };
    view.holders = order.holders.iter().map(|index| shown(index, true)).collect();
    view.waiters = order.waiters.iter().map(|index| shown(index, false)).collect();
    view
}

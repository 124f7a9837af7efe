//! A claim's place in line: taken, found again, looked at, made a hold.

use std::{sync::Arc, sync::PoisonError, time::Duration};

use super::{
    errors::{NO_NODE, NODE_EXISTS, ZkError, classify},
    nodes::{self, Contender},
    order::{Order, Stand, Wait},
    paths,
    session::{Answer, Session},
    store::{TRIES, Todo, ZkStore, entry_node},
    table::{Entry, Phase},
    view,
    wire::{self, Mode, Request, Step},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, FailureKind, Leave, Place, Refusal, Standing, What},
    backends,
    clock::wall_micros,
};

/// A hold that outlives its client is ended by somebody who only tries when its lease was over this long
/// ago by the clocks on the wall; whoever waits measures it by its own clock.
const WALL_MARGIN: Duration = Duration::from_secs(60);

/// What became of a look.
enum Settled {
    Held(u32),
    Waits(Place),
    Refused(Refusal),
    Absent,
}

/// What was found of holds ahead that outlive their clients.
pub(super) struct LeftHolds {
    /// Whether one was over and is gone now.
    pub(super) ended: bool,
    /// When the first of the others is over, unless it is renewed.
    lapse_in: Option<Duration>,
}

impl ZkStore {
    /// Takes a place at the end of the line, and says how the claim stands there.
    pub(super) async fn take_place(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        ask: Ask,
    ) -> Result<Entered, Failure> {
        let (session, parent) = (self.session(claim.ttl), self.path(&claim.name));
        let entry = Entry::new(claim, &session, &parent, self.clock.now() + claim.ttl * 2);
        let turn = Arc::clone(&entry.turn);
        let _alone = turn.lock().await;
        self.table().insert(entry);
        for _ in 0..TRIES {
            let children = match self.create(claim, &session, &parent).await {
                Ok(Some(children)) => children,
                // The lock's node was not there; it was made.
                Ok(None) => continue,
                Err(error) => return Err(self.not_entered(claim, &error).await),
            };
            let settled = match self.settle(claim, children, Some(ask)).await {
                Ok(settled) => settled,
                Err(error) => return Err(self.not_entered(claim, &error).await),
            };
            match settled {
                Settled::Held(waiting) => {
                    return match self.held(claim.id, waiting) {
                        Standing::Held(grant) => Ok(Entered::Held(grant)),
                        _ => Err(Failure::unknown("the claim was given back while it was entered")),
                    };
                }
                Settled::Waits(place) if ask == Ask::Queue => {
                    return match self.waits(claim.id, place) {
                        Standing::Held(grant) => Ok(Entered::Held(grant)),
                        Standing::Waiting(place) => Ok(Entered::Waiting(place)),
                        Standing::Gone | Standing::Unknown => {
                            Err(Failure::unknown("the claim was given back while it was entered"))
                        }
                    };
                }
                Settled::Waits(_) => {
                    self.leave(&claim.name, claim.id, &Leave::Done).await?;
                    return Ok(Entered::Busy);
                }
                Settled::Refused(refusal) => {
                    self.leave(&claim.name, claim.id, &Leave::Done).await?;
                    return Ok(Entered::Refused(refusal));
                }
                // Somebody deleted it at once.
                Settled::Absent => {}
            }
        }
        self.table().remove(claim.id);
        Err(classify(&ZkError::Code(NO_NODE)))
    }

    /// A claim could not be entered: what may be concluded, after whatever was made of it is gone again.
    async fn not_entered(self: &Arc<Self>, claim: &Claim, error: &ZkError) -> Failure {
        let failure = classify(error);
        // What got no answer may be there: it is asked about, or left, by its id.
        if failure.kind == FailureKind::Unknown {
            return failure;
        }
        let was_made = self.table().get(claim.id).is_some_and(|entry| !entry.nodes.is_empty());
        if !was_made {
            self.table().remove(claim.id);
            return failure;
        }
        match self.leave(&claim.name, claim.id, &Leave::Done).await {
            Ok(()) => failure,
            Err(other) => Failure::unknown(format!("{}; then: {}", failure.reason, other.reason)),
        }
    }

    /// Makes the nodes of a claim and lists the line, in one round trip. Nothing if the lock's node had to be made.
    async fn create(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        session: &Arc<Session>,
        parent: &str,
    ) -> Result<Option<Vec<String>>, ZkError> {
        let data = view::data(claim);
        let fronts = nodes::names(claim, self.config.dialect, None);
        let paths: Vec<_> = fronts.iter().map(|front| format!("{parent}/{front}")).collect();
        let request = match &paths[..] {
            [one] => Request::create(one, &data, &self.config.acl, Mode::EphemeralSequential),
            several => {
                let create = |path| Step::Create(path, &data, &self.config.acl, Mode::EphemeralSequential);
                Request::multi(&several.iter().map(|path| create(&**path)).collect::<Vec<_>>())
            }
        };
        let made = session.ask(request);
        let listed = session.ask(Request::children(parent, false));
        let made = match made.await {
            Ok(made) => made,
            Err(error) if error.is(NO_NODE) => {
                return self.make_parents(session, parent).await.map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let (nodes, epoch) = if paths.len() == 1 {
            let (node, stat) = wire::created(&made)?;
            (vec![node], stat.czxid)
        } else {
            let nodes: Vec<_> = match wire::multi(&made) {
                Err(error) if error.is(NO_NODE) => {
                    return self.make_parents(session, parent).await.map(|()| None);
                }
                nodes => nodes?.into_iter().flatten().collect(),
            };
            // Several that are made at once come without their numbers.
            let first = nodes.first().ok_or_else(ZkError::garbled)?;
            let stat = session.ask(Request::exists(first, false)).await.map_err(lost_if_gone)?;
            (nodes, wire::stat(&stat)?.czxid)
        };
        self.note_place(claim.id, nodes, u64::try_from(epoch).unwrap_or(0))?;
        wire::children(&listed.await.map_err(lost_if_gone)?).map(Some)
    }

    fn note_place(&self, id: ClaimId, nodes: Vec<String>, epoch: u64) -> Result<(), ZkError> {
        let first = nodes.first().and_then(|node| Contender::read(node.rsplit('/').next()?));
        let number = first.ok_or_else(ZkError::garbled)?.number;
        if self.table().place(id, nodes, number, epoch, self.clock.now()) {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Makes the node of a lock and all above it, as containers: the server removes them when they are empty.
    async fn make_parents(&self, session: &Session, parent: &str) -> Result<(), ZkError> {
        let made: Vec<_> = paths::with_parents(parent)
            .map(|path| session.ask(Request::create_container(path, &self.config.acl)))
            .collect();
        let (mut last, many) = (Ok(()), made.len());
        for (index, answer) in made.into_iter().enumerate() {
            match answer.await {
                Ok(_) => {}
                Err(error) if error.is(NODE_EXISTS) => {}
                // What is above may be somebody else's; only the last has to be there.
                Err(error) if index + 1 < many && matches!(error, ZkError::Code(_)) => last = Err(error),
                // One above it vanished again: it is tried once more.
                Err(error) if error.is(NO_NODE) => return last,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says how a claim stands in this line, and does what follows. A claim that enters may be refused;
    /// one that only tries watches nothing.
    async fn settle(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        mut children: Vec<String>,
        enters: Option<Ask>,
    ) -> Result<Settled, ZkError> {
        for _ in 0..TRIES {
            let Some(entry) = self.table().get(claim.id).cloned() else { return Ok(Settled::Absent) };
            let order = Order::read(&children);
            match order.stand(claim, entry_node(&entry)) {
                // It fits beside a hold of its owner that is smaller, and would be that owner's second.
                Stand::Holds { .. } if enters.is_some() && order.refusal(claim).is_some() => {
                    return Ok(order.refusal(claim).map_or(Settled::Absent, Settled::Refused));
                }
                Stand::Holds { epoch: None, .. } if claim.detached => {
                    if self.outlive(&entry).await? {
                        return Ok(Settled::Held(0));
                    }
                }
                Stand::Holds { behind, .. } => return Ok(Settled::Held(behind)),
                Stand::Rides(on) => {
                    if self.ride(&entry, &on).await? {
                        return Ok(Settled::Held(0));
                    }
                }
                Stand::Waits(wait) => {
                    if enters.is_some()
                        && let Some(refusal) = order.refusal(claim)
                    {
                        return Ok(Settled::Refused(refusal));
                    }
                    let left = self.end_left_holds(&entry.session, &entry.parent, &wait.left, false).await?;
                    let place = Place { ahead: wait.ahead, lapse_in: left.lapse_in };
                    if !left.ended {
                        if enters == Some(Ask::Try) {
                            return Ok(Settled::Waits(place));
                        }
                        if let Some(watch) = &wait.watch {
                            self.watch(&entry, watch, &wait);
                            return Ok(Settled::Waits(place));
                        }
                        let again = self.watch_line(&entry).await?;
                        if again == children {
                            return Ok(Settled::Waits(place));
                        }
                        children = again;
                        continue;
                    }
                }
                Stand::Refused(refusal) => return Ok(Settled::Refused(refusal)),
                Stand::Absent => {
                    return Ok(match order.refusal(claim) {
                        Some(refusal) if enters.is_some() => Settled::Refused(refusal),
                        _ => Settled::Absent,
                    });
                }
            }
            let listed = entry.session.ask(Request::children(&entry.parent, false));
            children = wire::children(&listed.await.map_err(lost_if_gone)?)?;
        }
        Err(ZkError::Lost("the line changed all the time".into()))
    }

    /// Makes a hold that outlives its client: the same node, with the same number, of no session.
    /// Says whether the claim was still there.
    async fn outlive(self: &Arc<Self>, entry: &Entry) -> Result<bool, ZkError> {
        let fronts = nodes::names(&entry.claim, self.config.dialect, Some(entry.epoch));
        self.replace(entry, None, &fronts, entry.number, entry.epoch, Mode::Persistent).await
    }

    /// Joins the hold of its owner: a node with that one's number, as long as that one is there.
    async fn ride(self: &Arc<Self>, entry: &Entry, on: &Contender) -> Result<bool, ZkError> {
        let path = format!("{}/{}", entry.parent, on.node);
        let epoch = match on.epoch {
            Some(epoch) => epoch,
            None => match entry.session.ask(Request::exists(&path, false)).await {
                Err(error) if error.is(NO_NODE) => return Ok(false),
                stat => u64::try_from(wire::stat(&stat?)?.czxid).unwrap_or(0),
            },
        };
        let fronts = nodes::names(&entry.claim, self.config.dialect, Some(epoch));
        self.replace(entry, Some(&path), &fronts, on.number, epoch, Mode::Ephemeral).await
    }

    /// Replaces the nodes of a claim by others, all at once or not at all.
    async fn replace(
        self: &Arc<Self>,
        entry: &Entry,
        while_there: Option<&str>,
        fronts: &[String],
        number: i32,
        epoch: u64,
        mode: Mode,
    ) -> Result<bool, ZkError> {
        let data = view::data(&entry.claim);
        let numbers = (0..).map(|nth| number.wrapping_add(nth));
        let new: Vec<_> = fronts
            .iter()
            .zip(numbers)
            .map(|(front, number)| format!("{}/{}", entry.parent, nodes::numbered(front, number)))
            .collect();
        let mut steps: Vec<_> = while_there.map(Step::Check).into_iter().collect();
        steps.extend(entry.nodes.iter().map(|node| Step::Delete(node)));
        steps.extend(new.iter().map(|node| Step::Create(node, &data, &self.config.acl, mode)));
        // Known before it is asked: what is deleted here was not deleted by somebody else.
        self.note_place(entry.claim.id, new.clone(), epoch)?;
        let replaced = entry.session.ask(Request::multi(&steps));
        let seen = entry.session.ask(Request::exists(&new[0], false));
        match replaced.await.and_then(|answer| wire::multi(&answer)) {
            Ok(_) => {
                let stat = wire::stat(&seen.await.map_err(lost_if_gone)?)?;
                self.table().written(entry.claim.id, stat.mzxid, self.clock.now());
                Ok(true)
            }
            Err(ZkError::Lost(why)) => {
                // Either the old nodes are there or the new ones: they are looked for.
                self.table().is_unclear(entry.claim.id);
                Err(ZkError::Lost(why))
            }
            Err(error) => {
                self.note_place(entry.claim.id, entry.nodes.clone(), entry.epoch)?;
                if error.is(NO_NODE) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Watches nodes of which one has to go before the claim can hold, and its own.
    fn watch(self: &Arc<Self>, entry: &Entry, nodes: &[String], wait: &Wait) {
        let session = &entry.session;
        let paths: Vec<_> = nodes.iter().map(|node| format!("{}/{node}", entry.parent)).collect();
        let asked: Vec<(Answer, String)> = paths
            .into_iter()
            .map(|path| {
                // Before it is asked: what happens then is told at once. And asked before anybody else of this
                // client can have the server forget what it watches there.
                let mut table = self.table();
                table.wait_for(session.key, &path, entry.claim.id);
                // By a read of its data: one of a node that is gone leaves no watch behind.
                (session.ask(Request::get_data(&path, true)), path)
            })
            .collect();
        let own = session.ask(Request::get_data(&entry.nodes[0], true));
        // A hold that outlives its client needs one more step.
        let (store, id, last) = (Arc::clone(self), entry.claim.id, wait.last && !entry.claim.detached);
        let entry = entry.clone();
        drop(backends::attend(async move {
            let mut there = None;
            for (answer, path) in asked {
                match answer.await {
                    Ok(_) => there = Some(path),
                    Err(error) if error.is(NO_NODE) => {
                        let _ = store.todo.send(Todo::Look(id));
                        return;
                    }
                    // The connection is lost: when it is back, all is looked at again.
                    Err(_) => return,
                }
            }
            let (seen, connection) = own.on_connection().await;
            match seen {
                Ok(_) => {
                    let mut table = store.table();
                    table.is_watched(id, connection);
                    if let Some(path) = there.filter(|_| last) {
                        table.is_last_ahead(id, &path);
                    }
                }
                Err(error) if error.is(NO_NODE) => store.note_gone_unless_moved(&entry).await,
                Err(_) => {}
            }
        }));
    }

    /// Watches the whole line.
    async fn watch_line(&self, entry: &Entry) -> Result<Vec<String>, ZkError> {
        self.table().wait_for(entry.session.key, &entry.parent, entry.claim.id);
        let listed = entry.session.ask(Request::children(&entry.parent, true));
        wire::children(&listed.await.map_err(lost_if_gone)?)
    }

    /// Looks at how a claim stands that waits, and tells it if it holds.
    pub(super) async fn look_at(self: &Arc<Self>, id: ClaimId) -> Result<Standing, ZkError> {
        let Some(turn) = self.table().get(id).map(|entry| Arc::clone(&entry.turn)) else {
            return Ok(Standing::Gone);
        };
        let _alone = turn.lock().await;
        let Some(entry) = self.table().get(id).cloned() else { return Ok(Standing::Gone) };
        match entry.phase {
            Phase::Held => return Ok(self.held(id, 0)),
            Phase::Leaving | Phase::Unclear => return Ok(Standing::Gone),
            Phase::Waiting => {}
        }
        let listed = entry.session.ask(Request::children(&entry.parent, false)).await;
        let children = match listed {
            Err(error) if error.is(NO_NODE) => Vec::new(),
            listed => wire::children(&listed?)?,
        };
        let standing = match self.settle(&entry.claim, children, None).await? {
            Settled::Held(waiting) => self.held(id, waiting),
            Settled::Waits(place) => self.waits(id, place),
            Settled::Refused(_) | Settled::Absent => {
                self.note_gone(id);
                Standing::Gone
            }
        };
        if let Standing::Held(grant) = standing {
            self.tell(&entry.claim, What::Granted(grant));
        }
        Ok(standing)
    }

    /// Finds the node of a claim again of which nobody knows whether it was made.
    pub(super) async fn find_again(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Standing, ZkError> {
        let Some(turn) = self.table().get(claim.id).map(|entry| Arc::clone(&entry.turn)) else {
            return Ok(Standing::Gone);
        };
        let _alone = turn.lock().await;
        let entry = self.table().get(claim.id).filter(|entry| entry.phase == Phase::Unclear).cloned();
        let Some(entry) = entry else {
            return Err(ZkError::Lost("another question about the claim is under way".into()));
        };
        let listed = self.list_fresh(&entry.session, &entry.parent).await;
        let children = match listed {
            Err(error) if error.is(NO_NODE) => Vec::new(),
            listed => listed?,
        };
        let found = Order::nodes_of(&children, claim.id);
        let nodes: Vec<_> = found.iter().map(|node| format!("{}/{}", entry.parent, node.node)).collect();
        let Some(first) = nodes.first() else { return Ok(Standing::Gone) };
        let stat = match entry.session.ask(Request::exists(first, false)).await {
            Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
            stat => wire::stat(&stat?)?,
        };
        // A node of a session before this one is about to go.
        if stat.ephemeral_owner != entry.session.id() && !found[0].stays() {
            return Ok(Standing::Gone);
        }
        let epoch = found[0].epoch.unwrap_or(u64::try_from(stat.czxid).unwrap_or(0));
        self.note_place(claim.id, nodes, epoch)?;
        match self.settle(claim, children, Some(Ask::Queue)).await? {
            Settled::Held(waiting) => Ok(self.held(claim.id, waiting)),
            Settled::Waits(place) => Ok(self.waits(claim.id, place)),
            // It is taken out, and the question is asked anew.
            Settled::Refused(_) | Settled::Absent => Ok(Standing::Gone),
        }
    }

    /// Ends holds of clients that are gone if their leases are over. Nobody's clock is asked but this
    /// client's: a hold is over when it was not renewed for as long as its lease since it was first seen.
    pub(super) async fn end_left_holds(
        &self,
        session: &Session,
        parent: &str,
        left: &[(String, Duration)],
        by_wall: bool,
    ) -> Result<LeftHolds, ZkError> {
        let mut found = LeftHolds { ended: false, lapse_in: None };
        for (node, lease) in left {
            let path = format!("{parent}/{node}");
            let stat = match session.ask(Request::exists(&path, false)).await {
                Err(error) if error.is(NO_NODE) => {
                    found.ended = true;
                    continue;
                }
                stat => wire::stat(&stat?)?,
            };
            let now = self.clock.now();
            // As long as it may be relied on, and for as much as clocks may differ.
            let lease = *lease + *lease / 100 + Duration::from_millis(10);
            let since = {
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                left.retain(|_, (_, since)| now.since(*since) < crate::MAX_TTL);
                let seen = left.entry(path.clone()).or_insert((stat.mzxid, now));
                if seen.0 != stat.mzxid {
                    *seen = (stat.mzxid, now);
                }
                seen.1
            };
            let wall =
                wall_micros().saturating_sub(u64::try_from(stat.mtime).unwrap_or(0).saturating_mul(1_000));
            let long_over = by_wall && Duration::from_micros(wall) > lease * 2 + WALL_MARGIN;
            if now.since(since) < lease && !long_over {
                let lapse_in = (since + lease).since(now);
                found.lapse_in = Some(found.lapse_in.map_or(lapse_in, |other| other.min(lapse_in)));
                continue;
            }
            // Of this very version: it may have been renewed in between.
            match session.ask(Request::delete(&path, stat.version)).await {
                Ok(_) | Err(ZkError::Code(_)) => found.ended = true,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Renews a hold by its ticket.
    pub(super) async fn renew_ticket(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Standing, ZkError> {
        let (session, parent) = (self.any_session(), self.path(&claim.name));
        let children = match self.list_fresh(&session, &parent).await {
            Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
            children => children?,
        };
        let found = Order::nodes_of(&children, claim.id);
        let Some((node, epoch)) = found.first().and_then(|node| Some((&node.node, node.epoch?))) else {
            return Ok(Standing::Gone);
        };
        let path = format!("{parent}/{node}");
        for _ in 0..TRIES {
            let (data, stat) = match session.ask(Request::get_data(&path, false)).await {
                Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
                read => wire::data(&read?)?,
            };
            match session.ask(Request::set_data(&path, &data, stat.version)).await {
                Ok(_) => {
                    let waiting = u32::try_from(children.len() - found.len()).unwrap_or(u32::MAX);
                    return Ok(Standing::Held(crate::backend::Grant { epoch, ttl: claim.ttl, waiting }));
                }
                Err(error) if error.is(super::errors::BAD_VERSION) => {}
                Err(error) if error.is(NO_NODE) => return Ok(Standing::Gone),
                Err(error) => return Err(error),
            }
        }
        Err(ZkError::Lost("others renewed the hold all the time".into()))
    }
}

/// A node was there a moment ago: that it is gone says nothing about the question before.
fn lost_if_gone(error: ZkError) -> ZkError {
    match error {
        ZkError::Code(NO_NODE) => ZkError::Lost("the lock's node vanished in between".into()),
        error => error,
    }
}

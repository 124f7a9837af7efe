//! How a claim stands in its line, and what follows: it holds, joins a hold, or watches those ahead.

use std::sync::Arc;

use super::{
    claims::{Awaits, Entry, Phase},
    codec::nodes::{self, Contender},
    errors::{NO_NODE, ZkError},
    link::wire::{self, Mode, Request, Step},
    order::{Order, Position, Wait},
    store::{TRIES, ZookeeperStore},
    view,
};
use crate::backend::{Ask, Claim, ClaimId, Place, Refusal, Standing, What};

/// What became of a look at a line.
pub(super) enum Settled {
    Held(u32),
    Waits(Place),
    Refused(Refusal),
    Absent,
}

impl ZookeeperStore {
    /// Says how a claim stands in this line, and does what follows. A claim that enters may be refused;
    /// one that only tries watches nothing.
    pub(super) async fn settle(
        &self,
        claim: &Arc<Claim>,
        mut children: Vec<String>,
        enters: Option<Ask>,
    ) -> Result<Settled, ZkError> {
        let parent = self.path(&claim.name);
        for _ in 0..TRIES {
            let Some(entry) = self.claims().get(claim.id).cloned() else { return Ok(Settled::Absent) };
            let order = Order::read(&children);
            match order.position(claim, entry.node()) {
                // It fits beside a hold of its owner that is smaller, and would be that owner's second.
                Position::Holds { .. } if enters.is_some() && order.refusal(claim).is_some() => {
                    return Ok(order.refusal(claim).map_or(Settled::Absent, Settled::Refused));
                }
                Position::Holds { epoch: None, .. } if claim.detached => {
                    if self.outlive(&entry).await? {
                        return Ok(Settled::Held(0));
                    }
                }
                Position::Holds { behind, .. } => return Ok(Settled::Held(behind)),
                Position::Rides(on) => {
                    if self.ride(&entry, &on).await? {
                        return Ok(Settled::Held(0));
                    }
                }
                Position::Waits(wait) => {
                    if enters.is_some()
                        && let Some(refusal) = order.refusal(claim)
                    {
                        return Ok(Settled::Refused(refusal));
                    }
                    let left = self.end_left_holds(&entry.session, &parent, &wait.left, false).await?;
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
                Position::Refused(refusal) => return Ok(Settled::Refused(refusal)),
                Position::Absent => {
                    return Ok(match order.refusal(claim) {
                        Some(refusal) if enters.is_some() => Settled::Refused(refusal),
                        _ => Settled::Absent,
                    });
                }
            }
            let listed = entry.session.ask(Request::children(&parent, false));
            children = wire::children(&listed.await.map_err(lost_if_gone)?)?;
        }
        Err(ZkError::Lost("the line changed all the time".into()))
    }

    /// Makes a hold that outlives its client: the same node, with the same number, of no session.
    /// Says whether the claim was still there.
    async fn outlive(&self, entry: &Entry) -> Result<bool, ZkError> {
        let fronts = nodes::names(&entry.claim, self.config.dialect, Some(entry.epoch));
        self.replace(entry, None, &fronts, entry.number, entry.epoch, Mode::Persistent).await
    }

    /// Joins the hold of its owner: a node with that one's number, as long as that one is there.
    async fn ride(&self, entry: &Entry, on: &Contender) -> Result<bool, ZkError> {
        let path = format!("{}/{}", self.path(&entry.claim.name), on.node);
        let epoch = match on.epoch {
            Some(epoch) => epoch,
            None => match entry.session.ask(Request::exists(&path, false)).on_connection().await {
                (Err(error), _) if error.is(NO_NODE) => return Ok(false),
                (stat, on) => {
                    let zxid = wire::stat(&stat?)?.czxid;
                    u64::try_from(self.epoch_of(&entry.session, on, zxid).await?).unwrap_or(0)
                }
            },
        };
        let fronts = nodes::names(&entry.claim, self.config.dialect, Some(epoch));
        self.replace(entry, Some(&path), &fronts, on.number, epoch, Mode::Ephemeral).await
    }

    /// Replaces the nodes of a claim by others, all at once or not at all.
    async fn replace(
        &self,
        entry: &Entry,
        while_there: Option<&str>,
        fronts: &[String],
        number: i32,
        epoch: u64,
        mode: Mode,
    ) -> Result<bool, ZkError> {
        let (data, parent) = (view::data(&entry.claim), self.path(&entry.claim.name));
        let numbers = (0..).map(|nth| number.wrapping_add(nth));
        let new: Vec<_> = fronts
            .iter()
            .zip(numbers)
            .map(|(front, number)| format!("{parent}/{}", nodes::numbered(front, number)))
            .collect();
        let mut steps: Vec<_> = while_there.map(Step::Check).into_iter().collect();
        steps.extend(entry.nodes.iter().map(|node| Step::Delete(node)));
        steps.extend(new.iter().map(|node| Step::Create(node, &data, &self.config.acl, mode)));
        // Known before it is asked: what is deleted here was not deleted by somebody else.
        self.note_nodes(entry.claim.id, new.clone(), epoch)?;
        let replaced = entry.session.ask(Request::multi(&steps));
        let seen = entry.session.ask(Request::exists(&new[0], false));
        match replaced.await.and_then(|answer| wire::multi(&answer)) {
            Ok(_) => {
                let stat = wire::stat(&seen.await.map_err(lost_if_gone)?)?;
                self.claims().written(entry.claim.id, stat.mzxid, self.clock.now());
                Ok(true)
            }
            Err(ZkError::Lost(why)) => {
                // Either the old nodes are there or the new ones: they are looked for.
                self.claims().is_unclear(entry.claim.id);
                Err(ZkError::Lost(why))
            }
            Err(error) => {
                self.note_nodes(entry.claim.id, entry.nodes.iter().cloned(), entry.epoch)?;
                if error.is(NO_NODE) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Watches nodes of which one has to go before the claim can hold, and its own. What a server answers is told to
    /// the claims of this client (`Claims::watched`): nobody waits for it here.
    fn watch(&self, entry: &Entry, nodes: &[String], wait: &Wait) {
        let (session, id, parent) = (&entry.session, entry.claim.id, self.path(&entry.claim.name));
        let paths: Vec<_> = nodes.iter().map(|node| format!("{parent}/{node}")).collect();
        let mut claims = self.claims();
        for path in &paths {
            // Before it is asked: what happens then is told at once. And asked before anybody else of this
            // client can have the server forget what it watches there.
            claims.wait_for(session.key, path, id);
            session.watch(path);
        }
        // A hold that outlives its client needs one more step.
        let last = wait.last && !entry.claim.detached;
        claims.awaits(id, Some(Awaits { paths, last, suffices: wait.left.is_empty(), ahead: wait.ahead }));
        entry.watch_own();
    }

    /// Watches the whole line.
    async fn watch_line(&self, entry: &Entry) -> Result<Vec<String>, ZkError> {
        let parent = self.path(&entry.claim.name);
        {
            let mut claims = self.claims();
            claims.wait_for(entry.session.key, &parent, entry.claim.id);
            claims.awaits(entry.claim.id, None);
        }
        let listed = entry.session.ask(Request::children(&parent, true));
        wire::children(&listed.await.map_err(lost_if_gone)?)
    }

    /// Looks at how a claim stands that waits, and tells it if it holds.
    pub(super) async fn look_at(&self, id: ClaimId) -> Result<Standing, ZkError> {
        let turn = self.turns.of(id);
        let _alone = turn.comes().await;
        let Some(entry) = self.claims().get(id).cloned() else { return Ok(Standing::Gone) };
        match entry.phase {
            Phase::Held => return Ok(self.held(id, 0)),
            Phase::Leaving | Phase::Unclear => return Ok(Standing::Gone),
            Phase::Waiting => {}
        }
        let listed = entry.session.ask(Request::children(&self.path(&entry.claim.name), false)).await;
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
    pub(super) async fn find_again(&self, claim: &Arc<Claim>) -> Result<Standing, ZkError> {
        if self.claims().get(claim.id).is_none() {
            return Ok(Standing::Gone);
        }
        let turn = self.turns.of(claim.id);
        let _alone = turn.comes().await;
        let entry = self.claims().get(claim.id).filter(|entry| entry.phase == Phase::Unclear).cloned();
        let Some(entry) = entry else {
            return Err(ZkError::Lost("another question about the claim is under way".into()));
        };
        let parent = self.path(&claim.name);
        let listed = self.list_fresh(&entry.session, &parent).await;
        let children = match listed {
            Err(error) if error.is(NO_NODE) => Vec::new(),
            listed => listed?,
        };
        let found = Order::nodes_of(&children, claim.id);
        let nodes: Vec<_> = found.iter().map(|node| format!("{parent}/{}", node.node)).collect();
        let Some(first) = nodes.first() else { return Ok(Standing::Gone) };
        let (stat, on) = match entry.session.ask(Request::exists(first, false)).on_connection().await {
            (Err(error), _) if error.is(NO_NODE) => return Ok(Standing::Gone),
            (stat, on) => (wire::stat(&stat?)?, on),
        };
        // A node of a session before this one is about to go.
        if stat.ephemeral_owner != entry.session.id() && !found[0].stays() {
            return Ok(Standing::Gone);
        }
        let epoch = match found[0].epoch {
            Some(epoch) => epoch,
            None => u64::try_from(self.epoch_of(&entry.session, on, stat.czxid).await?).unwrap_or(0),
        };
        self.note_nodes(claim.id, nodes, epoch)?;
        match self.settle(claim, children, Some(Ask::Queue)).await? {
            Settled::Held(waiting) => Ok(self.held(claim.id, waiting)),
            Settled::Waits(place) => Ok(self.waits(claim.id, place)),
            // It is taken out, and the question is asked anew.
            Settled::Refused(_) | Settled::Absent => Ok(Standing::Gone),
        }
    }
}

/// A node was there a moment ago: that it is gone says nothing about the question before.
pub(super) fn lost_if_gone(error: ZkError) -> ZkError {
    match error {
        ZkError::Code(NO_NODE) => ZkError::Lost("the lock's node vanished in between".into()),
        error => error,
    }
}

//! A claim takes a place at the end of its line.

use std::{sync::Arc, time::Duration};

use super::{
    claims::Entry,
    codec::{nodes, paths},
    errors::{NO_NODE, NODE_EXISTS, ZkError, classify},
    link::{
        session::Session,
        wire::{self, Mode, Request, Step},
    },
    order::{Order, Position},
    settle::{Settled, lost_if_gone},
    store::{TRIES, ZookeeperStore},
    view,
};
use crate::{
    DEFAULT_TTL,
    backend::{Ask, Claim, Entered, Failure, FailureKind, Standing},
    backends::shared::failures::in_doubt,
};

/// How long the session of a claim lives without its client. The node of a slot that is done belongs to no session,
/// so no session has to live as long as that.
fn session_ttl(claim: &Claim) -> Duration {
    if claim.is_record() { claim.ttl.min(DEFAULT_TTL) } else { claim.ttl }
}

impl ZookeeperStore {
    /// A try that cannot succeed is answered without a place in line.
    pub(super) async fn would_enter(&self, claim: &Arc<Claim>) -> Result<Option<Entered>, Failure> {
        let (session, parent) = (self.link.session(session_ttl(claim)), self.path(&claim.name));
        for _ in 0..TRIES {
            let order = match self.list_fresh(&session, &parent).await {
                Ok(children) => Order::read(&children),
                Err(error) if error.is(NO_NODE) => return Ok(None),
                Err(error) => return Err(classify(&error)),
            };
            match order.position_of_new(claim) {
                Position::Refused(refusal) => return Ok(Some(Entered::Refused(refusal))),
                Position::Waits(wait) => {
                    let left = self.end_left_holds(&session, &parent, &wait.left, true).await;
                    if !left.map_err(|error| classify(&error))?.ended {
                        return Ok(Some(Entered::Busy));
                    }
                }
                Position::Holds { .. } | Position::Rides(_) | Position::Absent => return Ok(None),
            }
        }
        Ok(Some(Entered::Busy))
    }

    /// Takes a place at the end of the line, and says how the claim stands there.
    pub(super) async fn take_place(&self, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        let (session, parent) = (self.link.session(session_ttl(claim)), self.path(&claim.name));
        let entry = Entry::new(claim, &session, self.clock.now() + claim.ttl * 2);
        let turn = self.turns.of_new(claim.id);
        let _alone = turn.comes().await;
        self.claims().insert(entry);
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
                    self.take_back(claim).await?;
                    return Ok(Entered::Busy);
                }
                Settled::Refused(refusal) => {
                    self.take_back(claim).await?;
                    return Ok(Entered::Refused(refusal));
                }
                // Somebody deleted it at once.
                Settled::Absent => {}
            }
        }
        self.claims().remove(claim.id);
        Err(classify(&ZkError::Code(NO_NODE)))
    }

    /// A claim could not be entered: what may be concluded, after whatever was made of it is gone again.
    async fn not_entered(&self, claim: &Claim, error: &ZkError) -> Failure {
        let failure = classify(error);
        // What got no answer may be there: it is asked about, or left, by its id.
        if failure.kind == FailureKind::Unknown {
            return failure;
        }
        let was_made = self.claims().get(claim.id).is_some_and(|entry| !entry.nodes.is_empty());
        if !was_made {
            self.claims().remove(claim.id);
            return failure;
        }
        // It is in line. Whether that is known soon or late, it keeps its place: it is asked about by its id.
        if failure.kind == FailureKind::Unreachable {
            return in_doubt(failure);
        }
        match self.take_back(claim).await {
            Ok(_) => failure,
            Err(other) => {
                let reason = format!("{}; then: {}", failure.reason, other.reason);
                in_doubt(Failure { reason: reason.into(), ..failure })
            }
        }
    }

    /// Makes the nodes of a claim and lists the line, in one round trip. Nothing if the lock's node had to be made.
    async fn create(
        &self,
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
        let before = self.epochs.largest();
        let prepared = self.prepare_epochs(session);
        let made = session.ask(request);
        let listed = session.ask(Request::children(parent, false));
        self.learn_epochs(session, prepared).await;
        let (made, mut on) = made.on_connection().await;
        let made = match made {
            Ok(made) => made,
            Err(error) if error.is(NO_NODE) => {
                return self.make_parents(session, parent).await.map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let (nodes, zxid) = if paths.len() == 1 {
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
            let (stat, connection) = session.ask(Request::exists(first, false)).on_connection().await;
            on = connection;
            (nodes, wire::stat(&stat.map_err(lost_if_gone)?)?.czxid)
        };
        // Known before anything else is asked: if that fails, they are taken out.
        self.note_nodes(claim.id, nodes.clone(), 0)?;
        let epoch = self.epoch_of(session, on, zxid).await.map_err(lost_if_gone)?;
        if !self.is_later(session, before, (zxid, epoch)).await? {
            for node in &nodes {
                session.ask(Request::delete(node, -1)).await.map_err(lost_if_gone)?;
            }
            return Ok(None);
        }
        self.note_nodes(claim.id, nodes, u64::try_from(epoch).unwrap_or(0))?;
        wire::children(&listed.await.map_err(lost_if_gone)?).map(Some)
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
}

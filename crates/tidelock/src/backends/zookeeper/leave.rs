//! A claim leaves its line: given back by its client, or put out by somebody else.

use std::sync::Arc;

use super::{
    claims::Entry,
    errors::{BAD_VERSION, NO_AUTH, NO_NODE, ZkError, classify},
    link::{
        session::Session,
        wire::{self, Request, Step},
    },
    order::Order,
    store::{DELETE_AGAIN, TRIES, ZookeeperStore},
    wake::notice::Notice,
};
use crate::{
    backend::{Claim, ClaimId, Failure, Left},
    model::name::Name,
};

impl ZookeeperStore {
    /// Gives back a hold or a place.
    pub(super) async fn give_back(&self, name: &Name, id: ClaimId) -> Result<Left, ZkError> {
        let known = self.note_leaves(name, id);
        self.pushes.forget(id);
        match known {
            Some(entry) => self.remove(&entry).await,
            None => self.remove_unlisted(name, id).await,
        }
    }

    /// Gives back what was made of a claim that is not to stay.
    pub(super) async fn take_back(&self, claim: &Claim) -> Result<Left, Failure> {
        self.give_back(&claim.name, claim.id).await.map_err(|error| classify(&error))
    }

    fn note_leaves(&self, name: &Name, id: ClaimId) -> Option<Entry> {
        let mut claims = self.claims();
        claims.get(id).filter(|entry| entry.claim.name == *name)?;
        claims.leaves(id, self.clock.now() + DELETE_AGAIN)
    }

    /// Deletes the nodes of a claim of this client. A request is never sent twice, so the first node's answer is
    /// the truth.
    pub(super) async fn remove(&self, entry: &Entry) -> Result<Left, ZkError> {
        // A claim that deletes its own node need not be told; those behind it have to be, also if they are of this
        // client.
        let unwatched = {
            let claims = self.claims();
            let is_alone = |node: &&Arc<str>| !claims.is_waited_for(entry.session.key, node);
            let own = entry.nodes.first().filter(|_| entry.is_watched()).filter(is_alone);
            own.map(|own| entry.session.ask(Request::unwatch(own)))
        };
        let answers: Vec<_> =
            entry.nodes.iter().map(|node| entry.session.ask(Request::delete(node, -1))).collect();
        let mut expired = entry.session.is_expired();
        let mut was_there = None;
        for answer in answers {
            let deleted = match answer.await {
                Ok(_) => true,
                Err(error) if error.is(NO_NODE) => false,
                Err(ZkError::Expired) => {
                    expired = true;
                    false
                }
                Err(error) => return Err(error),
            };
            was_there.get_or_insert(deleted);
        }
        drop(unwatched);
        let mut left = Left::from_was_there(was_there == Some(true));
        // With a session its nodes go; one that outlives its client, and one that nobody knows, have to be found.
        if entry.nodes.is_empty() || expired && entry.claim.detached {
            left = self.remove_unlisted(&entry.claim.name, entry.claim.id).await?;
        }
        self.claims().remove(entry.claim.id);
        Ok(left)
    }

    /// Deletes the nodes of a claim that this client knows nothing of.
    async fn remove_unlisted(&self, name: &Name, id: ClaimId) -> Result<Left, ZkError> {
        let parent = self.path(name);
        let session = self.session_of(id);
        let children = match self.list_fresh(&session, &parent).await {
            Err(error) if error.is(NO_NODE) => return Ok(Left::Absent),
            children => children?,
        };
        let nodes = Order::nodes_of(&children, id);
        for contender in &nodes {
            let deleted = session.ask(Request::delete(&format!("{parent}/{}", contender.node), -1)).await;
            if let Err(error) = deleted
                && !error.is(NO_NODE)
            {
                return Err(error);
            }
        }
        // One that went away since it was listed may have been deleted by the task that looks after leases here.
        Ok(Left::from_was_there(!nodes.is_empty()))
    }

    /// The session on which a node of a claim may still be made.
    pub(super) fn session_of(&self, id: ClaimId) -> Arc<Session> {
        let session = self.claims().get(id).map(|entry| Arc::clone(&entry.session));
        session.filter(|session| !session.is_expired()).unwrap_or_else(|| self.link.any_session())
    }

    /// Puts a claim out, and writes down why, for the client it belongs to.
    pub(super) async fn evict(&self, name: &Name, id: ClaimId, reason: &str) -> Result<Left, ZkError> {
        let (session, parent) = (self.link.any_session(), self.path(name));
        for _ in 0..TRIES {
            let synced = session.ask(Request::sync(&self.config.root));
            let (read, listed) = (
                session.ask(Request::get_data(&parent, false)),
                session.ask(Request::children(&parent, false)),
            );
            synced.await?;
            let (data, stat) = match read.await {
                Err(error) if error.is(NO_NODE) => return Ok(Left::Absent),
                read => wire::data(&read?)?,
            };
            let nodes = Order::nodes_of(&wire::children(&listed.await?)?, id);
            let nodes: Vec<_> = nodes.iter().map(|node| format!("{parent}/{}", node.node)).collect();
            if nodes.is_empty() {
                return Ok(Left::Absent);
            }
            let mut steps: Vec<_> = nodes.iter().map(|node| Step::Delete(node)).collect();
            let notice = Notice::read(&data).map(|notice| notice.with(id, reason));
            if let Some(notice) = &notice {
                steps.push(Step::SetData(&parent, notice, stat.version));
            }
            let done = session.ask(Request::multi(&steps)).await.and_then(|done| wire::multi(&done));
            match done {
                Ok(_) => return Ok(Left::Removed),
                // It left meanwhile, or somebody else was put out.
                Err(error) if error.is(NO_NODE) || error.is(BAD_VERSION) => {}
                // Without the right to write down why it goes all the same.
                Err(error) if error.is(NO_AUTH) && notice.is_some() => {
                    for node in &nodes {
                        session.ask(Request::delete(node, -1)).await?;
                    }
                    return Ok(Left::Removed);
                }
                Err(error) => return Err(error),
            }
        }
        Err(ZkError::Code(BAD_VERSION))
    }
}

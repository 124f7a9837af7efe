//! Names that are followed: the children of each lock's node are watched, or the node itself until it is there.

use std::sync::Arc;

use super::{
    codec::paths,
    errors::{NO_NODE, classify},
    link::wire::Request,
    store::{TRIES, ZookeeperStore},
};
use crate::{
    backend::Failure,
    backends::shared::following::{Arms, Heard},
    model::name::Name,
};

impl Arms for ZookeeperStore {
    fn key_of(&self, name: &Name) -> String {
        paths::path(&self.config.root, name)
    }

    async fn arm(self: Arc<Self>, path: String) -> Result<(), Failure> {
        let session = self.link.any_session();
        for _ in 0..TRIES {
            match session.ask(Request::children(&path, true)).await {
                Err(error) if error.is(NO_NODE) => {}
                listed => return listed.map(drop).map_err(|error| classify(&error)),
            }
            match session.ask(Request::exists(&path, true)).await {
                Err(error) if error.is(NO_NODE) => return Ok(()),
                // It was made in between.
                found => drop(found.map_err(|error| classify(&error))?),
            }
        }
        Err(Failure::unreachable("the node of the lock comes and goes"))
    }

    fn disarm(&self, path: &str) {
        // Under the lock, which a claim takes before it watches anything: a watch that a claim needs is not removed.
        let claims = self.claims();
        if !claims.has_parent(path) {
            // If that fails one change more is told, and nobody listens.
            drop(self.link.any_session().ask(Request::unwatch_all(path)));
        }
    }
}

impl ZookeeperStore {
    /// A server told of a change at this path.
    pub(super) fn tell_followers(&self, path: &str) {
        if !self.follows.is_empty() {
            // Nobody listens only when the client is gone.
            let _ = self.followed.send(Heard::Changed(path.to_owned()));
        }
    }

    /// What was watched is not watched any more.
    pub(super) fn cut_followers(&self) {
        if !self.follows.is_empty() {
            let _ = self.followed.send(Heard::Cut);
        }
    }
}

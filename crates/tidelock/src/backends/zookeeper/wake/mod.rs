//! News from the servers, and what follows from them.
//!
//! A session tells at once what a server said; whatever follows without another question is done then and there. The
//! rest is [`work`]. What the engine is told waits in [`pushes`] until it asks for it.
//!
//! | file | what |
//! |---|---|
//! | `work` | what has to be asked because something happened, and the one task that does it |
//! | `pushes` | what the engine is told |
//! | `notice` | why claims were put out, in the data of a lock's node |

pub(super) mod notice;
pub(super) mod pushes;
pub(super) mod work;

use std::sync::{Arc, Weak};

use self::pushes::Pushes;
use super::{
    claims::{Conclusion, Phase},
    link::{
        session::Watcher,
        wire::{Change, Stat},
    },
    store::ZookeeperStore,
};
use crate::{
    backend::{Claim, Failure, News, What},
    backends::shared::following::Following,
};

/// What is kept between two calls of `wait`: where the news come from.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(super) pushes: Arc<Pushes>,
    pub(super) following: Following,
}

impl Wake {
    /// The next thing that happens to a claim unasked. If this is dropped while it waits, nothing is lost.
    pub(super) async fn next(&mut self, store: &Arc<ZookeeperStore>) -> Result<News, Failure> {
        tokio::select! {
            news = self.pushes.next() => news,
            never = self.following.run(store) => match never {},
        }
    }
}

impl ZookeeperStore {
    pub(super) fn tell(&self, claim: &Claim, what: What) {
        self.pushes.push(News { name: claim.name.clone(), id: claim.id, what });
    }

    fn conclude(&self, conclusions: Vec<Conclusion>) {
        for conclusion in conclusions {
            match conclusion {
                Conclusion::Granted(entry) => self.tell(&entry.claim, What::Granted(entry.grant(0))),
                Conclusion::Gone(entry) => self.work.gone(entry),
                Conclusion::Check(id) => self.work.check(id),
            }
        }
    }
}

/// How sessions tell the store what happens to them. They may outlive it.
pub(super) struct Events(pub(super) Weak<ZookeeperStore>);

impl Watcher for Events {
    fn watched(&self, session: u64, path: &str, found: Option<Stat>, connection: u64) {
        let Some(store) = self.0.upgrade() else { return };
        let conclusions = store.claims().watched(session, path, found, connection);
        store.conclude(conclusions);
    }

    fn changed(&self, session: u64, change: Change, path: &str) {
        let Some(store) = self.0.upgrade() else { return };
        if path == store.epochs.path {
            store.epochs.changed(session);
            return;
        }
        store.tell_followers(path);
        let now = store.clock.now();
        let conclusions = store.claims().changed(session, change, path, now);
        store.conclude(conclusions);
        if change == Change::Other {
            store.work.stir();
        }
    }

    fn resumed(&self, session: u64) {
        let Some(store) = self.0.upgrade() else { return };
        store.cut_followers();
        let entries = store.claims().of_session(session);
        for entry in entries {
            match entry.phase {
                // One that is just being entered may have asked for its watches before: they are asked for again.
                Phase::Waiting | Phase::Unclear => store.work.check(entry.claim.id),
                Phase::Held => entry.watch_own(),
                Phase::Leaving => {}
            }
        }
    }

    fn expired(&self, session: u64) {
        let Some(store) = self.0.upgrade() else { return };
        store.epochs.forget(session);
        store.cut_followers();
        let over = {
            let mut claims = store.claims();
            let over = claims.of_session(session);
            for entry in &over {
                claims.remove(entry.claim.id);
            }
            over
        };
        for entry in over.iter().filter(|entry| entry.phase != Phase::Leaving) {
            // Its client asks, and hears that it is gone.
            store.tell(&entry.claim, What::Ask);
        }
    }
}

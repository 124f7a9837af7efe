//! One task for each client that does what follows from changes: looks at lines that moved, says who was
//! put out, watches nodes, and takes out what was not renewed.

use std::sync::{Arc, Weak};

use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    errors::{NO_NODE, ZkError},
    notice::Notice,
    store::{DELETE_AGAIN, Todo, ZkStore},
    table::{Entry, Phase},
    wire::{self, Request},
};
use crate::{backend::What, backends};

/// What is said when nobody wrote down why.
const DELETED: &str = "somebody deleted its node";

/// Does what has to be done until the store is gone.
pub(super) async fn attend(store: Weak<ZkStore>, mut todo: UnboundedReceiver<Todo>) {
    loop {
        let Some(here) = store.upgrade() else { return };
        let next = here.table().next();
        let (clock, wake) = (here.clock.clone(), Arc::clone(&here.wake));
        // While there is nothing to do the store may go.
        drop(here);
        let woken = {
            let due = async {
                match next {
                    Some(next) => clock.sleep_towards(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                todo = todo.recv() => Some(todo),
                () = wake.notified() => None,
                () = due => None,
            }
        };
        let Some(here) = store.upgrade() else { return };
        match woken {
            Some(Some(todo)) => here.attend_to(todo),
            // Everybody who could tell something is gone.
            Some(None) => return,
            None => {}
        }
        here.look_after_claims();
    }
}

impl ZkStore {
    fn attend_to(self: &Arc<Self>, todo: Todo) {
        match todo {
            Todo::Look(id) => self.spawn(move |store| async move {
                // What fails is asked again: when the connection is back, or by a renewal.
                let _ = store.look_at(id).await;
            }),
            Todo::Gone(entry) => self.spawn(move |store| async move { store.say_why(&entry).await }),
            Todo::Resumed(entries) => {
                for entry in entries {
                    self.spawn(move |store| async move { store.check(&entry).await });
                }
            }
        }
    }

    fn look_after_claims(self: &Arc<Self>) {
        let now = self.clock.now();
        let (unwatched, lapsed) = {
            let mut table = self.table();
            (table.take_unwatched(now), table.take_lapsed(now, now + DELETE_AGAIN))
        };
        for entry in unwatched {
            self.spawn(move |store| async move { store.watch_own(&entry).await });
        }
        for entry in lapsed {
            self.spawn(move |store| async move {
                let _ = store.take_out(&entry).await;
            });
        }
    }

    /// Something short, for one event.
    fn spawn<F: Future<Output = ()> + Send + 'static>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) {
        drop(backends::attend(work(Arc::clone(self))));
    }

    /// The session was taken up again: whether the claim's node is there, and what it waits for.
    async fn check(self: &Arc<Self>, entry: &Entry) {
        match entry.phase {
            Phase::Waiting => drop(self.look_at(entry.claim.id).await),
            Phase::Held => self.watch_own(entry).await,
            Phase::Unclear | Phase::Leaving => {}
        }
    }

    /// Watches a claim's own node.
    async fn watch_own(self: &Arc<Self>, entry: &Entry) {
        let Some(node) = entry.nodes.first() else { return };
        let (seen, connection) = entry.session.ask(Request::get_data(node, true)).on_connection().await;
        let id = entry.claim.id;
        match seen.and_then(|seen| wire::data(&seen)) {
            // Of another session it would be another's, whatever its name.
            Ok((_, stat)) if entry.claim.detached || stat.ephemeral_owner == entry.session.id() => {
                self.table().is_watched(id, connection);
            }
            Ok(_) => self.note_gone_unless_moved(entry).await,
            Err(error) if error.is(NO_NODE) => self.note_gone_unless_moved(entry).await,
            Err(_) => {}
        }
    }

    /// A claim lost its node. Whoever put it out wrote down why.
    async fn say_why(self: &Arc<Self>, entry: &Entry) {
        let rest = entry.nodes.iter().skip(1).map(|node| entry.session.ask(Request::delete(node, -1)));
        for answer in rest.collect::<Vec<_>>() {
            let _ = answer.await;
        }
        let read = entry.session.ask(Request::get_data(&entry.parent, false)).await;
        let what = match read.and_then(|read| wire::data(&read)) {
            Ok((data, _)) => {
                let reason = Notice::read(&data).and_then(|notice| notice.reason(entry.claim.id));
                What::Evicted(reason.unwrap_or(DELETED).into())
            }
            Err(ZkError::Code(_)) => What::Evicted(DELETED.into()),
            // With the connection the session may be gone: it asks, and hears that the claim is.
            Err(_) => What::Ask,
        };
        self.tell(&entry.claim, what);
    }

    /// Takes out a claim that was not renewed, or that was given back without an answer.
    async fn take_out(self: &Arc<Self>, entry: &Entry) -> Result<(), ZkError> {
        if !entry.stays() {
            return self.remove(entry).await;
        }
        let node = &entry.nodes[0];
        let stat = match entry.session.ask(Request::exists(node, false)).await {
            Err(error) if error.is(NO_NODE) => {
                self.table().remove(entry.claim.id);
                return Ok(());
            }
            stat => wire::stat(&stat?)?,
        };
        if stat.mzxid != entry.written {
            // Somebody else renewed it, by its ticket.
            self.table().written(entry.claim.id, stat.mzxid, self.clock.now());
            return Ok(());
        }
        entry.session.ask(Request::delete(node, stat.version)).await?;
        self.table().remove(entry.claim.id);
        Ok(())
    }
}

//! What has to be asked because something happened, and the one task of a client that does it.
//!
//! The task also looks after leases and watches. It does so whether or not anybody calls `wait`: a session keeps all
//! nodes of its client, so a lease that is not renewed ends only if the client deletes the node. However many claims
//! there are, there is one task: for each claim one piece of work at most is under way in it, and what happens to the
//! claim meanwhile is one more piece, begun when that has ended.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::Notify;

use super::{
    super::{
        claims::{Entry, Phase},
        errors::{NO_NODE, ZkError},
        link::wire::{self, Request},
        store::{DELETE_AGAIN, ZookeeperStore},
    },
    notice::Notice,
    pushes::Pushes,
};
use crate::{
    backend::{ClaimId, What},
    backends::shared::mutex::lock,
    clock::Alarm,
};

/// What is said when nobody wrote down why.
const DELETED: &str = "somebody deleted its node";

/// The work of a client that is not begun yet.
#[derive(Debug, Default)]
pub(crate) struct Work {
    queue: Mutex<Queue>,
    stirred: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    due: HashMap<ClaimId, Due>,
    /// Those of them of which nothing is under way, in order.
    ready: VecDeque<ClaimId>,
    under_way: HashSet<ClaimId>,
}

/// What is to be done for one claim, in this order.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Somebody else deleted its node: its client is told why.
    gone: Option<Entry>,
    /// It was not renewed, or could not be taken out when it was given back.
    lapsed: Option<Entry>,
    /// Something moved: how it stands is asked.
    check: bool,
}

impl Work {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn add(&self, id: ClaimId, what: impl FnOnce(&mut Due)) {
        let mut queue = self.queue();
        let is_new = !queue.due.contains_key(&id);
        what(queue.due.entry(id).or_default());
        if is_new && !queue.under_way.contains(&id) {
            queue.ready.push_back(id);
            self.stir();
        }
    }

    /// Something moved in the line of a claim.
    pub(crate) fn check(&self, id: ClaimId) {
        self.add(id, |due| due.check = true);
    }

    /// Somebody else deleted the node of a claim.
    pub(crate) fn gone(&self, entry: Entry) {
        self.add(entry.claim.id, |due| due.gone = Some(entry));
    }

    fn lapsed(&self, entry: Entry) {
        self.add(entry.claim.id, |due| due.lapsed = Some(entry));
    }

    /// Has leases and watches looked after now.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    /// The next piece of work that can be begun.
    fn begin(&self) -> Option<(ClaimId, Due)> {
        let mut queue = self.queue();
        let id = queue.ready.pop_front()?;
        queue.under_way.insert(id);
        Some((id, queue.due.remove(&id).unwrap_or_default()))
    }

    /// A piece of work has ended. Says whether more happened to its claim meanwhile.
    fn ended(&self, id: ClaimId) -> bool {
        let mut queue = self.queue();
        queue.under_way.remove(&id);
        let has_more = queue.due.contains_key(&id);
        if has_more {
            queue.ready.push_back(id);
        }
        has_more
    }
}

/// Says that nobody will tell anything any more, also if the task ends in a panic.
struct Closes(Arc<Pushes>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Does what has to be done until the store is gone. Work that is under way keeps the store, so that it is ended.
pub(crate) async fn run(store: Weak<ZookeeperStore>, work: Arc<Work>, pushes: Arc<Pushes>) {
    let _closes = Closes(pushes);
    let Some(mut alarm) = store.upgrade().map(|store| Alarm::new(&store.clock)) else { return };
    let mut under_way = FuturesUnordered::new();
    loop {
        let Some(here) = store.upgrade() else { return };
        here.look_after_claims();
        while let Some((id, due)) = work.begin() {
            under_way.push(do_work(Arc::clone(&here), id, due));
        }
        let next = here.claims().next();
        // While there is nothing to do the store may go.
        drop(here);
        let due = async {
            match next {
                Some(next) => alarm.sleep_towards(next).await,
                None => pending().await,
            }
        };
        let more = async {
            while let Some(id) = under_way.next().await {
                if work.ended(id) {
                    return;
                }
            }
            pending().await
        };
        tokio::select! {
            () = work.stirred.notified() => {}
            () = due => {}
            () = more => {}
        }
    }
}

async fn do_work(store: Arc<ZookeeperStore>, id: ClaimId, due: Due) -> ClaimId {
    if let Some(entry) = due.gone {
        store.say_why(&entry).await;
    }
    // What fails is done again: when the connection is back, by a renewal, or because it is still due.
    if let Some(entry) = due.lapsed {
        let _ = store.take_out(&entry).await;
    }
    if due.check {
        let _ = store.check(id).await;
    }
    id
}

impl ZookeeperStore {
    fn look_after_claims(&self) {
        let now = self.clock.now();
        let (unwatched, lapsed) = {
            let mut claims = self.claims();
            (claims.take_unwatched(now), claims.take_lapsed(now, now + DELETE_AGAIN))
        };
        unwatched.iter().for_each(Entry::watch_own);
        lapsed.into_iter().for_each(|entry| self.work.lapsed(entry));
    }

    /// Something happened to a claim: whether its node is there, and what it waits for.
    async fn check(&self, id: ClaimId) -> Result<(), ZkError> {
        let Some(entry) = self.claims().get(id).cloned() else { return Ok(()) };
        if entry.phase != Phase::Held {
            return self.look_at(id).await.map(drop);
        }
        let Some(node) = entry.nodes.first().filter(|_| !entry.is_watched()) else { return Ok(()) };
        let (read, connection) = entry.session.ask(Request::get_data(node, true)).on_connection().await;
        match read.and_then(|read| wire::data(&read)) {
            // Of another session it would be another's, whatever its name.
            Ok((_, stat)) if entry.claim.detached || stat.ephemeral_owner == entry.session.id() => {
                self.claims().is_watched(id, node, connection);
            }
            Err(error) if !error.is(NO_NODE) => return Err(error),
            _ => self.note_gone_unless_moved(&entry).await,
        }
        Ok(())
    }

    /// A claim lost its node: tells its client why, if the one that put it out wrote that down.
    async fn say_why(&self, entry: &Entry) {
        let rest = entry.nodes.iter().skip(1).map(|node| entry.session.ask(Request::delete(node, -1)));
        for answer in rest.collect::<Vec<_>>() {
            let _ = answer.await;
        }
        let parent = self.path(&entry.claim.name);
        let read = entry.session.ask(Request::get_data(&parent, false)).await;
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
    async fn take_out(&self, entry: &Entry) -> Result<(), ZkError> {
        let Some(node) = entry.nodes.first().filter(|_| entry.stays()) else {
            return self.remove(entry).await.map(drop);
        };
        let stat = match entry.session.ask(Request::exists(node, false)).await {
            Err(error) if error.is(NO_NODE) => {
                self.claims().remove(entry.claim.id);
                return Ok(());
            }
            stat => wire::stat(&stat?)?,
        };
        if stat.mzxid != entry.written {
            // Somebody else renewed it, by its ticket.
            self.claims().written(entry.claim.id, stat.mzxid, self.clock.now());
            return Ok(());
        }
        entry.session.ask(Request::delete(node, stat.version)).await?;
        self.claims().remove(entry.claim.id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_claim_one_piece_of_work_is_under_way_and_one_waits() {
        let (work, one, two) = (Work::default(), ClaimId::from_u128(1), ClaimId::from_u128(2));
        for _ in 0..1_000 {
            work.check(one);
            work.check(two);
        }
        assert!(matches!(work.begin(), Some((id, due)) if id == one && due.check));
        // What happens while it is under way is not lost, and not begun before that has ended.
        for _ in 0..1_000 {
            work.check(one);
        }
        assert!(matches!(work.begin(), Some((id, _)) if id == two));
        assert!(work.begin().is_none());
        assert!(work.ended(one) && !work.ended(two));
        assert!(matches!(work.begin(), Some((id, due)) if id == one && due.check));
        assert!(!work.ended(one) && work.begin().is_none());
        let queue = work.queue();
        assert!(queue.due.is_empty() && queue.ready.is_empty() && queue.under_way.is_empty());
    }
}

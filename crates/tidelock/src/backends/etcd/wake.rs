//! The watch stream, and what follows from what it says.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::sync::{mpsc::unbounded_channel, watch};
use tonic::Streaming;

use super::{
    claims::watch_request,
    errors::classify,
    follow::Following,
    order::order,
    proto::{DeleteRangeRequest, RangeRequest, WatchResponse},
    store::EtcdStore,
};
use crate::{
    backend::{ClaimId, Failure, Leave, News, Standing, What},
    backends::shared::attend::Jobs,
    clock::{Alarm, Clock},
    model::name::Name,
};

/// How long to wait before a line is read again: at first, and at most.
const SOON: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(500);

/// What is kept between two calls of `wait`.
pub(crate) struct Wake {
    stream: Option<(Streaming<WatchResponse>, u64)>,
    /// Readings under way.
    jobs: Jobs<()>,
    following: Following,
    in_use: watch::Receiver<u64>,
    alarm: Alarm,
}

/// What happened while `wait` waited.
enum Woken {
    Said(Result<Option<WatchResponse>, tonic::Status>),
    /// Something else is to be done.
    Stirred,
    /// Other names are followed.
    Altered,
    /// Questions go to another member by now.
    Moved,
}

impl Wake {
    pub(super) fn new(in_use: watch::Receiver<u64>, clock: &Clock) -> Self {
        let (jobs, following) = (Jobs::default(), Following::default());
        Self { stream: None, jobs, following, in_use, alarm: Alarm::new(clock) }
    }

    /// The next thing that happens to a claim unasked.
    pub(super) async fn next(&mut self, store: &Arc<EtcdStore>) -> Result<News, Failure> {
        loop {
            if let Some(news) = store.claims().take_news() {
                return Ok(news);
            }
            if self.stream.is_none() {
                self.open(store).await?;
            }
            self.begin_jobs(store);
            match self.woken(store).await {
                Woken::Stirred => store.claims().pass_time(store.clock.now()),
                Woken::Altered => self.following.catch_up(store),
                Woken::Said(Ok(Some(response))) => {
                    self.following.heard(store, &response);
                    let heard = store.claims().heard(response, store.clock.now());
                    heard.map_err(|failure| self.closed(store, failure))?;
                }
                Woken::Said(Ok(None)) => {
                    return Err(
                        self.closed(store, Failure::unreachable("the server ended the stream of watches"))
                    );
                }
                Woken::Said(Err(status)) => return Err(self.closed(store, classify(&status))),
                Woken::Moved => {
                    return Err(self.closed(store, Failure::unreachable("the connection was given up")));
                }
            }
        }
    }

    async fn open(&mut self, store: &EtcdStore) -> Result<(), Failure> {
        let (tell, requests) = unbounded_channel();
        // A server answers a stream with its first message, so there has to be something to answer.
        let first = store.claims().spare_watch();
        let _ = tell.send(watch_request(first, &(store.space.nothing(), Vec::new()), store.epochs.before()));
        self.in_use.mark_unchanged();
        self.stream = Some(store.link.watch(requests).await?);
        store.claims().opened(tell);
        self.following.catch_up(store);
        Ok(())
    }

    fn closed(&mut self, store: &EtcdStore, failure: Failure) -> Failure {
        if let Some((_, number)) = self.stream.take() {
            store.link.cut(number, true);
        }
        store.claims().closed();
        self.following.closed(store);
        failure
    }

    async fn woken(&mut self, store: &EtcdStore) -> Woken {
        let Some((stream, number)) = &mut self.stream else { return Woken::Stirred };
        let due = store.claims().due().into_iter().chain(store.leases.listing_due()).min();
        let time = async {
            match due {
                Some(due) => self.alarm.sleep_towards(due).await,
                None => pending().await,
            }
        };
        let moved = async {
            while *self.in_use.borrow_and_update() == *number {
                if self.in_use.changed().await.is_err() {
                    pending::<()>().await;
                }
            }
        };
        tokio::select! {
            said = stream.message() => Woken::Said(said),
            Some(()) = self.jobs.next() => Woken::Stirred,
            () = store.stirred.notified() => Woken::Stirred,
            () = store.follows.altered() => Woken::Altered,
            () = time => Woken::Stirred,
            () = moved => Woken::Moved,
        }
    }

    fn begin_jobs(&mut self, store: &Arc<EtcdStore>) {
        let (stale, vanished, unleft, copies_until) = {
            let mut claims = store.claims();
            let unleft = claims.take_unleft(store.clock.now());
            (claims.take_stale(), claims.take_vanished(), unleft, claims.copies_until())
        };
        for lease in store.leases.take_unlisted(copies_until) {
            let store = Arc::clone(store);
            self.jobs.begin(async move {
                // If that fails it is tried again when the lease is due next.
                let _ = store.take_out_strays(lease).await;
            });
        }
        for (name, id) in unleft {
            let store = Arc::clone(store);
            self.jobs.begin(async move {
                // If that fails it is tried again later.
                let _ = store.leave_line(&name, id, &Leave::Done).await;
            });
        }
        for name in stale {
            self.jobs.begin(read_again(Arc::clone(store), name));
        }
        for (name, id) in vanished {
            self.jobs.begin(tell_why(Arc::clone(store), name, id));
        }
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// Reads a line in which something happened, and tells our claims what it means for them.
async fn read_again(store: Arc<EtcdStore>, name: Name) {
    let mut pause = SOON;
    while try_read_again(&store, &name).await.unwrap_or(true) {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(AGAIN);
    }
}

/// Says whether it has to be read again soon.
async fn try_read_again(store: &EtcdStore, name: &Name) -> Result<bool, Failure> {
    let claims = store.claims().answered_in(name);
    if claims.is_empty() {
        return Ok(false);
    }
    let mut still_waits = false;
    let (line, at) = store.read_line(name).await?;
    let now = order(&line);
    for claim in claims {
        if !line.iter().any(|other| other.id == claim.id) {
            store.claims().vanishes(name, claim.id, store.clock.now());
            continue;
        }
        let waits = store.claims().waits(name, claim.id);
        let standing = store.stand(&claim, &line, &now, at).await?;
        if let (true, Standing::Held(grant)) = (waits, standing) {
            store.claims().tell(name, claim.id, What::Granted(grant));
        }
        still_waits |= matches!(standing, Standing::Waiting(_));
    }
    Ok(still_waits && now.is_boarding)
}

/// A claim was deleted by somebody else: tells its client for which reason, if there is one. If there is none its
/// lease may have ended; asking says so.
async fn tell_why(store: Arc<EtcdStore>, name: Name, id: ClaimId) {
    let key = store.space.reason(id);
    let read = RangeRequest::one(key.clone());
    let reason = match store.link.ask(read).await {
        Ok(answered) => answered.answer.kvs.into_iter().next().map(|kv| kv.value),
        Err(_) => None,
    };
    if reason.is_some() {
        // If that fails it ends with the client's lease.
        let _ = store.link.ask(DeleteRangeRequest { key }).await;
    }
    let what = match reason {
        Some(reason) => What::Evicted(String::from_utf8_lossy(&reason).into()),
        None => What::Ask,
    };
    store.claims().tell(&name, id, what);
}

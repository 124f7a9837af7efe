//! Leaving: on all servers, and later on those that cannot be told now.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;

use super::{
    link::Link,
    quorum::{self, Vote},
    round::{Answer, Asked},
    store::{GIVE_UP, RedlockStore},
};
use crate::{
    backend::{Claim, ClaimId, Failure, Leave, Left},
    backends::redis::is_stranger,
    clock::Moment,
    model::name::Name,
};

impl RedlockStore {
    /// Gives a claim back for the engine.
    pub(super) async fn leave(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        why: Leave,
    ) -> Result<Left, Failure> {
        // Before nobody stands for it any more: servers that say now that it holds would be told to forget it.
        let _leaving = (why == Leave::Done).then(|| Leaving::begin(self, name, id));
        // One that is put out and is one of ours is told so by the servers.
        let seat = if why == Leave::Done { self.claims.take(id) } else { None };
        let (ttl, asked) = seat.map_or((self.longest_ttl, !0), |seat| (seat.claim.ttl, seat.asked));
        self.leave_all(name, id, why, ttl, asked).await
    }

    /// Gives a claim back on all servers; those of them that were asked for it are told later if they cannot be told now.
    /// It was not there if a majority of all of them did not know it: they may have granted the lock to another.
    pub(super) async fn leave_all(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        why: Leave,
        ttl: Duration,
        asked: u16,
    ) -> Result<Left, Failure> {
        let until = self.clock.now() + ttl;
        let (why, floor) = (Arc::new(why), self.floor());
        let question = |server, voter: &Arc<Link>| -> Asked<Left> {
            let mut here =
                LeavingAt { store: Arc::clone(self), server, name: name.clone(), id, found: false };
            let (voter, why) = (Arc::clone(voter), Arc::clone(&why));
            Box::pin(async move {
                let left = voter.leave(&here.name, id, &why, floor).await;
                here.is_answered(&left);
                left
            })
        };
        let vote = |answer: &Answer<Left>| match answer {
            Answer::Here(Ok(_)) => Vote::Gone,
            Answer::Here(Err(_)) => Vote::Nothing,
            Answer::Late => Vote::Late,
            Answer::Awaited => Vote::Awaited,
        };
        let done = |answers: &[Answer<Left>]| quorum::done(&answers.iter().map(vote).collect::<Vec<_>>());
        let round = self.ask(Self::limit(ttl), question, |answers| done(answers).is_some()).await;
        for (server, question) in round.unfinished {
            let (store, name) = (Arc::clone(self), name.clone());
            self.do_later(async move {
                match tokio::time::timeout(GIVE_UP, question).await {
                    Ok(Ok(_)) => store.voters[server].note_answer(),
                    Ok(Err(_)) | Err(_) => store.owe(server, &name, id, until),
                }
                None
            });
        }
        for (server, answer) in round.answers.iter().enumerate() {
            if asked & 1 << server != 0 && matches!(answer, Answer::Here(Err(_))) {
                self.owe(server, name, id, until);
            }
        }
        if done(&round.answers) != Some(true) {
            return Err(self.failed(&round.answers, |_| true));
        }
        let is_absent = |answer: &&Answer<Left>| matches!(answer, Answer::Here(Ok(Left::Absent)));
        let absent = round.answers.iter().filter(is_absent).count();
        Ok(Left::from_was_there(absent < self.needed()))
    }

    /// Gives back a claim that is over, and that was asked for on these servers.
    pub(super) fn leave_later(self: &Arc<Self>, claim: &Arc<Claim>, asked: u16) {
        let (store, claim) = (Arc::clone(self), Arc::clone(claim));
        self.do_later(async move {
            // What could not be told is owed.
            let _ = store.leave_all(&claim.name, claim.id, Leave::Done, claim.ttl, asked).await;
            None
        });
    }

    /// A claim is in line at a server that nobody stands for any more.
    pub(super) fn leave_stray(self: &Arc<Self>, server: usize, name: &Name, id: ClaimId) {
        if self.leaves.is_being_left(id, server) {
            return;
        }
        let (store, name) = (Arc::clone(self), name.clone());
        self.do_later(async move {
            let left = store.voters[server].leave(&name, id, &Leave::Done, store.floor()).await;
            if left.is_err() {
                store.owe(server, &name, id, store.clock.now() + store.longest_ttl);
            }
            None
        });
    }

    /// Tells a server what it could not be told.
    pub(super) async fn pay(&self, server: usize) {
        let owed = std::mem::take(&mut *self.owed[server].lock().unwrap_or_else(PoisonError::into_inner));
        let (now, floor) = (self.clock.now(), self.floor());
        let leave = |(name, id, until): (Name, ClaimId, Moment)| async move {
            if until > now && self.voters[server].leave(&name, id, &Leave::Done, floor).await.is_err() {
                self.owe(server, &name, id, until);
            }
        };
        let mut owed = owed.into_iter();
        // Some at a time: there may be very many.
        while owed.len() > 0 {
            join_all(owed.by_ref().take(128).map(leave)).await;
        }
    }

    pub(super) fn owe(&self, server: usize, name: &Name, id: ClaimId, until: Moment) {
        // By then it may be another program that is seen under this id.
        if is_stranger(id) {
            return;
        }
        let mut owed = self.owed[server].lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        while owed.front().is_some_and(|(_, _, until)| *until <= now) {
            owed.pop_front();
        }
        owed.push_back((name.clone(), id, until));
    }
}

/// A leave that is under way on all servers. What they say of the claim meanwhile is seen to afterwards.
struct Leaving {
    store: Arc<RedlockStore>,
    name: Name,
    id: ClaimId,
}

impl Leaving {
    fn begin(store: &Arc<RedlockStore>, name: &Name, id: ClaimId) -> Self {
        store.leaves.begin(id, store.everywhere());
        Self { store: Arc::clone(store), name: name.clone(), id }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let said = self.store.leaves.end(self.id);
        for server in (0..self.store.voters.len()).filter(|server| said & 1 << server != 0) {
            self.store.leave_stray(server, &self.name, self.id);
        }
    }
}

/// A leave that is under way on one server: answered, or given up when this is dropped.
struct LeavingAt {
    store: Arc<RedlockStore>,
    server: usize,
    name: Name,
    id: ClaimId,
    found: bool,
}

impl LeavingAt {
    fn is_answered(&mut self, left: &Result<Left, Failure>) {
        self.found = matches!(left, Ok(Left::Removed));
    }
}

impl Drop for LeavingAt {
    fn drop(&mut self) {
        if self.store.leaves.end_at(self.id, self.server, self.found) {
            self.store.leave_stray(self.server, &self.name, self.id);
        }
    }
}

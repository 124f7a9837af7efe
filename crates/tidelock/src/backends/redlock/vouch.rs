//! Which servers may vote: those whose clocks agree with a majority, and that are known for long enough.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;

use super::{
    clocks::{self, APART, Agreement},
    quorum::Vote,
    round::Answer,
    store::RedlockStore,
};
use crate::{
    backend::{Ask, Claim},
    clock::Moment,
};

/// How often a wrong clock is written down while it is wrong.
const JUDGED: Duration = Duration::from_secs(1);
/// How long it may take to ask servers since when they are known.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the votes of servers count, the same for all claims that were asked about together.
pub(super) struct Weights {
    agreement: Vec<Agreement>,
    /// Whether an answer is awaited.
    waits: bool,
}

impl Weights {
    /// The votes for one claim.
    pub(super) fn votes<T>(
        &self,
        answers: &[Answer<T>],
        vote: impl Fn(&Answer<T>) -> Vote,
    ) -> impl Iterator<Item = Vote> {
        answers.iter().zip(&self.agreement).map(move |(answer, agreement)| match (answer, agreement) {
            (Answer::Here(Ok(_)), Agreement::Differs) => Vote::Nothing,
            (Answer::Here(Ok(_)), Agreement::Open) if self.waits => Vote::Awaited,
            (Answer::Here(Ok(_)), Agreement::Open) => Vote::Late,
            _ => vote(answer),
        })
    }
}

impl RedlockStore {
    /// For how long a server has no vote after it was first met, or had a wrong clock. Times by the clocks of different
    /// majorities may differ by twice what clocks may.
    pub(super) fn probation(&self) -> Duration {
        self.longest_ttl + 2 * APART
    }

    /// How the clocks of the servers compare, with the answers that are there.
    pub(super) fn agreement<T>(&self, answers: &[Answer<T>]) -> Vec<Agreement> {
        let readings: Vec<_> = self.voters.iter().map(|voter| voter.reading()).collect();
        let is_awaited = |answer: &Answer<T>| matches!(answer, Answer::Awaited | Answer::Late);
        let awaited = answers.iter().enumerate().filter(|(_, answer)| is_awaited(answer));
        let awaited = awaited.fold(0, |bits, (server, _)| bits | 1 << server);
        clocks::agreement(&readings, awaited, self.needed(), self.clock.now())
    }

    /// What the votes of servers count, with the answers that are there: nothing for servers whose clocks do not agree with
    /// a majority.
    pub(super) fn weights<T>(&self, answers: &[Answer<T>]) -> Weights {
        let waits = answers.iter().any(|answer| matches!(answer, Answer::Awaited));
        Weights { agreement: self.agreement(answers), waits }
    }

    /// Takes the vote from servers whose clocks differ from those of a majority. While there is none nobody has a vote, and
    /// nobody knows whose clock is wrong: perhaps ours stood still.
    pub(super) fn judge_clocks(self: &Arc<Self>, weights: &Weights) {
        let agreement = &weights.agreement;
        let agree = agreement.iter().filter(|agreement| **agreement == Agreement::Agrees).count();
        if agree < self.needed() {
            return;
        }
        let differing =
            agreement.iter().enumerate().filter(|(_, agreement)| **agreement == Agreement::Differs);
        for (server, _) in differing {
            let voter = &self.voters[server];
            let Some(reading) = voter.reading() else { continue };
            // Once for what it told, and not for each question of many at the same time.
            let judged = self.judged[server].load(Ordering::Relaxed);
            if reading.at < Moment::from_nanos(judged) + JUDGED {
                continue;
            }
            self.judged[server].store(reading.at.as_nanos(), Ordering::Relaxed);
            let is_new = voter.has_vote().is_ok();
            voter.has_wrong_clock(self.probation());
            let store = Arc::clone(self);
            self.do_later(async move {
                if let Some(now) = store.time() {
                    store.voters[server].record_wrong_clock(now).await;
                }
                if is_new {
                    store.put_back(server).await;
                }
                None
            });
        }
    }

    /// The time by the clocks of a majority, in microseconds.
    pub(super) fn time(&self) -> Option<u64> {
        let readings: Vec<_> = self.voters.iter().map(|voter| voter.reading()).collect();
        clocks::time(&readings, self.needed(), self.clock.now())
    }

    /// Finds out since when the servers are known that were connected lately.
    pub(super) async fn vouch(&self) {
        // Those that do not answer in time have no vote yet.
        let _ = tokio::time::timeout(PATIENCE, async {
            let now = self.clock.now();
            let unheard = self.voters.iter().filter(|voter| {
                voter.is_trusted() && voter.reading().is_none_or(|reading| !clocks::is_fresh(&reading, now))
            });
            join_all(unheard.map(|voter| voter.tell_time())).await;
            let agreement = self.agreement::<()>(&[]);
            let time = self.time();
            let unknown = self.voters.iter().zip(agreement).filter(|(voter, _)| voter.wants_vouching());
            join_all(unknown.map(|(voter, agreement)| async move {
                match time {
                    Some(time) if agreement == Agreement::Agrees => {
                        // If it cannot be asked it has no vote yet.
                        let _ = voter.vouch(time, self.probation()).await;
                    }
                    Some(time) => {
                        voter.has_wrong_clock(self.probation());
                        voter.record_wrong_clock(time).await;
                    }
                    None => voter.has_wrong_clock(self.probation()),
                }
            }))
            .await;
        })
        .await;
    }

    /// The same, later, if there are any, and nobody does it already.
    pub(super) fn vouch_later(self: &Arc<Self>) {
        if self.voters.iter().any(|voter| voter.wants_vouching())
            && !self.vouching.swap(true, Ordering::Relaxed)
        {
            let store = Arc::clone(self);
            self.do_later(async move {
                let unknown: Vec<_> =
                    (0..store.voters.len()).filter(|server| store.voters[*server].wants_vouching()).collect();
                store.vouch().await;
                store.vouching.store(false, Ordering::Relaxed);
                for server in unknown {
                    store.put_back(server).await;
                }
                None
            });
        }
    }

    /// Puts all claims of this client on a server that came back, or may have ended their leases: at once, because until
    /// then one more server that fails would be enough to let another claim in.
    pub(super) async fn put_back(self: &Arc<Self>, server: usize) {
        let mut claims = self.claims.claims().into_iter();
        // Some at a time: there may be very many.
        while claims.len() > 0 {
            join_all(claims.by_ref().take(128).map(|claim| self.put(server, claim))).await;
        }
    }

    async fn put(self: &Arc<Self>, server: usize, claim: Arc<Claim>) {
        // One that holds does so on a majority; one that waits takes its place in line.
        let ask = if self.claims.token(claim.id).is_some() { Ask::Try } else { Ask::Queue };
        // It may have been left meanwhile.
        if !self.claims.put_at(claim.id, server) {
            return;
        }
        // What is not heard here is found out by the next renewal.
        let placed = self.voters[server].place(&claim, ask, self.floor());
        let _ = tokio::time::timeout(super::store::GIVE_UP, placed).await;
        if self.claims.claim(claim.id).is_none() {
            self.leave_stray(server, &claim.name, claim.id);
        }
    }
}

//! Whether everything was heard that happened to many holds, without reading their keys.
//!
//! 1. One linearizable read of a key that is not there says which revision `R` the cluster has reached.
//! 2. The stream of watches is asked for its progress, which it tells after all events up to there.
//! 3. Progress to `R` or further: every deletion up to `R` was heard, so a hold whose key was not deleted is there
//!    at `R`, just as if its key had been read then.
//!
//! Servers before 3.4.34 and 3.5.16 may tell their progress before the events, or lose events. With those, with
//! servers of an unknown version, and if progress does not come in time, keys are read.

use std::{sync::Arc, time::Duration};

use super::{
    claims::Progress,
    proto::{RangeRequest, revision},
    store::EtcdStore,
};
use crate::{
    backend::{Claim, Failure, Standing},
    clock::Moment,
};

/// So few lines are read in one transaction, which is cheaper.
const FEW: usize = 100;
/// How long to wait for progress, at most; and which part of a ttl, as a renewal has a quarter of it.
const PATIENCE: Duration = Duration::from_millis(300);
const PART: u32 = 16;
/// After how long progress is asked for again: a stream with a watch that is just being made does not tell it.
const AGAIN: Duration = Duration::from_millis(25);
/// A stream that kept silent so often in a row is asked only every so many renewals: something between does not let it
/// answer, or nothing was written since a watch began.
const SILENT: u32 = 3;
const SELDOM: u32 = 16;

/// What is known of what was heard.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// One question at a time: those who ask meanwhile are answered by the next one.
    last: tokio::sync::Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When it was last asked, and what came out.
    asked: Option<(Moment, Option<Heard>)>,
    /// How often the stream on this connection kept silent in a row.
    silent: (u64, u32),
}

/// All deletions up to a revision were heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: i64,
    told: Progress,
}

/// How a claim stands, and its lease.
pub(super) type Confirmed = Option<(Standing, i64)>;

impl EtcdStore {
    /// Finds out for as many of the claims as possible that they hold, without reading their keys.
    pub(super) async fn hear_of(&self, claims: &[Arc<Claim>]) -> Result<Vec<Confirmed>, Failure> {
        let none = || vec![None; claims.len()];
        if claims.len() <= FEW || self.claims().covered(claims) <= FEW {
            return Ok(none());
        }
        let shortest = claims.iter().map(|claim| claim.ttl).min().unwrap_or_default();
        let Some(heard) = self.heard_all((shortest / PART).min(PATIENCE)).await? else { return Ok(none()) };
        let own = self.claims();
        Ok(claims.iter().map(|claim| own.confirmed(claim, heard.told, heard.at)).collect())
    }

    /// Up to which revision everything was heard, at least as far as the cluster had come when this was called.
    async fn heard_all(&self, patience: Duration) -> Result<Option<Heard>, Failure> {
        let began = self.clock.now();
        let mut last = self.hearing.last.lock().await;
        if let Some((asked, heard)) = last.asked
            && asked >= began
        {
            return Ok(heard);
        }
        let number = self.link.number();
        let Some(member) = self.link.tells_progress(number) else { return Ok(None) };
        let silent = if last.silent.0 == number { last.silent.1 } else { 0 };
        if silent >= SILENT && !silent.is_multiple_of(SELDOM) {
            last.silent = (number, silent + 1);
            return Ok(None);
        }
        let asked = self.clock.now();
        let before = self.epochs.before();
        let read = RangeRequest::one(self.space.nothing());
        let at = revision(self.link.ask(read).await?.answer.header.as_ref());
        if self.epochs.saw(before, at) {
            // Revisions went back: what was heard is of another life of the cluster.
            return Ok(None);
        }
        let told = self.progress_to(at, member, patience).await;
        last.silent = (number, if told.is_some() { 0 } else { silent + 1 });
        let heard = told.map(|told| Heard { at, told });
        last.asked = Some((asked, heard));
        Ok(heard)
    }

    /// Waits until the stream of watches on this member has told all up to a revision.
    async fn progress_to(&self, at: i64, member: u64, patience: Duration) -> Option<Progress> {
        let mut told = self.claims().progress();
        let waiting = async {
            loop {
                if !self.claims().ask_for_progress() {
                    return None;
                }
                let far_enough = told.wait_for(|told| told.member == member && told.revision >= at);
                match tokio::time::timeout(AGAIN, far_enough).await {
                    Ok(told) => return told.ok().map(|told| *told),
                    Err(_) => continue,
                }
            }
        };
        tokio::time::timeout(patience, waiting).await.ok().flatten()
    }
}

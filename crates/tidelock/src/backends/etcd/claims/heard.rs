//! What follows from what the stream of watches says.

use std::num::NonZeroI64;

use super::{Claims, OwnClaim, Phase, UNLEFT, YOUNG, standing::grant};
use crate::{
    backend::{ClaimId, Failure, News, What},
    backends::etcd::proto::{EventType, WatchResponse, revision},
    clock::Moment,
    model::name::Name,
};

/// How many events a watch remembers, for answers that they overtook.
const RECENT: usize = 64;

impl Claims {
    /// The stream said something.
    ///
    /// # Errors
    /// It refuses to go on.
    pub(in crate::backends::etcd) fn heard(
        &mut self,
        response: WatchResponse,
        now: Moment,
    ) -> Result<(), Failure> {
        self.note_progress(&response);
        let id = response.watch_id;
        let Some(watch) = self.watches.get_mut(&id) else {
            // Over, or never needed: nobody waits for it.
            return Ok(());
        };
        if response.canceled {
            return self.refused(id, &response);
        }
        if response.created && watch.from > revision(response.header.as_ref()) + 1 {
            // Revisions went back, or this member is late: what happens up to there would not be told.
            self.watch_anew(id);
            return Ok(());
        }
        if response.created {
            watch.made_at = NonZeroI64::new(revision(response.header.as_ref()).max(1));
            let (covers, name) = (watch.covers().unwrap_or_default(), watch.name.clone());
            let is_stale =
                |own: &OwnClaim| !matches!(own.phase, Phase::Asking | Phase::Over) && own.known_at < covers;
            if self.lines.get(&name).is_some_and(|line| line.claims.iter().any(is_stale)) {
                self.stale.insert(name);
            }
        }
        for event in response.events {
            if event.r#type == i32::from(EventType::Delete)
                && let Some(kv) = event.kv
            {
                self.deleted(id, kv.key, kv.mod_revision, now);
            }
        }
        Ok(())
    }

    /// A key was deleted at a revision.
    fn deleted(&mut self, watch: i64, key: Vec<u8>, at: i64, now: Moment) {
        let Some(watch) = self.watches.get_mut(&watch) else { return };
        let more = watch.more.get_or_insert_default();
        more.recent.push_back((at, key.clone()));
        if more.recent.len() > RECENT
            && let Some((forgotten, _)) = more.recent.pop_front()
        {
            more.forgotten = forgotten;
        }
        let (name, is_single) = (watch.name.clone(), watch.key().is_some());
        let Some(line) = self.lines.get_mut(&name) else { return };
        for own in line.claims.iter_mut() {
            let id = own.claim.id;
            if self.space.is_key(&key, &own.claim, own.number) {
                if matches!(own.phase, Phase::Waiting(_) | Phase::Held(_)) && at > own.created {
                    own.phase = Phase::Over;
                    self.vanished.push((name.clone(), id));
                    self.unleft.push_back((now + UNLEFT, name.clone(), id));
                }
                continue;
            }
            let Phase::Waiting(ahead) = &own.phase else { continue };
            if !ahead.0.iter().any(|other| other.key == key && other.created < at) {
                continue;
            }
            if own.passes(&key, at) {
                let grant = grant(&own.claim, own.epoch(), 1);
                self.news.push_back(News { name: name.clone(), id, what: What::Granted(grant) });
                self.young.push_back((now + YOUNG, name.clone(), id));
            } else if is_single || own.may_be_passed_unheard() {
                self.stale.insert(name.clone());
            }
        }
    }

    fn refused(&mut self, id: i64, response: &WatchResponse) -> Result<(), Failure> {
        if response.compact_revision == 0 {
            return Err(Failure::unreachable(format!("a watch was refused: {}", response.cancel_reason)));
        }
        // Too late to hear what happened.
        self.watch_anew(id);
        Ok(())
    }

    /// The key of a claim is not there, though this client did not delete it.
    pub(in crate::backends::etcd) fn vanishes(&mut self, name: &Name, id: ClaimId, now: Moment) {
        if let Some(own) = self.get_mut(name, id)
            && matches!(own.phase, Phase::Waiting(_) | Phase::Held(_))
        {
            own.phase = Phase::Over;
            self.vanished.push((name.clone(), id));
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
    }
}

//! What is to be done about claims, besides answering for them: what to tell, what to read again, what to watch or
//! to give back once it is time.

use std::collections::VecDeque;

use super::{Claims, LINGER, Phase, UNLEFT, YOUNG};
use crate::{
    backend::{ClaimId, News, What},
    clock::Moment,
    model::name::Name,
};

/// Room for so many young holds is kept.
const MANY: usize = 1_024;

impl Claims {
    /// Whether there is something to do that `wait` may not know of.
    pub(in crate::backends::etcd) fn is_restless(&self) -> bool {
        self.young.len() == 1 || !self.stale.is_empty() || !self.news.is_empty()
    }

    /// Takes the lines that have to be read again.
    pub(in crate::backends::etcd) fn take_stale(&mut self) -> Vec<Name> {
        self.stale.drain().collect()
    }

    /// Takes the claims that should be gone by now and may not be.
    pub(in crate::backends::etcd) fn take_unleft(&mut self, now: Moment) -> Vec<(Name, ClaimId)> {
        let mut unleft = Vec::new();
        while self.unleft.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, name, id)) = self.unleft.pop_front() else { break };
            if self.get_mut(&name, id).is_some() {
                self.unleft.push_back((now + UNLEFT, name.clone(), id));
                unleft.push((name, id));
            }
        }
        unleft
    }

    /// Takes the claims whose key was deleted by somebody else.
    pub(in crate::backends::etcd) fn take_vanished(&mut self) -> Vec<(Name, ClaimId)> {
        std::mem::take(&mut self.vanished)
    }

    pub(in crate::backends::etcd) fn tell(&mut self, name: &Name, id: ClaimId, what: What) {
        self.news.push_back(News { name: name.clone(), id, what });
    }

    pub(in crate::backends::etcd) fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When there is something to do about time: a little later than it could be done, so that many claims need
    /// one look, and not one each.
    pub(in crate::backends::etcd) fn due(&self) -> Option<Moment> {
        let young = self.young.front().map(|(due, ..)| *due + YOUNG / 2);
        let idle = self.idle.front().map(|(due, _)| *due + LINGER / 4);
        let unleft = self.unleft.front().map(|(due, ..)| *due + UNLEFT / 10);
        young.into_iter().chain(idle).chain(unleft).min()
    }

    /// Watches the holds that have grown up, and stops to watch lines that are not used any more.
    pub(in crate::backends::etcd) fn pass_time(&mut self, now: Moment) {
        while self.young.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, name, id)) = self.young.pop_front() else { break };
            if let Some(own) = self.get_mut(&name, id)
                && matches!(own.phase, Phase::Held(_))
            {
                // Not from the next one on: a stream with a watch that begins later than now does not tell its progress.
                let from = own.known_at;
                self.watch_whole(&name, from);
            }
        }
        if self.young.is_empty() && self.young.capacity() > MANY {
            // Very many came at once, and most of them stay.
            self.young = VecDeque::new();
        }
        while self.idle.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, name)) = self.idle.pop_front() else { break };
            let Some(line) = self.lines.get_mut(&name) else { continue };
            line.is_queued = false;
            if !line.claims.is_empty() {
                continue;
            }
            let due = line.idle_since + LINGER;
            if due > now {
                line.is_queued = true;
                self.idle.push_back((due, name));
                continue;
            }
            self.forget_line(&name);
        }
    }
}

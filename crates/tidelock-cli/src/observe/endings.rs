//! How claims ended, as far as it is known from elsewhere than from looks: from this client's engine, which knows it of
//! its own claims; from the store's news of evictions; and from evictions by this program.
//!
//! A look may show that a claim is gone a moment before it is known how. What is not known yet waits for [`GRACE`], and
//! later events of the same lock behind it.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tidelock::{Name, backend::ClaimId};

use super::event::{Ending, Event, What};
use crate::clock::Moment;

/// How many endings are remembered that no look has shown yet: of most claims of a busy server, no look ever does.
const MOST: usize = 10_000;
/// How long it may take until it is known how a claim ended.
pub(super) const GRACE: Duration = Duration::from_millis(300);

/// Endings that no look has shown yet.
#[derive(Debug, Default)]
pub(super) struct Known {
    newer: HashMap<ClaimId, Ending>,
    older: HashMap<ClaimId, Ending>,
    /// Since when all evictions are heard.
    hears: Option<Moment>,
}

impl Known {
    /// A claim has ended, or is about to; or it did not end as it was told.
    pub(super) fn tell(&mut self, claim: ClaimId, how: Option<Ending>) {
        self.older.remove(&claim);
        match how {
            Some(how) => self.newer.insert(claim, how),
            None => self.newer.remove(&claim),
        };
        if self.newer.len() >= MOST {
            self.older = std::mem::take(&mut self.newer);
        }
    }

    /// How a claim ended. Said once.
    pub(super) fn take(&mut self, claim: ClaimId) -> Option<Ending> {
        self.newer.remove(&claim).or_else(|| self.older.remove(&claim))
    }

    /// All evictions are heard since then, or not any more.
    pub(super) fn hear_evictions(&mut self, since: Option<Moment>) {
        self.hears = since;
    }

    /// Whether all evictions were heard since then.
    pub(super) fn hears_evictions(&self, since: Moment) -> bool {
        self.hears.is_some_and(|hears| hears <= since)
    }
}

/// Events that wait until it is known how a claim ended.
#[derive(Debug, Default)]
pub(super) struct Pending(HashMap<Name, Lane>);

/// The events of one lock, in their order. The first waits.
#[derive(Debug)]
struct Lane {
    events: VecDeque<(Event, bool)>,
    until: Moment,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes an event in; `is_open` if it may become known how it ended. What can be said now is added to `ready`.
    pub(super) fn add(&mut self, event: Event, is_open: bool, now: Moment, ready: &mut Vec<Event>) {
        if let Some(lane) = self.0.get_mut(&event.name) {
            lane.events.push_back((event, is_open));
        } else if is_open {
            let name = event.name.clone();
            self.0.insert(name, Lane { events: [(event, true)].into(), until: now.plus(GRACE) });
        } else {
            ready.push(event);
        }
    }

    /// It is known how a claim ended. Says whether that was waited for.
    pub(super) fn settle(
        &mut self,
        name: Option<&Name>,
        claim: ClaimId,
        how: &Ending,
        ready: &mut Vec<Event>,
    ) -> bool {
        let waits = |lane: &Lane| lane.events.iter().any(|(event, is_open)| *is_open && event.claim == claim);
        let name = match name {
            Some(name) => self.0.get(name).filter(|lane| waits(lane)).map(|_| name.clone()),
            None => self.0.iter().find(|(_, lane)| waits(lane)).map(|(name, _)| name.clone()),
        };
        let Some((name, lane)) = name.and_then(|name| self.0.get_mut(&name).map(|lane| (name, lane))) else {
            return false;
        };
        for (event, is_open) in lane.events.iter_mut().filter(|(event, _)| event.claim == claim) {
            if let (true, What::Ended { how: said, .. }) = (*is_open, &mut event.what) {
                (*said, *is_open) = (how.clone(), false);
            }
        }
        while lane.events.front().is_some_and(|(_, is_open)| !is_open) {
            ready.extend(lane.events.pop_front().map(|(event, _)| event));
        }
        if lane.events.is_empty() {
            self.0.remove(&name);
        }
        true
    }

    /// What has waited long enough is said as far as it is known.
    pub(super) fn expire(&mut self, now: Moment, ready: &mut Vec<Event>) {
        self.0.retain(|_, lane| {
            let is_over = lane.until <= now;
            if is_over {
                ready.extend(lane.events.drain(..).map(|(event, _)| event));
            }
            !is_over
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> ClaimId {
        ClaimId::from_u128(1)
    }

    fn event(name: &str, claim: u128, what: What) -> Event {
        Event {
            serial: 0,
            at: Moment::from_nanos(0),
            after: None,
            name: Name::new(name).unwrap(),
            claim: ClaimId::from_u128(claim),
            label: "x".into(),
            what,
        }
    }

    fn gone() -> What {
        What::Ended { how: Ending::Gone, held: None, token: None }
    }

    fn words(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.what.word()).collect()
    }

    #[test]
    fn an_ending_is_said_once_and_forgotten_when_there_are_many() {
        let mut known = Known::default();
        known.tell(claim(), Some(Ending::Released));
        known.tell(claim(), Some(Ending::Lost { reason: "gone".into() }));
        assert_eq!(known.take(claim()), Some(Ending::Lost { reason: "gone".into() }));
        assert_eq!(known.take(claim()), None);
        known.tell(claim(), Some(Ending::Released));
        known.tell(claim(), None);
        assert_eq!(known.take(claim()), None);
        (1..=3 * MOST as u128).for_each(|n| known.tell(ClaimId::from_u128(n), Some(Ending::Released)));
        assert!(known.newer.len() + known.older.len() <= 2 * MOST);
        assert_eq!(known.take(ClaimId::from_u128(3 * MOST as u128)), Some(Ending::Released));
    }

    #[test]
    fn events_of_a_lock_wait_in_their_order_until_it_is_known_how_a_claim_ended() {
        let (mut pending, now, mut ready) = (Pending::default(), Moment::from_nanos(0), Vec::new());
        pending.add(event("a", 1, gone()), true, now, &mut ready);
        pending.add(event("a", 2, What::Queued), false, now, &mut ready);
        pending.add(event("b", 3, What::Queued), false, now, &mut ready);
        assert_eq!(words(&ready), ["queued"], "another lock does not wait");
        let how = Ending::Evicted { reason: "it hangs".into() };
        assert!(!pending.settle(None, ClaimId::from_u128(9), &how, &mut ready));
        assert!(pending.settle(None, claim(), &how, &mut ready) && pending.is_empty());
        assert_eq!(words(&ready), ["queued", "evicted", "queued"]);
    }

    #[test]
    fn what_never_becomes_known_is_said_as_it_is() {
        let (mut pending, now, mut ready) = (Pending::default(), Moment::from_nanos(0), Vec::new());
        pending.add(event("a", 1, gone()), true, now, &mut ready);
        pending.expire(now.plus(GRACE / 2), &mut ready);
        assert!(ready.is_empty());
        pending.expire(now.plus(GRACE), &mut ready);
        assert_eq!(words(&ready), ["gone"]);
        assert!(pending.is_empty());
    }
}

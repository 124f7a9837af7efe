//! The latest events, within bounds of time and memory, and when nobody looked.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::event::Event;
use crate::clock::Moment;

/// The most memory for events, in bytes.
const MEMORY: usize = 16 * 1024 * 1024;
/// The most gaps that are remembered.
const GAPS: usize = 1_000;

/// A time in which nobody looked, or the store did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) from: Moment,
    /// Nothing while it lasts.
    pub(crate) to: Option<Moment>,
    pub(crate) why: Arc<str>,
}

/// A ring of events.
#[derive(Debug)]
pub(crate) struct History {
    keep: Duration,
    memory: usize,
    used: usize,
    events: VecDeque<Arc<Event>>,
    gaps: VecDeque<Gap>,
    /// The number of the next event.
    next: u64,
    /// Since when it is complete, but for the gaps.
    since: Option<Moment>,
}

impl History {
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            keep,
            memory: MEMORY,
            used: 0,
            events: VecDeque::new(),
            gaps: VecDeque::new(),
            next: 1,
            since: None,
        }
    }

    /// The first look has been taken.
    pub(super) fn begin(&mut self, now: Moment) {
        self.since.get_or_insert(now);
    }

    /// Adds an event, which gets its number here.
    pub(super) fn add(&mut self, mut event: Event) {
        event.serial = self.next;
        self.next += 1;
        self.used += event.size();
        self.events.push_back(Arc::new(event));
        while self.used > self.memory {
            self.forget();
        }
    }

    /// Forgets what is older than is kept.
    pub(super) fn trim(&mut self, now: Moment) {
        let oldest = now.minus(self.keep);
        while self.events.front().is_some_and(|event| event.at < oldest) {
            self.forget();
        }
        while self.gaps.front().is_some_and(|gap| gap.to.is_some_and(|to| to < oldest)) {
            self.gaps.pop_front();
        }
        self.since = self.since.map(|since| since.max(oldest));
    }

    fn forget(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.used -= event.size();
            self.since = self.since.map(|since| since.max(event.at));
        }
    }

    /// From now on nothing is seen, for this reason.
    pub(super) fn lose_sight(&mut self, now: Moment, why: &str) {
        if self.since.is_some() && self.gaps.back().is_none_or(|gap| gap.to.is_some()) {
            self.gaps.push_back(Gap { from: now, to: None, why: why.into() });
            if self.gaps.len() > GAPS {
                self.gaps.pop_front();
            }
        }
    }

    /// Everything is seen again.
    pub(super) fn regain_sight(&mut self, now: Moment) {
        if let Some(gap) = self.gaps.back_mut() {
            gap.to.get_or_insert(now);
        }
    }

    /// Since when it looks; nothing before the first look.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.since
    }

    pub(crate) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter()
    }

    /// The events after the one with this number, and whether some of them were forgotten.
    pub(crate) fn after(&self, serial: u64) -> (Vec<Arc<Event>>, bool) {
        let first = self.events.front().map_or(self.next, |event| event.serial);
        let skip = usize::try_from(serial.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        (self.events.iter().skip(skip).cloned().collect(), serial.saturating_add(1) < first)
    }

    /// The number of the latest event.
    pub(crate) fn latest(&self) -> u64 {
        self.next - 1
    }

    /// All events that fit.
    pub(crate) fn find(&self, fits: impl Fn(&Event) -> bool) -> Vec<Arc<Event>> {
        self.events.iter().filter(|event| fits(event)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use tidelock::{Name, backend::ClaimId};

    use super::{super::event::What, *};

    fn moment(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn event(second: u64) -> Event {
        Event {
            serial: 0,
            at: moment(second),
            after: None,
            name: Name::new("a").unwrap(),
            claim: ClaimId::from_u128(1),
            label: "x".into(),
            what: What::Queued,
        }
    }

    #[test]
    fn what_is_too_old_is_forgotten_and_it_says_since_when_it_knows() {
        let mut history = History::new(Duration::from_secs(60));
        history.begin(moment(10));
        [20, 50, 90].into_iter().for_each(|second| history.add(event(second)));
        history.trim(moment(100));
        assert_eq!(history.since(), Some(moment(40)));
        assert_eq!(history.find(|_| true).len(), 2);
        assert_eq!(history.after(0), (history.find(|_| true), true));
        assert_eq!(history.after(2).0.len(), 1);
        assert_eq!(history.after(3), (vec![], false));
        assert_eq!(history.latest(), 3);
    }

    #[test]
    fn memory_is_bounded_however_much_happens() {
        let mut history = History::new(Duration::from_secs(3_600));
        history.memory = 10 * event(0).size();
        history.begin(moment(0));
        (0..1_000).for_each(|second| history.add(event(second)));
        assert_eq!(history.find(|_| true).len(), 10);
        assert!(history.used <= history.memory);
        assert_eq!(history.since(), Some(moment(989)));
    }

    #[test]
    fn gaps_are_told() {
        let mut history = History::new(Duration::from_secs(60));
        history.lose_sight(moment(1), "nobody looked yet");
        assert_eq!(history.gaps().count(), 0);
        history.begin(moment(10));
        history.lose_sight(moment(20), "the store is down");
        history.lose_sight(moment(21), "the store is still down");
        history.regain_sight(moment(30));
        history.regain_sight(moment(31));
        let gap = Gap { from: moment(20), to: Some(moment(30)), why: "the store is down".into() };
        assert_eq!(history.gaps().collect::<Vec<_>>(), [&gap]);
        history.trim(moment(200));
        assert_eq!(history.gaps().count(), 0);
    }
}

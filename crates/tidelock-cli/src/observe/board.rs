//! All locks as they were last seen, and what changed since when.
//!
//! Every change has a number, its version. A viewer that knows the version it has shown gets what is different since.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tidelock::{
    Done, Name,
    backend::{ClaimId, LockView},
};

use super::{
    compare::compare,
    endings::{Known, Pending},
    event::{Ending, Event},
    history::History,
    lock::{Asked, Lock},
};
use crate::clock::Moment;

/// How many locks that are free by now are remembered, for viewers that have not heard of it.
const GONE: usize = 10_000;

/// Of up to this many locks, the leases are followed.
const MOST_DUE: usize = 1_000;
/// How much later than its lease ends a claim is looked at, so that it is gone by then.
const LATE: Duration = Duration::from_millis(100);

/// What is different since a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) version: u64,
    /// Whether these are all locks: what was shown before is void.
    pub(crate) is_all: bool,
    pub(crate) changed: Vec<Arc<Lock>>,
    pub(crate) gone: Vec<Name>,
}

/// All locks.
#[derive(Debug, Default)]
pub(crate) struct Board {
    version: u64,
    locks: HashMap<Name, Shown>,
    gone: HashMap<Name, u64>,
    /// The names of both by the version of their latest change.
    order: BTreeMap<u64, Name>,
    /// Up to this version, names that are gone were forgotten.
    forgotten: u64,
    known: Known,
    pending: Pending,
    /// Of the claims of one look, how many are older or younger than they should be, and how many are not.
    jumps: (usize, usize),
    /// When the store's clock was last seen to jump. Locks that were not looked at since then show the same jump.
    jumped: Moment,
    has_looked: bool,
}

#[derive(Debug)]
struct Shown {
    lock: Arc<Lock>,
    version: u64,
}

impl Board {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether everything was looked at once.
    pub(crate) fn has_looked(&self) -> bool {
        self.has_looked
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = &Arc<Lock>> {
        self.locks.values().map(|shown| &shown.lock)
    }

    pub(crate) fn lock(&self, name: &Name) -> Option<&Arc<Lock>> {
        self.locks.get(name).map(|shown| &shown.lock)
    }

    /// Locks with a claim that should have been renewed by now, or that should have ended, since they were last seen.
    /// Nothing if there are so many locks that to look at them by name would cost more than it tells.
    pub(super) fn due(&self, now: Moment) -> Vec<Name> {
        if self.locks.len() > MOST_DUE {
            return Vec::new();
        }
        let is_due = |lock: &Lock| {
            let points =
                lock.claims().flat_map(|claim| [claim.until.minus(claim.lease * 2 / 5), claim.until]);
            points.map(|point| point.plus(LATE)).any(|point| lock.seen < point && point <= now)
        };
        let due = self.locks().filter(|lock| is_due(lock));
        due.map(|lock| lock.name.clone()).collect()
    }

    /// What is different since a version.
    pub(crate) fn since(&self, version: u64) -> Changes {
        if version == 0 || version < self.forgotten {
            let changed = self.locks().cloned().collect();
            return Changes { version: self.version, is_all: true, changed, gone: Vec::new() };
        }
        let mut changes = Changes { version: self.version, ..Changes::default() };
        for name in self.order.range(version + 1..).map(|(_, name)| name) {
            match self.locks.get(name) {
                Some(shown) => changes.changed.push(Arc::clone(&shown.lock)),
                None => changes.gone.push(name.clone()),
            }
        }
        changes
    }

    /// A claim has ended, or is about to: if a look shows that it is gone, or has just shown it, this is how.
    pub(super) fn tell(&mut self, name: Option<&Name>, claim: ClaimId, how: Ending, history: &mut History) {
        let mut ready = Vec::new();
        if !self.pending.settle(name, claim, &how, &mut ready) {
            self.known.tell(claim, Some(how));
        }
        self.say(ready, history);
    }

    /// It did not end as it was told.
    pub(super) fn untell(&mut self, claim: ClaimId) {
        self.known.tell(claim, None);
    }

    /// All evictions are heard since then, or not any more.
    pub(super) fn hear_evictions(&mut self, since: Option<Moment>) {
        self.known.hear_evictions(since);
    }

    /// Whether it is waited for how a claim ended.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What has waited long enough is said as far as it is known.
    pub(super) fn say_pending(&mut self, now: Moment, history: &mut History) {
        let mut ready = Vec::new();
        self.pending.expire(now, &mut ready);
        self.say(ready, history);
    }

    fn say(&mut self, events: Vec<Event>, history: &mut History) {
        if !events.is_empty() {
            self.touch();
        }
        events.into_iter().for_each(|event| history.add(event));
    }

    /// Whether the look that was just taken in shows that the store's clock jumped.
    pub(super) fn has_jumped(&mut self, asked: Asked) -> bool {
        let (jumped, steady) = std::mem::take(&mut self.jumps);
        let has_jumped = jumped > steady;
        if has_jumped {
            self.jumped = asked.to;
        }
        has_jumped
    }

    /// Something that is no lock has changed.
    pub(super) fn touch(&mut self) {
        self.version += 1;
    }

    /// Takes in what was seen of these names. Those without a view are free.
    pub(super) fn note(&mut self, names: &[Name], views: Vec<LockView>, asked: Asked, history: &mut History) {
        let mut free: HashSet<&Name> = names.iter().collect();
        for view in views {
            free.remove(&view.name);
            self.set(view, asked, history);
        }
        free.into_iter().for_each(|name| self.clear(name, asked, history));
    }

    /// Takes in a look at everything, and returns the names that it did not find although they were seen before it: a
    /// scan of a store may miss a line that was taken away and put back while it ran, so they are looked at by name.
    pub(super) fn note_all(
        &mut self,
        views: Vec<LockView>,
        asked: Asked,
        history: &mut History,
    ) -> Vec<Name> {
        let found: HashSet<Name> = views.iter().map(|view| view.name.clone()).collect();
        for view in views {
            self.set(view, asked, history);
        }
        self.has_looked = true;
        history.begin(asked.from);
        let missing = |shown: &&Shown| shown.lock.seen < asked.from && !found.contains(&shown.lock.name);
        self.locks.values().filter(missing).map(|shown| shown.lock.name.clone()).collect()
    }

    fn set(&mut self, view: LockView, asked: Asked, history: &mut History) {
        let before = self.locks.get(&view.name);
        if before.is_some_and(|shown| shown.lock.seen > asked.from) {
            // A look that began later was faster.
            return;
        }
        // Records of `run --once-per` are no locks, and a line that is empty is free.
        if Done::of(&view).is_some() || (view.holders.is_empty() && view.waiters.is_empty()) {
            return self.clear(&view.name, asked, history);
        }
        let before = before.map(|shown| Arc::clone(&shown.lock));
        let lock = Lock::new(view, asked, before.as_deref());
        if let Some(before) = before.as_deref().filter(|before| before.seen >= self.jumped) {
            let (jumped, steady) = lock.jumps(before);
            self.jumps = (self.jumps.0 + jumped, self.jumps.1 + steady);
        }
        if let Some(before) = before.as_deref().filter(|before| lock.is_like(before)) {
            // Nothing to show, but it is known to be so at a later moment.
            let name = before.name.clone();
            if let Some(shown) = self.locks.get_mut(&name) {
                shown.lock = Arc::new(lock);
            }
            return;
        }
        self.happen(before.as_deref(), Some(&lock), asked, history);
        self.version += 1;
        let name = lock.name.clone();
        let shown = Shown { lock: Arc::new(lock), version: self.version };
        let old = self.locks.insert(name.clone(), shown).map(|shown| shown.version);
        if let Some(old) = old.or_else(|| self.gone.remove(&name)) {
            self.order.remove(&old);
        }
        self.order.insert(self.version, name);
    }

    fn clear(&mut self, name: &Name, asked: Asked, history: &mut History) {
        if self.locks.get(name).is_none_or(|shown| shown.lock.seen > asked.from) {
            return;
        }
        let Some(Shown { lock, version }) = self.locks.remove(name) else { return };
        self.happen(Some(&lock), None, asked, history);
        self.order.remove(&version);
        self.version += 1;
        self.order.insert(self.version, name.clone());
        self.gone.insert(name.clone(), self.version);
        if self.gone.len() > GONE {
            self.forget_half();
        }
    }

    /// Forgets the older half of what is gone. Viewers that know less get everything.
    fn forget_half(&mut self) {
        let mut versions: Vec<u64> = self.gone.values().copied().collect();
        versions.sort_unstable();
        self.forgotten = versions[versions.len() / 2];
        let forgotten = self.forgotten;
        self.gone.retain(|_, version| *version > forgotten);
        versions.into_iter().take_while(|version| *version <= forgotten).for_each(|version| {
            self.order.remove(&version);
        });
    }

    /// Notes what happened, unless it was before anybody looked.
    fn happen(&mut self, before: Option<&Lock>, after: Option<&Lock>, asked: Asked, history: &mut History) {
        if !self.has_looked {
            return;
        }
        let Some(name) = after.or(before).map(|lock| lock.name.clone()) else { return };
        let mut ready = Vec::new();
        for happened in compare(before, after, asked, &mut self.known) {
            let event = Event {
                serial: 0,
                at: happened.at,
                after: happened.after,
                name: name.clone(),
                claim: happened.claim.id(),
                label: Arc::clone(&happened.claim.view.label),
                what: happened.what,
            };
            self.pending.add(event, happened.is_open, asked.to, &mut ready);
        }
        self.say(ready, history);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::lock::tests::{at, claim, view},
        *,
    };

    fn history() -> History {
        History::new(Duration::from_secs(3_600))
    }

    fn names(locks: &[Arc<Lock>]) -> Vec<&str> {
        locks.iter().map(|lock| lock.name.as_str()).collect()
    }

    /// A lock at this second, with a lease from second 100 on that nobody renews.
    fn held(name: &str, by: u128, second: u64) -> LockView {
        view(name, vec![claim(by, Some(1), second - 99, 130 - second)], vec![])
    }

    #[test]
    fn a_viewer_gets_what_is_different_since_its_version() {
        let (mut board, mut history) = (Board::default(), history());
        assert!(board.note_all(vec![held("a", 1, 100), held("b", 2, 100)], at(100), &mut history).is_empty());
        assert_eq!(history.latest(), 0, "what was before the first look did not happen now");
        let first = board.since(0);
        assert!(first.is_all && first.changed.len() == 2);
        assert!(board.since(first.version).changed.is_empty());
        board.note_all(vec![held("a", 3, 101), held("b", 2, 101), held("c", 4, 101)], at(101), &mut history);
        let changes = board.since(first.version);
        assert_eq!((names(&changes.changed), changes.is_all), (vec!["a", "c"], false));
        let words = |history: &History| -> Vec<_> {
            history.after(0).0.iter().map(|event| (event.name.to_string(), event.what.word())).collect()
        };
        assert_eq!(words(&history), [("a".into(), "granted"), ("c".into(), "granted")]);
        let version = board.version();
        board.tell(None, ClaimId::from_u128(1), Ending::Released, &mut history);
        assert_eq!(words(&history).last(), Some(&("a".into(), "released")));
        assert!(board.version() > version, "viewers are told");
    }

    #[test]
    fn a_lock_that_a_scan_missed_is_looked_at_by_name_before_it_is_gone() {
        let (mut board, mut history) = (Board::default(), history());
        board.note_all(vec![held("a", 1, 100), held("b", 2, 100)], at(100), &mut history);
        let version = board.version();
        let missing = board.note_all(vec![held("a", 1, 101)], at(101), &mut history);
        assert_eq!(missing, ["b"]);
        assert!(board.since(version).gone.is_empty());
        board.note(&missing, vec![], at(102), &mut history);
        assert_eq!(board.since(version).gone, ["b"]);
        board.note_all(vec![held("a", 1, 103), held("b", 2, 103)], at(103), &mut history);
        let changes = board.since(version);
        assert_eq!((names(&changes.changed), changes.gone.len()), (vec!["b"], 0));
    }

    #[test]
    fn a_lease_that_was_not_seen_to_be_renewed_is_looked_at_before_and_after_its_end() {
        let (mut board, mut history) = (Board::default(), history());
        board.note_all(vec![held("a", 1, 100)], at(100), &mut history);
        let due = |board: &Board, second: u64| board.due(at(second).from).len();
        assert_eq!([100, 117].map(|second| due(&board, second)), [0, 0]);
        assert_eq!(due(&board, 119), 1, "it should have been renewed");
        let name = [Name::new("a").unwrap()];
        let late = view("a", vec![claim(1, Some(1), 20, 11)], vec![]);
        board.note(&name, vec![late], at(119), &mut history);
        assert_eq!([120, 129].map(|second| due(&board, second)), [0, 0]);
        assert_eq!(due(&board, 131), 1, "it should be gone");
        board.note(&name, vec![], at(131), &mut history);
        assert_eq!(due(&board, 132), 0);
        assert_eq!(history.after(0).0.last().unwrap().what.word(), "expired");
    }

    #[test]
    fn a_jump_of_the_stores_clock_is_counted_once_whichever_locks_show_it() {
        let (mut board, mut history) = (Board::default(), history());
        let at_age = |name, age| view(name, vec![claim(1, Some(1), age, 30)], vec![]);
        board.note_all(vec![at_age("a", 10), at_age("b", 10)], at(100), &mut history);
        assert!(!board.has_jumped(at(100)));
        let [a, b] = ["a", "b"].map(|name| [Name::new(name).unwrap()]);
        board.note(&a, vec![at_age("a", 71)], at(101), &mut history);
        assert!(board.has_jumped(at(101)));
        board.note(&b, vec![at_age("b", 72)], at(102), &mut history);
        assert!(!board.has_jumped(at(102)), "it is the same jump");
        board.note(&b, vec![at_age("b", 12)], at(103), &mut history);
        assert!(board.has_jumped(at(103)));
    }

    #[test]
    fn a_slow_look_does_not_undo_a_later_one() {
        let (mut board, mut history) = (Board::default(), history());
        board.note_all(vec![held("a", 1, 100)], at(100), &mut history);
        let name = [Name::new("a").unwrap()];
        board.note(&name, vec![held("a", 2, 105)], at(105), &mut history);
        assert!(board.note_all(vec![held("a", 1, 103)], at(103), &mut history).is_empty());
        board.note(&name, vec![], at(104), &mut history);
        assert_eq!(board.lock(&name[0]).unwrap().holders[0].id().get(), 2);
    }

    #[test]
    fn records_of_what_was_done_once_are_no_locks_and_empty_lines_are_free() {
        let (mut board, mut history) = (Board::default(), history());
        board.note_all(vec![view("a", vec![], vec![])], at(100), &mut history);
        assert_eq!(board.locks().count(), 0);
    }

    #[test]
    fn a_viewer_that_was_away_for_long_gets_everything() {
        let (mut board, mut history) = (Board::default(), history());
        let all: Vec<_> = (0..=GONE).map(|n| held(&n.to_string(), n as u128 + 1, 100)).collect();
        board.note_all(all, at(100), &mut history);
        let version = board.version();
        let missing = board.note_all(vec![], at(101), &mut history);
        board.note(&missing, vec![], at(102), &mut history);
        let changes = board.since(version);
        assert!(changes.is_all && changes.changed.is_empty());
        assert!(board.gone.len() <= GONE && board.order.len() == board.gone.len());
    }
}

//! A lock as it was seen: views pinned to moments, so that ages and leases can be told at any later moment.

use std::{sync::OnceLock, time::Duration};

use tidelock::{
    Name, Token,
    backend::{Capacity, ClaimId, ClaimView, LockView, Share},
};

use crate::clock::Moment;

/// Two looks at one lease may differ by this much without a renewal between them.
const JITTER: Duration = Duration::from_millis(250);

/// A clock that jumps by less is not noticed: some stores count in seconds, and a look takes time.
const JUMP: Duration = Duration::from_millis(1_500);
/// Claims that are younger say nothing about it.
const AGED: Duration = Duration::from_secs(1);
/// How far two clocks may run apart by themselves: one part in so many.
const DRIFT: u32 = 200;

/// When the store was asked and when it had answered: what it said was true at some moment between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

impl Asked {
    pub(crate) fn took(self) -> Duration {
        self.to.since(self.from)
    }
}

/// A lock that is held or waited for.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) capacity: Option<Capacity>,
    pub(crate) token: Option<Token>,
    pub(crate) holders: Vec<Claim>,
    /// In the order of the line.
    pub(crate) waiters: Vec<Claim>,
    /// When the store was asked, and how long it took to answer.
    pub(crate) seen: Moment,
    took: Duration,
    /// How the page reads it, written once for all who view it.
    pub(crate) text: OnceLock<Box<str>>,
}

/// A claim that holds or waits.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) view: ClaimView,
    /// Since when it has held, or waited.
    pub(crate) since: Moment,
    /// When it expires unless it is renewed.
    pub(crate) until: Moment,
    /// The longest lease that was seen of it, which is about its ttl.
    pub(crate) lease: Duration,
    /// Since when it has held or waited by what the store said last, whatever was shown before.
    told: Moment,
}

impl Claim {
    /// What a look says, after what the look before it said, and when that one was.
    fn new(view: ClaimView, asked: Asked, before: Option<(&Self, Moment)>) -> Self {
        let told = asked.from.minus(view.age);
        let until = asked.from.plus(view.lapse_in);
        let tolerance = JITTER.max(asked.took());
        let Some((before, seen)) = before else {
            return Self { lease: view.lapse_in, view, since: told, until, told };
        };
        if before.view.epoch != view.epoch {
            // It waited when it was last seen, so it holds since then at most, even if the store counts from its arrival.
            return Self { lease: view.lapse_in, view, since: told.max(seen), until, told };
        }
        // What did not change keeps its moments, so that nothing trembles when it is shown.
        let is_renewed = until.distance(before.until) > tolerance;
        Self {
            since: before.since,
            until: if is_renewed { until } else { before.until },
            lease: before.lease.max(view.lapse_in),
            view,
            told,
        }
    }

    pub(crate) fn id(&self) -> ClaimId {
        self.view.id
    }

    /// Whether nobody else can hold beside it.
    pub(crate) fn is_exclusive_holder(&self) -> bool {
        self.view.epoch.is_some() && self.view.share == Share::Exclusive
    }

    /// Whether a person would read the same of both.
    fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.view, &other.view);
        (self.since, self.until, self.lease) == (other.since, other.until, other.lease)
            && (one.id, one.share, one.epoch) == (two.id, two.share, two.epoch)
            && (&one.owner, &one.label, &one.advertised) == (&two.owner, &two.label, &two.advertised)
            && one.foreign == two.foreign
    }
}

impl Lock {
    /// What a look says, after what the look before it said.
    pub(crate) fn new(view: LockView, asked: Asked, before: Option<&Self>) -> Self {
        let token = view.token();
        let LockView { name, capacity, holders, waiters, .. } = view;
        let claims = |views: Vec<ClaimView>| {
            let claim = |view: ClaimView| {
                let before = before.and_then(|before| Some((before.claim(view.id)?, before.seen)));
                Claim::new(view, asked, before)
            };
            views.into_iter().map(claim).collect()
        };
        Self {
            name,
            capacity,
            token,
            holders: claims(holders),
            waiters: claims(waiters),
            seen: asked.from,
            took: asked.took(),
            text: OnceLock::new(),
        }
    }

    /// All claims, holders first.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.holders.iter().chain(&self.waiters)
    }

    pub(crate) fn claim(&self, id: ClaimId) -> Option<&Claim> {
        self.claims().find(|claim| claim.id() == id)
    }

    pub(crate) fn is_held_by(&self, id: ClaimId) -> bool {
        self.holders.iter().any(|holder| holder.id() == id)
    }

    /// The claim that has held for the longest time.
    pub(crate) fn oldest_holder(&self) -> Option<&Claim> {
        self.holders.iter().min_by_key(|holder| holder.since)
    }

    /// Of the claims that two looks show, how many became older by more or less than the time between the looks, and how
    /// many did not: the store says ages by its own clock.
    pub(super) fn jumps(&self, before: &Self) -> (usize, usize) {
        let slack = JUMP + self.took.max(before.took) + self.seen.since(before.seen) / DRIFT;
        let pairs = self.claims().filter_map(|claim| {
            let old = before.claim(claim.id()).filter(|old| old.view.epoch == claim.view.epoch)?;
            // Of some claims of other programs, nobody knows the age.
            (claim.view.age > AGED).then(|| claim.told.distance(old.told) > slack)
        });
        pairs.fold(
            (0, 0),
            |(jumped, steady), is_jump| if is_jump { (jumped + 1, steady) } else { (jumped, steady + 1) },
        )
    }

    /// Whether a person would read the same of both.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let alike = |one: &[Claim], two: &[Claim]| {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.is_like(two))
        };
        self.capacity == other.capacity
            && self.token == other.token
            && alike(&self.holders, &other.holders)
            && alike(&self.waiters, &other.waiters)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tidelock::backend::Claim as Asking;

    use super::*;

    /// A look at this second, which took no time.
    pub(crate) fn at(second: u64) -> Asked {
        let moment = Moment::from_nanos(second * 1_000_000_000);
        Asked { from: moment, to: moment }
    }

    /// A claim by its number: its epoch if it holds, for how many seconds, and how many are left.
    pub(crate) fn claim(id: u128, epoch: Option<u64>, age: u64, left: u64) -> ClaimView {
        let asking = Asking::new(
            ClaimId::from_u128(id),
            Name::new("a").unwrap(),
            Share::Exclusive,
            Duration::from_secs(30),
        );
        let asking = asking.label(format!("worker-{id}"));
        ClaimView::new(&asking, epoch, Duration::from_secs(age), Duration::from_secs(left))
    }

    pub(crate) fn view(name: &str, holders: Vec<ClaimView>, waiters: Vec<ClaimView>) -> LockView {
        let epoch = holders.iter().filter_map(|holder| holder.epoch).max().unwrap_or_default();
        let mut view = LockView::new(Name::new(name).unwrap(), None, epoch);
        (view.holders, view.waiters) = (holders, waiters);
        view
    }

    #[test]
    fn a_lock_that_only_ages_is_the_same() {
        let first = Lock::new(view("a", vec![claim(1, Some(7), 3, 30)], vec![]), at(100), None);
        let later = Lock::new(view("a", vec![claim(1, Some(7), 5, 28)], vec![]), at(102), Some(&first));
        assert!(later.is_like(&first));
        let renewed = Lock::new(view("a", vec![claim(1, Some(7), 6, 30)], vec![]), at(103), Some(&later));
        assert!(!renewed.is_like(&later));
        assert_eq!(renewed.holders[0].since, first.holders[0].since);
        assert_eq!(renewed.holders[0].until, at(133).from);
    }

    #[test]
    fn a_waiter_that_holds_counts_from_its_grant() {
        let first = Lock::new(view("a", vec![], vec![claim(1, None, 9, 30)]), at(100), None);
        let later = Lock::new(view("a", vec![claim(1, Some(8), 1, 30)], vec![]), at(105), Some(&first));
        assert_eq!(later.holders[0].since, at(104).from);
        // Some stores count from when it came.
        let later = Lock::new(view("a", vec![claim(1, Some(8), 14, 30)], vec![]), at(105), Some(&first));
        assert_eq!(later.holders[0].since, at(100).from);
    }

    #[test]
    fn a_clock_that_jumps_is_seen_in_the_ages_of_claims() {
        let look = |second, age, before: Option<&Lock>| {
            let waiter = claim(2, None, age - 1, 30);
            Lock::new(view("a", vec![claim(1, Some(7), age, 30)], vec![waiter]), at(second), before)
        };
        let first = look(100, 10, None);
        let steady = look(110, 20, Some(&first));
        assert_eq!(steady.jumps(&first), (0, 2));
        let ahead = look(111, 81, Some(&steady));
        assert_eq!(ahead.jumps(&steady), (2, 0));
        assert_eq!(ahead.holders[0].since, first.holders[0].since, "what is shown does not jump");
        let later = look(112, 82, Some(&ahead));
        assert_eq!(later.jumps(&ahead), (0, 2), "from there on that is its time");
        let back = look(113, 23, Some(&later));
        assert_eq!(back.jumps(&later), (2, 0));
        let slow = Asked { from: at(114).from, to: at(120).from };
        let late = Lock::new(view("a", vec![claim(1, Some(7), 30, 30)], vec![]), slow, Some(&back));
        assert_eq!(late.jumps(&back), (0, 1), "a look that took long says little");
        let granted = Lock::new(view("a", vec![claim(2, Some(8), 0, 30)], vec![]), at(121), Some(&late));
        assert_eq!(granted.jumps(&late), (0, 0));
    }

    #[test]
    fn a_slow_look_moves_no_lease() {
        let first = Lock::new(view("a", vec![claim(1, Some(7), 3, 30)], vec![]), at(100), None);
        let slow = Asked { from: at(101).from, to: at(104).from };
        // The store read the lock two seconds after it was asked.
        let later = Lock::new(view("a", vec![claim(1, Some(7), 6, 27)], vec![]), slow, Some(&first));
        assert!(later.is_like(&first));
    }
}

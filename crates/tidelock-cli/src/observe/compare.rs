//! What happened between two looks at a lock. Pure; says no more than the two looks tell.

use super::{
    endings::Known,
    event::{Ending, What},
    lock::{Asked, Claim, Lock},
};
use crate::clock::Moment;

/// Something that happened, without its number.
#[derive(Clone, Debug)]
pub(super) struct Happened<'a> {
    pub(super) at: Moment,
    pub(super) after: Option<Moment>,
    pub(super) claim: &'a Claim,
    pub(super) what: What,
    /// Whether more may become known: a claim is gone, and nobody said yet how it ended.
    pub(super) is_open: bool,
}

/// Compares two looks at one lock. Of a lock that is free, there is nothing to see.
pub(super) fn compare<'a>(
    before: Option<&'a Lock>,
    after: Option<&'a Lock>,
    asked: Asked,
    known: &mut Known,
) -> Vec<Happened<'a>> {
    let mut happened = Vec::new();
    // An exclusive holder had ended when another one was granted.
    let is_new = |claim: &&Claim| before.is_none_or(|before| !before.is_held_by(claim.id()));
    let next = after.iter().flat_map(|lock| &lock.holders).filter(is_new).map(|claim| claim.since).min();
    for claim in before.iter().flat_map(|lock| lock.claims()) {
        if after.is_none_or(|after| after.claim(claim.id()).is_none()) {
            let next = next.filter(|_| claim.is_exclusive_holder());
            happened.push(ended(claim, before, next, asked, known));
        }
    }
    for claim in after.iter().flat_map(|lock| lock.claims()) {
        let old = before.and_then(|before| before.claim(claim.id()));
        let holds = claim.view.epoch.is_some();
        match old {
            None if !holds => happened.push(at(claim, claim.since, What::Queued)),
            None => happened.push(granted(claim, None)),
            Some(old) if holds && old.view.epoch != claim.view.epoch => {
                happened.push(granted(claim, Some(old)));
            }
            Some(old) => happened.extend(renewed_late(old, claim, asked)),
        }
    }
    happened.sort_by_key(|happened| happened.at);
    happened
}

fn at(claim: &Claim, at: Moment, what: What) -> Happened<'_> {
    Happened { at, after: None, claim, what, is_open: false }
}

fn granted<'a>(claim: &'a Claim, waiting: Option<&Claim>) -> Happened<'a> {
    let waiting = waiting.filter(|old| old.view.epoch.is_none());
    let waited = waiting.map(|old| claim.since.since(old.since));
    at(claim, claim.since, What::Granted { token: claim.view.token(), waited })
}

/// A renewal that came when the lease was nearly used up.
fn renewed_late<'a>(old: &Claim, claim: &'a Claim, asked: Asked) -> Option<Happened<'a>> {
    // What is left when it is renewed is at most what was left when it was last seen.
    let left = old.until.since(asked.from).min(old.view.lapse_in);
    // A renewal gives the whole lease again. Less is a store that counts in seconds, or that is late to expire it.
    let is_renewed = claim.until > old.until && claim.view.lapse_in > old.lease / 2;
    let is_late = is_renewed && old.view.lapse_in < old.lease / 3;
    is_late.then(|| at(claim, asked.from, What::RenewedLate { left }))
}

fn ended<'a>(
    claim: &'a Claim,
    lock: Option<&Lock>,
    next: Option<Moment>,
    asked: Asked,
    known: &mut Known,
) -> Happened<'a> {
    let last_seen = lock.map_or(asked.from, |lock| lock.seen);
    let told = known.take(claim.id());
    // A claim that is kept alive is renewed when a third of its lease has passed. One that was not renewed for most
    // of it, and is gone after the end of it, was not released.
    let is_overdue = claim.view.lapse_in < claim.lease / 2 || claim.view.lapse_in.is_zero();
    let is_told = told.is_some();
    let how = match told {
        Some(how) => how,
        None if is_overdue && asked.to >= claim.until => Ending::Expired,
        // Its lease had not expired, so somebody took it out of line: if not by force, its own program.
        None if asked.to < claim.until
            && claim.view.foreign.is_none()
            && known.hears_evictions(last_seen) =>
        {
            Ending::Released
        }
        None => Ending::Gone,
    };
    let at = if how == Ending::Expired { claim.until } else { asked.to };
    let at = next.map_or(at, |next| at.min(next)).max(last_seen);
    let after = (how != Ending::Expired).then_some(last_seen);
    let held = claim.view.epoch.map(|_| at.since(claim.since));
    let is_open = !is_told && how != Ending::Expired;
    Happened { at, after, claim, what: What::Ended { how, held, token: claim.view.token() }, is_open }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidelock::backend::ClaimId;

    use super::{
        super::lock::tests::{at as look, claim, view},
        *,
    };

    fn words(happened: &[Happened<'_>]) -> Vec<(u128, &'static str)> {
        happened.iter().map(|event| (event.claim.id().get(), event.what.word())).collect()
    }

    /// What the claims of a lock did from second 100 to a later one.
    fn between(
        before: (Vec<tidelock::backend::ClaimView>, Vec<tidelock::backend::ClaimView>),
        later: u64,
        after: Option<(Vec<tidelock::backend::ClaimView>, Vec<tidelock::backend::ClaimView>)>,
        known: &mut Known,
    ) -> Vec<(u128, &'static str)> {
        let first = Lock::new(view("a", before.0, before.1), look(100), None);
        let second = after.map(|(h, w)| Lock::new(view("a", h, w), look(later), Some(&first)));
        words(&compare(Some(&first), second.as_ref(), look(later), known))
    }

    #[test]
    fn a_waiter_moves_up_when_the_holder_is_gone() {
        let first = Lock::new(
            view("a", vec![claim(1, Some(7), 9, 30)], vec![claim(2, None, 4, 30)]),
            look(100),
            None,
        );
        let second = Lock::new(view("a", vec![claim(2, Some(8), 1, 30)], vec![]), look(102), Some(&first));
        let happened = compare(Some(&first), Some(&second), look(102), &mut Known::default());
        assert_eq!(words(&happened), [(1, "gone"), (2, "granted")]);
        let waited = match &happened[1].what {
            What::Granted { waited, token } => {
                assert_eq!(token.map(tidelock::Token::epoch), Some(8));
                *waited
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(waited, Some(Duration::from_secs(5)));
        // The second was granted at 101, so the first had ended.
        assert_eq!((happened[0].at, happened[0].after), (look(101).from, Some(look(100).from)));
    }

    #[test]
    fn a_claim_that_was_not_renewed_has_expired() {
        let gone = |left, later| {
            between((vec![claim(1, Some(7), 30 - left, left)], vec![]), later, None, &mut Known::default())
        };
        // Its lease was thirty seconds long, as a look before has seen.
        let mut first = Lock::new(view("a", vec![claim(1, Some(7), 29, 1)], vec![]), look(100), None);
        first.holders[0].lease = Duration::from_secs(30);
        let happened = compare(Some(&first), None, look(102), &mut Known::default());
        assert_eq!(words(&happened), [(1, "expired")]);
        assert_eq!(happened[0].at, look(101).from);
        assert_eq!(words(&compare(Some(&first), None, look(100), &mut Known::default())), [(1, "gone")]);
        assert_eq!(gone(0, 101), [(1, "expired")], "it had expired when it was seen");
        assert_eq!(gone(25, 140), [(1, "gone")], "it may have been renewed and released");
    }

    #[test]
    fn what_is_known_from_elsewhere_is_said() {
        let mut known = Known::default();
        known.tell(ClaimId::from_u128(1), Some(Ending::Evicted { reason: "it hangs".into() }));
        let ended = |known: &mut Known, left, later| {
            between((vec![claim(1, Some(7), 3, left)], vec![]), later, None, known)
        };
        assert_eq!(ended(&mut known, 30, 101), [(1, "evicted")]);
        assert_eq!(ended(&mut known, 30, 101), [(1, "gone")], "that was said of one claim");
        known.hear_evictions(Some(look(101).from));
        assert_eq!(
            ended(&mut known, 30, 102),
            [(1, "gone")],
            "it may have been evicted before they were heard"
        );
        known.hear_evictions(Some(look(100).from));
        assert_eq!(ended(&mut known, 30, 102), [(1, "released")]);
        assert_eq!(ended(&mut known, 30, 140), [(1, "gone")], "its lease may have expired");
    }

    #[test]
    fn a_late_renewal_is_seen_and_a_timely_one_is_not() {
        let mut first = Lock::new(view("a", vec![claim(1, Some(7), 25, 5)], vec![]), look(100), None);
        first.holders[0].lease = Duration::from_secs(30);
        let second = Lock::new(view("a", vec![claim(1, Some(7), 27, 30)], vec![]), look(102), Some(&first));
        let happened = compare(Some(&first), Some(&second), look(102), &mut Known::default());
        assert_eq!(words(&happened), [(1, "renewed_late")]);
        let timely = between(
            (vec![claim(1, Some(7), 10, 20)], vec![]),
            101,
            Some((vec![claim(1, Some(7), 11, 30)], vec![])),
            &mut Known::default(),
        );
        assert_eq!(timely, []);
    }

    #[test]
    fn those_who_come_are_queued_or_hold_at_once() {
        let second =
            Lock::new(view("a", vec![claim(1, Some(7), 2, 30)], vec![claim(2, None, 1, 30)]), look(10), None);
        let happened = compare(None, Some(&second), look(10), &mut Known::default());
        assert_eq!(words(&happened), [(1, "granted"), (2, "queued")]);
    }
}

//! The claims of this client: who may make an entry, and which entry a holder relies on.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    backend::{Claim, ClaimId},
    backends::shared::mutex::lock,
    clock::{Clock, Moment},
};

/// What is known of a claim. What it knows is sent with each question about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backends::redis) enum Known {
    /// It waits behind others of ours, or lets other programs in after one of them, and may make an entry.
    Queued,
    /// It is first in line, other programs are in the way, and it may make an entry.
    Blocked,
    /// It relies on the entry that was made at this time.
    Holds(u64),
    /// It gives back the entry of this time, because too few servers have one, and may make another. Whether that one
    /// is still there is not known, so it counts no more.
    Yields(u64),
    /// Nothing: another client made it, and it holds by an entry or not at all.
    Nothing,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("q"),
            Self::Blocked => f.write_str("w"),
            Self::Holds(made) => made.fmt(f),
            Self::Yields(made) => write!(f, "y{made}"),
            Self::Nothing => f.write_str("h"),
        }
    }
}

/// What an entry that was found is to its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The one it relies on.
    Good,
    /// It relied on another: somebody else may have held in between.
    Another,
    /// The one that it gives back.
    Yielded,
}

/// The claims of a client.
#[derive(Debug)]
pub(in crate::backends::redis) struct Claims {
    clock: Clock,
    known: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    claims: HashMap<ClaimId, (Known, Moment)>,
    /// How many there may be before those that have expired are looked for.
    most: usize,
}

impl Inner {
    fn known(&self, id: ClaimId) -> Known {
        self.claims.get(&id).map_or(Known::Nothing, |(known, _)| *known)
    }

    fn note(&mut self, claim: &Claim, known: Known, now: Moment) {
        let until = now + claim.ttl.saturating_mul(REMEMBERED).max(Duration::from_secs(1));
        self.claims.insert(claim.id, (known, until));
        // A hold that outlives its process is never given back here.
        if self.claims.len() > self.most {
            self.claims.retain(|_, (_, until)| *until > now);
            self.most = 64 + 2 * self.claims.len();
        }
    }
}

/// For how many leases a claim of which nothing is heard is remembered.
const REMEMBERED: u32 = 2;

impl Claims {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.known)
    }

    pub(in crate::backends::redis) fn known(&self, id: ClaimId) -> Known {
        self.inner().known(id)
    }

    /// A claim waits.
    pub(super) fn waits(&self, claim: &Claim, is_blocked: bool) {
        let mut inner = self.inner();
        // An entry that it gives back may be there all the same, and is asked for again.
        let known = match inner.known(claim.id) {
            yields @ Known::Yields(_) => yields,
            _ if is_blocked => Known::Blocked,
            _ => Known::Queued,
        };
        inner.note(claim, known, self.clock.now());
    }

    /// A claim has an entry of this time. Says what that is to it.
    pub(super) fn holds(&self, claim: &Claim, made: u64) -> Entry {
        let mut inner = self.inner();
        match inner.known(claim.id) {
            Known::Holds(before) if before != made => return Entry::Another,
            Known::Yields(before) if before == made => return Entry::Yielded,
            _ => {}
        }
        inner.note(claim, Known::Holds(made), self.clock.now());
        Entry::Good
    }

    /// The entry that a claim relies on counts no more. Says when it was made, if there is one.
    pub(in crate::backends::redis) fn yields(&self, id: ClaimId) -> Option<u64> {
        let mut inner = self.inner();
        let (known, _) = inner.claims.get_mut(&id)?;
        let Known::Holds(made) = *known else { return None };
        *known = Known::Yields(made);
        Some(made)
    }

    pub(in crate::backends::redis) fn forget(&self, id: ClaimId) {
        self.inner().claims.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::Share, model::name::Name};

    fn claim(number: u128) -> Claim {
        let name = Name::new("a").unwrap();
        Claim::new(ClaimId::from_u128(number), name, Share::Exclusive, Duration::from_secs(1))
    }

    #[test]
    fn an_entry_that_was_made_again_is_not_the_one_that_is_relied_on() {
        let claims = Claims::new(Clock::machine());
        assert_eq!(claims.known(claim(1).id), Known::Nothing);
        claims.waits(&claim(1), false);
        assert_eq!(claims.known(claim(1).id), Known::Queued);
        assert_eq!(
            [7, 7, 8].map(|made| claims.holds(&claim(1), made)),
            [Entry::Good, Entry::Good, Entry::Another]
        );
        assert_eq!(claims.known(claim(1).id), Known::Holds(7));
        claims.forget(claim(1).id);
        assert_eq!(claims.holds(&claim(1), 8), Entry::Good);
    }

    #[test]
    fn an_entry_that_is_given_back_counts_no_more_and_another_does() {
        let claims = Claims::new(Clock::machine());
        assert_eq!(claims.yields(claim(1).id), None);
        claims.holds(&claim(1), 7);
        assert_eq!(claims.yields(claim(1).id), Some(7));
        // The question may have been under way before.
        assert_eq!(claims.holds(&claim(1), 7), Entry::Yielded);
        claims.waits(&claim(1), true);
        assert_eq!((claims.holds(&claim(1), 7), claims.yields(claim(1).id)), (Entry::Yielded, None));
        assert_eq!(claims.known(claim(1).id), Known::Yields(7));
        assert_eq!(claims.holds(&claim(1), 8), Entry::Good);
        assert_eq!(claims.known(claim(1).id), Known::Holds(8));
    }

    #[test]
    fn what_a_client_knows_is_a_word_of_the_scripts() {
        let words = [Known::Queued, Known::Blocked, Known::Nothing, Known::Holds(17), Known::Yields(17)];
        assert_eq!(words.map(|known| known.to_string()), ["q", "w", "h", "17", "y17"]);
    }
}

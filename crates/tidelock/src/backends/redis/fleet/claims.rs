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
    /// It waits behind others of ours, and may make an entry.
    Queued,
    /// It is first in line, other programs are in the way or were let in, and it may make an entry.
    Blocked,
    /// It relies on the entry that was made at this time.
    Holds(u64),
    /// Nothing: another client made it, and it holds by an entry or not at all.
    Nothing,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("q"),
            Self::Blocked => f.write_str("w"),
            Self::Holds(made) => made.fmt(f),
            Self::Nothing => f.write_str("h"),
        }
    }
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
        self.inner().claims.get(&id).map_or(Known::Nothing, |(known, _)| *known)
    }

    /// A claim waits.
    pub(super) fn waits(&self, claim: &Claim, is_blocked: bool) {
        self.note(claim, if is_blocked { Known::Blocked } else { Known::Queued });
    }

    /// A claim holds by an entry of this time. Says whether that is the entry it relied on before, if it did.
    pub(super) fn holds(&self, claim: &Claim, made: u64) -> bool {
        if let Known::Holds(before) = self.known(claim.id)
            && before != made
        {
            return false;
        }
        self.note(claim, Known::Holds(made));
        true
    }

    fn note(&self, claim: &Claim, known: Known) {
        let now = self.clock.now();
        let until = now + claim.ttl.saturating_mul(REMEMBERED).max(Duration::from_secs(1));
        let mut inner = self.inner();
        inner.claims.insert(claim.id, (known, until));
        // A hold that outlives its process is never given back here.
        if inner.claims.len() > inner.most {
            inner.claims.retain(|_, (_, until)| *until > now);
            inner.most = 64 + 2 * inner.claims.len();
        }
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
        assert!(claims.holds(&claim(1), 7) && claims.holds(&claim(1), 7));
        assert!(!claims.holds(&claim(1), 8));
        assert_eq!(claims.known(claim(1).id), Known::Holds(7));
        claims.forget(claim(1).id);
        assert!(claims.holds(&claim(1), 8));
    }

    #[test]
    fn what_a_client_knows_is_a_word_of_the_scripts() {
        let words = [Known::Queued, Known::Blocked, Known::Nothing, Known::Holds(17)];
        assert_eq!(words.map(|known| known.to_string()), ["q", "w", "h", "17"]);
    }
}

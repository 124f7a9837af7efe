//! What is known of this client's claims: where they hold, as far as servers said so.
//!
//! This is where it is decided, once for each claim, whether it holds or is left. Several tasks work on a claim at the same
//! time: one counts the votes of a majority while another finds them split and steps back. Both may be right by what
//! they heard. But a claim that is left holds nothing, because its servers let the next one in. So a majority counts
//! only if [`Claims::holds`] confirms it, and a claim is given up only through [`Claims::step_back`] and its like:
//! the first of them excludes the others.

use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    backend::{Claim, ClaimId},
    model::name::Name,
};

/// The claims of a client that may be in line.
#[derive(Debug)]
pub(super) struct Claims {
    needed: u32,
    by_id: Mutex<HashMap<ClaimId, OwnClaim>>,
}

/// A claim that may be in line. A process may hold very many locks, and each has one: so it is kept at 32 bytes.
#[derive(Debug)]
pub(super) struct OwnClaim {
    pub(super) claim: Arc<Claim>,
    /// The token, once a majority let it hold.
    token: Option<NonZeroU64>,
    /// On which servers it holds while it waits for a majority, one bit each.
    holds: u16,
    /// Which of them said so unasked since all were last asked.
    told: u16,
    /// Which servers were asked to let it in.
    pub(super) asked: u16,
    /// Which of them were asked by themselves, after they came back: that one of them did not hear an earlier question
    /// says nothing about this one.
    put: u16,
    /// It was given up, and the engine has not been told: it never holds any more. It is kept until then, because a leave
    /// that is under way would also end a claim that enters with the same id again.
    is_over: bool,
    /// Which servers said that somebody put it out.
    evicted: u16,
    /// Whether asking was said to be worth it, and nobody did it yet.
    may_hold: bool,
    /// Whether somebody sees to it that votes which are split come together.
    settling: bool,
    /// How often what it had on too few servers was given back: votes from before that count no more. It may begin
    /// again at zero, because nobody counts votes for as long as that takes.
    yielded: u16,
}

/// What a push is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nobody stands for the claim any more.
    Stray,
    Nothing,
    /// A majority may be there.
    Ask,
    /// There is no majority yet, and perhaps nobody has one.
    Settle,
}

impl Claims {
    pub(super) fn new(needed: usize) -> Self {
        Self { needed: u32::try_from(needed).unwrap_or(u32::MAX), by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, OwnClaim>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a claim that is not over.
    fn with<T>(&self, id: ClaimId, what: impl FnOnce(&mut OwnClaim) -> T) -> Option<T> {
        self.lock().get_mut(&id).filter(|seat| !seat.is_over).map(what)
    }

    /// A claim is about to be in line. Says whether it may be: one that is over may not.
    pub(super) fn sit(&self, claim: &Arc<Claim>) -> bool {
        let seat = || OwnClaim {
            claim: Arc::clone(claim),
            token: None,
            holds: 0,
            told: 0,
            asked: 0,
            put: 0,
            is_over: false,
            evicted: 0,
            may_hold: false,
            settling: false,
            yielded: 0,
        };
        !self.lock().entry(claim.id).or_insert_with(seat).is_over
    }

    /// A claim is not in line any more, or is about to leave.
    pub(super) fn take(&self, id: ClaimId) -> Option<OwnClaim> {
        self.lock().remove(&id)
    }

    /// The claim, if somebody stands for it.
    pub(super) fn claim(&self, id: ClaimId) -> Option<Arc<Claim>> {
        self.with(id, |seat| Arc::clone(&seat.claim))
    }

    /// Whether it was left, and nobody was told yet.
    pub(super) fn is_over(&self, id: ClaimId) -> bool {
        self.lock().get(&id).is_some_and(|seat| seat.is_over)
    }

    /// Every claim that somebody stands for, and those of which nobody was told that they are over.
    pub(super) fn all(&self) -> impl Iterator<Item = (Name, ClaimId)> {
        let claims = self.lock();
        let all: Vec<_> = claims.values().map(|seat| (seat.claim.name.clone(), seat.claim.id)).collect();
        all.into_iter()
    }

    /// Every claim that this client answers for, those that hold first.
    pub(super) fn claims(&self) -> Vec<Arc<Claim>> {
        let claims = self.lock();
        // A hold that outlives its client may have ended since the client left it behind. Only renewals keep it.
        let ends_elsewhere = |seat: &&OwnClaim| seat.claim.detached && seat.token.is_some();
        let seated = claims.values().filter(|seat| !seat.is_over && !ends_elsewhere(seat));
        let (hold, wait): (Vec<_>, Vec<_>) = seated.partition(|seat| seat.token.is_some());
        hold.into_iter().chain(wait).map(|seat| Arc::clone(&seat.claim)).collect()
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().values().all(|seat| seat.is_over)
    }

    /// The token of a claim that holds.
    pub(super) fn token(&self, id: ClaimId) -> Option<u64> {
        self.with(id, |seat| seat.token.map(NonZeroU64::get))?
    }

    /// A majority lets it hold. Says with which token: the first one stays. Nothing if it was left or gave back a vote
    /// since that was asked: then the votes are worth nothing. `asked` is what [`Claims::ask_begins`] said; others'
    /// claims have no seat then.
    pub(super) fn holds(&self, id: ClaimId, token: u64, asked: Option<u16>) -> Option<u64> {
        match self.lock().get_mut(&id) {
            Some(seat) if seat.is_over => None,
            Some(seat) if seat.token.is_none() && asked.is_some_and(|asked| asked != seat.yielded) => None,
            Some(seat) => {
                // No clock says zero.
                seat.token = seat.token.or(NonZeroU64::new(token));
                seat.token.map(NonZeroU64::get)
            }
            None => asked.is_none().then_some(token),
        }
    }

    /// Other programs have some servers and a claim has too few: it gives back what it has of those programs, and stays
    /// in line. Says whether it does; not if it holds. `mark` is called before any later question is asked.
    pub(super) fn yields(&self, id: ClaimId, mark: impl FnOnce()) -> bool {
        let give = |seat: &mut OwnClaim| {
            if seat.token.is_some() {
                return false;
            }
            mark();
            (seat.holds, seat.told, seat.may_hold) = (0, 0, false);
            seat.yielded = seat.yielded.wrapping_add(1);
            true
        };
        self.with(id, give).unwrap_or_default()
    }

    /// Gives up a claim whose votes are split, for another to come first. Says on which servers it has to be left;
    /// nothing if it holds, or may by now.
    pub(super) fn step_back(&self, id: ClaimId) -> Option<u16> {
        let needed = self.needed;
        self.with(id, |seat| {
            seat.is_over = seat.is_split(needed);
            seat.is_over.then_some(seat.asked)
        })?
    }

    /// It is given up, whether it holds or not. Says on which servers it has to be left; nothing if nobody stood for it.
    pub(super) fn give_up(&self, id: ClaimId) -> Option<u16> {
        self.with(id, |seat| {
            seat.is_over = true;
            seat.asked
        })
    }

    /// These servers are about to be asked to let it in. Says which were asked before. Noted first: the question may be
    /// dropped before an answer comes.
    pub(super) fn may_be_at(&self, id: ClaimId, servers: u16) -> u16 {
        let ask = |seat: &mut OwnClaim| {
            let before = seat.asked;
            seat.asked |= servers;
            before
        };
        self.with(id, ask).unwrap_or_default()
    }

    /// One server is about to be asked alone. Says whether it may be.
    pub(super) fn put_at(&self, id: ClaimId, server: usize) -> bool {
        let put = |seat: &mut OwnClaim| {
            seat.asked |= 1 << server;
            seat.put |= 1 << server;
        };
        self.with(id, put).is_some()
    }

    /// These servers, which were about to be asked, were not, or do not have it.
    pub(super) fn is_not_at(&self, id: ClaimId, servers: u16) {
        self.with(id, |seat| seat.asked &= !servers | seat.put);
    }

    /// Takes a claim that no server can have. Says whether that is so.
    pub(super) fn take_unasked(&self, id: ClaimId) -> bool {
        let mut claims = self.lock();
        let is_nowhere = claims.get(&id).is_none_or(|seat| seat.asked == 0 && !seat.is_over);
        if is_nowhere {
            claims.remove(&id);
        }
        is_nowhere
    }

    /// All servers are about to be asked how it stands. Says how often it gave something back, if it has a seat.
    pub(super) fn ask_begins(&self, id: ClaimId) -> Option<u16> {
        let mut claims = self.lock();
        let seat = claims.get_mut(&id)?;
        if !seat.is_over {
            seat.told = 0;
            seat.may_hold = false;
        }
        Some(seat.yielded)
    }

    /// It waits, and holds on the servers that answered so, or said so since they were asked.
    pub(super) fn waits(&self, id: ClaimId, holds: u16) -> Use {
        let waits = |seat: &mut OwnClaim| {
            seat.holds = holds | seat.told;
            self.what_to_do(seat)
        };
        self.with(id, waits).unwrap_or(Use::Stray)
    }

    /// A server says that it holds there.
    pub(super) fn holds_at(&self, id: ClaimId, server: usize) -> Use {
        let told = |seat: &mut OwnClaim| {
            seat.holds |= 1 << server;
            seat.told |= 1 << server;
            if seat.token.is_some() { Use::Nothing } else { self.what_to_do(seat) }
        };
        self.with(id, told).unwrap_or(Use::Stray)
    }

    fn what_to_do(&self, seat: &mut OwnClaim) -> Use {
        if seat.holds.count_ones() >= self.needed {
            return if std::mem::replace(&mut seat.may_hold, true) { Use::Nothing } else { Use::Ask };
        }
        if seat.holds == 0 || std::mem::replace(&mut seat.settling, true) {
            Use::Nothing
        } else {
            Use::Settle
        }
    }

    /// A server says that somebody put it out there. If that makes a majority it is over: then it has to be left on
    /// these servers.
    pub(super) fn evicted_at(&self, id: ClaimId, server: usize) -> Option<(Arc<Claim>, u16)> {
        self.with(id, |seat| {
            seat.evicted |= 1 << server;
            seat.is_over = seat.evicted.count_ones() >= self.needed;
            seat.is_over.then(|| (Arc::clone(&seat.claim), seat.asked))
        })?
    }

    /// Whether a claim still holds on some servers and waits for a majority. If not, nobody sees to it any more.
    pub(super) fn goes_on_settling(&self, id: ClaimId) -> bool {
        self.with(id, |seat| {
            seat.settling = seat.is_split(self.needed);
            seat.settling
        })
        .unwrap_or_default()
    }

    /// Nobody sees to it any more.
    pub(super) fn settled(&self, id: ClaimId) {
        self.with(id, |seat| seat.settling = false);
    }
}

impl OwnClaim {
    /// Whether it holds on some servers and waits for a majority.
    fn is_split(&self, needed: u32) -> bool {
        self.token.is_none() && self.holds != 0 && self.holds.count_ones() < needed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::{ClientId, Share};

    /// A claim that holds on the first of three servers and waits for a majority.
    fn split() -> (Claims, ClaimId) {
        let (claims, id) = (Claims::new(2), ClaimId::new(ClientId::from_u64(1), 1));
        let claim = Claim {
            id,
            name: Name::new("a").unwrap(),
            share: Share::Exclusive,
            owner: None,
            ttl: Duration::from_secs(1),
            label: Arc::from(""),
            detached: false,
            auto_renew: true,
            writes: false,
        };
        assert!(claims.sit(&Arc::new(claim)));
        claims.may_be_at(id, 0b111);
        assert_eq!(claims.holds_at(id, 0), Use::Settle);
        (claims, id)
    }

    #[test]
    fn votes_from_before_something_was_given_back_count_no_more() {
        let (claims, id) = split();
        let before = claims.ask_begins(id);
        let mut marked = false;
        assert!(claims.yields(id, || marked = true) && marked);
        // Nothing is split any more, and the claim is still in line.
        assert!(!claims.goes_on_settling(id) && claims.claim(id).is_some());
        assert_eq!(claims.holds(id, 7, before), None);
        assert_eq!(claims.holds(id, 8, claims.ask_begins(id)), Some(8));
        // One that holds gives nothing back.
        assert!(!claims.yields(id, || panic!("it holds")));
    }

    #[test]
    fn a_claim_that_holds_does_not_step_back() {
        let (claims, id) = split();
        assert_eq!(claims.holds(id, 7, Some(0)), Some(7));
        assert_eq!(claims.step_back(id), None);
        assert_eq!(claims.token(id), Some(7));
        // Nor does one that may hold by what servers said since they were looked at.
        let (claims, id) = split();
        assert_eq!(claims.holds_at(id, 1), Use::Ask);
        assert_eq!(claims.step_back(id), None);
    }

    #[test]
    fn a_claim_that_stepped_back_never_holds_again() {
        let (claims, id) = split();
        let claim = claims.claim(id).unwrap();
        assert_eq!(claims.step_back(id), Some(0b111));
        assert_eq!(claims.holds(id, 7, Some(0)), None);
        assert_eq!((claims.token(id), claims.claim(id)), (None, None));
        assert!(!claims.put_at(id, 1) && !claims.sit(&claim) && !claims.take_unasked(id));
        assert_eq!(claims.holds_at(id, 1), Use::Stray);
        assert!(claims.claims().is_empty() && claims.is_empty());
        // The engine is told of it, and what was counted before it was is worth nothing then, too.
        assert_eq!(claims.all().count(), 1);
        assert!(claims.is_over(id) && claims.take(id).is_some());
        assert_eq!(claims.holds(id, 7, Some(0)), None);
    }

    #[test]
    fn a_claim_is_kept_in_few_bytes() {
        assert!(size_of::<OwnClaim>() <= 32, "{}", size_of::<OwnClaim>());
    }

    #[test]
    fn a_claim_of_somebody_else_has_no_seat_and_holds_by_its_votes() {
        let claims = Claims::new(2);
        assert_eq!(claims.holds(ClaimId::new(ClientId::from_u64(9), 1), 7, None), Some(7));
    }

    #[test]
    fn a_claim_is_in_no_line_only_if_no_server_was_ever_asked() {
        let (claims, id) = split();
        claims.is_not_at(id, 0b110);
        assert!(!claims.take_unasked(id));
        claims.is_not_at(id, 0b001);
        // It was put on a server that came back while another question found that server gone.
        assert!(claims.put_at(id, 2));
        claims.is_not_at(id, 0b100);
        assert!(!claims.take_unasked(id));
        let (claims, id) = split();
        claims.is_not_at(id, 0b111);
        assert!(claims.take_unasked(id) && claims.claim(id).is_none());
    }
}

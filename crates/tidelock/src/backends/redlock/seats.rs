//! What is known of this client's claims: where they hold, as far as servers said so.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    backend::{Claim, ClaimId},
    name::Name,
};

/// The claims of a client that may be in line.
#[derive(Debug)]
pub(super) struct Seats {
    needed: u32,
    by_id: Mutex<HashMap<ClaimId, Seat>>,
}

/// A claim that may be in line.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) claim: Arc<Claim>,
    /// The token, once a majority let it hold.
    token: Option<u64>,
    /// On which servers it holds while it waits for a majority, one bit each.
    holds: u16,
    /// Which of them said so unasked since all were last asked.
    told: u16,
    /// Which servers were asked to let it in.
    pub(super) asked: u16,
    /// Which servers said that somebody put it out.
    evicted: u16,
    /// Whether asking was said to be worth it, and nobody did it yet.
    may_hold: bool,
    /// Whether somebody sees to it that votes which are split come together.
    settling: bool,
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

impl Seats {
    pub(super) fn new(needed: usize) -> Self {
        Self { needed: u32::try_from(needed).unwrap_or(u32::MAX), by_id: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, Seat>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is about to be in line.
    pub(super) fn sit(&self, claim: &Arc<Claim>) {
        let seat = || Seat {
            claim: Arc::clone(claim),
            token: None,
            holds: 0,
            told: 0,
            asked: 0,
            evicted: 0,
            may_hold: false,
            settling: false,
        };
        self.lock().entry(claim.id).or_insert_with(seat);
    }

    /// A claim is not in line any more, or is about to leave.
    pub(super) fn take(&self, id: ClaimId) -> Option<Seat> {
        self.lock().remove(&id)
    }

    pub(super) fn claim(&self, id: ClaimId) -> Option<Arc<Claim>> {
        self.lock().get(&id).map(|seat| Arc::clone(&seat.claim))
    }

    /// Every claim that may be in line.
    pub(super) fn all(&self) -> impl Iterator<Item = (Name, ClaimId)> {
        let seats = self.lock();
        let all: Vec<_> = seats.values().map(|seat| (seat.claim.name.clone(), seat.claim.id)).collect();
        all.into_iter()
    }

    /// The token of a claim that holds.
    pub(super) fn token(&self, id: ClaimId) -> Option<u64> {
        self.lock().get(&id)?.token
    }

    /// A majority lets it hold. Says with which token: the first one stays.
    pub(super) fn holds(&self, id: ClaimId, token: u64) -> u64 {
        match self.lock().get_mut(&id) {
            Some(seat) => *seat.token.get_or_insert(token),
            None => token,
        }
    }

    /// These servers are about to be asked to let it in. Says which were asked before. Noted first: whoever asks may be
    /// dropped before an answer comes.
    pub(super) fn may_be_at(&self, id: ClaimId, servers: u16) -> u16 {
        let mut seats = self.lock();
        let Some(seat) = seats.get_mut(&id) else { return 0 };
        let before = seat.asked;
        seat.asked |= servers;
        before
    }

    /// These servers, which were about to be asked, were not.
    pub(super) fn is_not_at(&self, id: ClaimId, servers: u16) {
        if let Some(seat) = self.lock().get_mut(&id) {
            seat.asked &= !servers;
        }
    }

    /// All servers are about to be asked how it stands.
    pub(super) fn ask_begins(&self, id: ClaimId) {
        if let Some(seat) = self.lock().get_mut(&id) {
            seat.told = 0;
            seat.may_hold = false;
        }
    }

    /// It waits, and holds on the servers that answered so, or said so since they were asked.
    pub(super) fn waits(&self, id: ClaimId, holds: u16) -> Use {
        let mut seats = self.lock();
        let Some(seat) = seats.get_mut(&id) else { return Use::Stray };
        seat.holds = holds | seat.told;
        self.what_to_do(seat)
    }

    /// A server says that it holds there.
    pub(super) fn holds_at(&self, id: ClaimId, server: usize) -> Use {
        let mut seats = self.lock();
        let Some(seat) = seats.get_mut(&id) else { return Use::Stray };
        seat.holds |= 1 << server;
        seat.told |= 1 << server;
        if seat.token.is_some() {
            return Use::Nothing;
        }
        self.what_to_do(seat)
    }

    fn what_to_do(&self, seat: &mut Seat) -> Use {
        if seat.holds.count_ones() >= self.needed {
            return if std::mem::replace(&mut seat.may_hold, true) { Use::Nothing } else { Use::Ask };
        }
        if seat.holds == 0 || std::mem::replace(&mut seat.settling, true) {
            Use::Nothing
        } else {
            Use::Settle
        }
    }

    /// A server says that somebody put it out there. If that makes a majority it is over: then it is taken.
    pub(super) fn evicted_at(&self, id: ClaimId, server: usize) -> Option<Seat> {
        let mut seats = self.lock();
        let seat = seats.get_mut(&id)?;
        seat.evicted |= 1 << server;
        if seat.evicted.count_ones() < self.needed {
            return None;
        }
        seats.remove(&id)
    }

    /// Whether a claim holds on some servers and waits for a majority.
    pub(super) fn is_split(&self, id: ClaimId) -> bool {
        let seats = self.lock();
        let split =
            |seat: &Seat| seat.token.is_none() && seat.holds != 0 && seat.holds.count_ones() < self.needed;
        seats.get(&id).is_some_and(split)
    }

    /// Nobody sees to it any more.
    pub(super) fn settled(&self, id: ClaimId) {
        if let Some(seat) = self.lock().get_mut(&id) {
            seat.settling = false;
        }
    }
}

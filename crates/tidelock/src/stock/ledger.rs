//! The model of a segment: pure, without a clock and without I/O.
//!
//! It *is* the store in memory, and it is what every other store is compared with. The rules:
//!
//! 0. A step of another sale changes nothing and learns nothing.
//! 1. What there is goes out by a take or a lend, all of it or nothing, and never below zero.
//! 2. An order is taken once. Whatever became of it is remembered, so a repetition is answered and changes nothing.
//! 3. A transfer is lent once, brought once, and settled after that.
//! 4. A reservation that has expired comes back before an order is refused for want of it.
//! 5. Only a close closes: no question raises the fence of a segment to [`CLOSED`].
//!
//! What an order asked for in another way means ([`sale_of`]):
//!
//! | it is | `take` of as many | `reserve` of as many | either, of another amount |
//! |---|---|---|---|
//! | sold | sold | sold: the reservation was confirmed, or the order was taken | error, with both amounts |
//! | reserved | reserved: [confirm](super::Stock::confirm) it to sell it | reserved, until the end that was set first | error, with both amounts |
//! | returned | returned | returned | error, with both amounts |
//! | void | refused | refused | refused: it never had an amount |
//!
//! Confirming and giving back name no amount: they concern all of the order.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::{
    micros,
    selling::Sale,
    store::{Answer, CLOSED, Counts, End, Lent, OrderId, Standing, Step, TransferId},
};

/// One segment.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    sale: u64,
    /// The number of the newest mapping that anybody went by.
    fence: u64,
    remaining: u64,
    /// Filled and brought, ever.
    came: u64,
    /// Lent, ever.
    left: u64,
    held: u64,
    returned: u64,
    orders: HashMap<OrderId, Standing>,
    /// When reservations end.
    ends: BTreeSet<(u64, OrderId)>,
    until: HashMap<OrderId, u64>,
    lent: HashMap<TransferId, Out>,
    /// How many of them are not settled.
    pending: u64,
    brought: HashMap<TransferId, u64>,
    /// When it is forgotten.
    over: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    n: u64,
    to: u32,
    since: u64,
    settled: bool,
}

impl Ledger {
    /// Makes a step at a time in microseconds, on a segment or on none.
    pub fn apply(ledger: &mut Option<Self>, sale: u64, step: &Step, now: u64) -> Answer {
        if ledger.as_ref().is_some_and(|ledger| ledger.over.is_some_and(|over| over <= now)) {
            *ledger = None;
        }
        match (ledger, step) {
            (Some(ledger), _) if ledger.sale != sale => Answer::OtherSale,
            (Some(ledger), step) => ledger.step(step, now),
            (none @ None, Step::Fill { fence, n }) => {
                *none = Some(Self { sale, fence: *fence, remaining: *n, came: *n, ..Self::default() });
                Answer::Done
            }
            (None, _) => Answer::Absent,
        }
    }

    fn step(&mut self, step: &Step, now: u64) -> Answer {
        match step {
            Step::Fill { .. } => Answer::Done,
            Step::Take { fence, order, n, hold, brings } => {
                if let Some((transfer, n)) = brings {
                    self.bring(*transfer, *n);
                }
                // After the end of the sale it is only asked how the order stands.
                let n = if *fence == CLOSED { 0 } else { *n };
                self.fenced(*fence, |ledger| ledger.take(order, n, *hold, now))
            }
            Step::End { fence, order, how } => self.fenced(*fence, |ledger| ledger.end(order, *how, now)),
            Step::Lend { transfer, n, to } => self.lend(*transfer, *n, *to, now),
            Step::Bring { transfer, n } => self.bring(*transfer, *n),
            Step::Settle { transfer } => {
                if let Some(out) = self.lent.get_mut(transfer).filter(|out| !out.settled) {
                    out.settled = true;
                    self.pending -= 1;
                }
                Answer::Done
            }
            Step::Look => {
                self.lapse(now);
                Answer::Counts(self.counts(now))
            }
            Step::Close { keep } => {
                self.fence = CLOSED;
                self.over = Some(now.saturating_add(micros(*keep)));
                Answer::Done
            }
        }
    }

    fn fenced(&mut self, fence: u64, step: impl FnOnce(&mut Self) -> Answer) -> Answer {
        if fence < self.fence || fence == CLOSED && self.fence != CLOSED {
            return Answer::Stale(self.fence);
        }
        self.fence = fence;
        step(self)
    }

    fn take(&mut self, order: &OrderId, n: u64, hold: Option<Duration>, now: u64) -> Answer {
        if self.until.get(order).is_some_and(|end| *end <= now) || self.remaining < n {
            self.lapse(now);
        }
        if let Some(standing) = self.orders.get(order) {
            return Answer::Order(*standing);
        }
        if n == 0 {
            return Answer::Order(Standing::Unknown);
        }
        if self.remaining < n {
            return Answer::Short { remaining: self.remaining, pending: self.pending };
        }
        self.remaining -= n;
        let standing = match hold {
            None => Standing::Taken(n),
            Some(time) => {
                let end = now.saturating_add(micros(time));
                self.held += n;
                self.ends.insert((end, order.clone()));
                self.until.insert(order.clone(), end);
                Standing::Held(n)
            }
        };
        self.orders.insert(order.clone(), standing);
        Answer::Order(standing)
    }

    fn end(&mut self, order: &OrderId, how: End, now: u64) -> Answer {
        self.lapse(now);
        let standing = self.orders.get(order).copied().unwrap_or(Standing::Unknown);
        let after = match (how, standing) {
            (End::GiveBack | End::Void, Standing::Unknown) => Standing::Void,
            (End::GiveBack, Standing::Taken(n) | Standing::Held(n)) => {
                self.unhold(order, n);
                self.remaining += n;
                self.returned += n;
                Standing::Returned(n)
            }
            (End::Confirm, Standing::Held(n)) => {
                self.unhold(order, n);
                Standing::Taken(n)
            }
            (_, standing) => standing,
        };
        if after != Standing::Unknown {
            self.orders.insert(order.clone(), after);
        }
        Answer::Order(after)
    }

    fn unhold(&mut self, order: &OrderId, n: u64) {
        if let Some(end) = self.until.remove(order) {
            self.ends.remove(&(end, order.clone()));
            self.held -= n;
        }
    }

    /// Reservations that are over come back.
    fn lapse(&mut self, now: u64) {
        while let Some((_, order)) = self.ends.first().filter(|(end, _)| *end <= now).cloned() {
            if let Some(Standing::Held(n)) = self.orders.get(&order).copied() {
                self.unhold(&order, n);
                self.remaining += n;
                self.returned += n;
                self.orders.insert(order, Standing::Returned(n));
            }
        }
    }

    fn lend(&mut self, transfer: TransferId, n: u64, to: u32, now: u64) -> Answer {
        self.lapse(now);
        let n = match self.lent.get(&transfer) {
            Some(out) => out.n,
            None => {
                // After the end of a sale nothing is written that would outlive it.
                let n = if self.fence == CLOSED { 0 } else { n.min(self.remaining) };
                if n > 0 {
                    self.remaining -= n;
                    self.left += n;
                    self.pending += 1;
                    self.lent.insert(transfer, Out { n, to, since: now, settled: false });
                }
                n
            }
        };
        Answer::Lent { n, pending: self.pending }
    }

    fn bring(&mut self, transfer: TransferId, n: u64) -> Answer {
        let before = self.brought.contains_key(&transfer);
        if !before && n > 0 {
            self.brought.insert(transfer, n);
            self.remaining += n;
            self.came += n;
        }
        Answer::Brought(before)
    }

    fn counts(&self, now: u64) -> Counts {
        let on_its_way = self.lent.iter().filter(|(_, out)| !out.settled);
        let mut lent: Vec<_> = on_its_way
            .map(|(transfer, out)| {
                let age = Duration::from_micros(now.saturating_sub(out.since));
                Lent { transfer: *transfer, n: out.n, to: out.to, age }
            })
            .collect();
        lent.sort();
        Counts {
            remaining: self.remaining,
            sold: self.came - self.left - self.remaining - self.held,
            held: self.held,
            returned: self.returned,
            lent,
        }
    }
}

/// What an order that asked for `n` is told by how it stands; an error if the same id asked for another amount before, with
/// that amount.
pub(super) fn sale_of(standing: Standing, n: u64) -> Result<Sale, u64> {
    match standing {
        Standing::Taken(before) | Standing::Held(before) | Standing::Returned(before) if before != n => {
            Err(before)
        }
        Standing::Taken(_) => Ok(Sale::Taken),
        Standing::Held(_) => Ok(Sale::Reserved),
        Standing::Returned(_) => Ok(Sale::Returned),
        Standing::Void | Standing::Unknown => Ok(Sale::SoldOut),
    }
}

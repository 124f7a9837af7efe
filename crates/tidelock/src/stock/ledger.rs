//! The model of a segment: pure, without a clock and without I/O.
//!
//! It *is* the store in memory, and it is what every other store is compared with. The rules:
//!
//! 1. What there is goes out by a take or a lend, all of it or nothing, and never below zero.
//! 2. An order is taken once. Whatever became of it is remembered, so a repetition is answered and changes nothing.
//! 3. A transfer is lent once, brought once, and settled after that.
//! 4. A reservation whose time is over comes back before anybody is refused for want of it.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::store::{Answer, CLOSED, Counts, End, Lent, OrderId, Standing, Step, TransferId};

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
    pub fn apply(ledger: &mut Option<Self>, step: &Step, now: u64) -> Answer {
        if ledger.as_ref().is_some_and(|ledger| ledger.over.is_some_and(|over| over <= now)) {
            *ledger = None;
        }
        match (ledger, step) {
            (Some(ledger), step) => ledger.step(step, now),
            (none @ None, Step::Fill { sale, fence, n }) => {
                *none = Some(Self { sale: *sale, fence: *fence, remaining: *n, came: *n, ..Self::default() });
                Answer::Done
            }
            (None, _) => Answer::Absent,
        }
    }

    fn step(&mut self, step: &Step, now: u64) -> Answer {
        match step {
            Step::Fill { sale, .. } if *sale == self.sale => Answer::Done,
            Step::Fill { .. } => Answer::OtherSale,
            Step::Take { fence, order, n, hold, brings } => {
                if let Some((transfer, n)) = brings {
                    self.bring(*transfer, *n);
                }
                self.fenced(*fence, |ledger| ledger.take(order, *n, *hold, now))
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
        if fence < self.fence {
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

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

//! The rules of a segment on a page: those of [`Ledger`](crate::stock::Ledger).

use std::time::Duration;

use super::{
    page::Page,
    state::{Entry, Kind},
};
use crate::{
    backend::Failure,
    stock::{Answer, CLOSED, Counts, End, Lent, Standing, Step, TransferId, micros},
};

/// How often it is looked for reservations that are over, at most: it means to read all entries.
const LOOK_EVERY: u64 = 20_000;

/// The key of a transfer that was lent, or brought: its id is in it.
fn of_transfer(transfer: TransferId, brought: bool) -> u128 {
    transfer.0 << 2 | u128::from(brought) << 1 | 1 << 127
}

impl Page<'_> {
    pub(super) fn step(&mut self, sale: u64, step: &Step, now: u64) -> Result<Answer, Failure> {
        if self.state.sequence == 0 || self.is_over() {
            let Step::Fill { fence, n } = step else { return Ok(Answer::Absent) };
            self.begin(sale, *fence, *n)?;
            return Ok(Answer::Done);
        }
        if self.state.sale != sale {
            return Ok(Answer::OtherSale);
        }
        match step {
            Step::Fill { .. } => Ok(Answer::Done),
            Step::Take { fence, order, n, hold, brings } => {
                if let Some((transfer, n)) = brings {
                    self.bring(*transfer, *n)?;
                }
                if self.is_stale(*fence) {
                    return Ok(Answer::Stale(self.state.fence));
                }
                // After the end of the sale it is only asked how the order stands.
                let n = if *fence == CLOSED { 0 } else { *n };
                self.take(*fence, order, n, *hold, now)
            }
            Step::End { fence, .. } if self.is_stale(*fence) => Ok(Answer::Stale(self.state.fence)),
            Step::End { fence, order, how } => self.end(*fence, order, *how, now),
            Step::Lend { transfer, n, to } => self.lend(*transfer, *n, *to, now),
            Step::Bring { transfer, n } => self.bring(*transfer, *n),
            Step::Settle { transfer } => self.settle(*transfer),
            Step::Look => self.look(now),
            Step::Close { keep } => {
                self.state.fence = CLOSED;
                self.state.over = now.saturating_add(micros(*keep)).max(1);
                self.commit()?;
                Ok(Answer::Done)
            }
        }
    }

    /// Whether a caller goes by an old mapping, or takes the segment for closed: only a close closes.
    fn is_stale(&self, fence: u64) -> bool {
        fence < self.state.fence || fence == CLOSED && self.state.fence != CLOSED
    }

    fn take(
        &mut self,
        fence: u64,
        order: &str,
        n: u64,
        hold: Option<Duration>,
        now: u64,
    ) -> Result<Answer, Failure> {
        let key = self.of_order(order);
        let mut found = self.get(key)?;
        if let Some(held) = found.filter(|entry| entry.kind == Kind::Held && entry.time <= now) {
            found = Some(self.lapse_one(held)?);
        } else if self.state.remaining < n {
            self.lapse(now)?;
        }
        if found.is_some() || n == 0 || self.state.remaining < n {
            if fence > self.state.fence {
                // Even a step that takes nothing shuts out clients with an older mapping.
                self.state.fence = fence;
                self.commit()?;
            }
            return Ok(match found {
                Some(entry) => Answer::Order(standing(&entry)),
                None if n == 0 => Answer::Order(Standing::Unknown),
                None => Answer::Short { remaining: self.state.remaining, pending: self.state.pending },
            });
        }
        self.state.fence = fence;
        self.state.remaining -= n;
        let entry = match hold {
            None => Entry { key, kind: Kind::Taken, n, time: 0 },
            Some(time) => {
                let end = now.saturating_add(micros(time));
                self.state.held += n;
                if self.state.next_end == 0 || end < self.state.next_end {
                    self.state.next_end = end;
                }
                Entry { key, kind: Kind::Held, n, time: end }
            }
        };
        self.commit_with(entry)?;
        Ok(Answer::Order(standing(&entry)))
    }

    fn end(&mut self, fence: u64, order: &str, how: End, now: u64) -> Result<Answer, Failure> {
        let key = self.of_order(order);
        let mut found = self.get(key)?;
        if let Some(held) = found.filter(|entry| entry.kind == Kind::Held && entry.time <= now) {
            found = Some(self.lapse_one(held)?);
        }
        let noted = fence > self.state.fence;
        self.state.fence = fence;
        let after = match (how, found) {
            (End::Confirm, None) => None,
            (_, None) => Some(Entry { key, kind: Kind::Void, n: 0, time: 0 }),
            (End::GiveBack, Some(entry)) if matches!(entry.kind, Kind::Taken | Kind::Held) => {
                self.state.held -= if entry.kind == Kind::Held { entry.n } else { 0 };
                self.state.remaining += entry.n;
                self.state.returned += entry.n;
                Some(Entry { kind: Kind::Returned, time: 0, ..entry })
            }
            (End::Confirm, Some(entry)) if entry.kind == Kind::Held => {
                self.state.held -= entry.n;
                Some(Entry { kind: Kind::Taken, time: 0, ..entry })
            }
            (_, Some(entry)) => Some(entry),
        };
        match after {
            Some(entry) if after != found => self.commit_with(entry)?,
            _ if noted => self.commit()?,
            _ => {}
        }
        Ok(Answer::Order(after.map_or(Standing::Unknown, |entry| standing(&entry))))
    }

    /// Reservations that are over come back, if it is time to look for them.
    fn lapse(&mut self, now: u64) -> Result<(), Failure> {
        if self.state.held == 0 || self.state.next_end > now {
            return Ok(());
        }
        let held: Vec<_> = self.entries()?.into_iter().filter(|entry| entry.kind == Kind::Held).collect();
        for entry in held.iter().filter(|entry| entry.time <= now) {
            self.lapse_one(*entry)?;
        }
        let next = held.iter().map(|entry| entry.time).filter(|end| *end > now).min();
        self.state.next_end = next.map_or(0, |next| next.max(now + LOOK_EVERY));
        self.commit()
    }

    fn lapse_one(&mut self, held: Entry) -> Result<Entry, Failure> {
        self.state.held -= held.n;
        self.state.remaining += held.n;
        self.state.returned += held.n;
        let entry = Entry { kind: Kind::Returned, time: 0, ..held };
        self.commit_with(entry)?;
        Ok(entry)
    }

    fn lend(&mut self, transfer: TransferId, n: u64, to: u32, now: u64) -> Result<Answer, Failure> {
        let key = of_transfer(transfer, false);
        if let Some(entry) = self.get(key)? {
            let (n, _) = entry.sent();
            return Ok(Answer::Lent { n, pending: self.state.pending });
        }
        if self.state.remaining < n {
            self.lapse(now)?;
        }
        let n = if self.state.fence == CLOSED { 0 } else { n.min(self.state.remaining) };
        if n > 0 {
            self.state.remaining -= n;
            self.state.left += n;
            self.state.pending += 1;
            self.commit_with(Entry::lent(key, n, to, now))?;
        }
        Ok(Answer::Lent { n, pending: self.state.pending })
    }

    fn bring(&mut self, transfer: TransferId, n: u64) -> Result<Answer, Failure> {
        let key = of_transfer(transfer, true);
        let before = self.get(key)?.is_some();
        if !before && n > 0 {
            self.state.remaining += n;
            self.state.came += n;
            self.commit_with(Entry { key, kind: Kind::Brought, n, time: 0 })?;
        }
        Ok(Answer::Brought(before))
    }

    fn settle(&mut self, transfer: TransferId) -> Result<Answer, Failure> {
        let found = self.get(of_transfer(transfer, false))?;
        if let Some(entry) = found.filter(|entry| entry.kind == Kind::Lent) {
            self.state.pending -= 1;
            self.commit_with(Entry { kind: Kind::Settled, ..entry })?;
        }
        Ok(Answer::Done)
    }

    fn look(&mut self, now: u64) -> Result<Answer, Failure> {
        if self.state.held > 0 {
            self.state.next_end = 0;
            self.lapse(now)?;
        }
        let mut lent = Vec::new();
        if self.state.pending > 0 {
            for entry in self.entries()?.iter().filter(|entry| entry.kind == Kind::Lent) {
                let (n, to) = entry.sent();
                let transfer = TransferId((entry.key & !(1 << 127)) >> 2);
                lent.push(Lent {
                    transfer,
                    n,
                    to,
                    age: Duration::from_micros(now.saturating_sub(entry.time)),
                });
            }
            lent.sort();
        }
        let state = &self.state;
        Ok(Answer::Counts(Counts {
            remaining: state.remaining,
            sold: state.came - state.left - state.remaining - state.held,
            held: state.held,
            returned: state.returned,
            lent,
        }))
    }
}

fn standing(entry: &Entry) -> Standing {
    match entry.kind {
        Kind::Taken => Standing::Taken(entry.n),
        Kind::Held => Standing::Held(entry.n),
        Kind::Returned => Standing::Returned(entry.n),
        Kind::Void => Standing::Void,
        _ => Standing::Unknown,
    }
}

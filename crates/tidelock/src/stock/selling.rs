//! Orders: taking, giving back, and finding stock elsewhere.

use std::time::Duration;

use super::{
    bounds::Readings,
    client::{Stock, check_amount},
    ledger::sale_of,
    plan::{Plan, Point, Stage},
    store::{Answer, End, OrderId, Standing, Step},
};
use crate::error::{Error, Result};

/// The longest id of an order, in bytes.
const LONGEST_ORDER: usize = 128;
/// Stock that has been on its way for this long is moved on by any client that needs it: its client died.
const STRAY: Duration = Duration::from_secs(1);
/// How often an order looks for stock elsewhere before it is refused: others may take what it gathers.
const ROUNDS: usize = 8;
/// The pause between two of them while stock is being moved.
const MOVING: Duration = Duration::from_millis(5);

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an order may be refused"]
pub enum Sale {
    /// The order is sold, now or when it was first made.
    Taken,
    /// The order is reserved until it is confirmed or its time expires.
    Reserved,
    /// There is not enough stock: nothing was taken.
    SoldOut,
    /// The order was returned: it was given back, or its reservation was not confirmed in time. A new order
    /// needs a new id.
    Returned,
    /// The sale has ended, and this order took nothing.
    Closed,
}

impl Sale {
    /// Returns whether the order has its items permanently.
    pub fn is_taken(self) -> bool {
        self == Self::Taken
    }
}

/// What came of looking for an order, or for stock elsewhere.
enum Found {
    /// How the order stands, and in which segment.
    At(u32, Standing),
    Nothing,
    /// Stock came from elsewhere: it is worth asking again.
    Changed,
    /// There is a newer mapping.
    Stale(u64),
}

/// An order that is being taken.
struct Want<'a> {
    order: &'a OrderId,
    /// What the id is mapped by.
    place: Point,
    n: u64,
    hold: Option<Duration>,
}

impl Want<'_> {
    fn take(&self, fence: u64, n: u64) -> Step {
        Step::Take { fence, order: self.order.clone(), n, hold: self.hold, brings: None }
    }
}

/// An order in progress. An order that ends without an answer is remembered: the request may still arrive, so
/// a refusal must be made permanent when the order is repeated.
struct Question<'a> {
    stock: &'a Stock,
    order: &'a OrderId,
    in_doubt: bool,
    is_answered: bool,
}

impl<'a> Question<'a> {
    fn new(stock: &'a Stock, order: &'a OrderId) -> Self {
        let in_doubt = stock.unanswered().remove(order);
        Self { stock, order, in_doubt, is_answered: false }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stock.unanswered().insert(self.order.clone());
        }
    }
}

impl Stock {
    /// Takes `n` items for an order, all or nothing.
    ///
    /// Any client may repeat the same order: it is taken once.
    ///
    /// This costs one round trip, and a few more when the order's segment has too little. After an error the
    /// outcome is unknown: retry with the same id.
    ///
    /// A reserved order stays reserved: [`Reserved`](Sale::Reserved) means that it is not sold until it is
    /// [confirmed](Self::confirm).
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store;
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for an invalid number or id;
    /// [`OrderMismatch`](crate::ErrorKind::OrderMismatch) when the same id asked for another amount before;
    /// [`OtherSale`](crate::ErrorKind::OtherSale) when this sale was closed and the item is in a new sale.
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not have been taken: retry it, or give it back.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use tidelock::stock::{Sale, Stocks};
    /// let stock = Stocks::connect("memory:").await?.open("10001", 1).await?;
    /// assert_eq!(stock.take("order-1", 1).await?, Sale::Taken);
    /// assert_eq!(stock.take("order-2", 1).await?, Sale::SoldOut);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn take(&self, order: &str, n: u64) -> Result<Sale> {
        self.obtain(order, n, None).await
    }

    /// Reserves `n` items for an order for up to `ttl`.
    ///
    /// Unless the order is [confirmed](Self::confirm) within `ttl`, the items return automatically. A
    /// repeated call does not extend the reservation. An order that has been confirmed since is
    /// [`Taken`](Sale::Taken).
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not be reserved: retry it, give it back, or let it
    /// expire.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use {std::time::Duration, tidelock::stock::{Sale, Stocks}};
    /// let stock = Stocks::connect("memory:").await?.open("10001", 1).await?;
    /// assert_eq!(stock.reserve("order-1", 1, Duration::from_secs(600)).await?, Sale::Reserved);
    /// assert!(stock.confirm("order-1").await?);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn reserve(&self, order: &str, n: u64, ttl: Duration) -> Result<Sale> {
        if ttl.is_zero() {
            return Err(Error::invalid_option("a reservation for no time at all would be over at once"));
        }
        self.obtain(order, n, Some(ttl)).await
    }

    /// Confirms a reservation, which makes it a sale, and returns whether the order is sold now.
    ///
    /// Returns `false` if the reservation has expired or does not exist.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not have been confirmed: retry.
    pub async fn confirm(&self, order: &str) -> Result<bool> {
        Ok(matches!(self.end(order, End::Confirm).await?, Standing::Taken(_)))
    }

    /// Gives back what an order took or reserved, and returns whether it had taken anything.
    ///
    /// A repeated call returns the same. An unknown order is never taken from then on, however late it
    /// arrives.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    /// If the future is dropped, the order may or may not have been given back: retry.
    pub async fn give_back(&self, order: &str) -> Result<bool> {
        Ok(matches!(self.end(order, End::GiveBack).await?, Standing::Returned(_)))
    }

    async fn obtain(&self, order: &str, n: u64, hold: Option<Duration>) -> Result<Sale> {
        check_amount(n)?;
        let order = order_id(order)?;
        let want = Want { place: self.plan().point_of(&order), order: &order, n, hold };
        let mut question = Question::new(self, &order);
        let sale = self.try_obtain(&want, &mut question.in_doubt).await;
        question.is_answered = sale.is_ok() || !question.in_doubt;
        sale
    }

    async fn try_obtain(&self, want: &Want<'_>, doubt: &mut bool) -> Result<Sale> {
        let (order, n, mut rounds) = (want.order, want.n, 0);
        let mut readings = Readings::default();
        loop {
            let plan = self.plan();
            let fence = plan.fence();
            let home = plan.home(want.place);
            let found = match self.find_earlier(&plan, want).await? {
                Found::At(_, standing) => return self.told(want, standing),
                Found::Stale(fence) => Found::Stale(fence),
                _ => {
                    let take = want.take(fence, if plan.stage == Stage::Closed { 0 } else { n });
                    match self.ask(&plan, home, &take, doubt).await? {
                        Answer::Order(Standing::Unknown) => return Ok(Sale::Closed),
                        Answer::Order(standing) => return self.told(want, standing),
                        Answer::Short { remaining, pending } => {
                            rounds += 1;
                            self.gather(&plan, want, remaining, pending, doubt).await?
                        }
                        Answer::Stale(fence) => Found::Stale(fence),
                        answer => return Err(self.nonsense(&answer)),
                    }
                }
            };
            match found {
                Found::At(_, standing) => return self.told(want, standing),
                Found::Stale(fence) => {
                    readings.next(self).await?;
                    self.refresh(fence).await?;
                }
                Found::Changed if rounds < ROUNDS => {}
                _ if !*doubt => return Ok(Sale::SoldOut),
                // A try whose answer was lost may still arrive: after this it takes nothing any more.
                _ => {
                    let void = Step::End { fence, order: order.clone(), how: End::Void };
                    match self.ask(&plan, home, &void, doubt).await? {
                        Answer::Order(standing) => return self.told(want, standing),
                        Answer::Stale(fence) => {
                            readings.next(self).await?;
                            self.refresh(fence).await?;
                        }
                        answer => return Err(self.nonsense(&answer)),
                    }
                }
            }
        }
    }

    async fn end(&self, order: &str, how: End) -> Result<Standing> {
        let order = order_id(order)?;
        let want = Want { place: self.plan().point_of(&order), order: &order, n: 0, hold: None };
        let mut readings = Readings::default();
        loop {
            let plan = self.plan();
            let fence = plan.fence();
            let at = match self.find_earlier(&plan, &want).await? {
                Found::At(earlier, _) => earlier,
                Found::Stale(fence) => {
                    readings.next(self).await?;
                    self.refresh(fence).await?;
                    continue;
                }
                _ => plan.home(want.place),
            };
            let end = Step::End { fence, order: order.clone(), how };
            match self.ask(&plan, at, &end, &mut false).await? {
                Answer::Order(standing) => {
                    if how == End::GiveBack {
                        self.note(at, false);
                    }
                    return Ok(standing);
                }
                Answer::Stale(fence) => {
                    readings.next(self).await?;
                    self.refresh(fence).await?;
                }
                answer => return Err(self.nonsense(&answer)),
            }
        }
    }

    /// What the caller is told of an order.
    fn told(&self, want: &Want<'_>, standing: Standing) -> Result<Sale> {
        let mismatch = |before| Error::order_mismatch(self.item(), want.order, before, want.n);
        sale_of(standing, want.n).map_err(mismatch)
    }

    /// Looks for an order where it belonged before the segments were changed. An order that is not found
    /// there now is never taken there: the segment has seen the newer mapping.
    async fn find_earlier(&self, plan: &Plan, want: &Want<'_>) -> Result<Found> {
        for earlier in plan.earlier(want.place) {
            match self.ask(plan, earlier, &want.take(plan.fence(), 0), &mut false).await? {
                Answer::Order(Standing::Unknown) => {}
                Answer::Order(standing) => return Ok(Found::At(earlier, standing)),
                Answer::Stale(fence) => return Ok(Found::Stale(fence)),
                answer => return Err(self.nonsense(&answer)),
            }
        }
        Ok(Found::Nothing)
    }

    /// Moves stock from other segments to the one of an order, and takes it there.
    ///
    /// It moves no more than the order needs: the moved stock is taken in the step that brings it. So a
    /// segment that was found empty is not filled again while clients rely on it being empty.
    async fn gather(
        &self,
        plan: &Plan,
        want: &Want<'_>,
        mut remaining: u64,
        pending: u64,
        doubt: &mut bool,
    ) -> Result<Found> {
        let home = plan.home(want.place);
        let count = plan.segments.len() as u32;
        // From the next one on, so that not all begin with the same.
        let mut others: Vec<_> = (1..count).map(|step| (home + step) % count).collect();
        let is_moving = plan.stage == Stage::Moving;
        if want.n > 1 {
            others.retain(|number| self.may_have(plan, *number));
            if !is_moving && !self.is_enough(plan, &others, want.n - remaining).await? {
                return Ok(Found::Nothing);
            }
        }
        let mut asked = false;
        for from in others {
            if want.n == 1 && !self.may_have(plan, from) {
                continue;
            }
            asked = true;
            match self.move_from(plan, want, from, &mut remaining, doubt).await? {
                Found::Nothing => {}
                // Lent, and not brought.
                Found::Changed => drop(self.bring_strays(plan, from).await?),
                found => return Ok(found),
            }
        }
        if asked && pending > 0 {
            self.bring_strays(plan, home).await?;
        }
        if is_moving {
            // The client that moves stock may have had it in its hands.
            tokio::time::sleep(MOVING).await;
            self.refresh(plan.fence()).await?;
        }
        // Asked once more at home: if it was not told of a newer mapping by then, nothing was moved meanwhile.
        Ok(if asked { Found::Changed } else { Found::Nothing })
    }

    /// Moves what an order lacks from a segment to the order's own, a few times if others are faster there.
    /// `Changed`: stock from it is on its way, or others took what was moved each time.
    async fn move_from(
        &self,
        plan: &Plan,
        want: &Want<'_>,
        from: u32,
        remaining: &mut u64,
        doubt: &mut bool,
    ) -> Result<Found> {
        let home = plan.home(want.place);
        for _ in 0..ROUNDS {
            let (transfer, n) = (self.transfer(), want.n.saturating_sub(*remaining).max(1));
            let lend = Step::Lend { transfer, n, to: home };
            let (lent, pending) = match self.ask(plan, from, &lend, &mut false).await? {
                Answer::Lent { n, pending } => (n, pending),
                answer => return Err(self.nonsense(&answer)),
            };
            self.note(from, lent < n);
            if lent == 0 {
                return Ok(if pending > 0 { Found::Changed } else { Found::Nothing });
            }
            let mut take = want.take(plan.fence(), want.n);
            if let Step::Take { brings, .. } = &mut take {
                *brings = Some((transfer, lent));
            }
            let answer = self.ask(plan, home, &take, doubt).await?;
            // If this is lost somebody does it who looks for strays.
            let _ = self.ask(plan, from, &Step::Settle { transfer }, &mut false).await;
            match answer {
                Answer::Order(standing) => return Ok(Found::At(home, standing)),
                Answer::Stale(fence) => return Ok(Found::Stale(fence)),
                Answer::Short { remaining: now, .. } => *remaining = now,
                answer => return Err(self.nonsense(&answer)),
            }
        }
        Ok(Found::Changed)
    }

    /// Whether others have as much as an order lacks: else nothing need be moved.
    async fn is_enough(&self, plan: &Plan, others: &[u32], lacks: u64) -> Result<bool> {
        let mut found = 0;
        for other in others {
            let Answer::Counts(counts) = self.ask(plan, *other, &Step::Look, &mut false).await? else {
                continue;
            };
            self.note(*other, counts.remaining == 0);
            found += counts.remaining;
            if counts.lent.iter().any(|lent| lent.age >= STRAY) && self.bring_strays(plan, *other).await? {
                return Ok(true);
            }
        }
        Ok(found >= lacks)
    }

    /// Completes transfers from a segment whose clients died. Returns whether there were any.
    pub(super) async fn bring_strays(&self, plan: &Plan, from: u32) -> Result<bool> {
        let Answer::Counts(counts) = self.ask(plan, from, &Step::Look, &mut false).await? else {
            return Ok(false);
        };
        let mut any = false;
        for lent in counts.lent.iter().filter(|lent| lent.age >= STRAY) {
            let bring = Step::Bring { transfer: lent.transfer, n: lent.n };
            self.ask(plan, lent.to, &bring, &mut false).await?;
            self.ask(plan, from, &Step::Settle { transfer: lent.transfer }, &mut false).await?;
            self.note(lent.to, false);
            any = true;
        }
        Ok(any)
    }

    pub(super) fn nonsense(&self, answer: &Answer) -> Error {
        self.denied(&format!("a segment answered {answer:?}, which it was not asked"))
    }
}

fn order_id(text: &str) -> Result<OrderId> {
    if text.is_empty() || text.len() > LONGEST_ORDER || text.chars().any(char::is_control) {
        return Err(Error::invalid_option(format!(
            "the id of an order has 1 to {LONGEST_ORDER} bytes and no control characters: use its number or a hash of it"
        )));
    }
    Ok(text.into())
}

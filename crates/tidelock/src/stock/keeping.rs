//! Counting, adding, changing the segments, closing.

use std::time::Duration;

use super::{
    bounds::Readings,
    client::{Stock, check_amount, check_segments},
    plan::{Plan, Stage, share},
    store::{Answer, Counts, Step},
};
use crate::error::{Error, Result};

/// For how long the orders of a sale that was closed are known.
const KEEP: Duration = Duration::from_secs(24 * 3_600);

/// The counts of an item.
///
/// Sold, reserved and remaining add up to everything that was ever in stock. The sum is exact only while no
/// client buys, because segments are counted one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Items that can be taken.
    pub remaining: u64,
    /// Items that are sold and were not returned.
    pub sold: u64,
    /// Items that are reserved.
    pub reserved: u64,
    /// Items that were returned, by a call or because a reservation expired. Some of them may be sold again.
    pub returned: u64,
}

impl Stock {
    /// Returns how many items can be taken.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store.
    ///
    /// # Cancel safety
    /// Safe to cancel: nothing is changed.
    pub async fn remaining(&self) -> Result<u64> {
        Ok(self.tally().await?.remaining)
    }

    /// Counts all segments, one round trip each.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining).
    ///
    /// # Cancel safety
    /// Safe to cancel: nothing is changed.
    pub async fn tally(&self) -> Result<Tally> {
        // Somebody else may have changed the segments.
        let plan = self.read_plan().await?;
        let mut tally = Tally::default();
        for number in 0..plan.segments.len() as u32 {
            let counts = self.look(&plan, number).await?;
            tally.remaining += counts.remaining;
            tally.sold += counts.sold;
            tally.reserved += counts.held;
            tally.returned += counts.returned;
            for lent in counts.lent {
                let arrived = Step::Bring { transfer: lent.transfer, n: 0 };
                if self.ask(&plan, lent.to, &arrived, &mut false).await? == Answer::Brought(false) {
                    tally.remaining += lent.n;
                }
            }
        }
        Ok(tally)
    }

    /// Adds `n` items to the stock, all of them or, after a [`Denied`](crate::ErrorKind::Denied) error, none.
    ///
    /// The added items are then spread over the segments, as far as that succeeds.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining), and [`Closed`](crate::ErrorKind::Closed) when the sale has ended.
    /// When the store did not answer ([`Unavailable`](crate::ErrorKind::Unavailable)), the outcome is
    /// unknown: count to find out.
    ///
    /// # Cancel safety
    /// If the future is dropped, the items may or may not have been added.
    pub async fn add(&self, n: u64) -> Result<()> {
        check_amount(n)?;
        let plan = self.plan();
        if plan.stage == Stage::Closed {
            return Err(Error::stock_closed(self.item()));
        }
        let first = plan.active()[0];
        let bring = Step::Bring { transfer: self.transfer(), n };
        self.ask(&plan, first, &bring, &mut false).await?;
        self.note(first, false);
        let parts = plan.active().len() as u32;
        for (part, number) in (0_u32..).zip(plan.active()).skip(1) {
            if self.shift(&plan, first, *number, share(n, parts, part)).await.is_err() {
                // It is there and can be sold; a buyer that needs it fetches it.
                break;
            }
        }
        Ok(())
    }

    /// Changes the number of segments during a sale.
    ///
    /// Orders that now belong to another segment are looked up where they belonged before, which costs them
    /// one more round trip.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining); [`InvalidOption`](crate::ErrorKind::InvalidOption) for an invalid
    /// number; [`Closed`](crate::ErrorKind::Closed) when the sale has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the number may or may not have been changed, and the stock may be only
    /// partly balanced over the segments.
    pub async fn resize(&self, segments: u32) -> Result<()> {
        check_segments(segments)?;
        let mut readings = Readings::default();
        let plan = loop {
            readings.next(self).await?;
            let plan = self.read_plan().await?;
            if plan.stage == Stage::Closed {
                return Err(Error::stock_closed(self.item()));
            }
            if plan.active().len() == segments as usize {
                if plan.stage == Stage::Selling {
                    return self.refresh(plan.fence()).await;
                }
                // The client that began it did not finish.
                break plan;
            }
            let next = plan.resized(segments).ok_or_else(|| {
                Error::invalid_option("the segments of this stock were changed too often: begin a new sale")
            })?;
            // Before anybody can be sent there.
            for number in plan.segments.len()..next.segments.len() {
                let fill = Step::Fill { fence: next.fence(), n: 0 };
                self.fill(&next, number as u32, &fill).await?;
            }
            if self.write_plan(Some(&plan), &next, None).await? {
                break next;
            }
        };
        self.refresh(plan.fence()).await?;
        // Everybody has to know of it before anything is moved: else a client that asks one segment after the other misses
        // what goes from the next to the last.
        for number in 0..plan.segments.len() as u32 {
            let tell = Step::Take { fence: plan.fence(), order: "-".into(), n: 0, hold: None, brings: None };
            self.ask(&plan, number, &tell, &mut false).await?;
        }
        self.even_out(&plan).await?;
        // If somebody else has changed them again it is theirs to say when they are done.
        self.write_plan(Some(&plan), &plan.at(Stage::Selling), None).await?;
        self.refresh(plan.fence()).await
    }

    /// Ends the sale: nothing more is taken, and orders remain known for 24 hours.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining).
    ///
    /// # Cancel safety
    /// If the future is dropped, the sale may be partly closed: close it again.
    pub async fn close(&self) -> Result<()> {
        self.close_keeping(KEEP).await
    }

    /// Ends the sale, and forgets it after another time.
    pub(crate) async fn close_keeping(&self, keep: Duration) -> Result<()> {
        let mut readings = Readings::default();
        loop {
            readings.next(self).await?;
            let plan = self.read_plan().await?;
            for number in 0..plan.segments.len() as u32 {
                // One that is gone takes nothing either: a sale that lost a segment can be closed.
                match self.try_ask(&plan, number, &Step::Close { keep }, &mut false).await? {
                    Answer::Done | Answer::Absent => {}
                    Answer::OtherSale => return Err(Error::other_sale(self.item(), plan.sale)),
                    answer => return Err(self.nonsense(&answer)),
                }
            }
            if plan.stage == Stage::Closed {
                self.set_plan(plan);
                return Ok(());
            }
            // Segments that were added meanwhile are closed in the next round.
            let closed = plan.at(Stage::Closed);
            if self.write_plan(Some(&plan), &closed, Some(keep)).await? {
                self.set_plan(closed);
                return Ok(());
            }
        }
    }

    async fn look(&self, plan: &Plan, number: u32) -> Result<Counts> {
        match self.ask(plan, number, &Step::Look, &mut false).await? {
            Answer::Counts(counts) => Ok(counts),
            answer => Err(self.nonsense(&answer)),
        }
    }

    /// Moves stock until those segments that are in use have about the same, and others nothing.
    async fn even_out(&self, plan: &Plan) -> Result<()> {
        let mut have = Vec::new();
        for number in 0..plan.segments.len() as u32 {
            self.bring_strays(plan, number).await?;
            have.push(self.look(plan, number).await?.remaining);
        }
        let (total, parts) = (have.iter().sum(), plan.active().len() as u32);
        let mut goals = vec![0; have.len()];
        for (part, number) in (0_u32..).zip(plan.active()) {
            goals[*number as usize] = share(total, parts, part);
        }
        for to in 0..have.len() {
            for from in 0..have.len() {
                let n = have[from].saturating_sub(goals[from]).min(goals[to].saturating_sub(have[to]));
                if n > 0 {
                    self.shift(plan, from as u32, to as u32, n).await?;
                    have[from] -= n;
                    have[to] += n;
                }
            }
        }
        Ok(())
    }

    /// Moves stock from one segment to another, as far as it is there.
    async fn shift(&self, plan: &Plan, from: u32, to: u32, n: u64) -> Result<()> {
        let transfer = self.transfer();
        if n == 0 {
            return Ok(());
        }
        let lend = Step::Lend { transfer, n, to };
        if let Answer::Lent { n: lent @ 1.., .. } = self.ask(plan, from, &lend, &mut false).await? {
            self.ask(plan, to, &Step::Bring { transfer, n: lent }, &mut false).await?;
            self.note(to, false);
            self.ask(plan, from, &Step::Settle { transfer }, &mut false).await?;
        }
        Ok(())
    }
}

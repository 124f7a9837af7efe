//! Counting, adding, changing the segments, closing.

use std::time::Duration;

use super::{
    client::{Stock, check_amount, check_segments},
    plan::{Plan, Stage, share},
    store::{Answer, Counts, Step},
};
use crate::error::{Error, Result};

/// For how long the orders of a sale that was closed are known.
const KEEP: Duration = Duration::from_secs(24 * 3_600);

/// The numbers of an item. Sold, reserved and remaining make up what there ever was, exactly while nobody buys;
/// else segments are counted one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// What can be taken.
    pub remaining: u64,
    /// What is sold, and did not come back.
    pub sold: u64,
    /// What is reserved.
    pub reserved: u64,
    /// What came back, by hand or because a reservation was over. Part of it may be sold again.
    pub returned: u64,
}

impl Stock {
    /// How many can be taken.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) by the store.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn remaining(&self) -> Result<u64> {
        Ok(self.tally().await?.remaining)
    }

    /// Counts all segments, one round trip each.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining).
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn tally(&self) -> Result<Tally> {
        // Somebody else may have changed the segments.
        let plan = self.read_plan().await?.ok_or_else(|| self.denied("the sale is over and forgotten"))?;
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

    /// Adds to the stock: all of it, or nothing after an error of the kind [`Denied`](crate::ErrorKind::Denied). It is
    /// spread over the segments then, as far as that succeeds.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining), and [`Closed`](crate::ErrorKind::Closed) when the sale is over. When the store did not answer
    /// ([`Unavailable`](crate::ErrorKind::Unavailable)) it may have been added: count.
    ///
    /// # Cancel safety
    /// It may or may not have been added.
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
                // It is there and can be sold; whoever needs it fetches it.
                break;
            }
        }
        Ok(())
    }

    /// Changes the number of segments while selling. Orders that come to belong to another segment by it are looked for
    /// where they belonged before: one more round trip for those.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining); [`InvalidOption`](crate::ErrorKind::InvalidOption) for a number that makes no sense;
    /// [`Closed`](crate::ErrorKind::Closed) when the sale is over.
    ///
    /// # Cancel safety
    /// The number may or may not have been changed; what is in the segments is evened out in part.
    pub async fn resize(&self, segments: u32) -> Result<()> {
        check_segments(segments)?;
        let plan = loop {
            let plan =
                self.read_plan().await?.ok_or_else(|| self.denied("the sale is over and forgotten"))?;
            if plan.stage == Stage::Closed {
                return Err(Error::stock_closed(self.item()));
            }
            if plan.active().len() == segments as usize {
                if plan.stage == Stage::Selling {
                    return self.refresh(plan.fence()).await;
                }
                // Whoever began it did not finish.
                break plan;
            }
            let next = plan.resized(segments).ok_or_else(|| {
                Error::invalid_option("the segments of this stock were changed too often: begin a new sale")
            })?;
            // Before anybody can be sent there.
            for number in plan.segments.len()..next.segments.len() {
                let fill = Step::Fill { sale: next.sale, fence: next.fence(), n: 0 };
                if self.ask(&next, number as u32, &fill, &mut false).await? != Answer::Done {
                    return Err(self.denied(&format!("segment {number} belongs to another sale")));
                }
            }
            if self.write_plan(&next, None).await? {
                break next;
            }
        };
        self.refresh(plan.fence()).await?;
        // Everybody has to know of it before anything is moved: else whoever asks one segment after the other misses
        // what goes from the next to the last.
        for number in 0..plan.segments.len() as u32 {
            let tell = Step::Take { fence: plan.fence(), order: "-".into(), n: 0, hold: None, brings: None };
            self.ask(&plan, number, &tell, &mut false).await?;
        }
        self.even_out(&plan).await?;
        // If somebody else has changed them again it is theirs to say when they are done.
        self.write_plan(&plan.at(Stage::Selling), None).await?;
        self.refresh(plan.fence()).await
    }

    /// Ends the sale: nothing more is taken, and orders are known for another day.
    ///
    /// # Errors
    /// As [`remaining`](Self::remaining).
    ///
    /// # Cancel safety
    /// It may be closed in part: close it again.
    pub async fn close(&self) -> Result<()> {
        loop {
            let plan =
                self.read_plan().await?.ok_or_else(|| self.denied("the sale is over and forgotten"))?;
            for number in 0..plan.segments.len() as u32 {
                self.ask(&plan, number, &Step::Close { keep: KEEP }, &mut false).await?;
            }
            // Segments that were added meanwhile are closed in the next round.
            if plan.stage == Stage::Closed || self.write_plan(&plan.at(Stage::Closed), Some(KEEP)).await? {
                return self.refresh(super::CLOSED).await;
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
